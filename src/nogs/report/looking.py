"""Where networks look: how often each pixel is observed at each step, methods side by side (figures 4, 9 to 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.report.drawing import LOOKED, colour_bar, frame, new_figure, observed_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Looks = Mapping[str, Mapping[str, Int[np.ndarray, "n S T 2"]]]
"""Task (attribute) -> method -> top-left pixels of every trajectory, as `locations.npy` holds them."""


def mean_image(task: Task, split: str = "test", *, most: int = 1000) -> UInt8[np.ndarray, "H W 3"]:
    """The mean of a split's images (of evenly chosen ones, if there are many)."""
    rows = task.rows(split)
    rows = np.sort(rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)])
    total = sum(task.images[part].sum(0, dtype=np.int64) for part in np.array_split(rows, -(-len(rows) // 100)))
    return np.asarray(total / len(rows)).round().astype(np.uint8)


def step_shares(locations: Int[np.ndarray, "n S T 2"], grid: Grid) -> Float[np.ndarray, "T H W"]:
    """For each step the share of trajectories that observed each pixel."""
    return np.stack(
        [
            observed_share(step.reshape(-1, 2), glimpse=grid.glimpse, height=grid.height, width=grid.width)
            for step in np.moveaxis(locations, 2, 0)
        ]
    )


def heatmaps_figure(
    looks: Looks, *, grid: Grid, mean: UInt8[np.ndarray, "H W 3"] | None = None, across: bool = False
) -> Figure:
    """A row for each task and method, a column for each step, over the task's mean image if it is given.

    `across` swaps rows and columns, to fit few methods and many steps on a phone.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    rows = [(task, method, found) for task, methods in looks.items() for method, found in methods.items()]
    shares = [step_shares(found, grid) for _, _, found in rows]
    steps = max(len(share) for share in shares)
    most = max(float(share.max()) for share in shares)
    norm = PowerNorm(0.5, vmin=0, vmax=most)  # a root, so that rarely seen pixels still show
    shade = np.full((grid.height, grid.width, 1), 0.95)
    if mean is not None:
        grey = np.asarray(mean, dtype=float).mean(-1, keepdims=True)
        shade = 0.5 + 0.5 * (grey - grey.min()) / max(np.ptp(grey), 1e-6)
    down, right = (steps, len(rows)) if across else (len(rows), steps)
    figure = new_figure(1.75 * right + (0.9 if across else 1.6), 1.75 * down + 0.7, h_pad=0.03, w_pad=0.03)
    axes = figure.subplots(down, right, squeeze=False)
    axes = axes.T if across else axes
    for (task, method, _), share, line in zip(rows, shares, axes):
        for t, ax in enumerate(line):
            if t >= len(share):
                ax.set_axis_off()
                continue
            strength = np.asarray(norm(share[t]))
            cover = np.clip(2.5 * strength, 0, 1)[..., None]
            # the mean image as a shade, which shows below the colours
            ax.imshow(shade * (1 - cover + colormaps[LOOKED](strength)[..., :3] * cover))
            frame(ax, grid)
        name = f"{task}\n{method}" if task and len(looks) > 1 else method
        (line[0].set_title if across else line[0].set_ylabel)(name.replace("_", " "), fontsize=10)
    for t, ax in enumerate(axes[0]):
        (ax.set_ylabel if across else ax.set_title)(f"glimpse {t + 1}", fontsize=10)
    scale = ScalarMappable(norm=norm, cmap=LOOKED)
    ticks = [0, most / 16, most / 4, most]
    how = {"location": "bottom"} if across else {}
    bar = colour_bar(figure, scale, axes, "share of trajectories that see the pixel", ticks=ticks, **how)
    bar.set_ticks(ticks, labels=[f"{tick:.0%}" if tick == 0 or tick >= 0.1 else f"{tick:.1%}" for tick in ticks])
    return figure
