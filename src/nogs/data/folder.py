"""A folder of the user's pictures: one folder per class, or a CSV with the label and split of each picture."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from nogs.data.archives import IMAGE_SUFFIXES, OTHER_SUFFIXES, Entry, check_pictures, hidden, is_run, walk
from nogs.data.catalogue import Catalogue
from nogs.data.config import DataConfig
from nogs.data.images import Preparation, open_picture
from nogs.data.splits import stratified_splits
from nogs.data.task import LabelSpace
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_text

__all__ = ["LEAST", "Survey", "catalogue", "survey"]

_LONGEST = 255
"""Largest number of characters of a label, the usual limit of a folder's name."""
LEAST = 40
"""Fewest pictures to train with, since they are divided among five splits."""

_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(
    ("validation", "val", "valid", "dev"), "validation"
)


@dataclass(frozen=True)
class Survey:
    """Summary of a folder of pictures: its labels, and the headers of some of its files."""

    images: int
    classes: Mapping[str, int]  # pictures of each
    training: int  # pictures that are neither for validation nor for the test
    sizes: tuple[tuple[int, int], ...]  # (width, height) of the pictures that were looked at and could be read
    looked_at: int

    @property
    def side(self) -> int:
        """The median of the shorter sides, in px."""
        return int(np.median([min(size) for size in self.sizes]))

    def smaller_than(self, side: int) -> int:
        """How many of the pictures looked at have a side of less than `side` px."""
        return sum(min(size) < side for size in self.sizes)


def survey(config: DataConfig, *, data: Path, most: int = 256) -> Survey:
    """Read the names of all pictures in `data` and the headers of at most `most`, spread evenly over them."""
    found = catalogue(config, data=data, least=LEAST)
    chosen = np.unique(np.linspace(0, len(found.entries) - 1, most).astype(int))
    sizes = []
    for place in chosen:
        try:
            with open_picture(found.entries[place].read()) as picture:
                sizes.append(picture.size)
        except (
            Exception
        ):  # Pillow raises many types of errors on damaged files, which are reported when they are decoded
            continue
    if not sizes:
        raise InputError(
            f"None of the {len(chosen)} pictures looked at in {data} can be read, such as "
            f"{found.entries[0].shown}; give pictures that open in other programs."
        )
    counts = np.bincount(found.labels, minlength=len(found.space.names))
    return Survey(
        images=len(found.ids),
        classes={name: int(number) for name, number in zip(found.space.names, counts)},
        training=len(found.splits["train"]),
        sizes=tuple(sizes),
        looked_at=len(chosen),
    )


def catalogue(config: DataConfig, *, data: Path, least: int = 1) -> Catalogue:
    """Pictures, labels and splits; an image's id is its path relative to `data`. Fewer than `least` are refused."""
    check_pictures(data)
    found = {entry.name: entry for entry in walk(data, suffixes=IMAGE_SUFFIXES + OTHER_SUFFIXES)}
    entries = {name: entry for name, entry in found.items() if name.lower().endswith(IMAGE_SUFFIXES)}
    if not entries:
        raise InputError(f"There is no picture in {data} ({', '.join(IMAGE_SUFFIXES)}); give a folder that has some.")
    notes = _other_endings(found.keys() - entries.keys())
    if config.labels is None:
        label, given = _class_folders(data, entries)
    else:
        label, given = _csv(config, data, entries)
        unlabelled = len(entries) - len(label)
        if unlabelled:
            pictures = "picture" if unlabelled == 1 else "pictures"
            are = "is" if unlabelled == 1 else "are"
            notes += (f"{unlabelled} {pictures} of {data.name} {are} not in {config.labels} and {are} left out.",)
    ids = tuple(sorted(label, key=_natural))
    names = tuple(sorted(set(label.values()), key=_natural))
    if len(names) < 2:
        inside = _nested(data, entries) if config.labels is None else None
        meant = f"its classes seem to be in {inside}; give that folder." if inside else "a task needs at least 2."
        raise InputError(f"The pictures in {data} have only one class, {names[0]!r}; {meant}")
    if len(ids) < least:
        raise InputError(
            f"There are {len(ids)} pictures in {len(names)} classes, too few to train, validate and test; give at "
            f"least {least}."
        )
    if len(names) == len(ids) and not given:
        raise InputError(f"Each of the {len(ids):,} pictures in {data} has a class of its own; a class needs several.")
    number = {name: n for n, name in enumerate(names)}
    splits, said = stratified_splits(
        ids,
        [label[id] for id in ids],
        given=given,
        validation_share=config.validation_share,
        test_share=config.test_share,
        annotated=config.annotated,
        seed=config.split_seed,
    )
    raised = {"validation": "raise --data.validation-share or lower --data.test-share"}
    raised["test"] = "raise --data.test-share or lower --data.validation-share"
    for split in ("train", "validation", "test"):
        if not splits[split]:
            remedy = f"add images, {raised[split]}" if split in raised else "give it images"
            raise InputError(f"The split {split!r} of the pictures in {data} is empty; {remedy}.")
    return Catalogue(
        name="folder",
        title=data.resolve().name,
        ids=ids,
        entries=tuple(entries[id] for id in ids),
        labels=np.array([number[label[id]] for id in ids], dtype=np.int64),
        space=LabelSpace("categorical", names),
        splits=splits,
        how=Preparation(config.image_size, fit=config.fit, upright=True),
        notes=(*notes, *said),
    )


