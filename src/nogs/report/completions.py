"""Completions of several back-ends for the same glimpses (figure 8), with the glimpses enlarged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, UInt8

from nogs.completion.protocol import Completions
from nogs.data.task import Task
from nogs.model.drawing import STEPS
from nogs.report.drawing import bare, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def completions_figure(
    task: Task,
    ids: Sequence[str],
    pixels: Int[np.ndarray, "B t 2"],
    found: Mapping[str, Completions],
    *,
    samples: int = 4,
) -> Figure:
    """A row for each image: the true one, then each back-end's most likely completions of the glimpses at `pixels`."""
    columns = 1 + samples * len(found)
    wide = 1.28 if pixels.shape[1] else 1.0
    figure = new_figure(1.45 * wide * columns, 1.55 * len(ids) + 0.5, h_pad=0.03, w_pad=0.03)
    axes = figure.subplots(len(ids), columns, squeeze=False)
    for b, id in enumerate(ids):
        _show(axes[b, 0], task.images[task.position[id]], pixels[b], task.grid.glimpse)
        for k, completions in enumerate(found.values()):
            weights, pictures = completions.weights_of(b), completions.images(b)
            likeliest = weights.argsort(descending=True, stable=True)[:samples].tolist()
            own = axes[b, 1 + k * samples : 1 + (k + 1) * samples]
            for ax, n in zip(own, likeliest):
                _show(ax, pictures[n].cpu().numpy(), pixels[b], task.grid.glimpse)
                ax.set_xlabel(f"{float(weights[n]):.1%}", fontsize=8, labelpad=1)
            for ax in own[len(likeliest) :]:
                ax.set_axis_off()
    axes[0, 0].set_title("true", fontsize=10)
    for k, name in enumerate(found):
        axes[0, 1 + k * samples].set_title(f"{name}, with weights", fontsize=10, loc="left")
    return figure


def _show(axes: Axes, image: UInt8[np.ndarray, "H W 3"], pixels: Int[np.ndarray, "t 2"], side: int) -> None:
    """The image with its glimpses marked, and each of them enlarged to the right."""
    from matplotlib.patches import Rectangle

    height, width = image.shape[:2]
    axes.imshow(image, interpolation="nearest", extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    close = height / max(len(pixels), 4)
    for step, (row, column) in enumerate(np.asarray(pixels).tolist()):
        colour = STEPS[step % len(STEPS)]
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), side, side, fill=False, linewidth=1.4, edgecolor=colour))
        patch = image[row : row + side, column : column + side]
        left, top = width + 0.04 * width, step * close - 0.5
        inner = 0.94 * close
        axes.imshow(patch, interpolation="nearest", extent=(left, left + inner, top + inner, top))
        axes.add_patch(Rectangle((left, top), inner, inner, fill=False, linewidth=1.4, edgecolor=colour))
    bare(axes)
    right = 1.07 * width + close if len(pixels) else width - 0.5
    axes.set(xlim=(-0.5, right), ylim=(height - 0.5, -0.9), aspect="equal")
