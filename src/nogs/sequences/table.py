"""Read and write sequences as a table: a CSV file with one glimpse per row, such as recorded gaze."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch

import nogs
from nogs.glimpse import Grid
from nogs.runtime import files
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest
from nogs.runtime.reading import read_regular
from nogs.sequences.problems import off_grid, refuse, short
from nogs.sequences.sequences import STEP_FIELDS, Sequences

_MOST = 2**30
"""Largest size of a table in bytes."""


@dataclass(frozen=True)
class Columns:
    """The headings of the four required columns; for x and y, `row` is y and `column` is x."""

    image: str = "image"
    step: str = "step"
    row: str = "row"
    column: str = "column"


class _Glimpse(NamedTuple):
    line: int
    step: int
    row: float
    column: float
    numbers: tuple[float, ...]


def read_csv(
    path: Path,
    *,
    task: str,
    grid: Grid,
    attribute: str | None = None,
    columns: Columns = Columns(),  # noqa: B008 - frozen
    anchor: Literal["top-left", "centre"] = "top-left",
    snap: bool = False,
    length: int | None = None,
    cut: bool = False,
    drop_short: bool = False,
) -> Sequences:
    """Sequences of a CSV file (tabs in a `.tsv`) with one glimpse per row, in any order; steps count from 0 or from 1.

    Rows and columns are pixels of the prepared image: of the glimpse's top-left corner, or of its centre. With `snap`,
    each location moves to the nearest one of the grid, even from outside the image. Without it, a location off the grid
    is refused. Every image needs `length` glimpses, by default as many as the longest sequence has. `cut` leaves out
    later glimpses; `drop_short` leaves out images with fewer, and `provenance` then says how many.
    Columns named entropy, epe and epe_error are read where they exist. Each problem is reported with its line.
    """
    if length is not None and length < 1:
        raise InputError(f"The length of a sequence must be at least 1 glimpse, but is {length}.")
    problems: list[str] = []
    images: dict[str, dict[int, _Glimpse]] = {}
    reader = _cells(path)
    line, heading = next(reader, (1, []))
    names = _names(heading, columns, where=f"{path}, line {line}")
    for image, glimpse in _glimpses(reader, heading, names, path=path, problems=problems):
        first = images.setdefault(image, {}).setdefault(glimpse.step, glimpse)
        if first is not glimpse:
            problems.append(
                f"{path}, line {glimpse.line}: step {glimpse.step} of image {image!r} is in line {first.line} already."
            )
    refuse(problems, source=path)
    every = [glimpse for steps in images.values() for glimpse in steps.values()]
    if not every:
        raise InputError(f"{path} holds no glimpses; give a table with one glimpse per row.")
    earliest = min(every, key=lambda glimpse: (glimpse.step, glimpse.line))
    start = earliest.step
    if start not in (0, 1):
        raise InputError(f"{path}, line {earliest.line}: the steps start at {start}; count them from 0 or from 1.")
    length = length if length is not None else max(len(steps) for steps in images.values())
    given = len(images)
    if drop_short:
        images = {image: steps for image, steps in images.items() if len(steps) >= length}
        if not images:
            raise InputError(f"{path} has no image with {length} steps; choose a smaller --length.")
    left_out = {"images_left_out": given - len(images)} if len(images) < given else {}
    ordered = _ordered(path, images, start=start, length=length, cut=cut, problems=problems)
    refuse(problems, source=path)
    wanted = np.array([[(g.row, g.column) for g in steps] for steps in ordered], dtype=np.float64)
    wanted -= grid.glimpse / 2 if anchor == "centre" else 0
    locations = grid.snap(torch.from_numpy(wanted)).numpy()
    moved = (locations != wanted).any(-1)
    if not snap:
        for n, t in np.argwhere(moved):
            row, column = wanted[n, t].tolist()
            problem = off_grid(grid, row, column, step=int(t) + 1)
            problems.append(f"{path}, line {ordered[n][t].line}: {problem}; --snap moves it there.")
    refuse(problems, source=path)
    steps = {
        STEP_FIELDS[name]: np.array([[g.numbers[k] for g in steps] for steps in ordered], dtype=np.float64)
        for k, name in enumerate(names[4:])
    }
    return Sequences(
        task=task,
        attribute=attribute,
        grid=grid,
        length=length,
        ids=tuple(images),
        locations=locations,
        provenance={
            "source": path.name,
            "digest": file_digest(path),
            "anchor": anchor,
            "snapped": int(moved.sum()),
            **left_out,
            "command": "nogs sequences import",
            "versions": {"nogs": nogs.__version__},
        },
        **steps,
    )


def write_csv(sequences: Sequences, path: Path) -> None:
    """Write one glimpse a row, steps from 0: image, step, row, column and the per-step numbers that there are."""
    numbers = sequences.steps()
    text = io.StringIO()
    # the writer does not quote a lone carriage return by default, and the reader would end the line there
    quoted = any("\r" in id for id in sequences.ids)
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL)
    writer.writerow(["image", "step", "row", "column", *numbers])
    columns = [values.tolist() for values in numbers.values()]
    for n, (id, steps) in enumerate(zip(sequences.ids, sequences.locations.tolist())):
        for t, (row, column) in enumerate(steps):
            writer.writerow([id, t, row, column, *(values[n][t] for values in columns)])
    files.write_text(path, text.getvalue())


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not blank, the heading first."""
    try:
        text = read_regular(path, most=_MOST).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}); check the path.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8.") from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}.") from None


