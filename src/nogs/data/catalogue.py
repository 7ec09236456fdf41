"""`Catalogue`: a dataset's files and annotations before any picture is decoded; with pixels it becomes a `Task`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nogs.data.archives import Entry
from nogs.data.cache import Prepared
from nogs.data.images import VERSION, Preparation, box_square
from nogs.data.task import LabelSpace, Parts, Task
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint

__all__ = ["Catalogue", "Points"]

_NAMED = 5  # classes that a note names


@dataclass(frozen=True)
class Points:
    """Named points in pixels of the original pictures: `positions[n, p]` is (x, y)."""

    names: tuple[str, ...]
    positions: npt.NDArray[np.float64]  # N P 2
    visible: npt.NDArray[np.bool_]  # N P


@dataclass(frozen=True)
class Catalogue:
    """Labelled picture files; `boxes[n]` is (x, y, width, height) in pixels of the original picture."""

    name: str
    ids: tuple[str, ...]
    entries: tuple[Entry, ...]
    labels: npt.NDArray[Any]
    space: LabelSpace
    splits: Mapping[str, tuple[str, ...]]
    how: Preparation
    boxes: npt.NDArray[np.float64] | None = None
    points: Points | None = None
    attributes: npt.NDArray[np.float32] | None = None
    attribute_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    title: str = ""  # by default the name

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> Catalogue:
        """The catalogue of some rows, in the order given."""
        rows = np.asarray(rows, np.int64)
        ids = tuple(self.ids[row] for row in rows)
        left = set(ids)
        points = self.points
        if points is not None:
            points = Points(points.names, points.positions[rows], points.visible[rows])
        return replace(
            self,
            ids=ids,
            entries=tuple(self.entries[row] for row in rows),
            labels=self.labels[rows],
            splits={split: tuple(id for id in members if id in left) for split, members in self.splits.items()},
            boxes=None if self.boxes is None else self.boxes[rows],
            points=points,
            attributes=None if self.attributes is None else self.attributes[rows],
        )

    def task(self, prepared: Prepared, *, grid: Grid) -> Task:
        """The task of the pictures that were prepared.

        Its fingerprint uses the names and sizes of files, not their times, so that a copy of the data is the same task.
        """
        this = self if len(prepared.rows) == len(self.ids) else self.take(prepared.rows)
        this._check_classes(left_out=len(self.ids) - len(prepared.rows))
        sources = "\n".join(f"{entry.name}\t{entry.size}" for entry in this.entries)
        contents = (this.name, this.how, sources, "\n".join(this.ids), this.labels, this.space, dict(this.splits))
        mark = fingerprint("task", VERSION, *contents, this.boxes, this.points, this.attributes, grid.to_json())
        boxes, parts = this._moved(prepared.sizes)
        return Task(
            name=this.name,
            title=this.title,
            images=prepared.images,
            ids=this.ids,
            labels=this.labels,
            space=this.space,
            splits=this.splits,
            grid=grid,
            fingerprint=mark,
            attributes=this.attributes,
            attribute_names=this.attribute_names,
            parts=parts,
            boxes=boxes,
            notes=(*this.notes, *prepared.notes, *this._lacking()),
            skipped=tuple(np.delete(np.array(self.ids, dtype=object), prepared.rows)),
        )

    def _check_classes(self, *, left_out: int) -> None:
        """Refuse a task of fewer than two classes to learn, which any network would master."""
        if self.space.kind != "categorical" or len(learnt := self._classes("train")) >= 2:
            return
        after = (
            f"After leaving out {left_out:,} unreadable {'picture' if left_out == 1 else 'pictures'}"
            if left_out
            else ""
        )
        which = f"only class {self.space.names[min(learnt)]!r}" if learnt else "no class"
        what = "pictures" if len(np.unique(self.labels)) < 2 else "training pictures"
        sentence = f"{after} {which} of {self.title or self.name} has {what}; two classes are needed.".lstrip()
        raise InputError(sentence[0].upper() + sentence[1:])

    def _classes(self, split: str) -> set[int]:
        """The classes with images of a split."""
        members = set(self.splits[split])
        return {int(label) for id, label in zip(self.ids, self.labels) if id in members}

    def _lacking(self) -> tuple[str, ...]:
        """Notes that name the classes without an image of a split: no network can learn them, or is measured on
        them."""
        notes = []
        for split in ("train", "validation", "test") if self.space.kind == "categorical" else ():
            there = self._classes(split)
            names = [repr(name) for n, name in enumerate(self.space.names) if n not in there]
            image = f"{'training' if split == 'train' else split} image"
            if len(names) == 1:
                notes.append(f"Class {names[0]} has no {image}.")
            elif names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                notes.append(f"Classes {', '.join(names[:_NAMED])}{more} have no {image}.")
        return tuple(notes)

    def _moved(self, sizes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.float32] | None, Parts | None]:
        """Boxes and points in pixels of the prepared images; a point outside the crop counts as not visible."""
        if self.boxes is None:
            return None, None
        crops = np.array([box_square(box, *size) for box, size in zip(self.boxes.tolist(), sizes.tolist())])
        corner = crops[:, :2].astype(np.float64)
        scale = self.how.size / (crops[:, 2:] - corner)
        boxes = np.concatenate([(self.boxes[:, :2] - corner) * scale, self.boxes[:, 2:] * scale], 1)
        boxes = boxes[:, [1, 0, 3, 2]].astype(np.float32)
        if self.points is None:
            return boxes, None
        inside = (self.points.positions - corner[:, None]) * scale[:, None]
        visible = self.points.visible & ((inside >= 0) & (inside < self.how.size)).all(-1)
        positions = np.where(visible[..., None], inside[..., ::-1], 0).astype(np.float32)
        return boxes, Parts(self.points.names, positions, visible)
