"""A picture of hard attention: glimpses in their order on some images, and where each glimpse goes on all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nogs.attention.evaluation import Evaluation
from nogs.data.task import Task
from nogs.model.drawing import STEPS
from nogs.report.drawing import GREY, LOOKED, WRONG, boxes, cells, colour_bar, frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure


def glimpses_figure(
    task: Task,
    evaluation: Evaluation,
    *,
    split: str = "test",
    labels: Sequence[str],
    network: int = 0,
    count: int = 12,
    title: str = "",
) -> Figure:
    """The first `count` images of the split with the glimpses of their first trajectory, and a heatmap for each step.

    `labels` names the network's classes.
    """
    from nogs.runtime.figures import Figure

    count = min(count, len(task.splits[split]))
    columns = min(4, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(15, 1.3 + 3 * max(rows, 2)), dpi=100, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0.005, 0.01, 0.99, 0.905), h_pad=0.08)
    top = figure.get_figheight()
    figure.text(0.015, 1 - 0.3 / top, title or task.title, fontsize=18, fontweight="bold", va="center")
    figure.text(0.015, 1 - 0.64 / top, _headline(task, evaluation, network), fontsize=11, color=GREY, va="center")
    maps = 0.55 + 0.75 * _map_columns(evaluation.locations.shape[-1])
    halves = figure.add_gridspec(1, 2, width_ratios=(columns, maps))
    left, right = figure.add_subfigure(halves[0]), figure.add_subfigure(halves[1])
    _images(left, task, evaluation, network, split, labels, (rows, columns, count))
    _heatmaps(right, task, evaluation, network, split)
    return figure


def _headline(task: Task, evaluation: Evaluation, network: int) -> str:
    accuracy = float(evaluation.scores()["accuracy"][network])
    share = task.grid.glimpse**2 / (task.grid.height * task.grid.width)
    glimpses = evaluation.locations.shape[-1]
    chance = 1 / evaluation.log_probabilities.shape[-1]
    return (
        f"{accuracy:.1%} of the trajectories end in the right answer (guessing: {chance:.0%})  ·  {glimpses} glimpses "
        f"of {task.grid.glimpse} px, each {share:.1%} of the image"
    )


def _images(
    part: SubFigure,
    task: Task,
    evaluation: Evaluation,
    network: int,
    split: str,
    labels: Sequence[str],
    shape: tuple[int, int, int],
) -> None:
    rows, columns, count = shape
    part.suptitle(f"The first {count} {split} images, glimpses numbered in order", fontsize=11.5)
    axes = part.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    probabilities = evaluation.log_probabilities[network, :, 0].exp().cpu().numpy()
    truth = evaluation.labels[network].cpu().numpy()
    for n, (ax, row) in enumerate(zip(axes.flat, task.rows(split)[:count])):
        ax.imshow(task.images[row], interpolation="nearest")
        frame(ax, task.grid)
        pixels = task.grid.pixels[evaluation.locations[network, n, 0].cpu()].numpy()
        boxes(ax, pixels, task.grid.glimpse)
        said = int(probabilities[n].argmax())
        sure = f"{probabilities[n, said]:.0%}"
        if said == truth[n]:
            ax.set_title(f"✓ {labels[said]} ({sure})", fontsize=11, pad=4)
        else:
            text = f"✗ says {labels[said]} ({sure}), is {labels[truth[n]]}"
            ax.set_title(text, fontsize=11, pad=4, color=WRONG, fontweight="bold")


def _heatmaps(part: SubFigure, task: Task, evaluation: Evaluation, network: int, split: str) -> None:
    from matplotlib.colors import PowerNorm

    grid = task.grid
    usage = evaluation.usage(len(grid))[network].cpu().numpy()
    images, samples = evaluation.locations.shape[1:3]
    times = f", {samples} times each" if samples > 1 else ""
    part.suptitle(f"Where it looks\n({images:,} {split} images{times})", fontsize=11.5)
    columns = _map_columns(len(usage))
    axes = part.subplots(math.ceil(len(usage) / columns), columns, squeeze=False)
    for ax in axes.flat[len(usage) :]:
        ax.set_axis_off()
    # a root, so that places which are rarely chosen still show
    norm = PowerNorm(0.5, vmin=0, vmax=float(usage.max()))
    for step, (ax, share) in enumerate(zip(axes.flat, usage)):
        shown = cells(ax, grid, share, cmap=LOOKED, norm=norm)
        ax.set_facecolor("#440154")  # viridis at zero: no glimpse is centred on the border
        for spine in ax.spines.values():
            spine.set(color=STEPS[step % len(STEPS)], linewidth=2.2)
        entropy = float(evaluation.entropies[network, step])
        ax.set_title(f"glimpse {step + 1} (entropy {entropy:.1f} nats)", fontsize=9.5, pad=4)
    ticks = [0, usage.max() / 4, usage.max()]
    bar = colour_bar(
        part, shown, axes, "share of the glimpses centred here", shrink=0.5, aspect=35, pad=0.03, ticks=ticks
    )
    bar.ax.set_yticklabels(["0", f"{usage.max() / 4:.1%}", f"{usage.max():.1%}"])


def _map_columns(glimpses: int) -> int:
    return math.ceil(glimpses / 4)
