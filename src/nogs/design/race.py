"""`race`: locations are compared on the same completions, and those that can no longer win are dropped.

After m of N completions, the difference of a location's mean over all N to the leader's is known except for the unseen
completions. Their mean is predicted by that of the seen ones, with the error of a sample without replacement. A
location stays while it may still be better than the leader by more than the tolerance. After the last completion
nothing is uncertain, so a race that drops no location early is the grid search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from nogs.design.entropies import Entropies
from nogs.design.epe import first_minimum
from nogs.design.search import Choice, conclude, every, means, neighbours

__all__ = ["Race", "drawn_through", "student_quantile"]

_NEIGHBOURS = 3  # a corner has as many: with fewer values known, a map's shape is not estimated
_NUGGET = 1e-3  # keeps the equations of an interpolated map well conditioned
_BORROWED = 8.0  # degrees of freedom that a location's variance takes from the others


class Race:
    """Successive elimination by paired differences to the leader.

    A location that is better than the leader by more than `tolerance` (on all completions) is dropped with probability
    at most 1 - `confidence`. The rounds share this evenly, by Student's quantile under normality. The first round sees
    `first` completions, and each later one `growth` times as many as the one before.

    With a `stride` above 1, the first race is among every `stride`-th row and column. The next ones are among the
    neighbours of those left at half the stride, down to 1. A location then represents the map up to its neighbours,
    where it may be lower by as much as `slack` times its largest difference to one of them. With `refine`, the second
    race is already at stride 1, among this share of the grid: where a map interpolated from the first race's
    differences (`drawn_through`) is lowest. `slack` is then not used.

    An image should cost at most `share` of the grid's evaluations, and each round has an equal part of what is left.
    Where that is too little for all, the least promising locations are dropped. The first round at each stride, and the
    winner's neighbours at the end, are always evaluated.
    """

    def __init__(
        self,
        *,
        confidence: float = 0.95,
        tolerance: float = 0.002,
        first: int = 8,
        growth: float = 1.5,
        stride: int = 1,
        slack: float = 0.75,
        share: float = 1.0,
        refine: float | None = None,
    ) -> None:
        self.confidence, self.tolerance, self.first, self.growth = confidence, tolerance, first, growth
        self.stride, self.slack, self.share, self.refine = stride, 0.0 if refine else slack, share, refine

    def rounds(self, completions: int) -> list[int]:
        """Completions seen after each round."""
        out, seen = [], float(self.first)
        while seen < completions:
            out.append(int(seen))
            seen = max(seen * self.growth, seen + 1)
        return [*out, completions]

    @property
    def strides(self) -> list[int]:
        """The strides of the races, one after the other."""
        out = [self.stride]
        while out[-1] > 1:
            out.append(1 if self.refine else out[-1] // 2)
        return out

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """See `LocationSearch`. The choice for an image does not depend on the others."""
        shape = entropies.posterior.grid.shape
        allowed = allowed.to(entropies.values.device)
        coarse = every(allowed, shape, self.stride)
        winner, alive = self._race(entropies, coarse, allowed, self.stride)
        for stride in self.strides[1:]:
            if self.refine:
                alive = self._refined(entropies, coarse, allowed, winner)
            else:
                alive = neighbours(alive, shape, stride) & allowed
            winner, alive = self._race(entropies, alive, allowed, stride)
        if self.stride > 1:  # dropped locations count as well where they were tried on all completions
            entropies.fill(_only(winner, alive))
            tried = entropies.tried.to(allowed.device)
            winner = first_minimum(means(entropies, allowed & (tried == tried.amax(1, keepdim=True))))
            joined = tried > 0
        while self.stride > 1:  # a neighbour that never raced may still be better
            here = _only(winner, alive)
            near = here | (neighbours(here, shape, 1) & allowed & ~joined)
            if not (near & ~here).any():
                break
            entropies.fill(near)
            joined |= near
            winner = first_minimum(means(entropies, near))
        return conclude(entropies, allowed, winner)

    def _refined(
        self,
        entropies: Entropies,
        coarse: Bool[Tensor, "B L"],
        allowed: Bool[Tensor, "B L"],
        winner: Int64[Tensor, " B"],
    ) -> Bool[Tensor, "B L"]:
        """The most promising locations according to the race among the coarse ones, including its winner."""
        columns = coarse.any(0).nonzero()[:, 0]
        values = entropies.values[:, :, columns].double()
        leader = entropies.values.gather(2, winner[:, None, None].expand(-1, values.shape[1], 1)).double()
        known = ~values.isnan() & (entropies.weights > 0)[..., None]
        weights = torch.where(known, entropies.weights[..., None], 0.0)
        gaps = torch.where(known, values - leader, 0.0)
        gap = ((weights * gaps).sum(1) / weights.sum(1)).cpu()  # each on the completions that it was tried on
        tried, known_at, shape = coarse[:, columns].cpu(), columns.cpu(), entropies.posterior.grid.shape
        drawn = torch.zeros(coarse.shape, dtype=torch.float64)
        for b, here in enumerate(tried):
            if int(here.sum()) >= _NEIGHBOURS:
                drawn[b] = drawn_through(gap[b, here], known_at[here], shape, scale=self.stride)
        lowest = torch.where(allowed, drawn.to(allowed.device), torch.inf).sort(dim=1, stable=True).indices
        count = math.ceil((self.refine or 1) * lowest.shape[1])
        out = _only(winner, allowed).scatter(1, lowest[:, :count], True)
        return (out | (coarse.sum(1, keepdim=True) < _NEIGHBOURS)) & allowed  # too few determine no map

    def _race(
        self, entropies: Entropies, alive: Bool[Tensor, "B L"], allowed: Bool[Tensor, "B L"], stride: int
    ) -> tuple[Int64[Tensor, " B"], Bool[Tensor, "B L"]]:
        """One race: winners, and the locations left."""
        used = torch.tensor(entropies.used, device=alive.device)
        rough = torch.zeros_like(alive, dtype=torch.float64)
        winner = first_minimum(torch.where(alive, 0.0, torch.inf))
        rounds = self.rounds(entropies.weights.shape[1])
        races = len(self.strides) - self.strides.index(stride)
        for number, seen in enumerate(rounds, 1):
            racing = alive.sum(1) > 1
            if not racing.any():
                break
            entropies.fill(alive & racing[:, None], seen)
            standings = self._assess(entropies, alive, seen)
            if stride > 1:
                rough = roughness(standings.mean, entropies.posterior.grid.shape, stride, before=rough)
            winner = torch.where(racing, standings.leader, winner)
            stays = alive & (standings.gap - standings.bound - self.slack * rough < -self.tolerance)
            alive = torch.where(racing[:, None], stays.scatter(1, standings.leader[:, None], True), alive)
            if self.share < 1 and number < len(rounds):
                tried = entropies.tried.to(used.device)
                # the winner's remaining cost is reserved
                left = self.share * used * allowed.sum(1) - tried.sum(1) - (used - seen).clamp_min(0)
                cost = (used.clamp(max=rounds[number])[:, None] - tried).clamp_min(0)
                promise = (standings.gap - standings.error).scatter(1, winner[:, None], -torch.inf)
                kept = _affordable(alive, promise, cost, left / (len(rounds) * races - number))
                alive = kept.scatter(1, winner[:, None], True)
        return winner, alive

    def _assess(self, entropies: Entropies, alive: Bool[Tensor, "B L"], seen: int) -> _Standings:
        """What is known after `seen` completions."""
        weights = entropies.weights
        shown, hidden = weights[:, :seen], weights[:, seen:]
        mass = shown.sum(1, keepdim=True)
        share = shown / mass  # [B, m]
        values = torch.where((shown > 0)[..., None], entropies.values[:, :seen], 0.0)
        mean = (share[:, None] @ values.double())[:, 0]
        leader = first_minimum(torch.where(alive, mean, torch.inf))
        gaps = values.double() - values.gather(2, leader[:, None, None].expand(-1, seen, 1)).double()
        gap = (share[:, None] @ gaps)[:, 0]
        squares = share.square().sum(1, keepdim=True)
        spread = (share[:, None] @ (gaps - gap[:, None]).square())[:, 0] / (1 - squares).clamp_min(1e-12)
        freedom = 1 / squares - 1
        spread = _steadied(spread, alive, freedom)
        # the prediction's variance: that of the mean of the hidden ones, and that of the shown ones' mean
        rest = (1 - mass).clamp_min(0)
        error = (spread * (hidden.square().sum(1, keepdim=True) + rest.square() * squares)).sqrt()
        parts = len(self.strides) * len(self.rounds(weights.shape[1]))
        quantile = student_quantile(self.confidence, freedom=freedom + _BORROWED, parts=parts)
        # with nothing hidden nothing is uncertain, even where a single completion has no variance
        return _Standings(leader, mean, gap, error, torch.where(rest > 1e-9, quantile * error, 0.0))


@dataclass(frozen=True)
class _Standings:
    """Each image's leader; means over the completions seen (NaN where not all were); and, against the leader, the
    difference, its standard error and how much it may still fall."""

    leader: Int64[Tensor, " B"]
    mean: Float64[Tensor, "B L"]
    gap: Float64[Tensor, "B L"]
    error: Float64[Tensor, "B L"]
    bound: Float64[Tensor, "B L"]


def roughness(
    mean: Float64[Tensor, "B L"], shape: tuple[int, int], stride: int, *, before: Float64[Tensor, "B L"]
) -> Float64[Tensor, "B L"]:
    """A location's largest difference to the eight at `stride` from it; `before` where too few of them are known."""
    padded = F.pad(mean.reshape(-1, *shape), (stride,) * 4, value=torch.nan)
    shifts = [(down, right) for down in (0, stride, 2 * stride) for right in (0, stride, 2 * stride)]
    moved = torch.stack([padded[:, r : r + shape[0], c : c + shape[1]].flatten(1) for r, c in shifts])
    apart = (moved - mean).abs()
    known = (~apart.isnan()).sum(0) - 1  # itself
    return torch.where(known >= _NEIGHBOURS, apart.nan_to_num(nan=0.0).amax(0), before)


