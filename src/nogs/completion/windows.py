"""For one location, the region of an image that all shifts of a glimpse read, and the proposal's matrices there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Float32
from torch import Tensor

__all__ = ["Factor", "Window", "window"]


@dataclass(frozen=True)
class Window:
    """A region (top-left pixel, height and width) and, for each shift, the glimpse's offset in it, or None outside."""

    row: int
    column: int
    height: int
    width: int
    offsets: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class Factor:
    """The matrices of a location for F flips and S shifts: p values per patch, rank r of the region, r' of a shift."""

    project: Float[Tensor, "F r C"]  # Lᵀ
    forms: Float[Tensor, "F S_times_rank r"] | None  # quadratic form of each shift in u; None: the identity
    patches: Float32[Tensor, "F S p r"]  # a shift's patch as a function of u
    means: Float32[Tensor, "F S p"]
    tails: Float32[Tensor, "F S"]  # mean squared length that the ranks leave out
    open: Float32[Tensor, " S"]  # 0 where a shift stays inside the image, else -inf


def window(pixel: tuple[int, int], shifts: Sequence[tuple[int, int]], *, glimpse: int, size: tuple[int, int]) -> Window:
    """The region around a glimpse at `pixel` that holds every shift of it that stays inside an image of `size`.

    Its height and width are the same for every pixel: at a border it is moved inwards, and shifts that would leave the
    image have no offset.
    """
    sides, corners = [], []
    for axis in range(2):
        first, last = min(shift[axis] for shift in shifts), max(shift[axis] for shift in shifts)
        side = min(glimpse + last - first, size[axis])
        sides.append(side)
        corners.append(min(max(pixel[axis] + first, 0), size[axis] - side))
    offsets: list[tuple[int, int] | None] = []
    for shift in shifts:
        inside = all(0 <= pixel[axis] + shift[axis] <= size[axis] - glimpse for axis in range(2))
        offsets.append((pixel[0] + shift[0] - corners[0], pixel[1] + shift[1] - corners[1]) if inside else None)
    return Window(corners[0], corners[1], sides[0], sides[1], tuple(offsets))
