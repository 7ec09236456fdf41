"""CelebA-HQ: 30,000 faces with 40 binary attributes, in CelebAMask-HQ's layout (or zip archives of it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nogs.data.archives import Entry, Tree, by_stem
from nogs.data.catalogue import Catalogue
from nogs.data.config import DataConfig
from nogs.data.images import Preparation
from nogs.data.splits import celeba_hq_splits
from nogs.data.task import LabelSpace
from nogs.runtime.errors import InputError

__all__ = ["ANNOTATION", "catalogue"]

ANNOTATION = "CelebAMask-HQ-attribute-anno.txt"
_IMAGES = "CelebA-HQ-img"
_OWN = "CelebAMask-HQ"


def catalogue(config: DataConfig, *, data: Path) -> Catalogue:
    """Pictures, labels and splits from the annotation file; an image's id is its index."""
    tree = _tree(data)
    text = tree.text(ANNOTATION, hint="give --data the folder of the CelebA-HQ download (CelebAMask-HQ)")
    indices, names, labels = _attributes(text)
    entries = _pictures(tree, indices)
    ids = tuple(map(str, indices))
    splits, notes = celeba_hq_splits(ids, annotated=config.annotated)
    return Catalogue(
        name="celeba-hq",
        ids=ids,
        entries=entries,
        labels=labels,
        space=LabelSpace("bernoulli", names),
        splits=splits,
        how=Preparation(config.image_size),
        notes=notes,
    )


def _tree(data: Path) -> Tree:
    """The files of `data`, or of `data/celeba-hq` if the annotation is there."""
    for base in (data / "celeba-hq", data):
        tree = Tree([base, base / _OWN], archives=("images-*.zip", "images.zip", "annotations.zip"), prefix=_OWN)
        if tree.find(ANNOTATION):
            break
    return tree


def _attributes(text: str) -> tuple[list[int], tuple[str, ...], npt.NDArray[np.uint8]]:
    """Indices in increasing order, names of the attributes, and the labels as 0/1."""
    lines = text.splitlines()
    if len(lines) < 3 or not lines[0].strip().isdigit():
        raise InputError(f"{ANNOTATION} must start with a count and a line of names; download the file again.")
    count, names = int(lines[0]), tuple(lines[1].split())
    rows = [line.split() for line in lines[2:] if line and not line.isspace()]
    if len(rows) != count:
        raise InputError(
            f"{ANNOTATION} says that it lists {count} images, but lists {len(rows)}; download the file again."
        )
    values: dict[int, list[str]] = {}
    for number, row in enumerate(rows, start=3):
        stem = row[0].partition(".")[0]
        if not stem.isdecimal():
            raise InputError(
                f"Line {number} of {ANNOTATION} names {row[0]!r}, which is not <index>.jpg; correct that line."
            )
        if len(row) != len(names) + 1:
            raise InputError(
                f"Line {number} of {ANNOTATION} has {len(row) - 1} values for {len(names)} attributes; correct it."
            )
        if int(stem) in values:
            raise InputError(
                f"Line {number} of {ANNOTATION} names image {stem} a second time; remove one of the lines."
            )
        values[int(stem)] = row
    indices = sorted(values)
    table = np.array([values[index][1:] for index in indices])
    wrong = np.argwhere((table != "1") & (table != "-1"))
    if len(wrong):
        row_, column = wrong[0]
        raise InputError(
            f"Image {indices[row_]} of {ANNOTATION} has the value {table[row_, column]} for {names[column]}; "
            "it must be -1 or 1."
        )
    return indices, names, (table == "1").astype(np.uint8)


def _pictures(tree: Tree, indices: list[int]) -> tuple[Entry, ...]:
    found = {name.rpartition("/")[2]: entry for name, entry in by_stem(tree.images(_IMAGES)).items()}
    missing = [index for index in indices if str(index) not in found]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(indices)} images that {ANNOTATION} lists are not in {_IMAGES} of "
            f"{tree.folders[0]}, the first is {missing[0]}; download the pictures again."
        )
    return tuple(found[str(index)] for index in indices)
