"""How fast methods learn: iterations to convergence of each task (figure 5) and validation curves (figures 6, 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nogs.attention.comparison import Learned, measure
from nogs.report.drawing import method_styles
from nogs.report.results import title, titles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def convergence_figure(comparison: Mapping[str, Any], networks: Sequence[Learned]) -> Figure:
    """Iterations to convergence of every task, sorted by the reference's (figure 5); dashes are the methods' means.

    A bar goes from the least to the most over the seeds of each task, of the `networks` that were compared.
    """
    from nogs.runtime.figures import Figure

    tasks, reference = comparison["tasks"], comparison["reference"]
    methods = [name for name, found in comparison["methods"].items() if np.isfinite(found["mean"]["converged"][0])]
    order = sorted(tasks, key=lambda task: tasks[task].get(reference, {}).get("converged", 0.0))
    figure = Figure(figsize=(max(6.0, 0.27 * len(order) + 2), 4.6), dpi=150, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    styles, spread = method_styles(methods), _spread(networks)
    for n, method in enumerate(methods):
        style = {"color": styles[method]["color"], "marker": styles[method]["marker"], "linestyle": ""}
        # methods stand beside each other, so that their bars don't hide one another
        places = np.arange(len(order)) + (n - (len(methods) - 1) / 2) * min(0.18, 0.6 / len(methods))
        values = np.array([tasks[task].get(method, {}).get("converged", np.nan) for task in order])
        ends = np.array([spread.get((method, task), (value, value)) for task, value in zip(order, values)])
        mean = comparison["methods"][method]["mean"]["converged"][0]
        axes.errorbar(
            places,
            values,
            yerr=np.abs(ends.T - values),
            **style,
            label=f"{title(method)}: mean {mean:,.0f}",
            markersize=5,
            elinewidth=1.2,
        )
        axes.axhline(mean, color=style["color"], linestyle="--", linewidth=0.9, alpha=0.8)
    axes.set_xticks(range(len(order)), [task.replace("_", " ") for task in order], rotation=90, fontsize=8)
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.set_ylim(0, comparison["horizon"] * 1.03)
    axes.set_ylabel("iterations to convergence")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"Tasks sorted by {title(reference)}; horizon {comparison['horizon']:,} iterations", fontsize=10)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def curves_figure(networks: Sequence[Learned], *, columns: int = 2) -> Figure:
    """Validation NLL and accuracy over training, averaged over tasks; the band is the range over seeds.

    A network with a posterior as classifier is a horizontal line at the score of the version that was kept: its
    iterations are not comparable.
    """
    from nogs.runtime.figures import Figure

    size = (10, 4.2) if columns > 1 else (4.6, 6.4)
    figure = Figure(figsize=size, dpi=150, layout="constrained", facecolor="white")
    panels = figure.subplots(2 // columns, columns)
    levels = _levels(networks)
    names = titles(levels)
    for method, style in method_styles(network.method for network in networks).items():
        colour, line = style["color"], style["linestyle"]
        if method in levels:
            if method in names and np.isfinite(levels[method]).all():
                for axes, level in zip(panels, levels[method]):
                    axes.axhline(level, linestyle=":", color=colour, label=names[method], linewidth=1.6)
            continue
        own = [network for network in networks if network.method == method]
        steps = max((network.iterations for network in own), key=len)
        for axes, name in zip(panels, ("nll", "accuracy")):
            of_seed = np.array(
                [
                    np.mean([_padded(n.curve(name), len(steps)) for n in own if n.seed == seed], axis=0)
                    for seed in sorted({network.seed for network in own})
                ]
            )
            scale = 100 if name == "accuracy" else 1
            axes.plot(steps, scale * of_seed.mean(0), line, color=colour, label=title(method), linewidth=1.6)
            axes.fill_between(
                steps, scale * of_seed.min(0), scale * of_seed.max(0), color=colour, alpha=0.2, linewidth=0
            )
    for axes, label in zip(panels, ("validation NLL (nats)", "validation accuracy (%)")):
        axes.set_xlabel("iteration")
        axes.set_ylabel(label)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=6)
        axes.grid(alpha=0.25)
    handles, labels = panels[0].get_legend_handles_labels()
    wide = min(5 if columns > 1 else 2, len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=wide, frameon=False, fontsize=9)
    return figure


def _levels(networks: Sequence[Learned]) -> dict[str, list[float]]:
    """Mean validation NLL and accuracy (%) of the kept networks of each method with a posterior as classifier."""
    scores: dict[str, list[list[float | None]]] = {}
    for network in networks:
        if network.rule is None:
            scores.setdefault(network.method, []).append([network.validation.get(name) for name in ("nll", "accuracy")])
    return {method: (np.array(found, dtype=float).mean(0) * (1, 100)).tolist() for method, found in scores.items()}


def _spread(networks: Sequence[Learned]) -> dict[tuple[str, str], tuple[float, float]]:
    """Least and most iterations to convergence over the seeds of each method and task."""
    found: dict[tuple[str, str], list[float]] = {}
    for network in networks:
        value = measure(network, None)["converged"]
        if np.isfinite(value):
            found.setdefault((network.method, network.attribute or "all"), []).append(value)
    return {place: (min(values), max(values)) for place, values in found.items()}


def _padded(curve: np.ndarray, length: int) -> np.ndarray:
    """A curve that ended early (its loss was not finite), with NaN to the end: the mean ends there too."""
    return np.concatenate([curve, np.full(length - len(curve), np.nan)])
