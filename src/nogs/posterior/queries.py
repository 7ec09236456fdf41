"""Glimpses for a posterior: random ones for training (u(t, l) of Eq. 7), fixed ones for evaluation."""

from __future__ import annotations

import functools
import math
import warnings
import weakref
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from nogs.glimpse import Grid
from nogs.runtime import streams

Locations = Literal["anywhere", "grid"]

_HELD: dict[tuple[int, str], Tensor] = {}  # images on a device, by the identity of their array


def random_pixels(
    key: int, counter: Int[Tensor, "*batch"], *, grid: Grid, locations: Locations
) -> Int[Tensor, "*batch 2"]:
    """The location that each counter draws from the stream `key`, uniform over all pixel positions or over the grid."""
    if locations == "grid":
        drawn = (streams.uniform(key, counter) * len(grid)).long()
        return _pixels(grid, counter.device)[drawn]
    # 24 bits of a uniform number suffice for an axis of an image; sizes stay on the host, so that nothing waits
    spans = (grid.height - grid.glimpse + 1, grid.width - grid.glimpse + 1)
    return torch.stack([streams.uniform(key, 2 * counter + axis) * span for axis, span in enumerate(spans)], -1).long()


def central_pixels(key: int, counter: Int[Tensor, "*batch"], *, grid: Grid, spread: float) -> Int[Tensor, "*batch 2"]:
    """The location that each counter draws from the stream `key`, Gaussian around the image's centre.

    The standard deviation is `spread` times the image's sides; glimpses outside the image are moved into it.
    """
    axes = []
    for axis, side in enumerate((grid.height, grid.width)):
        share = streams.uniform(key, 2 * counter + axis) + 2.0**-25  # never 0, whose quantile is not finite
        away = spread * side * math.sqrt(2) * torch.erfinv(2 * share - 1)
        axes.append(((side - grid.glimpse) / 2 + away).round().clamp(0, side - grid.glimpse))
    return torch.stack(axes, -1).long()


def with_overlaps(
    pixels: Int[Tensor, "Q T 2"],
    share: float,
    *,
    key: int,
    counter: Int[Tensor, "Q T"],
    grid: Grid,
    locations: Locations,
) -> Int[Tensor, "Q T 2"]:
    """The locations, with a share of them, from the second on, moved so that they overlap an earlier one.

    A location is not moved onto the earlier one itself, since that would show nothing new.
    """
    names = ("if", "of", "down", "right")
    moved, which, *along = (streams.uniform(streams.key(key, name), counter) for name in names)
    spans = (grid.height - grid.glimpse, grid.width - grid.glimpse)
    found = [pixels[:, 0]]
    for t in range(1, pixels.shape[1]):
        earlier = torch.stack(found, 1).gather(1, (which[:, t] * t).long()[:, None, None].expand(-1, 1, 2))[:, 0]
        axes = []
        for axis, span in enumerate(spans):
            known = _axis(grid, axis, pixels.device) if locations == "grid" else _range(span + 1, pixels.device)
            # positions whose glimpses overlap on this axis are contiguous
            first = torch.searchsorted(known, earlier[:, axis] - grid.glimpse, right=True)
            number = torch.searchsorted(known, earlier[:, axis] + grid.glimpse) - first
            axes.append(known[first + (along[axis][:, t] * number).long()])
        near = torch.stack(axes, -1)
        taken = (moved[:, t] < share) & (near != earlier).any(-1)
        found.append(torch.where(taken[:, None], near, pixels[:, t]))
    return torch.stack(found, 1)


@functools.cache
def _pixels(grid: Grid, device: torch.device) -> Int[Tensor, "L 2"]:
    """The grid's locations, copied to a device once, since a graph can't copy from the host during its capture."""
    return grid.pixels.to(device)


@functools.cache
def _axis(grid: Grid, axis: int, device: torch.device) -> Int[Tensor, " R"]:
    """The grid's rows or columns, for the same reason."""
    return torch.tensor((grid.rows, grid.columns)[axis], device=device)


@functools.cache
def _range(number: int, device: torch.device) -> Int[Tensor, " R"]:
    """All pixel positions of an axis, for the same reason."""
    return torch.arange(number, device=device)


def strata(batch: int, glimpses: int) -> tuple[tuple[int, int], ...]:
    """(number of images, t) for t = 0..T: the parts of a batch, as equal as possible."""
    edges = [t * batch // (glimpses + 1) for t in range(glimpses + 2)]
    return tuple((after - before, t) for t, (before, after) in enumerate(pairwise(edges)))


def observed_first(t: Int[Tensor, " Q"], glimpses: int) -> Bool[Tensor, "Q T"]:
    """True for the first t of T glimpses."""
    return torch.arange(glimpses, device=t.device) < t[:, None]


def fixed_pixels(
    images: int, *, glimpses: int, grid: Grid, locations: Locations, seed: int, purpose: str, device: torch.device
) -> Int[Tensor, "n T 2"]:
    """T locations for each of n images, the same at every call; queries of t glimpses use the first t."""
    counter = torch.arange(images * glimpses, device=device).reshape(images, glimpses)
    return random_pixels(streams.key(seed, f"posterior {purpose}"), counter, grid=grid, locations=locations)


def resident(images: np.ndarray, device: torch.device) -> UInt8[Tensor, "N H W 3"]:
    """The images as a tensor on the device, without a copy on the CPU.

    On other devices the networks of a run share one copy for as long as the array lives.
    """
    name = id(images), str(device)
    if name in _HELD:
        return _HELD[name]
    with warnings.catch_warnings():
        # torch warns against writing to a read-only memory map, which never happens here
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        found = torch.from_numpy(np.asarray(images)).to(device)
    if device.type != "cpu":
        _HELD[name] = found
        weakref.finalize(images, _HELD.pop, name, None)
    return found
