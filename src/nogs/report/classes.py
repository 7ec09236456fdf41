"""Accuracy and confusions class by class, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from nogs.report.cells import Cell, Link, Table, percent, sortable
from nogs.report.drawing import new_figure, short
from nogs.report.lookers import Looker
from nogs.report.results import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LARGEST", "Confusion", "classes_table", "confusion", "confusion_figure"]

LARGEST = 30
"""The most classes of which the whole matrix is drawn; of more, only those with the most mistakes."""


@dataclass(frozen=True)
class Confusion:
    """`counts[k, j]` test images of class k were called j."""

    names: tuple[str, ...]
    counts: Int64[np.ndarray, "K K"]

    @property
    def images(self) -> int:
        """The number of images."""
        return int(self.counts.sum())

    def accuracy(self, k: int) -> float:
        """Share of the images of class k that are right."""
        return float(self.counts[k, k] / max(1, self.counts[k].sum()))

    def most_confused(self, number: int) -> Confusion:
        """The part of the matrix for the classes with the most mistakes, in their rows and columns."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        kept = np.sort(np.argsort(-(wrong.sum(0) + wrong.sum(1)), kind="stable")[:number])
        return Confusion(tuple(self.names[k] for k in kept), self.counts[np.ix_(kept, kept)])


def confusion(found: Looker) -> Confusion:
    """The confusion matrix of a network on the test images."""
    truth, number = found.truth[found.task.rows(found.tested)], len(found.labels)
    counts = np.bincount(truth * number + found.said, minlength=number * number).reshape(number, number)
    return Confusion(tuple(name.replace("_", " ") for name in found.labels), counts)


def classes_table(found: Mapping[str, tuple[Looker, Confusion]], *, link: Link) -> Table:
    """A row for each class: its images, each method's accuracy, and with what the first one confuses it."""
    best = next(iter(found))
    accuracies = (f"accuracy of {title(method)}" for method in found)
    head = ("class", "test pictures", *accuracies, f"{title(best)} confuses it with")
    rows = []
    first = found[best][1]
    for k, name in enumerate(first.names):
        number = int(first.counts[k].sum())
        cells = [Cell(name, name), Cell(f"{number:,}", number)]
        for one, counts in found.values():
            share = counts.accuracy(k) if number else None
            cells.append(Cell(percent(share), sortable(share), link(one.network.folder / "evaluation.json")))
        rows.append([*cells, Cell(text := _mistaken(first, k), text)])
    note = f"One look at each of {first.images:,} test pictures."
    return Table("classes", "Class by class", head, rows, note)


def confusion_figure(found: Confusion) -> Figure:
    """The matrix: a row for each true class, a column for each answer; numbers are images, colours shares of a row."""
    from matplotlib.colors import PowerNorm

    names, counts = found.names, found.counts
    share = counts / np.maximum(1, counts.sum(1, keepdims=True))
    side = max(4.2, 0.42 * len(names) + 2.2)
    figure = new_figure(side, side)
    axes = figure.add_subplot()
    axes.imshow(share, cmap="Blues", norm=PowerNorm(0.6, vmin=0, vmax=1), interpolation="nearest")
    size = 10 if len(names) <= 12 else 8 if len(names) <= 20 else 6.5
    for k in range(len(names)):
        for j in range(len(names)):
            if counts[k, j]:
                ink = "#fefefe" if share[k, j] > 0.45 else "#1d2329"  # not paper or ink, which a dark page changes
                weight = "bold" if k == j else "normal"
                axes.text(j, k, f"{counts[k, j]:,}", ha="center", va="center", fontsize=size, color=ink, weight=weight)
    shown = [short(name, 24) for name in names]
    turned = max(map(len, shown)) > 3
    axes.set_xticks(
        range(len(names)), shown, rotation=45 if turned else 0, ha="right" if turned else "center", fontsize=size
    )
    axes.set_yticks(range(len(names)), shown, fontsize=size)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def _mistaken(found: Confusion, k: int, most: int = 2) -> str:
    wrong = found.counts[k].copy()
    wrong[k] = 0
    order: Sequence[int] = [int(j) for j in np.argsort(-wrong, kind="stable")[:most] if wrong[j]]
    return ", ".join(f"{found.names[j]}\N{NO-BREAK SPACE}({wrong[j]})" for j in order) or "-"
