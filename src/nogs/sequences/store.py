"""Sequences on disk: a folder with `sequences.jsonl`, one image per line, and `manifest.json`, which describes them.

The manifest is written last and removed first, so a folder that has one is complete.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nogs.glimpse import Grid
from nogs.runtime import files
from nogs.runtime.digests import DONE, check_product
from nogs.runtime.errors import InputError
from nogs.sequences.problems import off_grid, refuse
from nogs.sequences.sequences import STEP_FIELDS, Sequences

LINES = "sequences.jsonl"
MANIFEST = "manifest.json"
FORMAT = "nogs sequences"
VERSION = 1
COORDINATES = (
    "A location is [row, column] of the top-left pixel of a square glimpse, counted from 0 at the image's top left "
    "corner; locations are in the order of looking."
)


def save(sequences: Sequences, folder: Path, *, overwrite: bool = False) -> None:
    """Write `sequences` into `folder`; the same sequences always give the same bytes.

    A folder that holds other sequences is refused unless `overwrite` is true; one that holds these stays as it is.
    """
    lines, manifest = _lines(sequences), _manifest(sequences)
    path = folder / MANIFEST
    if path.exists() and not overwrite:
        if (folder / LINES).is_file() and (folder / LINES).read_bytes() == lines and files.read_json(path) == manifest:
            return
        raise InputError(f"{folder} holds other sequences already; choose another folder or pass --overwrite.")
    with files.atomic(folder / LINES) as temporary:
        temporary.write_bytes(lines)
        path.unlink(missing_ok=True)
        (folder / DONE).unlink(missing_ok=True)  # left by an annotation of other sequences
    files.write_json(path, manifest)


def load(folder: Path) -> Sequences:
    """Read the sequences of one folder; every problem is reported with its file and line."""
    sequences, problems = read(folder)
    refuse(problems, source=folder)
    assert sequences is not None
    return sequences


def folders(tree: Path) -> Iterator[Path]:
    """Every folder of sequences in `tree` (which may be one itself), in order of name."""
    for folder, inner, names in os.walk(tree):
        inner.sort()
        if LINES in names or (MANIFEST in names and _ours(Path(folder) / MANIFEST)):
            yield Path(folder)


@dataclass(frozen=True)
class Header:
    """The fields of a manifest."""

    task: str
    attribute: str | None
    grid: Grid
    length: int
    count: int
    provenance: dict[str, Any]


def header(folder: Path) -> Header:
    """Read and check `manifest.json` alone."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder} has no {MANIFEST}, so it is not a finished folder of sequences; import or annotate again."
        )
    value = files.read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f'{path} does not describe glimpse sequences: its "format" must be "{FORMAT}".')
    if value.get("version") != VERSION:
        raise InputError(
            f"{path} has the format version {value.get('version')!r}, but this nogs reads version {VERSION}; "
            "update nogs or import the sequences again."
        )

    def wrong(field: str, must: str) -> NoReturn:
        raise InputError(f'The field "{field}" of {path} must be {must}, but is {value.get(field)!r}.')

    if not isinstance(value.get("task"), str) or not value["task"]:
        wrong("task", "a task's name")
    if "attribute" not in value or not isinstance(value["attribute"], str | None):
        wrong("attribute", "an attribute's name or null")
    if type(value.get("glimpses")) is not int or value["glimpses"] < 1:
        wrong("glimpses", "a whole number of at least 1")
    if type(value.get("count")) is not int or value["count"] < 0:
        wrong("count", "a whole number of at least 0")
    if not isinstance(value.get("provenance"), dict):
        wrong("provenance", "an object")
    return Header(
        task=value["task"],
        attribute=value["attribute"],
        grid=_grid(value.get("grid"), path),
        length=value["glimpses"],
        count=value["count"],
        provenance=value["provenance"],
    )


