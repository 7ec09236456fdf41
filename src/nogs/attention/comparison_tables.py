"""A comparison of methods as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nogs.attention.comparison import MEASURES


def table(comparison: Mapping[str, Any]) -> str:
    """The methods as a Markdown table; intervals of means are clipped to possible values, unlike in `comparison`."""
    head = ["method", "networks", *map(_title, MEASURES)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method, found in comparison["methods"].items():
        never, number = found["never_reached"], found["networks"]
        means = {name: possible(name, found["mean"][name], horizon=comparison.get("horizon")) for name in MEASURES}
        cells = [method, str(number), *(_cell(name, means[name], never=never) for name in MEASURES)]
        if never == number:
            cells[2 + list(MEASURES).index("reached")] = f"never within {comparison['horizon']:,}"
        lines.append("| " + " | ".join(cells) + " |")
        if found["difference"]:
            less = found["difference"]
            cells = ["… less reference", "", *(_cell(name, less[name], sign=True, never=never) for name in MEASURES)]
            lines.append("| " + " | ".join(cells) + " |")
    for name in ("majority_class", "whole_image"):
        if (value := comparison.get(f"{name}_accuracy")) is not None:
            lines.append(
                "| " + " | ".join([name.replace("_", " "), "", "", "", "", f"{100 * value:.2f} %", "", "", ""]) + " |"
            )
    return "\n".join(lines)


def legend(comparison: Mapping[str, Any]) -> str:
    """The columns of the table in words, a line each, as a reader of a terminal needs them."""
    lines = [f"{_title(name)}: {what}" for name, what in MEASURES.items()]
    less = f"… less reference: the row above less {comparison['reference']}, of accuracies in percentage points"
    return "\n".join([*lines, less, "[ ]: 95 % interval; empty: does not apply"])


def possible(name: str, interval: Sequence[float], *, horizon: int | None) -> tuple[float, float, float]:
    """A mean with its interval clipped to possible values of the measure, since Student's interval has no bounds."""
    most = 1.0 if "accuracy" in name else np.inf if name == "nll" or horizon is None else float(horizon)
    mean, low, high = interval
    return mean, float(np.clip(low, 0.0, most)), float(np.clip(high, 0.0, most))


def tasks_table(comparison: Mapping[str, Any], names: Sequence[str] = ("converged", "reached", "accuracy")) -> str:
    """Every attribute's means over seeds as Markdown, with a column for each method and measure."""
    methods = list(comparison["methods"])
    head = ["attribute", *(f"{method}: {_title(name)}" for name in names for method in methods)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for attribute, found in comparison["tasks"].items():
        cells = [attribute]
        for name in names:
            for method in methods:
                value = found.get(method, {}).get(name)
                more = "> " if name == "reached" and found.get(method, {}).get("never_reached") else ""
                cells.append("" if value is None else more + _number(name, value))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _title(name: str) -> str:
    return "reached (NLL)" if name == "reached" else name.replace("_", " ")


def _cell(name: str, interval: Sequence[float], *, sign: bool = False, never: int = 0) -> str:
    """A mean with its interval, or a lower bound where networks that `never` reached the reference enter with the
    horizon."""
    mean, low, high = (_number(name, value, sign=sign) for value in interval)
    if np.isnan(interval[0]):
        return ""
    if name == "reached" and never:
        return f"> {mean}"
    return mean if interval[1] == interval[2] else f"{mean} [{low}, {high}]"


def _number(name: str, value: float, *, sign: bool = False) -> str:
    plus = "+" if sign else ""
    if "accuracy" in name:
        return _unsigned_zero(f"{100 * value:{plus}.2f}") + " %"
    return _unsigned_zero(f"{value:{plus}.4f}" if name == "nll" else f"{value:{plus},.0f}")


def _unsigned_zero(text: str) -> str:
    """The number without its sign if it was rounded to zero."""
    return text if text.strip("+-0.") else text.lstrip("+-")
