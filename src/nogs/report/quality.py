"""Small plots of the quality of the parts: posterior, completions, sequences, policies, and accuracy by pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nogs.report.drawing import COLOURS, LINES, MARKERS, method_styles, new_figure
from nogs.report.results import title, titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POSTERIOR = {
    "accuracy": "accuracy (%)",
    "cross_entropy": "cross-entropy (nats)",
    "entropy": "mean entropy (nats)",
    "calibration_error": "calibration error",
}
SCORES = {"entropy": "entropy (nats)", "cross_entropy": "cross-entropy (nats)", "accuracy": "accuracy (%)"}
KINDS = {
    "log_likelihood_per_number": "log-likelihood of hidden pixels (nats)",
    "error_of_mean": "error of the mean (grey levels)",
    "coverage_of_central_90_percent": "true pixel in central 90 %",
}
_NAMED = (0.5, 0.8, 0.95, 0.99)
"""Confidences that are labelled in the plot."""


def posterior_figure(tables: Mapping[str, Sequence[Mapping[str, float]]], *, columns: int = 4) -> Figure:
    """Scores of the posterior after t glimpses, a line for each table of its `evaluation.json`."""
    figure, panels = _panels(len(POSTERIOR), columns)
    for axes, (name, words) in zip(panels, POSTERIOR.items()):
        for n, (label, table) in enumerate(tables.items()):
            values = [row[name] for row in table]
            _line(axes, [row["glimpses"] for row in table], _percent(name, values), n, label)
        _by_glimpses(axes, words)
    _legend(figure, panels, columns)
    return figure


def effective_figure(sizes: Mapping[str, Sequence[tuple[int, float | None]]]) -> Figure:
    """Effective number of completions after t glimpses, a line for each way of counting: (t, size), None for none."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    for n, (label, pairs) in enumerate(sizes.items()):
        known = [(t, size) for t, size in pairs if size is not None]
        _line(axes, [t for t, _ in known], [size for _, size in known], n, label)
    _by_glimpses(axes, "effective sample size")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.3g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="best", frameon=False, fontsize=8.5)
    return figure


def kinds_figure(kinds: Mapping[str, Sequence[Mapping[str, Any]]], *, columns: int = 3) -> Figure:
    """Measures of each kind of completion after t glimpses (the `kinds` of `nogs bank compare`)."""
    figure, panels = _panels(len(KINDS), columns)
    for axes, (name, words) in zip(panels, KINDS.items()):
        for n, (label, rows) in enumerate(kinds.items()):
            known = [(row["observed"], row[name]) for row in rows if row[name] is not None]
            _line(axes, [t for t, _ in known], [value for _, value in known], n, label)
        _by_glimpses(axes, words)
    _legend(figure, panels, columns)
    return figure


def scores_figure(ways: Mapping[str, Mapping[str, Any]], *, columns: int = 3) -> Figure:
    """A judge's scores of sequences and baselines (the `ways` of `nogs sequences score`), with 95 % intervals."""
    figure, panels = _panels(len(SCORES), columns)
    for axes, (name, words) in zip(panels, SCORES.items()):
        for n, (label, found) in enumerate(ways.items()):
            measure = {part: _percent(name, found["measures"][name][part]) for part in ("mean", "low", "high")}
            glimpses = list(range(len(measure["mean"])))
            _line(axes, glimpses, measure["mean"], n, label)
            colour = COLOURS[n % len(COLOURS)]
            axes.fill_between(glimpses, measure["low"], measure["high"], color=colour, alpha=0.18, linewidth=0)
        _by_glimpses(axes, words)
    _legend(figure, panels, columns)
    return figure


def policy_figure(entropies: Mapping[str, Sequence[Sequence[float]]], *, locations: int) -> Figure:
    """Entropy of the policy at each step, by method; the band is the range over the method's networks."""
    figure = new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    styles = method_styles(entropies)
    for method, rows in entropies.items():
        values, steps = np.array(rows, dtype=float), np.arange(1, len(rows[0]) + 1)
        axes.plot(steps, values.mean(0), label=title(method), linewidth=1.6, markersize=5, **styles[method])
        axes.fill_between(steps, values.min(0), values.max(0), color=styles[method]["color"], alpha=0.18, linewidth=0)
    most = float(np.log(locations))
    axes.axhline(most, color="#999999", linewidth=0.9, linestyle=":")
    axes.annotate(f"uniform over {locations:,} locations", (1, most), (0, -11), textcoords="offset points", fontsize=8)
    _by_glimpses(axes, "entropy of the policy (nats)", label="glimpse")
    axes.set_ylim(-0.05 * most, 1.08 * most)
    axes.set_xticks(range(1, max(len(rows[0]) for rows in entropies.values()) + 1))
    axes.legend(loc="best", frameon=False, fontsize=8.5)
    return figure


