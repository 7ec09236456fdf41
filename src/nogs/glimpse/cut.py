"""The paper's f_fovea: cut glimpses out of uint8 images, reading only the pixels that they need."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

__all__ = ["cut"]


def cut(
    images: UInt8[Tensor, "N H W C"],
    pixels: Int[Tensor, "*batch 2"],
    *,
    glimpse: int,
    index: Int[Tensor, "*batch"] | None = None,
    flip: Bool[Tensor, "*batch"] | None = None,
    scales: int = 1,
) -> UInt8[Tensor, "*batch g g D"]:
    """Glimpses of `glimpse` px at the top-left `pixels`, one for each entry of the batch shape.

    `index` names the image of each entry (by default entry i of the first batch axis reads image i). Where `flip` is
    true the glimpse is read from the mirrored image, without making it. With `scales` = s > 1, the patches of side
    glimpse, 2 glimpse ... 2^(s-1) glimpse around the same centre are averaged down to `glimpse` px and joined along the
    channels (RAM's retina); what lies outside the image reads 0. The innermost patch must lie inside the image, as
    every location of a `Grid` does: this is not checked here, since a check would stall the GPU.
    """
    number, _, _, channels = images.shape
    batch = pixels.shape[:-1]
    if index is None:
        if not batch or batch[0] != number:
            raise ValueError(
                f"Without `index`, the first batch axis must have one entry an image ({number}), not {batch}."
            )
        index = torch.arange(number, device=images.device).reshape(-1, *(1,) * (len(batch) - 1)).expand(batch)
    parts = [_inside(images, pixels, index, flip, glimpse)]
    for scale in range(1, scales):
        side = glimpse * 2**scale
        padded = pixels - (side - glimpse) // 2
        patch = _anywhere(images, padded, index, flip, side)
        pooled = F.avg_pool2d(patch.reshape(-1, side, side, channels).permute(0, 3, 1, 2).float(), 2**scale)
        parts.append(pooled.round().to(torch.uint8).permute(0, 2, 3, 1).reshape(*batch, glimpse, glimpse, channels))
    return parts[0] if scales == 1 else torch.cat(parts, -1)


def _inside(images: Tensor, pixels: Tensor, index: Tensor, flip: Tensor | None, side: int) -> Tensor:
    """Patches that lie inside their image. A row of a patch is contiguous in memory, so whole rows are copied."""
    _, height, width, channels = images.shape
    batch, steps = pixels.shape[:-1], torch.arange(side, device=pixels.device)
    row, column = pixels.unbind(-1)
    if flip is not None:
        column = torch.where(flip, width - side - column, column)
    starts = (index[..., None] * height + row[..., None] + steps) * width + column[..., None]
    # a view, not a copy: entry p holds the `side` pixels from pixel p on
    windows = images.reshape(-1).unfold(0, side * channels, channels)
    patches = windows.index_select(0, starts.reshape(-1)).reshape(*batch, side, side * channels)
    if flip is not None:
        order = torch.where(flip[..., None], side - 1 - steps, steps)
        order = (order[..., None] * channels + torch.arange(channels, device=pixels.device)).flatten(-2)
        patches = patches.gather(-1, order[..., None, :].expand(patches.shape))
    return patches.reshape(*batch, side, side, channels)


def _anywhere(images: Tensor, pixels: Tensor, index: Tensor, flip: Tensor | None, side: int) -> Tensor:
    """Patches gathered pixel by pixel; those outside the image read 0."""
    _, height, width, _ = images.shape
    steps = torch.arange(side, device=pixels.device)
    rows, columns = pixels[..., 0, None] + steps, pixels[..., 1, None] + steps
    row_in, column_in = (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
    seen = row_in[..., :, None] & column_in[..., None, :]
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    if flip is not None:
        columns = torch.where(flip[..., None], width - 1 - columns, columns)
    return images[index[..., None, None], rows[..., :, None], columns[..., None, :]] * seen[..., None]
