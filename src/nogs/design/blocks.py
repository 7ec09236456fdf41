"""The files of an annotation: its blocks while it runs, the first step, and the maps; each is checked on reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from pydantic import Field, ValidationError
from torch import Tensor

from nogs.design.epe import EPEMap
from nogs.design.steps import First
from nogs.runtime.digests import sealed
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_sealed, write_text
from nogs.runtime.headers import Header, described
from nogs.runtime.tensors import load_tensors, save_tensors

__all__ = [
    "FIRST",
    "FIRST_FORMAT",
    "MAPS",
    "Block",
    "blocks",
    "first_map",
    "read_block",
    "read_first",
    "read_maps",
    "save_first",
    "save_maps",
    "write_block",
]

FIRST, MAPS = "first.safetensors", "maps.safetensors"
NUMBERS = ("entropy", "epe", "error", "sure", "effective")
"""The numbers that a block holds for each step besides its location."""
FIRST_FORMAT, _MAPS_FORMAT = "nogs first step 1", "nogs maps 1"


@dataclass(frozen=True)
class Block:
    """Some images of an annotation, with their pixels."""

    number: int
    ids: tuple[str, ...]
    images: Any = None  # uint8 [B, H, W, 3]

    def __repr__(self) -> str:
        return f"block {self.number}: images {self.ids[0]!r} to {self.ids[-1]!r}"


class _Found(Header):
    """The file of a block: for each image the locations, and `NUMBERS`, step by step."""

    ids: list[str]
    locations: list[list[int]]
    entropy: list[list[float]]
    epe: list[list[float]]
    error: list[list[float]]
    sure: list[list[float]]
    effective: list[list[float]]
    evaluations: int = Field(ge=0)


class _FirstHeader(Header):
    """The metadata of the first step's file."""

    format: str
    fingerprint: str
    evaluations: int = Field(ge=0)


def blocks(ids: Sequence[str], size: int) -> list[Block]:
    """The images in order, `size` at a time."""
    return [Block(n, tuple(ids[at : at + size])) for n, at in enumerate(range(0, len(ids), size))]


def write_block(folder: Path, block: Block, found: dict[str, Any]) -> None:
    """Write what was found for the images of a block."""
    write_text(folder / f"{block.number:05}.json", json.dumps(sealed(found)) + "\n")


def read_block(folder: Path, block: Block, *, glimpses: int, locations: int) -> dict[str, Any]:
    """What `write_block` wrote; a block with a location outside the grid, or without one of its numbers, is refused."""
    path = folder / f"{block.number:05}.json"

    def damaged(why: str) -> InputError:
        return InputError(f"{path} is damaged ({why}); delete it, and this block is done again.")

    try:
        found = _Found.model_validate(read_sealed(path)).model_dump()
    except ValidationError as error:
        first = error.errors()[0]
        raise damaged(f"field {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except InputError as error:
        raise damaged("it can't be read, or has changed since it was written") from error
    rows = [row for name in ("locations", *NUMBERS) for row in found[name]]
    if found["ids"] != list(block.ids) or len(rows) != (1 + len(NUMBERS)) * len(block.ids):
        raise damaged("it is of other images")
    if any(len(row) != glimpses for row in rows):
        raise damaged(f"not every image has {glimpses} steps")
    if any(not 0 <= index < locations for row in found["locations"] for index in row):
        raise damaged(f"a location is outside 0..{locations - 1}")
    return found


def save_first(path: Path, first: First, *, made_from: str) -> None:
    """Write the first step of the annotation with this fingerprint."""
    parts = {"location": first.location, **{name: getattr(first.map, name) for name in ("estimate", "error", "tried")}}
    save_tensors(path, parts, {"format": FIRST_FORMAT, "fingerprint": made_from, "evaluations": first.evaluations})


def read_first(path: Path, *, made_from: str | None = None) -> First | None:
    """What `save_first` wrote; None if its fingerprint is not the given one."""
    tensors, said = load_tensors(path)
    with described(path, "the first step of an annotation"):
        if said.get("format") != FIRST_FORMAT:
            raise InputError("it has another format")
        header = _FirstHeader.model_validate(said)
        found = EPEMap(*(tensors[name] for name in ("estimate", "error", "tried")))
        shape = found.estimate.shape
        if len(shape) != 2 or any(part.shape != shape for part in (found.error, found.tried)):
            raise InputError("its maps are misshapen")
        location = tensors["location"]
        if location.shape != shape[:1] or not ((location >= 0) & (location < shape[1])).all():
            raise InputError(f"it has a location outside 0..{shape[1] - 1}")
    return First(location, found, header.evaluations) if made_from in (None, header.fingerprint) else None


def first_map(folder: Path, column: int | None) -> Float[Tensor, " L"] | None:
    """The map of the first step for the label, or for the attribute in that column, of the annotation that made the
    sequences in a folder; None if it left no such map."""
    path = next((path for path in (folder / FIRST, folder.parent / FIRST) if path.is_file()), None)
    if path is None:
        return None
    first = read_first(path)
    assert first is not None
    if (row := column or 0) >= len(first.map.estimate):
        raise InputError(f"{path} has maps of {len(first.map.estimate)} attributes, and none of number {row + 1}.")
    return first.map.estimate[row]


def save_maps(path: Path, *, estimate: Float[Tensor, "N T L"], error: Float[Tensor, "N T L"]) -> None:
    """Write expected posterior entropy and its standard error at every image, step and location."""
    save_tensors(path, {"estimate": estimate, "error": error}, {"format": _MAPS_FORMAT})


def read_maps(path: Path, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """What `save_maps` wrote, of so many images, steps and locations."""
    tensors, said = load_tensors(path)
    shapes = {name: tuple(part.shape) for name, part in tensors.items()}
    if said.get("format") != _MAPS_FORMAT or shapes != {"estimate": shape, "error": shape}:
        raise InputError(
            f"{path} does not hold the maps of {' x '.join(map(str, shape))} images, steps and locations; bring it "
            "back from a copy, or delete its folder and annotate again."
        )
    return tensors
