"""How fast methods learn: iterations to convergence of each task (figure 5) and validation curves (figures 6, 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nogs.attention.comparison import Learned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colours, which the colour-blind tell apart; markers and line styles differ too."""
_MARKERS, _LINES = "os^Dv*PX", ("-", "--", "-.", ":")


def convergence_figure(comparison: Mapping[str, Any]) -> Figure:
    """Iterations to convergence of every task, sorted by the reference's (figure 5); dashes are the methods' means."""
    from matplotlib.figure import Figure

    methods, tasks, reference = list(comparison["methods"]), comparison["tasks"], comparison["reference"]
    order = sorted(tasks, key=lambda task: tasks[task].get(reference, {}).get("converged", 0.0))
    figure = Figure(figsize=(max(6.0, 0.27 * len(order) + 2), 4.6), dpi=150, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    for n, method in enumerate(methods):
        colour = _COLOURS[n % len(_COLOURS)]
        values = [tasks[task].get(method, {}).get("converged", np.nan) for task in order]
        mean = comparison["methods"][method]["mean"]["converged"][0]
        axes.plot(values, _MARKERS[n % len(_MARKERS)], color=colour, label=f"{method} (mean {mean:,.0f})", markersize=5)
        axes.axhline(mean, color=colour, linestyle="--", linewidth=0.9, alpha=0.8)
    axes.set_xticks(range(len(order)), [task.replace("_", " ") for task in order], rotation=90, fontsize=8)
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.set_ylim(0, comparison["horizon"] * 1.03)
    axes.set_ylabel("iterations to convergence")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"Tasks sorted by {reference}; horizon {comparison['horizon']:,} iterations", fontsize=10)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def curves_figure(networks: Sequence[Learned]) -> Figure:
    """Validation NLL and accuracy over training, averaged over tasks; the band is the range over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), dpi=150, layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2)
    for n, method in enumerate(dict.fromkeys(network.method for network in networks)):
        colour, line = _COLOURS[n % len(_COLOURS)], _LINES[n % len(_LINES)]
        own = [network for network in networks if network.method == method]
        for axes, name in zip(panels, ("nll", "accuracy")):
            of_seed = np.array(
                [
                    np.mean([network.curve(name) for network in own if network.seed == seed], axis=0)
                    for seed in sorted({network.seed for network in own})
                ]
            )
            scale = 100 if name == "accuracy" else 1
            axes.plot(own[0].iterations, scale * of_seed.mean(0), line, color=colour, label=method, linewidth=1.6)
            axes.fill_between(
                own[0].iterations, scale * of_seed.min(0), scale * of_seed.max(0), color=colour, alpha=0.2, linewidth=0
            )
    for axes, label in zip(panels, ("validation NLL (nats)", "validation accuracy (%)")):
        axes.set_xlabel("iteration")
        axes.set_ylabel(label)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.25)
    panels[1].legend(frameon=False, fontsize=9)
    return figure
