"""Asking a posterior about many (query, candidate) pairs in any order, whatever it can share between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int, Int64, UInt8
from torch import Tensor

from nogs.glimpse import cut
from nogs.posterior.crossfit import CrossFitted
from nogs.posterior.protocol import Posterior

__all__ = ["Answers", "Preparing", "looking_ahead", "looking_apart", "paste"]

Answers = Callable[[Int[Tensor, " M"], Int[Tensor, "M 2"]], Float32[Tensor, "M V C"]]
"""Answers to queries by their numbers, each after one more glimpse at its candidate."""


@runtime_checkable
class Preparing(Protocol):
    """A posterior that computes once what all candidates of a query share, and keeps it: `NetworkPosterior` does."""

    def prepare(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q P"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
        truth: tuple[UInt8[Tensor, "M H W 3"], Int[Tensor, " Q"]] | None = None,
    ) -> Any:
        """Something to extend."""

    def extend(
        self, prepared: Any, rows: Int[Tensor, " M"], candidates: Int[Tensor, "M 2"]
    ) -> Float32[Tensor, "M V C"]:
        """Answers to some of the prepared queries, each after one more glimpse."""


def looking_ahead(
    posterior: Posterior,
    images: UInt8[Tensor, "N H W 3"],
    pixels: Int[Tensor, "Q P 2"],
    *,
    index: Int[Tensor, " Q"],
    flip: Bool[Tensor, " Q"],
    truth: tuple[UInt8[Tensor, "M H W 3"], Int[Tensor, " Q"]] | None = None,
) -> Answers:
    """Q queries about images seen at `pixels`, ready for one more glimpse.

    With `truth`, other images and the row of each query among them, the earlier glimpses show those; so does, of a
    candidate that overlaps them, the part that was seen.
    """
    if isinstance(posterior, Preparing):
        prepared = posterior.prepare(images, pixels, index=index, flip=flip, truth=truth)
        return lambda rows, candidates: posterior.extend(prepared, rows, candidates)

    def answers(rows: Tensor, candidates: Tensor) -> Tensor:
        where, last = pixels[rows], candidates[:, None]
        if truth is None:
            found = posterior.look_ahead(images, where, last, index=index[rows], flip=flip[rows])
        else:
            pictures = images[index[rows]]
            pictures = torch.where(flip[rows][:, None, None, None], pictures.flip(2), pictures)
            shown = paste(pictures, truth[0][truth[1][rows]], where, glimpse=posterior.grid.glimpse)
            found = posterior.look_ahead(shown, where, last)
        return found[:, 0]

    return answers


def looking_apart(
    posterior: Posterior,
    images: UInt8[Tensor, "N H W 3"],
    pixels: Int[Tensor, "Q P 2"],
    *,
    fold: Int64[Tensor, " Q"],
    index: Int[Tensor, " Q"],
    flip: Bool[Tensor, " Q"],
    truth: tuple[UInt8[Tensor, "M H W 3"], Int[Tensor, " Q"]] | None = None,
) -> list[tuple[Answers, Int64[Tensor, " Q"] | None]]:
    """As `looking_ahead`, with each query prepared by the network of a cross-fitted posterior that its `fold` names.

    Beside a network's answers is the number that each query has among its own, -1 for others'; None: all are its own.
    """
    if not isinstance(posterior, CrossFitted):
        return [(looking_ahead(posterior, images, pixels, index=index, flip=flip, truth=truth), None)]
    out: list[tuple[Answers, Tensor | None]] = []
    for number, member in enumerate(posterior.members):
        own = (fold == number).nonzero()[:, 0]
        if not len(own):
            continue
        among = torch.full_like(fold, -1)
        among[own] = torch.arange(len(own), device=own.device)
        part = None if truth is None else (truth[0], truth[1][own])
        answers = looking_ahead(member, images, pixels[own], index=index[own], flip=flip[own], truth=part)
        out.append((answers, among))
    return out


def paste(
    pictures: UInt8[Tensor, "Q H W 3"], images: UInt8[Tensor, "Q H W 3"], pixels: Int[Tensor, "Q P 2"], *, glimpse: int
) -> UInt8[Tensor, "Q H W 3"]:
    """Copies of `pictures` that show `images` in their glimpses."""
    out = pictures.clone()
    steps = torch.arange(glimpse, device=pixels.device)
    rows, columns = pixels[..., 0, None] + steps, pixels[..., 1, None] + steps
    picture = torch.arange(len(out), device=pixels.device)[:, None, None, None]
    seen = cut(images, pixels, glimpse=glimpse)
    out[picture, rows[..., :, None], columns[..., None, :]] = seen
    return out
