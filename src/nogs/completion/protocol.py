"""`Completions`, weighted whole images for each of some images, and `Completion`, the protocol of what makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

__all__ = ["Completion", "Completions"]


@dataclass(frozen=True)
class Completions:
    """Up to N unique completions of each of B images.

    Completion n of image b is `pool[index[b, n]]`, mirrored where `flipped[b, n]`: `cut(pool, pixels, index=...,
    flip=...)` takes glimpses of completions without copying an image. Entries that are not used have weight 0.
    """

    pool: UInt8[Tensor, "M H W 3"]
    index: Int64[Tensor, "B N"]
    flipped: Bool[Tensor, "B N"]
    weights: Float[Tensor, "B N"]  # sum to 1 over N
    rows: Int64[Tensor, "B N"]  # in the bank; -1 where an entry is not used, or where there is no bank
    effective: Float[Tensor, " B"]  # effective number of distinct images before the last resampling: 1 / sum of w²
    proposed: Float[Tensor, " B"]  # the same for the proposal over the whole bank; NaN where there is none
    temperature: Float[Tensor, " B"]  # v of the proposal; NaN where there is none
    # index of the shown training image in `source_rows`, -1 where there is none; None where nothing is known
    sources: Int64[Tensor, "B N"] | None = None
    # a sampler's diagnostics for each image, such as the share of accepted steps
    diagnostics: Mapping[str, Float[Tensor, " B"]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.index)

    def folds(self, number: int) -> Int64[Tensor, "B N"]:
        """Which of K = `number` cross-fitted networks evaluates each completion: the one not trained on its source.

        A completion without a source may go to any network. Its row or entry chooses one, independently of the batch.
        """
        entries = torch.arange(self.index.shape[1], device=self.rows.device)
        chosen = torch.where(self.rows >= 0, self.rows, entries)
        if self.sources is not None:
            chosen = torch.where(self.sources >= 0, self.sources, chosen)
        return chosen % number

    def images(self, b: int) -> UInt8[Tensor, "n H W 3"]:
        """The unique completions of image b, as pictures."""
        used = self.weights[b] > 0
        pictures = self.pool[self.index[b, used]]
        return torch.where(self.flipped[b, used][:, None, None, None], pictures.flip(2), pictures)

    def weights_of(self, b: int) -> Float[Tensor, " n"]:
        """Their weights."""
        return self.weights[b, self.weights[b] > 0]


@runtime_checkable
class Completion(Protocol):
    """r(I | y, l): plausible whole images given the glimpses so far."""

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change a completion."""

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """Completions of `images` seen at the top-left `pixels` only; T = 0 draws from the prior.

        The outcome for an image depends on the seed, its id and T, and not on the other images of the batch.
        """
