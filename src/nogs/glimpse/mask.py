"""Which pixels a set of glimpses has observed."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["mask"]


def mask(
    pixels: Int[Tensor, "*batch T 2"],
    *,
    glimpse: int,
    height: int,
    width: int,
    observed: Bool[Tensor, "*batch T"] | None = None,
) -> Bool[Tensor, "*batch H W"]:
    """True where a pixel lies in at least one glimpse; glimpses whose `observed` is false don't count (t < T)."""
    row = torch.arange(height, device=pixels.device)
    column = torch.arange(width, device=pixels.device)
    in_rows = (row >= pixels[..., 0, None]) & (row < pixels[..., 0, None] + glimpse)
    in_columns = (column >= pixels[..., 1, None]) & (column < pixels[..., 1, None] + glimpse)
    if observed is not None:
        in_rows = in_rows & observed[..., None]
    # an outer product over the T glimpses: a count of the glimpses that hold each pixel
    return torch.einsum("...th,...tw->...hw", in_rows.float(), in_columns.float()) > 0
