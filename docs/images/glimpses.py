"""Draws glimpses.png beside it: images of the task `digits`, four glimpses of each, and all that these show.

    python docs/images/glimpses.py

The glimpses are an example, not a network's: the first in the middle of the image, the others spread over the digit.
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from nogs.data import Task, load_task
from nogs.recipes import recipe
from nogs.report.drawing import boxes, seen

ROWS = [2, 3, 8, 18]
OFFSETS = torch.tensor([[-1.0, -3.0], [3.0, 2.0], [8.0, -2.0]])  # in pixels, from the corner of the digit's box


def example_locations(task: Task, row: int) -> torch.Tensor:
    """Top-left pixels [4, 2] on the task's grid."""
    corner = torch.tensor(task.boxes[row][:2], dtype=torch.float32)
    middle = torch.tensor([[task.grid.height, task.grid.width]]) / 2 - task.grid.glimpse / 2
    return task.grid.snap(torch.cat([middle, corner + OFFSETS]))


def main() -> None:
    """Draw four test images."""
    task = load_task(recipe("digits").data.model_copy(update={"count": 200, "annotated": 0}))
    rows, side = task.rows("test")[ROWS], task.grid.glimpse
    figure = Figure(figsize=(12.4, 1.4), dpi=150, facecolor="white")
    grid = figure.add_gridspec(
        1, 11, width_ratios=(1, 1, 0.2) * 3 + (1, 1), left=0, right=1, top=1, bottom=0, wspace=0.05
    )
    for place, row in enumerate(rows):
        image, pixels = task.images[row], example_locations(task, row).numpy()
        whole, glimpsed = (figure.add_subplot(grid[0, 3 * place + n]) for n in range(2))
        whole.imshow(image, interpolation="nearest")
        boxes(whole, pixels, side, size=8)
        glimpsed.imshow(seen(image, pixels, side), interpolation="nearest")
        for axes in (whole, glimpsed):
            axes.set_axis_off()
    figure.savefig(Path(__file__).with_name("glimpses.png"))


if __name__ == "__main__":
    main()
