"""Inspect a task: its statistics as plain values (`describe`), and a sheet of its images with glimpses drawn."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nogs.data.task import Task
from nogs.glimpse import cut
from nogs.runtime.streams import numpy_stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["contact_sheet", "describe"]

# Okabe and Ito's palette, which colour-blind readers can distinguish
_BLUE, _ORANGE, _GREEN, _GREY = "#56B4E9", "#E69F00", "#009E73", "#555555"


def describe(task: Task) -> dict[str, Any]:
    """Counts, label balance, split sizes and notes from loading, ready for JSON.

    The balance is the number of images of each class, or with each attribute, over all images and over the training
    split. Splits are given by size; `nogs data prepare` writes their ids.
    """
    train = task.rows("train")
    rows, columns = task.grid.shape
    return {
        "task": task.title,
        "fingerprint": task.fingerprint,
        "images": len(task.ids),
        "image_size": list(task.images.shape[1:3]),
        "labels": {
            "kind": task.space.kind,
            "number": len(task.space.names),
            "all": _balance(task, np.arange(len(task.ids))),
            "train": _balance(task, train),
        },
        "splits": {name: len(ids) for name, ids in task.splits.items()},
        "grid": {
            "glimpse": task.grid.glimpse,
            "rows": rows,
            "columns": columns,
            "locations": len(task.grid),
            "share_of_image": round(task.grid.glimpse**2 / (task.grid.height * task.grid.width), 5),
        },
        "auxiliary_attributes": len(task.attribute_names),
        "parts": list(task.parts.names) if task.parts is not None else [],
        "boxes": task.boxes is not None,
        "notes": list(task.notes),
    }


def contact_sheet(task: Task, *, seed: int = 0, count: int = 25, glimpses: int = 5) -> Figure:
    """Random training images with their labels; one is enlarged, with its grid of locations and example glimpses."""
    from nogs.runtime.figures import Figure

    rng = numpy_stream(seed, "contact sheet")
    train = task.rows("train")
    chosen = rng.choice(train, size=min(count, len(train)), replace=False)
    columns = min(5, len(chosen))
    rows = math.ceil(len(chosen) / columns)

    figure = Figure(figsize=(15, 9.6), dpi=100, facecolor="white")
    figure.text(0.02, 0.963, task.title, fontsize=20, fontweight="bold", va="center")
    figure.text(0.02, 0.928, _headline(task), fontsize=11, color=_GREY, va="center")
    outer = figure.add_gridspec(
        1, 2, width_ratios=(1.25, 1), left=0.02, right=0.985, top=0.85, bottom=0.02, wspace=0.05
    )
    left = outer[0].subgridspec(rows, columns, hspace=0.2, wspace=0.06)
    for n, row in enumerate(chosen):
        axes = figure.add_subplot(left[n // columns, n % columns])
        _image(axes, task, row)
        axes.set_title(_caption(task, row), fontsize=8.5, pad=3)
    marks = [
        word for word, there in (("box", task.boxes is not None), ("visible parts", task.parts is not None)) if there
    ]
    green = f" (green: {' and '.join(marks)})" if marks else ""
    figure.text(0.02, 0.89, f"{len(chosen)} random training images{green}", fontsize=11.5, va="center")

    right = outer[1].subgridspec(2, glimpses, height_ratios=(4.6, 1), hspace=0.1, wspace=0.12)
    large = figure.add_subplot(right[0, :])
    _image(large, task, chosen[0])
    pixels = _example_locations(task, chosen[0], glimpses, rng)
    _draw_grid(large, task)
    _draw_glimpses(large, task, pixels)
    heading = f"The first one: {len(task.grid):,} glimpse centres (dots), {glimpses} example glimpses (numbered)"
    figure.text(outer[1].get_position(figure).x0, 0.89, heading, fontsize=11.5, va="center")
    image = torch.from_numpy(np.array(task.images[chosen[:1]]))  # a copy: a memory map may be read-only
    for n, patch in enumerate(cut(image, pixels[None], glimpse=task.grid.glimpse)[0].numpy()):
        axes = figure.add_subplot(right[1, n])
        axes.imshow(patch, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set(color=_ORANGE, linewidth=2)
        axes.set_title(f"{n + 1}", fontsize=9, pad=3)
    return figure


def _balance(task: Task, rows: np.ndarray) -> dict[str, int]:
    labels = np.asarray(task.labels)[rows]
    if task.space.kind == "categorical":
        counts = np.bincount(labels, minlength=len(task.space.names))
    else:
        counts = labels.sum(0, dtype=np.int64)
    return {name: int(number) for name, number in zip(task.space.names, counts)}


def _headline(task: Task) -> str:
    height, width = task.images.shape[1:3]
    kind = "classes" if task.space.kind == "categorical" else "attributes"
    splits = " / ".join(f"{len(task.splits[name]):,}" for name in ("train", "validation", "test"))
    rows, columns = task.grid.shape
    return (
        f"{len(task.ids):,} images of {height} x {width} px  ·  {len(task.space.names)} {kind}  ·  "
        f"train / validation / test {splits}  ·  {len(task.splits.get('annotate', ())):,} to annotate  ·  "
        f"{rows} x {columns} locations of {task.grid.glimpse} px glimpses"
    )


def _caption(task: Task, row: int) -> str:
    """The class; or the image's rarest attribute and how many more it has."""
    if task.space.kind == "categorical":
        return _short(task.space.names[int(task.labels[row])])
    share = np.asarray(task.labels)[task.rows("train")].mean(0)
    held = sorted(np.flatnonzero(task.labels[row]), key=lambda k: share[k])
    if not held:
        return "no attribute"
    return _short(task.space.names[held[0]]) + (f" +{len(held) - 1}" if len(held) > 1 else "")


