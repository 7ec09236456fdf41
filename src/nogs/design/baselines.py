"""Plain ways to look at an image, against which sequences are judged: at random, from the centre, the salient first."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nogs.glimpse import Grid
from nogs.runtime.streams import key, uniform

__all__ = ["apart", "centre_out", "random_locations", "salient_first"]


def random_locations(grid: Grid, ids: Sequence[str], *, glimpses: int, draws: int, seed: int) -> Int64[Tensor, "R n T"]:
    """R times T independent locations for each image, uniform on the grid, by the image's id."""
    counter = torch.arange(draws * glimpses)
    each = [uniform(key(seed, "design/random locations", id), counter) for id in ids]
    return (torch.stack(each) * len(grid)).long().reshape(len(ids), draws, glimpses).transpose(0, 1)


def centre_out(grid: Grid, *, glimpses: int) -> Int64[Tensor, " T"]:
    """The locations nearest to the image's centre that don't overlap."""
    middle = torch.tensor([(grid.height - grid.glimpse) / 2, (grid.width - grid.glimpse) / 2])
    return apart(grid, (grid.pixels - middle).square().sum(1), glimpses=glimpses)


def salient_first(grid: Grid, epe: Float[Tensor, " L"], *, glimpses: int) -> Int64[Tensor, " T"]:
    """The locations of least expected posterior entropy when nothing was seen, which don't overlap."""
    return apart(grid, epe, glimpses=glimpses)


def apart(grid: Grid, cost: Float[Tensor, " L"], *, glimpses: int) -> Int64[Tensor, " T"]:
    """The cheapest location, then the cheapest that overlaps none before it, ...; when all overlap, any may be next."""
    order = cost.argsort(stable=True).tolist()
    chosen: list[int] = []
    while len(chosen) < glimpses:
        free = [place for place in order if place not in chosen] or order
        clear = (place for place in free if not any(_overlap(grid, place, other) for other in chosen))
        chosen.append(next(clear, free[0]))
    return torch.tensor(chosen)


def _overlap(grid: Grid, one: int, other: int) -> bool:
    return bool(((grid.pixels[one] - grid.pixels[other]).abs() < grid.glimpse).all())
