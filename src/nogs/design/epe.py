"""Expected posterior entropy (Eq. 6) from posterior entropies on weighted completions: estimates and their errors.

Every location is tried on the same completions, so the difference of two locations is paired, and its error is far
smaller than that of either. A location that was tried on only some of the completions is estimated by its difference to
one that was tried on all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nogs.glimpse import Grid

__all__ = ["TIE", "EPEMap", "estimate", "first_minimum", "paired", "weighted"]

TIE = 1e-6
"""Nats below which two estimates count as equal: less than float32 can tell apart."""


@dataclass(frozen=True)
class EPEMap:
    """The estimate (nats), its standard error and the number of completions, for L locations of each of B images.

    The error is that of the estimate as a sample of completions, not of the posterior or the completion method.
    Locations that were not tried have NaN and 0.
    """

    estimate: Float[Tensor, "B L"]
    error: Float[Tensor, "B L"]
    tried: Int[Tensor, "B L"]

    @property
    def evaluations(self) -> Int[Tensor, " B"]:
        """Posterior evaluations that each image's map took."""
        return self.tried.sum(-1)

    def on(self, grid: Grid, b: int) -> Float[Tensor, "R S"]:
        """The estimates of image b as a picture of the grid."""
        return self.estimate[b].reshape(grid.shape)


def weighted(
    values: Float[Tensor, "*batch N L"], weights: Float[Tensor, "*batch N"]
) -> tuple[Float[Tensor, "*batch L"], Float[Tensor, "*batch L"]]:
    """Weighted mean over N (Eq. 6; equal weights are the paper's) and its standard error.

    The error is that of a ratio of weighted sums, sqrt(Σ w² (x - mean)² / (1 - Σ w²)): with equal weights s / √N. A
    completion that was drawn several times counts as one of more weight. The error of a single one is NaN.
    """
    values, w = values.double(), _normalised(weights)[..., None]
    mean = (w * values).sum(-2)
    spread = (w * (values - mean[..., None, :])).square().sum(-2)
    return mean, (spread / _freedom(w.square().sum(-2))).sqrt()


def paired(
    values: Float[Tensor, "*batch N L"], other: Float[Tensor, "*batch N 1"], weights: Float[Tensor, "*batch N"]
) -> tuple[Float[Tensor, "*batch L"], Float[Tensor, "*batch L"]]:
    """How much larger the mean of `values` is than that of `other` on the same completions, and the error of that."""
    return weighted(values.double() - other.double(), weights)


def estimate(
    values: Float[Tensor, "*batch N L"],
    weights: Float[Tensor, "*batch N"],
    *,
    leader: int | Int[Tensor, "*batch"],
    most: float = math.inf,
) -> tuple[Float[Tensor, "*batch L"], Float[Tensor, "*batch L"]]:
    """Estimates and errors of L locations from a table with NaN where a location was not tried.

    `leader` was tried on all completions of positive weight. Another location's estimate is the leader's mean plus
    their paired difference where both were tried, which on all completions is its own mean. `most` is the largest
    possible entropy. A location that was tried on one completion only has the largest possible error, half of `most`.
    """
    known, values = ~values.isnan(), values.nan_to_num().double()
    every = _normalised(weights)[..., None]
    own = every * known
    own = own / own.sum(-2, keepdim=True)
    chosen = torch.as_tensor(leader, device=values.device)[..., None, None]
    lead = values.gather(-1, chosen.expand(*values.shape[:-1], 1))
    gap = torch.where(known, values - lead, 0.0)
    level, difference = (every * lead).sum(-2), (own * gap).sum(-2)
    residual = every * (lead - level[..., None, :]) + own * (gap - difference[..., None, :])
    error = (residual.square().sum(-2) / _freedom(own.square().sum(-2))).sqrt().nan_to_num(nan=most / 2)
    tried = known.any(-2)
    return torch.where(tried, level + difference, torch.nan), torch.where(tried, error, torch.nan)


def first_minimum(values: Float[Tensor, "*batch L"]) -> Int[Tensor, "*batch"]:
    """Index of the least value; of values within `TIE` of each other, the first. NaN and infinity don't count."""
    values = values.nan_to_num(nan=torch.inf)
    near = values <= values.amin(-1, keepdim=True) + TIE
    index = torch.arange(values.shape[-1], device=values.device)
    return torch.where(near, index, len(index)).amin(-1)


def _normalised(weights: Tensor) -> Tensor:
    weights = weights.double()
    return weights / weights.sum(-1, keepdim=True)


def _freedom(squares: Tensor) -> Tensor:
    """1 - Σ w², or NaN where it is only a rounding error, as for a single completion."""
    left = 1 - squares
    return torch.where(left > 1e-12, left, torch.nan)
