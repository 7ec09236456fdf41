"""Datasets of other libraries as a `Task`: any torchvision dataset object, any split of `datasets`.

Neither library is imported: their objects are recognised by their structure. Every picture is decoded once, made square
and kept in memory as uint8, so a task needs number x side x side x 3 bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from nogs.data.images import Fit, Preparation, fitted, reason
from nogs.data.splits import stratified_splits
from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint

__all__ = ["from_datasets", "from_torchvision"]

Example = tuple[Any, Any]


def from_torchvision(
    train: Any,
    *,
    grid: Grid,
    validation: Any = None,
    test: Any = None,
    name: str | None = None,
    classes: Sequence[str] | None = None,
    fit: Fit = "crop",
    validation_share: float = 0.1,
    test_share: float = 0.2,
    annotated: int = 600,
    seed: int = 0,
) -> Task:
    """A task from dataset objects whose entries are (image, label), with or without ToTensor but not normalised.

    A label is a class number, or a vector of 0 and 1 for the task's attributes. Splits that are not given are drawn
    from `train`, class by class, with `seed`; `annotated` of the training images are for glimpse sequences. Names are
    `classes`, else the dataset's own.
    """
    own = classes or getattr(train, "classes", None) or getattr(train, "attr_names", None)
    parts = {"train": train, "validation": validation, "test": test}
    return _task(
        {split: _entries(dataset) for split, dataset in parts.items() if dataset is not None},
        counts=[len(dataset) for dataset in parts.values() if dataset is not None],
        name=name or type(train).__name__.lower(),
        names=None if own is None else [str(n) for n in own if str(n)],  # CelebA's list of names ends with an empty one
        grid=grid,
        fit=fit,
        shares=(validation_share, test_share),
        annotated=annotated,
        seed=seed,
    )


def from_datasets(
    train: Any,
    *,
    grid: Grid,
    validation: Any = None,
    test: Any = None,
    image: str = "image",
    label: str | Sequence[str] = "label",
    name: str | None = None,
    classes: Sequence[str] | None = None,
    fit: Fit = "crop",
    validation_share: float = 0.1,
    test_share: float = 0.2,
    annotated: int = 600,
    seed: int = 0,
) -> Task:
    """A task from splits of `datasets`, or from a `DatasetDict` with the splits train, validation and test.

    `image` and `label` name the columns; several label columns of 0 and 1 are the task's attributes. The rest is as for
    `from_torchvision`.
    """
    parts = {"train": train, "validation": validation, "test": test}
    if isinstance(train, Mapping):
        if "train" not in train:
            raise InputError(f"The splits are {', '.join(map(str, train))}; one of them must be 'train'.")
        splits = train
        parts = {
            split: splits.get(split) if split == "train" or part is None else part for split, part in parts.items()
        }
    given = {split: part for split, part in parts.items() if part is not None}
    columns = [label] if isinstance(label, str) else list(label)
    for split, part in given.items():
        known = list(part.column_names)
        for column in (image, *columns):
            if column not in known:
                raise InputError(f"The split {split!r} has no column {column!r}; it has {', '.join(known)}.")
    names: Sequence[str] | None = classes
    if names is None:
        feature = getattr(given["train"], "features", None) or {}
        names = columns if not isinstance(label, str) else getattr(feature.get(label), "names", None)

    def labelled(row: Mapping[str, Any]) -> Example:
        return row[image], row[label] if isinstance(label, str) else [int(row[column]) for column in columns]

    return _task(
        {split: map(labelled, part) for split, part in given.items()},
        counts=[len(part) if hasattr(part, "__len__") else -1 for part in given.values()],
        name=name or getattr(getattr(given["train"], "info", None), "dataset_name", None) or "datasets",
        names=names,
        grid=grid,
        fit=fit,
        shares=(validation_share, test_share),
        annotated=annotated,
        seed=seed,
    )


def _entries(dataset: Any) -> Iterator[Example]:
    """Entries by index, since a dataset object need not have an iterator."""
    for n in range(len(dataset)):
        entry = dataset[n]
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise InputError(f"Entry {n} of the dataset is not a pair (image, label) but {type(entry).__name__}.")
        yield entry[0], entry[1]


def _task(
    parts: Mapping[str, Iterable[Example]],
    *,
    counts: Sequence[int],
    name: str,
    names: Sequence[str] | None,
    grid: Grid,
    fit: Fit,
    shares: tuple[float, float],
    annotated: int,
    seed: int,
) -> Task:
    if grid.height != grid.width:
        raise InputError(
            f"The grid is for {grid.height} x {grid.width} px; pictures are made square, so give a square grid."
        )
    how = Preparation(grid.height, fit=fit, upright=True)
    known = sum(counts) if min(counts) >= 0 else None
    images: Any = [] if known is None else np.empty((known, how.size, how.size, 3), np.uint8)
    ids: list[str] = []
    labels: list[Any] = []
    given: dict[str, str] = {}
    conversions: Counter[str] = Counter()
    for split, examples in parts.items():
        for n, (picture, target) in enumerate(examples):
            id = str(n) if len(parts) == 1 else f"{split}/{n}"
            try:
                decoded = fitted(_picture(picture), how)
            except Exception as error:
                raise InputError(f"Image {n} of the split {split!r} can't be used ({reason(error)}).") from error
            if known is None:
                images.append(np.array(decoded.pixels))
            else:
                images[len(ids)] = decoded.pixels
            conversions.update(decoded.conversions)
            ids.append(id)
            labels.append(_label(target, n, split))
            if len(parts) > 1:
                given[id] = split
    if not ids:
        raise InputError("The dataset has no image.")
    numbers, space = _space(labels, names)
    strata = [str(n) for n in numbers] if space.kind == "categorical" else [""] * len(ids)
    splits, notes = stratified_splits(
        ids,
        strata,
        given=given,
        validation_share=shares[0],
        test_share=shares[1],
        annotated=annotated,
        seed=seed,
    )
    pixels: npt.NDArray[np.uint8] = np.stack(images) if known is None else images
    said = tuple(f"{count} images: {what}." for what, count in sorted(conversions.items()))
    mark = fingerprint("wrapped task", pixels, numbers, space, dict(splits), grid.to_json())
    return Task(name, pixels, tuple(ids), numbers, space, splits, grid, mark, notes=(*notes, *said))


def _picture(image: Any) -> Image.Image:
    """A Pillow image from a dataset's image: a Pillow image, an array `[H, W(, C)]`, or a tensor `[C, H, W]`."""
    if isinstance(image, Image.Image):
        return image
    values = np.asarray(image)
    if hasattr(image, "permute") and values.ndim == 3:  # a tensor, whose channels come first
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.dtype.kind == "f":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise ValueError("its values are not in 0..1: wrap the dataset without Normalize")
        values = (values * 255).round().astype(np.uint8)
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        raise ValueError(f"an array of shape {values.shape} is no picture")
    if values.min() < 0 or values.max() > 255:
        raise ValueError("its values are outside 0..255")
    return Image.fromarray(np.ascontiguousarray(values.astype(np.uint8)))


