"""The paper's f_fovea: cut glimpses out of uint8 images, reading only the pixels that they need."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

__all__ = ["cut"]


def cut(
    images: UInt8[Tensor, "N H W C"],
    pixels: Int[Tensor, "*batch 2"],
    *,
    glimpse: int | tuple[int, int],
    index: Int[Tensor, "*batch"] | None = None,
    flip: Bool[Tensor, "*batch"] | None = None,
) -> UInt8[Tensor, "*batch g_h g_w C"]:
    """Glimpses of `glimpse` px (side, or height and width) at the top-left `pixels`, one per entry of the batch shape.

    `index` names the image of each entry (by default entry i of the first batch axis reads image i). Where `flip` is
    true the glimpse is read from the mirrored image, without making it. A glimpse must lie inside the image, as every
    location of a `Grid` does: this is not checked here, since a check would stall the GPU.
    """
    number, height, width, channels = images.shape
    high, wide = (glimpse, glimpse) if isinstance(glimpse, int) else glimpse
    batch, down, right = pixels.shape[:-1], *(torch.arange(side, device=pixels.device) for side in (high, wide))
    if index is None:
        if not batch or batch[0] != number:
            raise ValueError(
                f"Without `index`, the first batch axis must have one entry per image ({number}), not {batch}."
            )
        index = torch.arange(number, device=images.device).reshape(-1, *(1,) * (len(batch) - 1)).expand(batch)
    row, column = pixels.unbind(-1)
    if flip is not None:
        column = torch.where(flip, width - wide - column, column)
    # a row of a patch is contiguous in memory, so whole rows are copied
    starts = (index[..., None] * height + row[..., None] + down) * width + column[..., None]
    # a view, not a copy: entry p holds the row of a glimpse that starts at pixel p
    windows = images.reshape(-1).unfold(0, wide * channels, channels)
    patches = windows.index_select(0, starts.reshape(-1)).reshape(*batch, high, wide * channels)
    if flip is not None:
        order = torch.where(flip[..., None], wide - 1 - right, right)
        order = (order[..., None] * channels + torch.arange(channels, device=pixels.device)).flatten(-2)
        patches = patches.gather(-1, order[..., None, :].expand(patches.shape))
    return patches.reshape(*batch, high, wide, channels)
