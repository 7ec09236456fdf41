"""`Task`: labelled images with their label space, splits and grid, the input of every later stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.spelling import instead

SPLITS = ("train", "validation", "test", "annotate", "posterior")
"""`train`, `validation`, `test` are disjoint. `annotate` is the part of train that gets glimpse sequences, `posterior`
the part that trains the posterior; these two are disjoint, so that no annotated image trains the posterior."""


@dataclass(frozen=True)
class LabelSpace:
    """What is predicted: one of `names` (categorical), or each of `names` on its own (bernoulli)."""

    kind: Literal["categorical", "bernoulli"]
    names: tuple[str, ...]

    def column(self, attribute: str, *, task: str) -> int:
        """Column of a bernoulli attribute by its name; `task` is what an error calls the task."""
        if self.kind != "bernoulli":
            raise InputError(f"Task {task!r} has one categorical label and no attributes; leave --attribute out.")
        if attribute not in self.names:
            meant = instead(attribute, self.names, otherwise=f"it has {', '.join(self.names)}.")
            raise InputError(f"Task {task!r} has no attribute {attribute!r}; {meant}")
        return self.names.index(attribute)


@dataclass(frozen=True)
class Parts:
    """Named points on each image: `positions[n, p]` is (row, column) in pixels of the prepared image."""

    names: tuple[str, ...]
    positions: npt.NDArray[np.float32]  # N P 2
    visible: npt.NDArray[np.bool_]  # N P


@dataclass(frozen=True)
class Task:
    """Labelled images. `labels` is int64 [N] for a categorical space, uint8 [N, K] of 0/1 for a bernoulli one."""

    name: str
    images: npt.NDArray[np.uint8]  # N H W 3
    ids: tuple[str, ...]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.uint8]
    space: LabelSpace
    splits: Mapping[str, tuple[str, ...]]
    grid: Grid
    fingerprint: str
    attributes: npt.NDArray[np.float32] | None = None  # N A: auxiliary targets in [0, 1] (CUB's 312)
    attribute_names: tuple[str, ...] = ()
    parts: Parts | None = None
    boxes: npt.NDArray[np.float32] | None = None  # N 4: row, column, height, width in pixels of the prepared image
    notes: tuple[str, ...] = field(default=())  # from loading: skipped files, converted images
    skipped: tuple[str, ...] = ()  # ids of the images that are left out because they can't be read
    title: str = ""  # for people: by default its name; the folder's name for a folder of pictures

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)
        number = len(self.ids)
        if self.images.shape[0] != number or len(self.labels) != number:
            raise ValueError(f"{self.images.shape[0]} images, {number} ids and {len(self.labels)} labels don't match.")
        if len(self.position) != number:
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise InputError(f"The id {twice!r} of task {self.title!r} names more than one image; ids must be unique.")
        size = (self.grid.height, self.grid.width)
        if self.images.shape[1:3] != size:
            raise InputError(
                f"The images of task {self.title!r} are {self.images.shape[1:3]} px, but its grid is for {size} px."
            )
        self._check_labels()
        self._check_splits()

    @cached_property
    def position(self) -> dict[str, int]:
        """Row of each id in `images` and `labels`."""
        return {id: n for n, id in enumerate(self.ids)}

    def rows(self, split: str | Iterable[str]) -> npt.NDArray[np.int64]:
        """Rows in `images` of a split, or of some ids; an unknown id is refused."""
        if isinstance(split, str):
            if split not in self.splits:
                raise InputError(f"Task {self.title!r} has no split {split!r}; it has {', '.join(self.splits)}.")
            split = self.splits[split]
        try:
            return np.array([self.position[id] for id in split], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"Task {self.title!r} has no image with the id {error.args[0]!r}.") from None

    def attribute(self, name: str) -> int:
        """Column of a bernoulli attribute by its name."""
        return self.space.column(name, task=self.title)

    def _check_labels(self) -> None:
        names = len(self.space.names)
        if self.space.kind == "categorical":
            wrong = np.flatnonzero((self.labels < 0) | (self.labels >= names))
            if len(wrong):
                raise InputError(
                    f"The label of image {self.ids[wrong[0]]!r} is {self.labels[wrong[0]]}, outside 0..{names - 1}."
                )
        elif self.labels.shape[1:] != (names,):
            raise ValueError(f"Labels of shape {self.labels.shape} don't fit {names} attributes.")

    def _check_splits(self) -> None:
        for split, ids in self.splits.items():
            self.rows(ids)
            if split in ("train", "validation", "test") and not ids:
                raise InputError(f"The split {split!r} of task {self.title!r} is empty; give it at least one image.")
        overlaps(self.splits, ("train", "validation", "test"), task=self.name)
        overlaps(self.splits, ("annotate", "posterior"), task=self.name)
        for part in ("annotate", "posterior"):
            outside = set(self.splits.get(part, ())) - set(self.splits["train"])
            if outside:
                raise InputError(
                    f"Image {min(outside)!r} of split {part!r} is not in the training split of task {self.title!r}."
                )


def overlaps(splits: Mapping[str, Sequence[str]], names: Sequence[str], *, task: str) -> None:
    """Refuse an id that two of the named splits share."""
    owner: dict[str, str] = {}
    for split in names:
        for id in splits.get(split, ()):
            if owner.setdefault(id, split) != split:
                raise InputError(
                    f"Image {id!r} of task {task!r} is in both {owner[id]!r} and {split!r}; it may be in one only."
                )
