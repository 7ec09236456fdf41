"""The exact stage of algorithm 2: likelihoods of the glimpses on the pixels of the images that were drawn.

Squared distances are sums of products of whole numbers below 2^24. float32 (and TensorFloat-32) adds them without
rounding, so the result does not depend on the device's order of summation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from nogs.completion.windows import window
from nogs.glimpse import cut

__all__ = ["log_likelihood", "squared_distances"]


def log_likelihood(
    distances: Sequence[Float32[Tensor, "B K S"]],
    *,
    temperature: float | Float32[Tensor, "V 1 1 1"],
    join: Literal["product", "sum"] = "product",
) -> Float32[Tensor, "*V B K"]:
    """log p(y | image k, l): for each glimpse the mean over shifts of exp(-d / v), joined by a product over glimpses.

    A tensor of several v gives a row for each, from the same squared distances. The release joins the glimpses by a sum
    instead (`join="sum"`).
    """
    terms = [torch.logsumexp(part / -temperature, -1) - _log_open(part) for part in distances]
    stacked = torch.stack(terms)
    return (stacked.sum(0) if join == "product" else torch.logsumexp(stacked, 0)).float()


def squared_distances(
    pool: UInt8[Tensor, "M H W 3"],
    index: Int64[Tensor, "B K"],
    flipped: Bool[Tensor, "B K"],
    *,
    glimpses: UInt8[Tensor, "B g g 3"],
    pixels: Sequence[tuple[int, int]],
    shifts: Sequence[tuple[int, int]],
    scale: tuple[float, float, float],
) -> Float32[Tensor, "B K S"]:
    """Squared distances of normalised pixels of K images to one glimpse each of B images; infinite for shifts that
    leave the image."""
    side, size, device = glimpses.shape[1], (pool.shape[1], pool.shape[2]), pool.device
    windows = [window(pixel, shifts, glimpse=side, size=size) for pixel in pixels]
    height, width = windows[0].height, windows[0].width
    offsets = torch.tensor([[offset or (0, 0) for offset in one.offsets] for one in windows], device=device)
    open_ = torch.tensor([[offset is not None for offset in one.offsets] for one in windows], device=device)
    rows, columns = offsets.unbind(-1)  # [B, S]
    corners = torch.tensor([(one.row, one.column) for one in windows], device=device)[:, None]
    regions = cut(pool, corners.expand(*index.shape, 2), glimpse=(height, width), index=index, flip=flipped)
    regions = regions.permute(0, 1, 4, 2, 3).float() - 128  # B K 3 h w, whole numbers
    target = glimpses.permute(0, 3, 1, 2).float() - 128  # B 3 g g
    # the target placed in an empty region at every offset, so that one matrix product gives all cross terms
    steps = torch.arange(side, device=device)
    inside = (steps[:, None] * width + steps).flatten()
    at = ((rows * width + columns)[:, None, :, None] + inside).expand(-1, 3, -1, -1)  # B 3 S g²
    templates = torch.zeros(len(windows), 3, len(shifts), height * width, device=device)
    templates.scatter_(3, at, target.flatten(2)[:, :, None].expand(at.shape))
    crossed = regions.transpose(1, 2).flatten(3) @ templates.mT  # B 3 K S
    squares = _box_sums(regions.long().square(), side)  # B K 3 rows columns
    boxes = (rows * squares.shape[-1] + columns)[:, None, None].expand(*squares.shape[:3], -1)
    own = squares.flatten(3).gather(3, boxes).transpose(1, 2)
    whole = own - 2 * crossed.round().long() + target.long().square().sum((2, 3))[:, :, None, None]
    weights = torch.tensor([1 / (255 * s) ** 2 for s in scale], dtype=torch.float64, device=device)
    found = (whole.double() * weights[:, None, None]).sum(1).float()
    return found.masked_fill_(~open_[:, None], torch.inf)


def _log_open(distances: Float32[Tensor, "B K S"]) -> Float32[Tensor, "B K"]:
    """Log of the number of shifts inside the image."""
    return distances.isfinite().sum(-1).double().log().float()


def _box_sums(values: Tensor, side: int) -> Tensor:
    """Sums over every `side` x `side` box of the last two axes, in whole numbers."""
    for axis in (-2, -1):
        padded = torch.nn.functional.pad(values.transpose(axis, -1), (1, 0)).cumsum(-1)
        values = (padded[..., side:] - padded[..., :-side]).transpose(axis, -1)
    return values
