"""The design of one glimpse, step by step (figure 7): glimpses, completions, their entropies, and the mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8

from nogs.data.task import Task
from nogs.design.entropies import Entropies
from nogs.design.epe import first_minimum, weighted
from nogs.design.steps import Tools, allowed_next
from nogs.report.choice import class_of
from nogs.report.drawing import GREY, LOOK_HERE, cells, colour_bar, cross, frame, new_figure, seen, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["WalkThrough", "boed_figure", "walk_through"]


@dataclass(frozen=True)
class WalkThrough:
    """Algorithm 1 for one image after t glimpses: the most likely completions, and a map of entropy on each.

    `epe` is the weighted mean over `completions` completions, of which `samples` are the first few.
    """

    id: str
    pixels: Int[np.ndarray, "t 2"]
    samples: UInt8[np.ndarray, "S H W 3"]
    weights: Float[np.ndarray, " S"]
    entropies: Float[np.ndarray, "S L"]
    epe: Float[np.ndarray, " L"]
    completions: int
    chosen: int


def walk_through(
    tools: Tools,
    task: Task,
    id: str,
    pixels: Int[np.ndarray, "t 2"],
    *,
    variables: Sequence[int],
    overlap: float = 1.0,
    samples: int = 4,
    evaluations: int = 30_000,
    batch: int = 512,
) -> WalkThrough:
    """Every location on the most likely completions, as many as `evaluations` of the posterior allow; `overlap` as in
    `DesignConfig`."""
    image = torch.from_numpy(np.array(task.images[task.rows([id])])).to(tools.device)
    where = torch.from_numpy(np.asarray(pixels, dtype=np.int64))[None]
    completions = tools.completion.complete(image, where, ids=[id])
    order = completions.weights.argsort(dim=1, descending=True, stable=True)
    entropies = Entropies(
        tools.posterior,
        completions,
        where,
        objectives=[variables],
        order=order,
        batch=batch,
    )
    used = min(entropies.used[0], max(samples, evaluations // len(task.grid)))
    entropies.fill(torch.ones(1, len(task.grid), dtype=torch.bool), used)
    values, weights = entropies.values[0, :used].cpu(), entropies.weights[0, :used].cpu()
    mean, _ = weighted(values, weights)
    allowed = allowed_next(task.grid, task.grid.index(where), overlap=overlap)[0]
    few = order[0, : min(samples, used)]
    pictures = completions.pool[completions.index[0, few]]
    pictures = torch.where(completions.flipped[0, few][:, None, None, None], pictures.flip(2), pictures)
    return WalkThrough(
        id=id,
        pixels=np.asarray(pixels, dtype=np.int64),
        samples=pictures.cpu().numpy(),
        weights=weights[: len(few)].numpy(),
        entropies=values[: len(few)].double().numpy(),
        epe=mean.numpy(),
        completions=used,
        chosen=int(first_minimum(torch.where(allowed, mean, torch.inf))),
    )


def boed_figure(task: Task, walk: WalkThrough, *, down: bool = False) -> Figure:
    """Four panels from left to right: the glimpses, completions, their maps of entropy, and the mean of these.

    With `down` they go from top to bottom, for a phone.
    """
    rows, side = len(walk.samples), task.grid.glimpse
    if down:
        figure = new_figure(4.8, 2.0 * rows + 8.2)
        parts = figure.add_gridspec(rows + 2, 2, height_ratios=(1.8, *[1] * rows, 2.2))
        first, last = figure.add_subplot(parts[0, :]), figure.add_subplot(parts[-1, :])
        pairs = [(parts[n + 1, 0], parts[n + 1, 1]) for n in range(rows)]
    else:
        figure = new_figure(9.4, max(3.2, 1.2 * rows + 0.9))
        parts = figure.add_gridspec(rows, 4, width_ratios=(1.9, 1, 1, 2.5))
        first, last = figure.add_subplot(parts[:, 0]), figure.add_subplot(parts[:, 3])
        pairs = [(parts[n, 1], parts[n, 2]) for n in range(rows)]
    image = task.images[task.position[walk.id]]
    first.imshow(seen(image, walk.pixels, side), interpolation="nearest")
    frame(first, task.grid)
    number = len(walk.pixels)
    _head(first, f"1  seen so far: {number} glimpse{'' if number == 1 else 's'}")
    low, high = float(np.nanmin(walk.entropies)), float(np.nanmax(walk.entropies))
    for n in range(rows):
        sample, entropy = (figure.add_subplot(place) for place in pairs[n])
        sample.imshow(walk.samples[n], interpolation="nearest")
        frame(sample, task.grid)
        sample.set_ylabel(f"weight {walk.weights[n]:.1%}", fontsize=8, color=GREY)
        cells(entropy, task.grid, walk.entropies[n], cmap=LOOK_HERE, vmin=low, vmax=high)
        if n == 0:
            _head(sample, "2  completions")
            _head(entropy, "3  entropy on each")
    shown = cells(last, task.grid, walk.epe, cmap=LOOK_HERE)
    cross(last, task.grid.pixels[walk.chosen].numpy(), side)
    _head(last, f"4  its mean over {walk.completions} completions (EPE)")
    colour_bar(figure, shown, last, "expected posterior entropy (nats)", shrink=0.6)
    last.set_xlabel(f"panel 3: {low:.2f} (brightest) to {high:.2f} nats", fontsize=8.5, color=GREY)
    of = f" at a picture of {short(name, 40)}" if (name := class_of(task, walk.id)) else ""
    line = "\n" if down else " "
    figure.suptitle(f"Where to look next{of}:{line}glimpse {number + 1}, at the cross", fontsize=11)
    return figure


def _head(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=10, loc="left")
