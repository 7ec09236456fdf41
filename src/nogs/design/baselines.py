"""Baselines for sequences: random locations, from the centre outwards, the most salient first, or the sequence of
another image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nogs.glimpse import Grid
from nogs.runtime.streams import key, uniform

__all__ = ["any_of", "apart", "centre_out", "others", "random_locations", "salient_first"]


def random_locations(grid: Grid, ids: Sequence[str], *, glimpses: int, draws: int, seed: int) -> Int64[Tensor, "R n T"]:
    """R times T independent locations for each image, uniform on the grid, keyed by the image's id."""
    counter = torch.arange(draws * glimpses)
    each = [uniform(key(seed, "design/random locations", id), counter) for id in ids]
    return (torch.stack(each) * len(grid)).long().reshape(len(ids), draws, glimpses).transpose(0, 1)


def any_of(number: int, ids: Sequence[str], *, draws: int, seed: int) -> Int64[Tensor, "R n"]:
    """R times one of so many sequences for each image, keyed by the image's id."""
    each = [uniform(key(seed, "design/drawn sequences", id), torch.arange(draws)) for id in ids]
    return (torch.stack(each, 1) * number).long()


def others(ids: Sequence[str], *, draws: int, seed: int) -> Int64[Tensor, "R n"]:
    """R times another one of the images for each of them."""
    return (torch.arange(len(ids)) + 1 + any_of(len(ids) - 1, ids, draws=draws, seed=seed)) % len(ids)


def centre_out(grid: Grid, *, glimpses: int) -> Int64[Tensor, " T"]:
    """The locations nearest to the image's centre that don't overlap."""
    middle = torch.tensor([(grid.height - grid.glimpse) / 2, (grid.width - grid.glimpse) / 2])
    return apart(grid, (grid.pixels - middle).square().sum(1), glimpses=glimpses)


def salient_first(grid: Grid, epe: Float[Tensor, " L"], *, glimpses: int) -> Int64[Tensor, " T"]:
    """The locations of least expected posterior entropy before any glimpse that don't overlap."""
    return apart(grid, epe, glimpses=glimpses)


def apart(grid: Grid, cost: Float[Tensor, " L"], *, glimpses: int) -> Int64[Tensor, " T"]:
    """The cheapest location, then the cheapest that overlaps none before it, ...; if all overlap, the rest by cost."""
    free, clear, order = torch.ones(len(grid), dtype=torch.bool), [], cost.cpu().argsort(stable=True)
    for index in order.tolist():
        if free[index]:
            clear.append(index)
            free &= grid.in_common(grid.pixels, grid.pixels[index]) <= 0
    rest = order[~torch.isin(order, torch.tensor(clear))]
    return torch.cat([torch.tensor(clear), rest, order[:1].expand(glimpses)])[:glimpses]
