"""Draws glimpses.png beside it: images of the task `digits`, four glimpses of each, and all that these show.

    python docs/images/glimpses.py

The glimpses are an example, not a network's: the first in the middle of the image, the others spread over the digit.
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nogs.data import Task, load_task
from nogs.glimpse import mask
from nogs.recipes import recipe

ORANGE = "#E69F00"  # of Okabe and Ito's palette: told apart by colour-blind readers too
CORNERS = torch.tensor([[0.0, 0.4], [1.1, 0.5], [0.5, 1.4]])  # of a glimpse in the room that the digit's box leaves


def example_locations(task: Task, row: int) -> torch.Tensor:
    """Top-left pixels [4, 2] on the task's grid."""
    top, left, height, width = task.boxes[row]
    room = torch.tensor([height, width]) - task.grid.glimpse
    middle = torch.tensor([[task.grid.height, task.grid.width]]) / 2 - task.grid.glimpse / 2
    return task.grid.snap(torch.cat([middle, torch.tensor([top, left]) + CORNERS * room]))


def main() -> None:
    """Draw four test images."""
    task = load_task(recipe("digits").data.model_copy(update={"count": 200, "annotated": 0}))
    rows = task.rows("test")[[2, 3, 4, 18]]
    figure = Figure(figsize=(12.4, 1.4), dpi=150, facecolor="white")
    grid = figure.add_gridspec(
        1, 11, width_ratios=(1, 1, 0.2) * 3 + (1, 1), left=0, right=1, top=1, bottom=0, wspace=0.05
    )
    for place, row in enumerate(rows):
        pixels = example_locations(task, row)
        side, image = task.grid.glimpse, task.images[row]
        seen = mask(pixels, glimpse=side, height=task.grid.height, width=task.grid.width).numpy()
        whole, glimpsed = (figure.add_subplot(grid[0, 3 * place + n]) for n in range(2))
        whole.imshow(image, interpolation="nearest")
        for number, (top, left) in enumerate(pixels.tolist(), start=1):
            whole.add_patch(Rectangle((left - 0.5, top - 0.5), side, side, fill=False, edgecolor=ORANGE, linewidth=1.6))
            whole.text(left - 1, top + 1, str(number), color=ORANGE, fontsize=9, ha="right", va="top")
        glimpsed.imshow((image * seen[..., None]) + (220 * ~seen[..., None]).astype("uint8"), interpolation="nearest")
        for axes in (whole, glimpsed):
            axes.set_axis_off()
    figure.savefig(Path(__file__).with_name("glimpses.png"))


if __name__ == "__main__":
    main()
