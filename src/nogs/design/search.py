"""`LocationSearch`: how the location of least expected posterior entropy is found; and `grid`, the paper's algorithm 1.

A search requests entropies, and returns a `Choice`: the location, the map that it computed, its cost, and the margin to
the runner-up. Of equally good locations the one of smallest index is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from nogs.design.entropies import Entropies
from nogs.design.epe import EPEMap, estimate, first_minimum, paired

__all__ = ["Choice", "GridSearch", "LocationSearch", "conclude", "every", "means", "neighbours"]

_SUMMED = 1 << 24  # entropies that are summed at once, in float64


@dataclass(frozen=True)
class Choice:
    """The next location of each of B images. Whatever the search, the chosen one was tried on all completions.

    `margin` is how much larger the runner-up's expected posterior entropy is, with the standard error of that paired
    difference.
    """

    location: Int64[Tensor, " B"]
    map: EPEMap
    margin: Float64[Tensor, " B"]
    margin_error: Float64[Tensor, " B"]

    @property
    def epe(self) -> Float64[Tensor, " B"]:
        """Expected posterior entropy of the chosen location, in nats."""
        return self.map.estimate.gather(1, self.location[:, None])[:, 0]

    @property
    def error(self) -> Float64[Tensor, " B"]:
        """Its standard error."""
        return self.map.error.gather(1, self.location[:, None])[:, 0]

    @property
    def sure(self) -> Float64[Tensor, " B"]:
        """Probability, under normality, that the runner-up is not better; a half where the completions can't tell."""
        return torch.special.ndtr(self.margin / self.margin_error).nan_to_num(nan=0.5)


class LocationSearch(Protocol):
    """Finds the least expected posterior entropy among the allowed candidates of some images."""

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """The choice for each image; each has at least one allowed candidate."""


class GridSearch:
    """Algorithm 1: every location on every completion."""

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """See `LocationSearch`."""
        entropies.fill(allowed)
        return conclude(entropies, allowed, first_minimum(means(entropies, allowed)))


def means(entropies: Entropies, among: Bool[Tensor, "B L"]) -> Float64[Tensor, "B L"]:
    """Mean entropies (Eq. 6) of candidates that were tried on all completions; infinite elsewhere."""
    among = among.to(entropies.values.device)
    out = torch.full(among.shape, torch.inf, dtype=torch.float64, device=among.device)
    for some in _portions(entropies):
        weights = entropies.weights[some]
        counts = (weights > 0)[..., None] & among[some, None]
        values = torch.where(counts, entropies.values[some], 0.0).double()
        out[some] = (weights[..., None] * values).sum(1) / weights.sum(1, keepdim=True)
    return out.masked_fill_(~among, torch.inf)


def conclude(entropies: Entropies, allowed: Bool[Tensor, "B L"], winner: Int[Tensor, " B"]) -> Choice:
    """Try the winners on the completions that they were not tried on yet, and summarise."""
    device = entropies.values.device
    winner, allowed = winner.to(device), allowed.to(device)
    entropies.fill(torch.zeros_like(allowed).scatter(1, winner[:, None], True))
    parts = []
    for some in _portions(entropies):
        values, weights, best = entropies.values[some], entropies.weights[some], winner[some]
        found, error = estimate(values, weights, leader=best, most=entropies.most())
        rest = torch.where(allowed[some], found, torch.nan).scatter(1, best[:, None], torch.nan)
        rival = torch.where(rest.isnan().all(1), best, first_minimum(rest))
        parts.append((found, error, *_margin(values, weights, best, rival)))
    found, error, margin, margin_error = (torch.cat(part) for part in zip(*parts))
    return Choice(winner, EPEMap(found, error, entropies.tried.to(device)), margin, margin_error)


def neighbours(mask: Bool[Tensor, "B L"], shape: tuple[int, int], stride: int) -> Bool[Tensor, "B L"]:
    """`mask`, and the eight neighbours of its locations at `stride` rows and columns from them."""
    picture = mask.reshape(-1, *shape)
    out, (rows, columns) = picture.clone(), shape
    for down in (-stride, 0, stride):
        for right in (-stride, 0, stride):
            source = picture[:, max(0, -down) : rows - max(0, down), max(0, -right) : columns - max(0, right)]
            out[:, max(0, down) : rows + min(0, down), max(0, right) : columns + min(0, right)] |= source
    return out.flatten(1)


def every(allowed: Bool[Tensor, "B L"], shape: tuple[int, int], stride: int) -> Bool[Tensor, "B L"]:
    """The allowed ones of every `stride`-th row and column and of the last; all allowed ones where none of these is."""
    coarse = torch.zeros(shape, dtype=torch.bool, device=allowed.device)
    rows, columns = (sorted({*range(0, size, stride), size - 1}) for size in shape)
    coarse[torch.tensor(rows)[:, None], torch.tensor(columns)] = True
    wanted = coarse.flatten() & allowed
    return torch.where(wanted.any(1, keepdim=True), wanted, allowed)


def _margin(
    values: Float[Tensor, "B N L"], weights: Float[Tensor, "B N"], winner: Int[Tensor, " B"], rival: Int[Tensor, " B"]
) -> tuple[Float64[Tensor, " B"], Float64[Tensor, " B"]]:
    """How much larger the rivals' means are, and the error of that, on the completions that both were tried on."""
    pair = torch.stack([rival, winner], 1)[:, None].expand(-1, values.shape[1], 2)
    other, best = values.gather(2, pair).unbind(2)
    both = ~(other.isnan() | best.isnan())
    other, best = (torch.where(both, part, 0.0)[..., None] for part in (other, best))
    gap, error = paired(other, best, weights * both)
    alone = rival == winner
    return torch.where(alone, torch.inf, gap[:, 0]), torch.where(alone, 0.0, error[:, 0])


def _portions(entropies: Entropies) -> list[slice]:
    """Images whose entropies are summed up together: so many that the temporary numbers stay few."""
    number, completions, locations = entropies.values.shape
    size = max(1, _SUMMED // (completions * locations))
    return [slice(start, start + size) for start in range(0, number, size)]