def pixels_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    levels: Mapping[str, float] | None = None,
    trained: Sequence[str] = (),
) -> Figure:
    """Accuracy against the share of pixels seen, (share, accuracy) after 0, 1 ... T glimpses.

    Networks in `trained` have only their last point filled; the others are hollow.
    `levels` are accuracies to compare with, drawn as lines.
    """
    figure = new_figure(5.6, 3.6)
    axes = figure.add_subplot()
    styles = method_styles(curves)
    for name, label in titles(curves).items():
        shares, accuracies = (100 * np.array(curves[name], dtype=float)).T
        style: dict[str, Any] = {**styles[name], "linewidth": 1.6, "markersize": 6}
        hollow: dict[str, Any] = {"markerfacecolor": "none"} if name in trained else {}
        axes.plot(shares, accuracies, label=label, **style, **hollow)
        axes.plot(shares[-1], accuracies[-1], color=style["color"], marker=style["marker"], markersize=6)
    for name, level in (levels or {}).items():
        axes.axhline(100 * level, color="#999999", linewidth=0.9, linestyle=":")
        across = axes.get_yaxis_transform()
        axes.text(0.99, 100 * level, name, transform=across, fontsize=8, ha="right", va="bottom")
    axes.set(xlabel="pixels seen (%)", ylabel="accuracy (%)")
    axes.grid(alpha=0.25)
    axes.legend(loc="best", frameon=False, fontsize=8.5)
    return figure


def stopping_figure(curves: Mapping[str, Mapping[str, Any]], *, columns: int = 2) -> Figure:
    """Accuracy after each glimpse, and with early stopping at a confidence.

    `curves` holds for each name a policy of `accuracy-by-glimpses.json`.
    """
    figure, (left, right) = _panels(2, columns, sharey=True)
    styles = method_styles(curves)
    named: list[tuple[str, float, float]] = []
    rings: list[tuple[float, float]] = []
    for name, label in titles(curves).items():
        found = curves[name]
        style: dict[str, Any] = {**styles[name], "linewidth": 1.6, "markersize": 5}
        accuracy = _percent("accuracy", found["accuracy"])
        left.plot(range(1, len(accuracy) + 1), accuracy, label=label, **style)
        sure = sorted(found["stopping"], key=lambda one: one["stop_at"])
        at = [one["mean_glimpses"] for one in sure], _percent("accuracy", [one["accuracy"] for one in sure])
        right.plot(*at, **style)
        rings.append((len(accuracy), accuracy[-1]))
        right.plot(*rings[-1], color=style["color"], marker="o", markersize=9, markerfacecolor="none")
        named += [(f"{one['stop_at']:g}", x, y) for one, x, y in zip(sure, *at) if one["stop_at"] in _NAMED]
    _by_glimpses(left, "accuracy (%)")
    _by_glimpses(right, "accuracy (%)" if columns == 1 else "", label="mean glimpses with early stopping")
    _legend(figure, [left], columns)
    right.margins(x=0.08)
    figure.draw_without_rendering()  # the layout moves points, and so decides which words overlap
    _annotate_apart(right, named, rings)
    return figure


def _annotate_apart(
    axes: Axes, points: Sequence[tuple[str, float, float]], rings: Sequence[tuple[float, float]]
) -> None:
    """Each point's label below it, unless it would overlap an earlier label or a ring."""
    kept: list[tuple[float, float]] = []
    around = [axes.transData.transform(ring) * 72 / axes.figure.dpi for ring in rings]
    for text, x, y in points:
        across, up = axes.transData.transform((x, y)) * 72 / axes.figure.dpi  # in points, as letters are
        free = not any(-8 < a - across < 26 and -18 < b - up < 4 for a, b in around)
        if free and all(abs(across - a) > 24 or abs(up - b) > 10 for a, b in kept):
            axes.annotate(text, (x, y), (4, -10), textcoords="offset points", fontsize=7.5)
            kept.append((across, up))


def _panels(number: int, columns: int, **how: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `number` panels in `columns`: beside each other for a wide page, below each other for a phone."""
    rows = -(-number // columns)
    figure = new_figure(4.6 if columns == 1 else max(10.0, 3.0 * columns), (3.1 if columns == 1 else 3.6) * rows)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **how).flat)


def _legend(figure: Figure, panels: Sequence[Axes], columns: int) -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    wide = min(5, len(labels)) if columns > 1 else 1
    figure.legend(handles, labels, loc="outside lower center", ncols=wide, frameon=False, fontsize=9)


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], n: int, label: str) -> None:
    style: dict[str, Any] = {
        "color": COLOURS[n % len(COLOURS)],
        "marker": MARKERS[n % len(MARKERS)],
        "linestyle": LINES[n % 4],
    }
    axes.plot(x, y, label=label, linewidth=1.6, markersize=4.5, **style)


def _percent(name: str, values: Sequence[float]) -> list[float]:
    return [100 * value if name == "accuracy" else value for value in values]


def _by_glimpses(axes: Axes, words: str, *, label: str = "glimpses seen") -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=label, ylabel=words)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