def read(folder: Path) -> tuple[Sequences | None, list[str]]:
    """The sequences of one folder, or None and every problem that was found."""
    try:
        head = header(folder)
        lines = _text_lines(folder / LINES)
    except InputError as error:
        return None, [str(error)]
    path, problems = folder / LINES, []
    seen: dict[str, int] = {}
    records: list[dict[str, Any]] = []
    expected: set[str] | None = None
    rows, columns = set(head.grid.rows), set(head.grid.columns)
    for number, line in enumerate(lines, 1):
        try:
            record = _parse(line)
            present = set(record) & set(STEP_FIELDS)
            expected = present if expected is None else expected
            if present != expected:
                name = min(present ^ expected)
                has = "has" if name in present else "lacks"
                raise InputError(f'{has} "{name}", unlike the lines before it; all lines must have the same fields')
            _check_steps(record, head.length)
            for step, (row, column) in enumerate(record["locations"], 1):
                if row not in rows or column not in columns:
                    raise InputError(off_grid(head.grid, row, column, step=step))
            first = seen.setdefault(record["image"], number)
            if first != number:
                raise InputError(f"image {record['image']!r} has a sequence in line {first} already")
            records.append(record)
        except InputError as error:
            torn = number == len(lines) and not _ends_line(path)
            cut = "; the file ends in the middle of this line, so it was cut off" if torn else ""
            problems.append(f"{path}, line {number}: {error}{cut}.")
    if len(lines) != head.count:
        where = (
            f"{path}, line {len(lines)}: the file ends after {len(lines)} sequences" if lines else f"{path} is empty"
        )
        problems.append(f"{where}, but {MANIFEST} counts {head.count}.")
    if problems:
        return None, problems
    number = len(records)
    steps = {
        STEP_FIELDS[name]: np.array([r[name] for r in records], dtype=np.float64).reshape(number, head.length)
        for name in expected or ()
    }
    sequences = Sequences(
        task=head.task,
        attribute=head.attribute,
        grid=head.grid,
        length=head.length,
        ids=tuple(r["image"] for r in records),
        locations=np.array([r["locations"] for r in records], dtype=np.int64).reshape(number, head.length, 2),
        provenance=head.provenance,
        **steps,
    )
    return sequences, []


def _lines(sequences: Sequences) -> bytes:
    steps = {name: numbers.tolist() for name, numbers in sequences.steps().items()}
    locations = sequences.locations.tolist()
    records = (
        {"image": id, "locations": locations[n], **{name: numbers[n] for name, numbers in steps.items()}}
        for n, id in enumerate(sequences.ids)
    )
    # ASCII escapes keep one record on one line for every tool, whatever the image ids are
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode("ascii")


def _manifest(sequences: Sequences) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": sequences.task,
        "attribute": sequences.attribute,
        "glimpses": sequences.length,
        "count": len(sequences),
        "coordinates": COORDINATES,
        "grid": sequences.grid.to_json(),
        "provenance": dict(sequences.provenance),
    }


def _ours(path: Path) -> bool:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("format") == FORMAT


def _grid(value: Any, path: Path) -> Grid:
    try:
        return Grid.from_json(value)
    except InputError as error:
        raise InputError(f'The field "grid" of {path} is wrong: {error}') from None


def _text_lines(path: Path) -> list[str]:
    check_product(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}); import or annotate again.") from None
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: this is not UTF-8 text.") from None
    return lines if lines[-1] else lines[:-1]


def _ends_line(path: Path) -> bool:
    return path.read_bytes().endswith(b"\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON line; a duplicate field, of which Python would silently keep the last, is refused."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise InputError(f'the field "{twice}" occurs twice')
    return record


def _parse(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_object)
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("this is not a JSON object") from None
    if not isinstance(record, dict):
        raise InputError("this is not a JSON object")
    for name in ("image", "locations"):
        if name not in record:
            raise InputError(f'the field "{name}" is missing')
    if record.keys() - STEP_FIELDS.keys() - {"image", "locations"}:
        name = min(record.keys() - STEP_FIELDS.keys() - {"image", "locations"})
        raise InputError(f'the field "{name}" is unknown; there are image, locations, {", ".join(STEP_FIELDS)}')
    if not isinstance(record["image"], str) or not record["image"]:
        raise InputError(f'"image" must be an id in quotes, but is {json.dumps(record["image"])}')
    return record


def _check_steps(record: dict[str, Any], length: int) -> None:
    for name, values in record.items():
        if name == "image":
            continue
        if not isinstance(values, list) or len(values) != length:
            has = f"has {len(values)}" if isinstance(values, list) else "is not a list"
            raise InputError(f'"{name}" needs {length} entries, one per glimpse, but {has}')
        for step, value in enumerate(values, 1):
            if name == "locations":
                if not (isinstance(value, list) and len(value) == 2 and type(value[0]) is type(value[1]) is int):
                    raise InputError(
                        f"location {step} must be [row, column] in whole pixels, but is {json.dumps(value)}"
                    )
            elif not _finite(value):
                raise InputError(f'entry {step} of "{name}" must be a number, but is {json.dumps(value)}')


def _finite(value: object) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False