def drawn_through(
    heights: Float64[Tensor, " K"], index: Int64[Tensor, " K"], shape: tuple[int, int], *, scale: float
) -> Float64[Tensor, " L"]:
    """A smooth map of `shape` through heights at some locations: the mean of a Gaussian process whose correlation
    (Matern 5/2) falls with the distance in units of `scale`."""
    alike, factors, pivots = _surface(tuple(index.tolist()), shape, scale)
    mean = heights.mean()
    bent = torch.linalg.lu_solve(factors, pivots, (heights - mean)[:, None])[:, 0]
    return (mean + alike @ bent).scatter(0, index, heights)


@lru_cache(maxsize=16)
def _surface(index: tuple[int, ...], shape: tuple[int, int], scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Correlations of all locations with some, and the factors of those of the some; most images share them."""
    points = torch.cartesian_prod(torch.arange(shape[0]), torch.arange(shape[1])).double()
    known = list(index)
    apart = torch.cdist(points, points[known]) * 5**0.5 / scale
    alike = (1 + apart + apart.square() / 3) * torch.exp(-apart)
    return alike, *torch.linalg.lu_factor(alike[known] + _NUGGET * torch.eye(len(known), dtype=torch.float64))


def _steadied(
    spread: Float64[Tensor, "B L"], alive: Bool[Tensor, "B L"], freedom: Float64[Tensor, "B 1"]
) -> Float64[Tensor, "B L"]:
    """Variances shrunk to their mean over the racing locations: those of a few completions are often far too small."""
    known = torch.where(alive, spread, 0.0)
    common = known.sum(1, keepdim=True) / (alive.sum(1, keepdim=True) - 1).clamp_min(1)  # the leader's own is zero
    return (freedom * spread + _BORROWED * common) / (freedom + _BORROWED)


def _affordable(
    alive: Bool[Tensor, "B L"], promise: Float64[Tensor, "B L"], cost: Int64[Tensor, "B L"], left: Float64[Tensor, " B"]
) -> Bool[Tensor, "B L"]:
    """The most promising of the racing locations, as many as their costs allow."""
    order = torch.where(alive, promise, torch.inf).sort(dim=1, stable=True).indices
    spent = torch.where(alive, cost, 0).gather(1, order).cumsum(1)
    return alive & torch.zeros_like(alive).scatter(1, order, spent <= left[:, None])


def _only(winner: Int64[Tensor, " B"], like: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    return torch.zeros_like(like).scatter(1, winner[:, None], True)


def student_quantile(confidence: float, *, freedom: Float64[Tensor, "*batch"], parts: int) -> Float64[Tensor, "*batch"]:
    """The quantile of Student's distribution beyond which lies (1 - confidence) / parts (Wallace's approximation)."""
    tail = torch.tensor((1 - confidence) / parts, dtype=torch.float64)
    normal = -torch.special.ndtri(tail).to(freedom.device)
    adjusted = normal * (8 * freedom + 3) / (8 * freedom + 1)
    return (freedom * torch.expm1(adjusted.square() / freedom.clamp_min(1e-3))).sqrt()
