"""`LocationSearch`: how the location of least expected posterior entropy is found; and `grid`, the paper's algorithm 1.

A search asks for entropies, and concludes with a `Choice`: the location, the map that it computed, what that cost, and
how far behind the runner-up is. Equally good locations are told apart by their index.
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


@dataclass(frozen=True)
class Choice:
    """The next location of each of B images. Whatever the search, the chosen one was tried on all completions.

    `margin` is how much larger the runner-up's expected posterior entropy is, with the standard error of that paired
    difference; `settled` is false where the search gave up before its own rule said that it was done.
    """

    location: Int64[Tensor, " B"]
    map: EPEMap
    runner_up: Int64[Tensor, " B"]
    margin: Float64[Tensor, " B"]
    margin_error: Float64[Tensor, " B"]
    settled: Bool[Tensor, " B"]

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
        """Chance, in normal theory, that the runner-up is not better; a half where the completions can't tell."""
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
        winner = first_minimum(means(entropies, allowed))
        return conclude(entropies, allowed, winner, settled=torch.ones_like(winner, dtype=torch.bool))


def means(entropies: Entropies, among: Bool[Tensor, "B L"]) -> Float64[Tensor, "B L"]:
    """Mean entropies (Eq. 6) of candidates that were tried on all completions; infinite elsewhere."""
    among = among.to(entropies.values.device)
    out = torch.full(among.shape, torch.inf, dtype=torch.float64, device=among.device)
    for b, used in enumerate(entropies.used):
        values = entropies.values[b, :used][:, among[b]].double()
        out[b, among[b]] = entropies.weights[b, :used] @ values / entropies.weights[b, :used].sum()
    return out


def conclude(
    entropies: Entropies, allowed: Bool[Tensor, "B L"], winner: Int[Tensor, " B"], *, settled: Bool[Tensor, " B"]
) -> Choice:
    """Try the winners on the completions that they were not tried on yet, and sum up what is known."""
    entropies.fill(torch.zeros_like(allowed).scatter(1, winner[:, None].to(allowed.device), True))
    estimates, errors, rivals, margins = [], [], [], []
    for b, (location, used) in enumerate(zip(winner.tolist(), entropies.used)):
        values, weights = entropies.values[b, :used], entropies.weights[b, :used]
        found, error = estimate(values, weights, leader=location, most=entropies.most())
        rest = torch.where(allowed[b].to(found.device), found, torch.nan)
        rest[location] = torch.nan
        rival = int(first_minimum(rest)) if (~rest.isnan()).any() else location
        rivals.append(rival)
        margins.append(_margin(values, weights, location, rival))
        estimates.append(found)
        errors.append(error)
    device = entropies.values.device
    margin, margin_error = torch.tensor(margins, dtype=torch.float64, device=device).unbind(1)
    return Choice(
        winner.to(device),
        EPEMap(torch.stack(estimates), torch.stack(errors), entropies.tried.to(device)),
        torch.tensor(rivals, device=device),
        margin,
        margin_error,
        settled.to(device),
    )


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


def _margin(values: Float[Tensor, "N L"], weights: Tensor, winner: int, rival: int) -> tuple[float, float]:
    if rival == winner:
        return float("inf"), 0.0
    both = ~values[:, rival].isnan()
    gap, error = paired(values[both][:, [rival]], values[both][:, [winner]], weights[both])
    return float(gap), float(error)