def _short(name: str, length: int = 22) -> str:
    """A name without CUB's number, short enough for its image."""
    text = re.sub(r"^\d+\.", "", name).replace("_", " ")
    return text if len(text) <= length else text[: length - 1] + "…"


def _image(axes: Axes, task: Task, row: int) -> None:
    """One image with its box and its visible parts."""
    from matplotlib.patches import Rectangle

    axes.imshow(task.images[row], interpolation="nearest")
    axes.set_axis_off()
    if task.boxes is not None:
        top, left, height, width = task.boxes[row]
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=_GREEN, linewidth=1.3))
    if task.parts is not None:
        seen = task.parts.positions[row][task.parts.visible[row]]
        axes.scatter(seen[:, 1], seen[:, 0], s=9, color=_GREEN, edgecolors="white", linewidths=0.5)
    axes.set_xlim(-0.5, task.grid.width - 0.5)
    axes.set_ylim(task.grid.height - 0.5, -0.5)


def _draw_grid(axes: Axes, task: Task) -> None:
    """A dot at the centre of each location's glimpse."""
    centres = task.grid.pixels.numpy() + (task.grid.glimpse - 1) / 2
    size = float(np.clip(2000 / len(task.grid), 1.5, 9))
    axes.scatter(centres[:, 1], centres[:, 0], s=size, color=_BLUE, linewidths=0)


def _draw_glimpses(axes: Axes, task: Task, pixels: torch.Tensor) -> None:
    from matplotlib.patches import Rectangle

    side = task.grid.glimpse
    for number, (row, column) in enumerate(pixels.tolist(), start=1):
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, side, side, fill=False, linewidth=2, edgecolor=_ORANGE))
        label = {"boxstyle": "round,pad=0.15", "facecolor": _ORANGE, "edgecolor": "none"}
        axes.text(column, row, str(number), fontsize=8, color="black", ha="center", va="center", bbox=label)


def _example_locations(task: Task, row: int, number: int, rng: np.random.Generator) -> torch.Tensor:
    """Example locations far from each other: on visible parts, else inside the box, else around the middle."""
    grid = task.grid
    half = (grid.glimpse - 1) / 2
    if task.parts is not None and task.parts.visible[row].any():
        wanted = rng.permutation(task.parts.positions[row][task.parts.visible[row]]) - half
    elif task.boxes is not None:
        top, left, height, width = task.boxes[row]
        wanted = np.array([top, left]) + rng.random((64, 2)) * [height, width] - half
    else:
        wanted = (0.2 + 0.6 * rng.random((64, 2))) * [grid.height - grid.glimpse, grid.width - grid.glimpse]
    spread = grid.snap(torch.from_numpy(np.asarray(wanted, dtype=np.float64)))
    picked = [spread[0]]
    while len(picked) < number:  # the candidate farthest from those already picked
        distance = torch.stack([(spread - other).float().norm(dim=1) for other in picked]).amin(0)
        picked.append(spread[distance.argmax()])
    return torch.stack(picked)
