"""Asking a posterior about many (query, candidate) pairs in any order, whatever it can share between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int, UInt8
from torch import Tensor

from nogs.glimpse import cut
from nogs.posterior.protocol import Posterior

__all__ = ["Preparing", "looking_ahead", "paste"]

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
