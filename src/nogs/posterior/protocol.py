"""`Posterior`: the protocol of a posterior, and arithmetic on its predictions.

Predictions are normalised log-probabilities in float32 of shape `[..., V, C]`: V label variables with C values each. A
categorical task has one variable of K values, a bernoulli task K variables of two values (absent, present).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Int, UInt8
from torch import Tensor

from nogs.data.task import LabelSpace
from nogs.glimpse import Grid

__all__ = ["CrossFit", "Posterior", "cross_entropy", "distinct", "entropy", "members"]


class Posterior(Protocol):
    """g_AVP(θ | y, l) for any set of glimpses, whose order and repetition don't matter.

    Images are uint8 on the posterior's device. A query gives its image by `index` (by default query i reads image i)
    and its glimpses by their top-left pixels. Glimpses whose `observed` is false are ignored, so that queries with
    t = 0..T glimpses fit into one call; with t = 0 the prediction is the prior.
    """

    @property
    def grid(self) -> Grid:
        """Image size, glimpse size and allowed locations."""

    @property
    def space(self) -> LabelSpace:
        """What is predicted."""

    def log_probabilities(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q T"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Float32[Tensor, "Q V C"]:
        """Predictions for Q queries; where `flip` is true, the image is mirrored first. T may be 0."""

    def look_ahead(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        candidates: Int[Tensor, "*#Q L 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q P"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Float32[Tensor, "Q L V C"]:
        """Predictions after each query's P glimpses and one more, at each of L candidate locations of the same image.

        This is the inner loop of the design (Eq. 6): the queries are N completions, `pixels` the locations observed so
        far, `candidates` (`[L, 2]`, or `[Q, L, 2]` if they differ) the locations under test. It equals
        `log_probabilities` on all Q x L pairs, but computes what pairs share only once. The glimpses are read from the
        completion itself, as in Eq. 5.
        """


@runtime_checkable
class CrossFit(Protocol):
    """A `Posterior` of K networks: the design evaluates a completion with a network that was not trained on it."""

    @property
    def members(self) -> Sequence[Posterior]:
        """The networks; number k was not trained on the images whose rank in the split 'posterior' is k modulo K."""

    @property
    def splits(self) -> str | None:
        """Fingerprint of the task that defines the images' ranks."""


def members(posterior: Posterior) -> Sequence[Posterior]:
    """The networks of a cross-fitted posterior; for any other, the posterior itself."""
    return posterior.members if isinstance(posterior, CrossFit) else (posterior,)


def entropy(log_probabilities: Float[Tensor, "*batch C"]) -> Float32[Tensor, "*batch"]:
    """Shannon entropy in nats (Eq. 1), from log-probabilities: a probability that underflows adds 0, not NaN."""
    log_probabilities = log_probabilities.float()
    return -(log_probabilities.exp() * log_probabilities.clamp(min=torch.finfo(torch.float32).min)).sum(-1)


def cross_entropy(
    log_probabilities: Float[Tensor, "*batch V C"], labels: Int[Tensor, "*batch V"]
) -> Float[Tensor, "*batch V"]:
    """Minus the log-probability of the true value of every variable, in nats."""
    return -log_probabilities.gather(-1, labels[..., None])[..., 0]


def distinct(pixels: Int[Tensor, "Q T 2"], observed: Bool[Tensor, "Q T"]) -> Bool[Tensor, "Q T"]:
    """`observed` without repetitions: true for the first of the observed glimpses at each location."""
    glimpses = pixels.shape[1]
    same = (pixels[:, :, None] == pixels[:, None]).all(-1) & observed[:, None]
    earlier = torch.ones(glimpses, glimpses, dtype=torch.bool, device=pixels.device).tril(-1)
    return observed & ~(same & earlier).any(-1)
