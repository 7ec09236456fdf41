"""A picture of completions: each true image with its glimpses, and beside it some of its completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int64

from nogs.completion.protocol import Completion
from nogs.data.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["completion_sheet"]

_ORANGE = "#E69F00"


def completion_sheet(
    completion: Completion, task: Task, ids: Sequence[str], pixels: Int64[torch.Tensor, "B T 2"], *, samples: int = 8
) -> Figure:
    """One row an image: the image with its glimpses, then the likeliest completions with their weights."""
    from nogs.runtime.figures import Figure

    rows = task.rows(ids)
    images = torch.from_numpy(np.array(task.images[rows]))
    completions = completion.complete(images, pixels, ids=ids)
    figure = Figure(figsize=(1.5 * (samples + 1), 1.65 * len(ids) + 0.4), dpi=100, facecolor="white")
    cells = figure.add_gridspec(
        len(ids), samples + 1, left=0.01, right=0.99, bottom=0.01, top=0.94, wspace=0.06, hspace=0.16
    )
    for b, id in enumerate(ids):
        axes = figure.add_subplot(cells[b, 0])
        _show(axes, images[b].numpy(), pixels[b], task.grid.glimpse)
        axes.set_title(f"image {id}"[-18:], fontsize=8, pad=2)
        weights, pictures = completions.weights_of(b), completions.images(b)
        likeliest = weights.argsort(descending=True, stable=True)[:samples]
        for column, n in enumerate(likeliest.tolist(), start=1):
            axes = figure.add_subplot(cells[b, column])
            _show(axes, pictures[n].cpu().numpy(), pixels[b], task.grid.glimpse)
            axes.set_title(f"{float(weights[n]):.1%}", fontsize=8, pad=2)
    seen = pixels.shape[1]
    figure.text(0.01, 0.975, f"{task.title}: true image with {seen} glimpses, and completions by weight", fontsize=9)
    return figure


def _show(axes: Axes, image: np.ndarray, pixels: torch.Tensor, glimpse: int) -> None:
    from matplotlib.patches import Rectangle

    axes.imshow(image, interpolation="nearest")
    axes.set_axis_off()
    for row, column in pixels.tolist():
        corner = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(corner, glimpse, glimpse, fill=False, linewidth=1.2, edgecolor=_ORANGE))
