"""The exact stage of algorithm 2: likelihoods of the glimpses on the pixels of the images that were drawn.

Squared distances are sums of products of whole numbers below 2^24, which float32 (and TensorFloat-32) adds up without
rounding: the result does not depend on the device's order of summation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from nogs.completion.windows import Window, window
from nogs.glimpse import cut

__all__ = ["log_likelihood", "squared_distances"]


def log_likelihood(
    distances: Sequence[Float32[Tensor, "K _"]],
    *,
    temperature: float | Float32[Tensor, "V 1 1"],
    join: Literal["product", "sum"] = "product",
) -> Float32[Tensor, "*V K"]:
    """log p(y | image k, l): for each glimpse the mean over shifts of exp(-d / v), joined by a product over glimpses.

    Several v share the squared distances: a tensor of them gives a row for each. The release joins the glimpses by a
    sum instead (`join="sum"`).
    """
    terms = [torch.logsumexp(part / -temperature, -1) - math.log(part.shape[1]) for part in distances]
    stacked = torch.stack(terms)
    return (stacked.sum(0) if join == "product" else torch.logsumexp(stacked, 0)).float()


def squared_distances(
    pool: UInt8[Tensor, "M H W 3"],
    index: Int64[Tensor, " K"],
    flipped: Bool[Tensor, " K"],
    *,
    glimpse: UInt8[Tensor, "g g 3"],
    pixel: tuple[int, int],
    shifts: Sequence[tuple[int, int]],
    scale: tuple[float, float, float],
) -> Float32[Tensor, "K S"]:
    """Squared distances of normalised pixels for the S shifts that stay inside the image."""
    side, size = glimpse.shape[0], (pool.shape[1], pool.shape[2])
    region = window(pixel, shifts, glimpse=side, size=size)
    offsets = [offset for offset in region.offsets if offset is not None]
    regions = _regions(pool, index, flipped, region) - 128  # K 3 h w, whole numbers
    target = glimpse.permute(2, 0, 1).float() - 128
    rows, columns = (torch.tensor(part, device=pool.device) for part in zip(*offsets))
    # the target laid on an empty region at every offset: one matrix product gives all cross terms
    steps = torch.arange(side, device=pool.device)
    inside = (steps[:, None] * region.width + steps).flatten()
    at = ((rows * region.width + columns)[:, None] + inside).expand(3, -1, -1)  # 3 S g²
    templates = torch.zeros(3, len(offsets), region.height * region.width, device=pool.device)
    templates.scatter_(2, at, target.flatten(1)[:, None].expand(at.shape))
    crossed = torch.bmm(regions.permute(1, 0, 2, 3).flatten(2), templates.mT)  # 3 K S
    squares = _box_sums(regions.long().square(), side)  # K 3 rows columns
    own = squares[:, :, rows, columns].permute(1, 0, 2)
    whole = own - 2 * crossed.round().long() + target.long().square().sum((1, 2))[:, None, None]
    weights = torch.tensor([1 / (255 * s) ** 2 for s in scale], dtype=torch.float64, device=pool.device)
    return (whole.double() * weights[:, None, None]).sum(0).float()


def _regions(pool: Tensor, index: Tensor, flipped: Tensor, region: Window) -> Float32[Tensor, "K 3 h w"]:
    """The region of each image, as `cut` reads squares: a region that is not square is cut from its longer side."""
    side = max(region.height, region.width)
    row, column = min(region.row, pool.shape[1] - side), min(region.column, pool.shape[2] - side)
    corner = torch.tensor([row, column], device=pool.device).expand(len(index), 2)
    squares = cut(pool, corner, glimpse=side, index=index, flip=flipped)
    down, right = region.row - row, region.column - column
    part = squares[:, down : down + region.height, right : right + region.width]
    return part.permute(0, 3, 1, 2).float()


def _box_sums(values: Tensor, side: int) -> Tensor:
    """Sums over every `side` x `side` box of the last two axes, in whole numbers."""
    for axis in (-2, -1):
        padded = torch.nn.functional.pad(values.transpose(axis, -1), (1, 0)).cumsum(-1)
        values = (padded[..., side:] - padded[..., :-side]).transpose(axis, -1)
    return values
