"""Reporting problems in files of sequences: each with its file and line, many of them in one error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError

SHOWN = 10
_FAR = 10**6
"""Largest coordinate in px for which the nearest location is named; a larger one is another kind of mistake."""


def refuse(problems: Sequence[str], *, source: Path) -> None:
    """Raise one InputError that lists the first problems and counts them all; do nothing if there are none."""
    if not problems:
        return
    if len(problems) == 1:
        raise InputError(problems[0])
    listed = "".join(f"\n  {problem}" for problem in problems[:SHOWN])
    more = f"\n  and {len(problems) - SHOWN:,} more." if len(problems) > SHOWN else ""
    raise InputError(f"{source} has {len(problems):,} problems:{listed}{more}")


def short(text: str) -> str:
    """Text of a file, quoted, and cut where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def off_grid(grid: Grid, row: float, column: float, *, step: int) -> str:
    """Say that a location is not on the grid, and which one is nearest."""
    if max(abs(row), abs(column)) > _FAR:
        return f"location {step} lies far outside the image of {grid.height} x {grid.width} px"
    near = [min(axis, key=lambda pixel: abs(pixel - at)) for axis, at in ((grid.rows, row), (grid.columns, column))]
    return (
        f"location {step} (row {row:g}, column {column:g}) is not on the grid of {grid.shape[0]} x {grid.shape[1]} "
        f"locations, where the nearest is (row {near[0]}, column {near[1]})"
    )