def _other_endings(names: Iterable[str]) -> tuple[str, ...]:
    """A note on the pictures that are left out because of their suffix."""
    kinds = Counter(PurePosixPath(name).suffix.lower() for name in names)
    counts = [f"{number} {kind} {'file' if number == 1 else 'files'}" for kind, number in sorted(kinds.items())]
    return (f"Left out {', '.join(counts)}: only {', '.join(IMAGE_SUFFIXES)} are read.",) if counts else ()


def _class_folders(data: Path, entries: Mapping[str, Entry]) -> tuple[dict[str, str], dict[str, str]]:
    """The label of each id and, where the top folders are train, validation and test, its split."""
    tops = _folders(data)
    if not tops:
        raise InputError(
            f"{data} has pictures but no class folders; make one folder per class, or name a CSV of labels "
            "with --data.labels."
        )
    in_splits = all(top.name.lower() in _SPLITS for top in tops)
    depth = 1 if in_splits else 0
    classes = [path for top in tops for path in (_folders(top) if in_splits else [top])]
    label, given = {}, {}
    for id in entries:
        parts = PurePosixPath(id).parts
        if len(parts) < depth + 2:
            raise InputError(f"{data / id} is beside the class folders, not in one; move it into a class or away.")
        label[id] = parts[depth]
        if in_splits:
            given[id] = _SPLITS[parts[0].lower()]
    filled = {tuple(PurePosixPath(id).parts[: depth + 1]) for id in entries}
    for path in classes:
        if path.relative_to(data).parts not in filled:
            raise InputError(f"The class folder {path} holds no picture; fill it or remove it.")
    return label, given


def _nested(data: Path, ids: Iterable[str]) -> Path | None:
    """The folder further down that holds a class folder for every picture, if there is one."""
    folders = {os.path.dirname(id) for id in ids}
    shared = os.path.commonpath(folders)
    return data / shared if shared and shared not in folders else None


def _folders(path: Path) -> list[Path]:
    """The folders in a folder, without runs and without folders that hold only runs."""
    inside = [child for child in path.iterdir() if child.is_dir() and not hidden(child.name) and not is_run(child)]
    return sorted(child for child in inside if not any(child.iterdir()) or not all(map(is_run, child.iterdir())))


def _csv(config: DataConfig, data: Path, entries: Mapping[str, Entry]) -> tuple[dict[str, str], dict[str, str]]:
    assert config.labels is not None
    path = data / config.labels
    if not path.is_file():
        raise InputError(f"There is no file {path}; --data.labels names a CSV in the folder of the pictures.")
    reader = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff"), newline=""))
    try:
        columns, rows = reader.fieldnames or [], [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"Line {reader.line_num + 1} of {path} can't be read ({error}); correct it.") from error
    has_split = config.split_column in columns
    wanted = [config.image_column, config.label_column]
    if config.split_column != DataConfig.model_fields["split_column"].default:
        wanted.append(config.split_column)
    lacking = [column for column in wanted if column not in columns]
    if lacking:
        sign = next((sign for sign in (";", "\t", "|") if len(columns) == 1 and sign in columns[0]), None)
        if sign is not None:
            raise InputError(f"{path} has its columns separated by {sign!r}; save it with commas between them.")
        raise InputError(f"{path} has no column {lacking[0]!r}; it has {', '.join(columns) or 'none'}.")
    label: dict[str, str] = {}
    given: dict[str, str] = {}
    unknown: list[str] = []
    for line, row in rows:
        where = f"Line {line} of {path}"
        id = (row[config.image_column] or "").strip().replace("\\", "/").removeprefix("./")
        name = (row[config.label_column] or "").strip()
        if not id or not name:
            raise InputError(f"{where} has no image or no label; fill both columns.")
        if len(name) > _LONGEST:
            raise InputError(f"{where} has a label of {len(name):,} characters; use at most {_LONGEST}.")
        if id in label:
            raise InputError(f"{where} names the image {id!r} a second time; keep one line per image.")
        if id not in entries:
            unknown.append(id)
        label[id] = name
        if has_split:
            split = _SPLITS.get((row[config.split_column] or "").strip().lower())
            if split is None:
                raise InputError(f"{where} has the split {row[config.split_column]!r}; use train, validation or test.")
            given[id] = split
    if unknown:
        pictures = "picture that is" if len(unknown) == 1 else "pictures that are"
        raise InputError(
            f"{path} names {len(unknown)} {pictures} not in {data}, the first is {unknown[0]!r}; paths are "
            "relative to that folder."
        )
    if not label:
        raise InputError(f"{path} lists no image; give it one line per image.")
    return label, given


def _natural(text: str) -> tuple[int, int, str, str]:
    """Sort key: numbers of any length in numeric order, before other names."""
    if not (text.isascii() and text.isdecimal()):
        return 1, 0, text, text
    digits = text.lstrip("0")
    return 0, len(digits), digits, text
