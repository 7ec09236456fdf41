"""Geometry of glimpses: which locations exist (`Grid`) and what is seen there (`cut`, the paper's f_fovea; `mask`).

A location is the (row, column) of a glimpse's top-left pixel, or its row-major index on a `Grid`. Images go in as uint8
`[N, H, W, C]`; glimpses come out as uint8 `[..., g, g, C]`. No other package computes with pixel positions.
"""

from nogs.glimpse.cut import cut
from nogs.glimpse.grid import Grid
from nogs.glimpse.mask import mask, shown

__all__ = ["Grid", "cut", "mask", "shown"]