def _names(heading: list[str], columns: Columns, *, where: str) -> list[str]:
    """The headings to read: the four required ones, then those of the per-step numbers that exist."""
    heading[:] = [cell.strip() for cell in heading]
    names = [columns.image, columns.step, columns.row, columns.column]
    for flag, name in zip(("--image", "--step", "--row", "--column"), names):
        if heading.count(name) != 1:
            how = "no column" if name not in heading else "more than one column"
            raise InputError(
                f"{where}: there is {how} {name!r} among {', '.join(heading) or 'no columns at all'}; "
                f"name the right one with {flag}."
            )
    return names + [name for name in STEP_FIELDS if name in heading and name not in names]


def _glimpses(
    reader: Iterator[tuple[int, list[str]]], heading: list[str], names: list[str], *, path: Path, problems: list[str]
) -> Iterator[tuple[str, _Glimpse]]:
    places = [heading.index(name) for name in names]
    for line, cells in reader:
        try:
            if len(cells) != len(heading):
                raise InputError(f"expected {len(heading)} cells as in the heading, but found {len(cells)}")
            image = cells[places[0]]
            if not image:
                raise InputError(f"the column {names[0]!r} is empty")
            step, row, column, *numbers = (_number(cells[place], name) for place, name in zip(places[1:], names[1:]))
            if step != int(step) or step < 0:
                raise InputError(f"the step must be a whole number of at least 0, but is {short(cells[places[1]])}")
            yield image, _Glimpse(line, int(step), row, column, tuple(numbers))
        except InputError as error:
            problems.append(f"{path}, line {line}: {error}.")


def _number(cell: str, name: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"the column {name!r} must hold a number, but is {short(cell)}")
    return value


def _ordered(
    path: Path,
    images: dict[str, dict[int, _Glimpse]],
    *,
    start: int,
    length: int,
    cut: bool,
    problems: list[str],
) -> list[list[_Glimpse]]:
    """The glimpses of each image in the order of their steps; missing and surplus steps are added to `problems`."""
    ordered = []
    wanted = range(start, start + length)
    for image, steps in images.items():
        line = min(glimpse.line for glimpse in steps.values())
        missing = [step for step in wanted if step not in steps]
        if missing:
            problems.append(
                f"{path}, line {line}: image {image!r} has no step {', '.join(map(str, missing[:5]))}"
                f"{' ...' if len(missing) > 5 else ''}; it needs the steps {wanted[0]} to {wanted[-1]}; "
                "--drop-short leaves out images with too few."
            )
        surplus = [steps[step] for step in sorted(steps) if step not in wanted]
        if surplus and not cut:
            problems.append(
                f"{path}, line {surplus[0].line}: step {surplus[0].step} of image {image!r} comes after the last one, "
                f"{wanted[-1]}; --cut leaves out such steps, --length sets their number."
            )
        ordered.append([steps[step] for step in wanted if step in steps])
    return ordered
