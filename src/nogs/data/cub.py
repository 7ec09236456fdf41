"""CUB-200-2011: 11,788 birds of 200 species with boxes, 15 parts and 312 attributes, in its own layout (or zipped)."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nogs.data.archives import Entry, Tree, by_stem
from nogs.data.catalogue import Catalogue, Points
from nogs.data.config import DataConfig
from nogs.data.images import Preparation
from nogs.data.splits import cub_splits
from nogs.data.task import LabelSpace
from nogs.runtime import files
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint

__all__ = ["catalogue"]

_OWN = "CUB_200_2011"
_HINT = f"give --data the folder of the CUB-200-2011 download ({_OWN})"
_PER_IMAGE = "attributes/image_attribute_labels.txt"
_PER_CLASS = "attributes/class_attribute_labels_continuous.txt"

V = TypeVar("V")


def catalogue(config: DataConfig, *, data: Path, cache: Path | None = None) -> Catalogue:
    """Pictures, labels, splits and annotations from CUB's text files; an image's id is that of images.txt.

    The table of per-image attributes (3.7 million lines) is cached as an array in `cache`.
    """
    tree = _tree(data)
    paths = _table(tree, "images.txt", str)
    ids = sorted(paths)
    classes = _table(tree, "classes.txt", str)
    labels = _labels(_only(_table(tree, "image_class_labels.txt", int), "image_class_labels.txt", ids), ids, classes)
    official = _only(_table(tree, "train_test_split.txt", int), "train_test_split.txt", ids)
    names = [str(id) for id in ids]
    for id in ids:
        if official[id] not in (0, 1):
            raise InputError(f"Image {id} of train_test_split.txt has the value {official[id]}; it must be 0 or 1.")
    splits, notes = cub_splits(
        [str(id) for id in ids if official[id]],
        [str(id) for id in ids if not official[id]],
        annotated=config.annotated,
        seed=config.split_seed,
    )
    attributes, source = _attributes(tree, ids, labels, len(classes), cache)
    return Catalogue(
        name="cub",
        ids=tuple(names),
        entries=_pictures(tree, paths, ids),
        labels=labels,
        space=LabelSpace("categorical", tuple(classes[number] for number in sorted(classes))),
        splits=splits,
        how=Preparation(config.image_size),
        boxes=_boxes(tree, ids),
        points=_points(tree, ids),
        attributes=attributes,
        attribute_names=_attribute_names(tree, attributes.shape[1]),
        notes=(*notes, source),
    )


def _tree(data: Path) -> Tree:
    """The files of `data`, or of `data/cub-200-2011` if images.txt is there."""
    for base in (data / "cub-200-2011", data):
        tree = Tree([base, base / _OWN], archives=("annotations.zip", "images.zip", "images-*.zip"), prefix=_OWN)
        if tree.find("images.txt"):
            break
    return tree


def _table(tree: Tree, name: str, kind: Callable[[str], V]) -> dict[int, V]:
    """Lines of `<number> <value>`; a repeated number or a value of another type is refused with its line."""
    found: dict[int, V] = {}
    for line, text in enumerate(tree.text(name, hint=_HINT).splitlines(), start=1):
        if not text.strip():
            continue
        try:
            number, value = text.split(maxsplit=1)
            key, converted = int(number), kind(value.strip())
        except ValueError:
            raise InputError(
                f"Line {line} of {name} is {text!r}, not a number and a value; correct that line."
            ) from None
        if key in found:
            raise InputError(f"Line {line} of {name} has the number {key} a second time; remove one of the lines.")
        found[key] = converted
    if not found:
        raise InputError(f"{name} is empty; download the file again.")
    return found


def _only(table: dict[int, V], name: str, ids: list[int]) -> dict[int, V]:
    """Refuse a table that does not have exactly one line per image."""
    lone = set(ids) ^ set(table)
    if lone:
        raise InputError(
            f"{name} lists {len(table)} images and images.txt {len(ids)}: image {min(lone)} is in one only; "
            "download both files again."
        )
    return table


def _labels(table: dict[int, int], ids: list[int], classes: dict[int, str]) -> npt.NDArray[np.int64]:
    if sorted(classes) != list(range(1, len(classes) + 1)):
        raise InputError(f"The classes of classes.txt must be numbered 1..{len(classes)}; correct the file.")
    labels = np.array([table[id] - 1 for id in ids], dtype=np.int64)
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise InputError(
            f"Image {ids[wrong[0]]} of image_class_labels.txt has the class {labels[wrong[0]] + 1}, "
            f"outside 1..{len(classes)} of classes.txt."
        )
    empty = np.flatnonzero(np.bincount(labels, minlength=len(classes)) == 0)
    if len(empty):
        raise InputError(f"Class {classes[int(empty[0]) + 1]!r} of classes.txt has no image; remove it or add images.")
    return labels


def _pictures(tree: Tree, paths: dict[int, str], ids: list[int]) -> tuple[Entry, ...]:
    found = by_stem(tree.images("images"))
    stems = {id: f"images/{paths[id].rpartition('.')[0]}" for id in ids}
    seen: dict[str, int] = {}
    for id, stem in stems.items():
        if seen.setdefault(stem, id) != id:
            raise InputError(f"Images {seen[stem]} and {id} of images.txt are the same file {paths[id]}; remove one.")
    missing = [id for id in ids if stems[id] not in found]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(ids)} images that images.txt lists are not in {tree.folders[0]}, the first is "
            f"{paths[missing[0]]}; download the pictures again."
        )
    return tuple(found[stems[id]] for id in ids)


def _numbers(tree: Tree, name: str, columns: int | None = None) -> npt.NDArray[np.float64]:
    """A text file of numbers; the first `columns` of each line, since some original files have lines with more."""
    text = io.StringIO(tree.text(name, hint=_HINT))
    try:
        table: npt.NDArray[Any] = np.loadtxt(text, ndmin=2, usecols=columns and range(columns), dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name} is not a table of numbers ({error}); download the file again.") from None
    return table


def _boxes(tree: Tree, ids: list[int]) -> npt.NDArray[np.float64]:
    table = _numbers(tree, "bounding_boxes.txt", 5)
    rows = {int(id): row for row, id in enumerate(table[:, 0])}
    if len(rows) != len(table):
        raise InputError("bounding_boxes.txt has more than one line for an image; download the file again.")
    _only(rows, "bounding_boxes.txt", ids)
    return table[[rows[id] for id in ids], 1:]


def _points(tree: Tree, ids: list[int]) -> Points | None:
    if tree.find("parts/part_locs.txt") is None:
        return None
    names = _table(tree, "parts/parts.txt", str)
    table = _numbers(tree, "parts/part_locs.txt", 5)
    order = np.lexsort((table[:, 1], table[:, 0]))
    expected = np.stack(np.meshgrid(ids, sorted(names), indexing="ij"), -1).reshape(-1, 2)
    if not np.array_equal(table[order, :2], expected):
        raise InputError(
            f"parts/part_locs.txt must have one line for each of {len(ids)} images and {len(names)} parts, but has "
            f"{len(table)} lines that don't match them; download the file again."
        )
    values = table[order, 2:].reshape(len(ids), len(names), 3)
    return Points(tuple(names[number] for number in sorted(names)), values[..., :2], values[..., 2] > 0)


def _attributes(
    tree: Tree, ids: list[int], labels: npt.NDArray[np.int64], classes: int, cache: Path | None
) -> tuple[npt.NDArray[np.float32], str]:
    """Attributes of each image in [0, 1], and a note on their source."""
    entry = tree.find(_PER_IMAGE)
    if entry is not None:
        kept = (
            None if cache is None else Path(cache) / f"cub-attributes-{fingerprint(entry.size, entry.stamp, ids)}.npy"
        )
        if kept is not None and kept.exists():
            return files.load_array(kept), f"Attributes are each image's own ({_PER_IMAGE})."
        table = _numbers(tree, _PER_IMAGE, 3)
        order = np.lexsort((table[:, 1], table[:, 0]))
        count = len(table) // len(ids)
        if count == 0 or not np.array_equal(table[order, 0], np.repeat(np.array(ids), count)):
            raise InputError(
                f"{_PER_IMAGE} has {len(table)} lines, not the same number for each of {len(ids)} images; get it again."
            )
        own = table[order, 2].reshape(len(ids), count).astype(np.float32)
        if kept is not None:
            files.save_array(kept, own)
        return own, f"Attributes are each image's own ({_PER_IMAGE})."
    shares = (_numbers(tree, _PER_CLASS) / 100).astype(np.float32)
    if len(shares) != classes:
        raise InputError(f"{_PER_CLASS} has {len(shares)} lines for {classes} classes; download the file again.")
    if shares.min() < 0 or shares.max() > 1:
        raise InputError(f"{_PER_CLASS} has values outside 0..100; download the file again.")
    return shares[labels], f"Attributes are those of the class ({_PER_CLASS}): there is no {_PER_IMAGE}."


def _attribute_names(tree: Tree, count: int) -> tuple[str, ...]:
    for name in ("attributes/attributes.txt", "attributes.txt"):
        if tree.find(name) is not None:
            table = _table(tree, name, str)
            if len(table) == count:
                return tuple(table[number] for number in sorted(table))
    return tuple(f"attribute {number}" for number in range(1, count + 1))
