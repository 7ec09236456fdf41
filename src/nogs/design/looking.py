"""Evaluating a posterior on many (query, candidate) pairs in any order, with as much shared work as possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float32, Int, Int64, UInt8
from torch import Tensor

from nogs.posterior.protocol import Posterior, members

__all__ = ["Answers", "Preparing", "looking_ahead", "looking_apart"]

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
) -> Answers:
    """Q queries about images seen at `pixels`, ready for one more glimpse."""
    if isinstance(posterior, Preparing):
        prepared = posterior.prepare(images, pixels, index=index, flip=flip)
        return lambda rows, candidates: posterior.extend(prepared, rows, candidates)

    def answers(rows: Tensor, candidates: Tensor) -> Tensor:
        found = posterior.look_ahead(images, pixels[rows], candidates[:, None], index=index[rows], flip=flip[rows])
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
) -> list[tuple[Answers, Int64[Tensor, " Q"] | None]]:
    """As `looking_ahead`, with each query prepared by the network of a cross-fitted posterior that its `fold` names.

    Each network's answers come with the number of every query among its own, -1 for others'; None: all are its own.
    """
    networks = members(posterior)
    if len(networks) == 1:
        return [(looking_ahead(networks[0], images, pixels, index=index, flip=flip), None)]
    out: list[tuple[Answers, Tensor | None]] = []
    for number, member in enumerate(networks):
        own = (fold == number).nonzero()[:, 0]
        if not len(own):
            continue
        among = torch.full_like(fold, -1)
        among[own] = torch.arange(len(own), device=own.device)
        answers = looking_ahead(member, images, pixels[own], index=index[own], flip=flip[own])
        out.append((answers, among))
    return out
