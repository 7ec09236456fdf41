"""Supervision sequences of several kinds side by side (figure 13): what they show of the same images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nogs.data.task import Task
from nogs.report.choice import class_of
from nogs.report.drawing import bare, boxes, frame, new_figure, seen, short
from nogs.sequences import Sequences

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sequences_figure(task: Task, kinds: Mapping[str, Sequences], ids: Sequence[str]) -> Figure:
    """A column for each image: whole, and below it what the sequence of each kind shows, numbered in order.

    A kind that has no sequence for an image leaves its place empty.
    """
    figure = new_figure(1.5 * len(ids) + 0.6, 1.55 * (len(kinds) + 1) + 0.45, h_pad=0.03, w_pad=0.03)
    axes = figure.subplots(len(kinds) + 1, len(ids), squeeze=False)
    side, attribute = task.grid.glimpse, next((found.attribute for found in kinds.values()), None)
    for column, id in enumerate(ids):
        image = task.images[task.position[id]]
        axes[0, column].imshow(image, interpolation="nearest")
        frame(axes[0, column], task.grid)
        axes[0, column].set_title(short(class_of(task, id, attribute)), fontsize=9)
        for ax, found in zip(axes[1:, column], kinds.values()):
            if id not in found.position:
                bare(ax)
                continue
            pixels = found.by_id(id)
            ax.imshow(seen(image, pixels, side), interpolation="nearest")
            frame(ax, task.grid)
            boxes(ax, pixels, side, size=8)
    for ax, name in zip(axes[:, 0], ["whole", *kinds]):
        ax.set_ylabel(name, fontsize=10)
    return figure
