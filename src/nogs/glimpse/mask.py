"""Which pixels a set of glimpses has observed."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor

__all__ = ["mask", "shown"]


def mask(
    pixels: Int[Tensor, "*batch T 2"],
    *,
    glimpse: int,
    height: int,
    width: int,
    observed: Bool[Tensor, "*batch T"] | None = None,
) -> Bool[Tensor, "*batch H W"]:
    """True where a pixel lies in at least one glimpse; glimpses whose `observed` is false are ignored (t < T)."""
    row = torch.arange(height, device=pixels.device)
    column = torch.arange(width, device=pixels.device)
    in_rows = (row >= pixels[..., 0, None]) & (row < pixels[..., 0, None] + glimpse)
    in_columns = (column >= pixels[..., 1, None]) & (column < pixels[..., 1, None] + glimpse)
    if observed is not None:
        in_rows = in_rows & observed[..., None]
    # an outer product over the T glimpses: a count of the glimpses that hold each pixel
    return torch.einsum("...th,...tw->...hw", in_rows.float(), in_columns.float()) > 0


def shown(pixels: Int[Tensor, "*batch T 2"], *, glimpse: int, height: int, width: int) -> Float32[Tensor, "*batch T"]:
    """Share of an image inside its first 1, 2 ... T glimpses, which lie within it; overlaps count once.

    It equals the mean of `mask`, but is computed from the pixels of the glimpses, not of the whole image.
    """
    offsets = torch.arange(glimpse, device=pixels.device)
    new = []
    for t in range(pixels.shape[-2]):
        # position of each row and column of this glimpse within each earlier one: inside from 0 to its side
        within = pixels[..., t, None, :, None] - pixels[..., :t, :, None] + offsets
        rows, columns = ((within >= 0) & (within < glimpse)).unbind(-2)
        seen = (rows[..., :, None] & columns[..., None, :]).any(-3)
        new.append((~seen).sum((-2, -1)))
    return torch.stack(new, -1).cumsum(-1) / (height * width)
