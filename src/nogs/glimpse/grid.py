"""The allowed glimpse locations of a task, and the three ways to name one: index, pixel, normalised coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nogs.runtime.errors import InputError

_LARGEST, _MOST = 1 << 14, 1 << 20  # limits on px per side and on locations in a file


@dataclass(frozen=True)
class Grid:
    """Allowed top-left pixels of a square glimpse: every pair of an entry of `rows` and one of `columns`.

    Indices are row-major: index = i * len(columns) + j for the pixel (rows[i], columns[j]).
    """

    height: int
    width: int
    glimpse: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.glimpse <= min(self.height, self.width):
            raise InputError(
                f"A glimpse of {self.glimpse} px does not fit into an image of {self.height} x {self.width} px; "
                "choose a smaller glimpse or a larger image size."
            )
        for name, positions, size in (("rows", self.rows, self.height), ("columns", self.columns, self.width)):
            if not positions:
                raise InputError(f"The grid has no {name}; give at least one position.")
            if any(b <= a for a, b in pairwise(positions)):
                raise InputError(f"The grid's {name} must increase strictly, but are {list(positions)}.")
            if positions[0] < 0 or positions[-1] > size - self.glimpse:
                raise InputError(
                    f"The grid's {name} must lie in 0..{size - self.glimpse} so that a glimpse of {self.glimpse} px "
                    f"stays inside {size} px, but go from {positions[0]} to {positions[-1]}."
                )

    @classmethod
    def even(
        cls, *, image: int | tuple[int, int], glimpse: int, count: int | tuple[int, int], last: int | None = None
    ) -> Grid:
        """`count` positions per axis, `int(linspace(0, last, count))`; `last` is by default the largest that fits."""
        height, width = (image, image) if isinstance(image, int) else image
        count_rows, count_columns = (count, count) if isinstance(count, int) else count

        def positions(size: int, number: int) -> tuple[int, ...]:
            largest = size - glimpse if last is None else last
            if largest < 0:
                return (0,)  # the glimpse is larger than the image: the constructor's error is clearer
            if not 1 <= number <= largest + 1:
                raise InputError(
                    f"A grid of {number} positions per axis does not fit into 0..{largest}; "
                    f"choose a count in 1..{largest + 1}."
                )
            return tuple(int(x) for x in np.linspace(0, largest, number))

        return cls(height, width, glimpse, positions(height, count_rows), positions(width, count_columns))

    @classmethod
    def spaced(cls, *, image: int | tuple[int, int], glimpse: int, spacing: int, count: int | None = None) -> Grid:
        """Positions 0, spacing, 2 spacing ... as far as the glimpse fits, or the first `count` of them."""
        height, width = (image, image) if isinstance(image, int) else image
        if spacing < 1:
            raise InputError(f"The grid's spacing must be at least 1 px, but is {spacing}.")
        rows = tuple(range(0, height - glimpse + 1, spacing))[:count]
        columns = tuple(range(0, width - glimpse + 1, spacing))[:count]
        return cls(height, width, glimpse, rows, columns)

    @classmethod
    def celeba_hq(cls) -> Grid:
        """50 x 50 locations of 16 px glimpses on 224 px: `int(linspace(0, 207, 50))`, as in the release."""
        return cls.even(image=224, glimpse=16, count=50, last=207)

    @classmethod
    def cub(cls, *, paper: bool = False) -> Grid:
        """13 x 13 locations of 32 px glimpses, 8 px apart, on 128 px (the release); the paper says 12 x 12."""
        return cls.spaced(image=128, glimpse=32, spacing=8, count=12 if paper else 13)

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self.rows), len(self.columns)

    @cached_property
    def pixels(self) -> Int[Tensor, "L 2"]:
        """(row, column) of every location in the order of its index."""
        return torch.cartesian_prod(torch.tensor(self.rows), torch.tensor(self.columns)).reshape(-1, 2)

    @cached_property
    def coordinates(self) -> Float[Tensor, "L 2"]:
        """Normalised (row, column) of every location: pixel / (size - glimpse) * 2 - 1, in [-1, 1]."""
        return self.normalise(self.pixels)

    def normalise(self, pixels: Int[Tensor, "*batch 2"]) -> Float[Tensor, "*batch 2"]:
        """Pixels to [-1, 1]: pixel / (size - glimpse) * 2 - 1 (CelebA-HQ: pixel / 208 * 2 - 1, as in the release)."""
        span = torch.tensor(
            [max(self.height - self.glimpse, 1), max(self.width - self.glimpse, 1)],
            dtype=torch.float32,
            device=pixels.device,
        )
        return pixels.to(torch.float32) / span * 2 - 1

    def in_common(self, some: Int[Tensor, "*#batch 2"], others: Int[Tensor, "*#batch 2"]) -> Float[Tensor, "*#batch"]:
        """Share of a glimpse at one top-left pixel that overlaps with a glimpse at the other one."""
        return (self.glimpse - (some - others).abs()).clamp(min=0).prod(-1) / self.glimpse**2

    def index(self, pixels: Int[Tensor, "*batch 2"]) -> Int[Tensor, "*batch"]:
        """Pixels to indices; a pixel that is not on the grid is refused."""
        flat = pixels.reshape(-1, 2).cpu()
        row, row_hit = _find(self.rows, flat[:, 0])
        column, column_hit = _find(self.columns, flat[:, 1])
        missed = ~(row_hit & column_hit)
        if missed.any():
            r, c = flat[missed][0].tolist()
            raise InputError(
                f"Location (row {r}, column {c}) is not on the grid of {self.shape[0]} x {self.shape[1]} "
                f"locations; the nearest one is {self.snap(torch.tensor([r, c])).tolist()}."
            )
        return (row * len(self.columns) + column).reshape(pixels.shape[:-1]).to(pixels.device)

    def snap(self, pixels: Float[Tensor, "*batch 2"] | Int[Tensor, "*batch 2"]) -> Int[Tensor, "*batch 2"]:
        """The nearest pixels of the grid, axis by axis; a tie goes to the smaller position."""
        out = []
        for axis, positions in enumerate((self.rows, self.columns)):
            known = torch.tensor(positions, dtype=torch.float64, device=pixels.device)
            distance = (pixels[..., axis, None].to(torch.float64) - known).abs()
            out.append(torch.tensor(positions, device=pixels.device)[distance.argmin(-1)])
        return torch.stack(out, -1)

    def to_json(self) -> dict[str, Any]:
        """Plain values for manifests and fingerprints."""
        return {
            "height": self.height,
            "width": self.width,
            "glimpse": self.glimpse,
            "rows": list(self.rows),
            "columns": list(self.columns),
        }

    @classmethod
    def from_json(cls, value: Any) -> Grid:
        """Inverse of `to_json`; a missing or extra field is refused."""
        fields = {"height", "width", "glimpse", "rows", "columns"}
        if not isinstance(value, dict) or set(value) != fields:
            raise InputError(f"A grid needs the fields {sorted(fields)}, but this one is {repr(value)[:200]}.")
        rows, columns = value["rows"], value["columns"]
        if not isinstance(rows, list | tuple) or not isinstance(columns, list | tuple):
            raise InputError("The grid's rows and columns must be lists.")
        whole = (value["height"], value["width"], value["glimpse"], *rows, *columns)
        if any(type(number) is not int for number in whole):
            raise InputError("A grid must hold whole numbers of pixels.")
        if max(value["height"], value["width"]) > _LARGEST or len(rows) * len(columns) > _MOST:
            raise InputError(f"A grid may have at most {_LARGEST:,} px per side and {_MOST:,} locations.")
        return cls(value["height"], value["width"], value["glimpse"], tuple(value["rows"]), tuple(value["columns"]))


def _find(positions: tuple[int, ...], wanted: Tensor) -> tuple[Tensor, Tensor]:
    known = torch.tensor(positions)
    place = torch.searchsorted(known, wanted.contiguous()).clamp(max=len(positions) - 1)
    return place, known[place] == wanted
