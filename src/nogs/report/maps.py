"""How a near-optimal sequence is found: expected posterior entropy over the image, step by step (figure 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from nogs.data.task import Task
from nogs.model.drawing import STEPS
from nogs.report.choice import class_of
from nogs.report.drawing import GREY, LOOK_HERE, boxes, cells, colour_bar, cross, frame, new_figure, seen, short
from nogs.sequences import Sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def epe_figure(
    task: Task, sequences: Sequences, id: str, maps: Float[np.ndarray, "T L"], *, down: bool = False
) -> Figure:
    """The sequence of one image: above, the map before each glimpse; below, the glimpses so far.

    `maps` holds the expected posterior entropy (nats) of every location at each step, NaN where none was computed, as
    `nogs annotate` keeps it with `--design.keep-maps`. With `down` the steps stand below each other, for a phone.
    """
    place = sequences.rows([id])[0]
    pixels, side = sequences.locations[place], task.grid.glimpse
    image = task.images[task.position[id]]
    columns = len(pixels) + 1
    figure = new_figure(5.0, 2.6 * columns) if down else new_figure(2.35 * columns, 5.4, h_pad=0.06)
    axes = figure.subplots(columns, 2).T if down else figure.subplots(2, columns)
    for ax in axes[:, 0]:
        ax.imshow(image, interpolation="nearest")
        frame(ax, task.grid)
    boxes(axes[1, 0], pixels, side, size=9)
    axes[0, 0].set_title(_named(task, sequences, id), fontsize=10)
    axes[1, 0].set_title("its glimpses", fontsize=10)
    for t, (above, below) in enumerate(axes[:, 1:].T):
        values = np.asarray(maps[t], dtype=float)
        shown = cells(above, task.grid, values, cmap=LOOK_HERE)
        cross(above, pixels[t], side)
        ticks = [float(np.nanmin(values)), float(np.nanmax(values))]
        bar = colour_bar(figure, shown, above, "", orientation="horizontal", shrink=0.85, aspect=22, ticks=ticks)
        bar.ax.set_xticklabels([f"{value:.3f}" for value in ticks])
        above.set_title(f"before glimpse {t + 1}", fontsize=10)
        below.imshow(seen(image, pixels[: t + 1], side), interpolation="nearest")
        frame(below, task.grid)
        _newest(below, pixels[t], side, t)
        below.set_title(_left(sequences, place, t), fontsize=9, color=GREY)
    words = "Expected posterior entropy of each next location (nats; brighter is less), the chosen one "
    if down:
        figure.suptitle(
            "Expected posterior entropy (nats) of each next\nlocation, and the glimpses so far", fontsize=11
        )
    else:
        figure.suptitle(f"{words}crossed; below, the glimpses so far", fontsize=11)
    return figure


def _newest(axes: Axes, pixel: np.ndarray, side: int, step: int) -> None:
    from matplotlib.patches import Rectangle

    row, column = pixel.tolist()
    colour = STEPS[step % len(STEPS)]
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), side, side, fill=False, linewidth=2, edgecolor=colour))


def _left(sequences: Sequences, place: int, t: int) -> str:
    """The entropy after glimpse t + 1, which is known if there is a next one."""
    entropy = sequences.entropy_before
    if entropy is None:
        return f"after glimpse {t + 1}"
    if t + 1 < sequences.length:
        return f"entropy after it {entropy[place, t + 1]:.3f} nats"
    return f"entropy before it {entropy[place, t]:.3f} nats"


def _named(task: Task, sequences: Sequences, id: str) -> str:
    return short(class_of(task, id, sequences.attribute) or f"image {id}")
