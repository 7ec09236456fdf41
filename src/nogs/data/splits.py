"""The splits of each kind of data, and `splits.json`, their explicit lists of ids in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nogs.data.task import SPLITS, Task
from nogs.runtime import files
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import numpy_stream

__all__ = ["celeba_hq_splits", "cub_splits", "read_splits", "stratified_splits", "write_splits"]

Splits = dict[str, tuple[str, ...]]
CELEBA_HQ_IMAGES = 30_000
CUB_TRAINING = 5_994
CUB_VALIDATION = 874
FILE = "splits.json"


def celeba_hq_splits(ids: Sequence[str], *, annotated: int) -> tuple[Splits, tuple[str, ...]]:
    """The release's index ranges; with fewer than 30,000 images the same shares of them, and a note."""
    number = len(ids)
    if number < 4:
        raise InputError(f"CelebA-HQ has only {number} images here; its splits need at least 4.")
    if annotated > 2_000:
        raise InputError(
            f"The posterior of CelebA-HQ trains on images from 2000 on, so `annotated` can't be {annotated}."
        )

    def at(index: int) -> int:
        return round(index * number / CELEBA_HQ_IMAGES)

    first_test = min(at(27_500), number - 1)
    first_validation = min(at(27_000), first_test - 1)
    chosen = min(max(at(annotated), min(annotated, 1)), first_validation - 1)
    splits = {
        "train": tuple(ids[:first_validation]),
        "validation": tuple(ids[first_validation:first_test]),
        "test": tuple(ids[first_test:]),
        "annotate": tuple(ids[:chosen]),
        "posterior": tuple(ids[max(chosen, min(at(2_000), first_validation - 1)) : first_validation]),
    }
    if number == CELEBA_HQ_IMAGES:
        return splits, ()
    return splits, (f"CelebA-HQ has {number} images here, not 30,000: its splits are the same shares of them.",)


def cub_splits(
    train: Sequence[str], test: Sequence[str], *, annotated: int, seed: int
) -> tuple[Splits, tuple[str, ...]]:
    """The release's annotated images; validation and posterior images are drawn from the other training images."""
    number = len(train)
    whole = number == CUB_TRAINING
    chosen = annotated if whole else max(round(annotated * number / CUB_TRAINING), min(annotated, 1))
    held = CUB_VALIDATION if whole else max(1, round(CUB_VALIDATION * number / CUB_TRAINING))
    if chosen + held >= number:
        raise InputError(
            f"Of CUB's {number} training images, {chosen} annotated and {held} validation images leave none to "
            "train the posterior; lower `annotated`."
        )
    picked = {int(index) for index in np.linspace(0, number - 1, chosen)}
    others = [index for index in range(number) if index not in picked]
    drawn = numpy_stream(seed, "cub validation").permutation(len(others))[:held]
    validation = {others[index] for index in drawn}
    splits = {
        "train": tuple(id for index, id in enumerate(train) if index not in validation),
        "validation": tuple(train[index] for index in sorted(validation)),
        "test": tuple(test),
        "annotate": tuple(train[index] for index in sorted(picked)),
        "posterior": tuple(train[index] for index in others if index not in validation),
    }
    if whole:
        return splits, ()
    return splits, (f"CUB has {number} training images here, not 5,994: its splits are the same shares of them.",)


def stratified_splits(
    ids: Sequence[str],
    classes: Sequence[str],
    *,
    given: Mapping[str, str],
    validation_share: float,
    test_share: float,
    annotated: int,
    seed: int,
) -> tuple[Splits, tuple[str, ...]]:
    """Splits with the same share of each class. `given` maps ids to splits that the user set.

    If the user set no image for validation (or test), that split is drawn from the training images with the seed.
    """
    label = dict(zip(ids, classes))
    parts: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for id in ids:
        parts[given.get(id, "train")].append(id)
    notes = []
    for split, share in (("test", test_share), ("validation", validation_share)):
        if not parts[split]:
            if given:
                notes.append(f"No image is given for the split {split!r}: it is drawn from the training images.")
            wanted = round(share * len(ids))
            parts[split] = _draw(parts["train"], label, wanted, seed, split, leave=1)
            gone = set(parts[split])
            parts["train"] = [id for id in parts["train"] if id not in gone]
    train = parts["train"]
    number = min(annotated, len(train) // 2)
    annotate = _draw(train, label, number, seed, "annotate")
    chosen = set(annotate)
    if number < annotated:
        images = "image is" if number == 1 else "images are"
        notes.append(
            f"Only {number} {images} annotated, not {annotated}: half of the training images train the posterior."
        )
    splits = {
        **{split: tuple(members) for split, members in parts.items()},
        "annotate": tuple(annotate),
        "posterior": tuple(id for id in train if id not in chosen),
    }
    return splits, tuple(notes)


def _draw(
    ids: Sequence[str], label: Mapping[str, str], wanted: int, seed: int, purpose: str, leave: int = 0
) -> list[str]:
    """`wanted` ids in their original order, drawn in proportion to the classes; `leave` of each class stay behind."""
    members: dict[str, list[str]] = {}
    for id in ids:
        members.setdefault(label[id], []).append(id)
    count = dict.fromkeys(sorted(members), 0)
    seen = drawn = 0
    for name in (*count, *count):  # the second round takes from the first classes what the last ones lacked
        # a running total: many small classes don't all round to zero, and the next class replaces what one lacks
        seen = min(seen + len(members[name]), len(ids))
        more = max(0, min(wanted * seen // len(ids) - drawn, len(members[name]) - leave - count[name]))
        count[name] += more
        drawn += more
    taken: set[str] = set()
    for name, number in count.items():
        order = numpy_stream(seed, f"{purpose} split", name).permutation(len(members[name]))
        taken |= {members[name][index] for index in order[:number]}
    return [id for id in ids if id in taken]


def write_splits(task: Task, folder: Path) -> Path:
    """Write the task's splits, as lists of ids, and the ids of skipped images to `splits.json` of a run."""
    path = Path(folder) / FILE
    record = {
        "task": task.name,
        "images": len(task.ids),
        "skipped": list(task.skipped),
        "splits": {split: list(members) for split, members in task.splits.items()},
    }
    files.write_json(path, record)
    return path


def read_splits(task: Task, folder: Path) -> Task:
    """The task with the splits that a run's `splits.json` lists; those of another task are refused."""
    path = Path(folder) / FILE
    record = files.read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("splits"), dict):
        raise InputError(f"{path} has no field 'splits'; delete it and it is written again.")
    if record.get("task") != task.name:
        raise InputError(f"{path} belongs to the task {record.get('task')!r}, not {task.name!r}; give another --out.")
    if set(record["splits"]) != set(SPLITS):
        raise InputError(f"{path} must list the splits {', '.join(SPLITS)}; delete it and it is written again.")
    for split, ids in record["splits"].items():
        if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
            raise InputError(f"The split {split!r} of {path} must be a list of ids; delete it and it is written again.")
    splits = {split: tuple(record["splits"][split]) for split in SPLITS}
    if splits == {split: tuple(task.splits[split]) for split in SPLITS}:
        return task
    try:
        return replace(task, splits=splits, fingerprint=fingerprint(task.fingerprint, splits))
    except InputError as error:
        raise InputError(
            f"{path} does not fit this data; check that --data is the folder that the run was made from. {error}"
        ) from error