def _label(target: Any, n: int, split: str) -> int | str | tuple[int, ...]:
    """A class number, a class name, or 0/1 of each attribute."""
    if isinstance(target, str):
        return target
    values = np.asarray(target)
    if values.dtype.kind not in "biu" or values.ndim > 1:
        raise InputError(f"The label of image {n} of the split {split!r} is {target!r}; give a class or attributes.")
    if values.ndim == 0:
        if values < 0:
            raise InputError(
                f"Image {n} of the split {split!r} has the label {values}, so no label; leave that split out."
            )
        return int(values)
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"The attributes of image {n} of the split {split!r} are not all 0 or 1: {target!r}.")
    return tuple(int(value) for value in values)


def _space(labels: Sequence[Any], names: Sequence[str] | None) -> tuple[npt.NDArray[Any], LabelSpace]:
    """Labels as an array, and their label space, as a `Task` needs them."""
    kind = _same(labels, type)
    if kind is tuple:
        width = _same(labels, len)
        names = list(names) if names is not None else [f"attribute {n}" for n in range(width)]
        if len(names) != width:
            raise InputError(f"There are {width} attributes but {len(names)} names for them; give `classes`.")
        return np.array(labels, np.uint8), LabelSpace("bernoulli", tuple(names))
    if kind is str:
        names = sorted(set(labels)) if names is None else list(names)
        unknown = sorted(set(labels) - set(names))
        if unknown:
            raise InputError(f"The label {unknown[0]!r} is not among the classes {', '.join(names[:5])}.")
        labels = [names.index(label) for label in labels]
    elif names is None:
        names = [str(n) for n in range(max(labels) + 1)]
    if len(names) < 2 or len(set(labels)) < 2:
        raise InputError("All images have the same label; a task needs at least 2 classes.")
    if max(labels) >= len(names):
        raise InputError(f"There is a label {max(labels)} but only {len(names)} class names; give `classes`.")
    return np.array(labels, np.int64), LabelSpace("categorical", tuple(map(str, names)))


def _same(labels: Sequence[Any], of: Callable[[Any], Any]) -> Any:
    """The value of `of` that all labels share."""
    found = {of(label) for label in labels}
    if len(found) > 1:
        raise InputError("The labels are of different kinds or lengths; give every image the same kind of label.")
    return found.pop()
