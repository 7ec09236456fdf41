"""`race`: locations run against each other on the same completions, and those that can't win any more drop out.

After m of N completions, the difference of a location's mean over all N to the leader's is known up to the completions
not seen yet: their mean is predicted by the seen ones', with the error of a sample without replacement. A location
stays while it may still be better than the leader by more than the tolerance. After the last completion nothing is left
to chance, so a race that nobody leaves early is the grid.
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

_NEIGHBOURS = 3  # as a corner has: so many must be known to say what a map is like
_NUGGET = 1e-3  # keeps the equations of a drawn map well posed
_BORROWED = 8.0  # degrees of freedom of a location's variance that it has from the others


class Race:
    """Successive elimination by paired differences to the leader.

    For each location that is better than the leader by more than `tolerance` (on all completions), the chance of being
    dropped is at most 1 - `confidence`, shared evenly among the rounds: Student's quantile of normal theory. Rounds see
    `first` completions, and then each `growth` times as many as the one before.

    With a `stride` above 1, a race is run first among every so many-th row and column, then among the neighbours of
    those left at half the stride, down to 1. There a location stands for what lies between it and its neighbours, which
    may be lower by as much as `slack` times its largest difference to one of them. With `refine`, the second race is at
    once at stride 1, among this share of the grid: where the map, drawn through the differences that the first race
    found (`drawn_through`), is lowest. `slack` is then of no use.

    An image is to cost no more than `share` of the grid's evaluations. Each round has an equal part of what is left of
    them; where that is too little for all, the least promising locations are dropped, and the image is not settled.
    Only the first round at each stride, and the winner's neighbours at the end, are had in any case.
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
        """See `LocationSearch`. What happens to an image does not depend on those beside it."""
        shape = entropies.posterior.grid.shape
        allowed = allowed.to(entropies.values.device)
        coarse = every(allowed, shape, self.stride)
        winner, alive, forced = self._race(entropies, coarse, allowed, self.stride)
        for stride in self.strides[1:]:
            if self.refine:
                alive = self._refined(entropies, coarse, allowed, winner)
            else:
                alive = neighbours(alive, shape, stride) & allowed
            winner, alive, cut_short = self._race(entropies, alive, allowed, stride)
            forced |= cut_short
        settled = (alive.sum(1) == 1) & ~forced
        if self.stride > 1:  # what fell behind in an early round costs nothing where it was tried on all completions
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
        return conclude(entropies, allowed, winner, settled=settled)

    def _refined(
        self,
        entropies: Entropies,
        coarse: Bool[Tensor, "B L"],
        allowed: Bool[Tensor, "B L"],
        winner: Int64[Tensor, " B"],
    ) -> Bool[Tensor, "B L"]:
        """The most promising locations by what the race among the coarse ones found, its winner always among them."""
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
        return (out | (coarse.sum(1, keepdim=True) < _NEIGHBOURS)) & allowed  # too few draw no map

    def _race(
        self, entropies: Entropies, alive: Bool[Tensor, "B L"], allowed: Bool[Tensor, "B L"], stride: int
    ) -> tuple[Int64[Tensor, " B"], Bool[Tensor, "B L"], Bool[Tensor, " B"]]:
        """One race: winners, the locations left, and whether some were left out for want of evaluations."""
        used = torch.tensor(entropies.used, device=alive.device)
        rough = torch.zeros_like(alive, dtype=torch.float64)
        forced = torch.zeros_like(used, dtype=torch.bool)
        winner = first_minimum(torch.where(alive, 0.0, torch.inf))
        rounds = self.rounds(entropies.weights.shape[1])
        races = len(self.strides) - self.strides.index(stride)
        for number, seen in enumerate(rounds, 1):
            racing = alive.sum(1) > 1
            if not racing.any():
                break
            entropies.fill(alive & racing[:, None], seen)
            judged = self._judge(entropies, alive, seen)
            if stride > 1:
                rough = roughness(judged.mean, entropies.posterior.grid.shape, stride, before=rough)
            winner = torch.where(racing, judged.leader, winner)
            stays = alive & (judged.gap - judged.bound - self.slack * rough < -self.tolerance)
            alive = torch.where(racing[:, None], stays.scatter(1, judged.leader[:, None], True), alive)
            if self.share < 1 and number < len(rounds):
                tried = entropies.tried.to(used.device)
                # what the winner will cost is kept back
                left = self.share * used * allowed.sum(1) - tried.sum(1) - (used - seen).clamp_min(0)
                cost = (used.clamp(max=rounds[number])[:, None] - tried).clamp_min(0)
                promise = (judged.gap - judged.error).scatter(1, winner[:, None], -torch.inf)
                kept = _affordable(alive, promise, cost, left / (len(rounds) * races - number))
                kept = kept.scatter(1, winner[:, None], True)
                forced |= (alive & ~kept).any(1)
                alive = kept
        return winner, alive, forced

    def _judge(self, entropies: Entropies, alive: Bool[Tensor, "B L"], seen: int) -> _Judged:
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
        # nothing hidden is nothing left to chance, even where one completion has no spread to speak of
        return _Judged(leader, mean, gap, error, torch.where(rest > 1e-9, quantile * error, 0.0))


@dataclass(frozen=True)
class _Judged:
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
    """A location's largest difference to the eight at `stride` from it; with few of them known, as `before`."""
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
    """How alike all locations are to some, and the factors of how alike those are: most images know the same ones."""
    points = torch.cartesian_prod(torch.arange(shape[0]), torch.arange(shape[1])).double()
    known = list(index)
    apart = torch.cdist(points, points[known]) * 5**0.5 / scale
    alike = (1 + apart + apart.square() / 3) * torch.exp(-apart)
    return alike, *torch.linalg.lu_factor(alike[known] + _NUGGET * torch.eye(len(known), dtype=torch.float64))


def _steadied(
    spread: Float64[Tensor, "B L"], alive: Bool[Tensor, "B L"], freedom: Float64[Tensor, "B 1"]
) -> Float64[Tensor, "B L"]:
    """Variances drawn to their mean over the racing locations: those of a few completions are often far too small."""
    known = torch.where(alive, spread, 0.0)
    common = known.sum(1, keepdim=True) / (alive.sum(1, keepdim=True) - 1).clamp_min(1)  # the leader's own is nothing
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
