"""A table of the page and its entries, as the template draws them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Cell", "Link", "Table", "percent", "sortable"]

Link = Callable[[Path], str]
"""The page's address of a file."""


@dataclass(frozen=True)
class Cell:
    """A table's entry: its text, the value to sort by, and its file."""

    text: str
    value: float | str
    href: str = ""


@dataclass(frozen=True)
class Table:
    """A sortable table; `note` stands below it."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""
    intro: str = ""  # stands above it


def percent(value: float | None) -> str:
    """A share as text."""
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def sortable(value: float | None) -> float:
    """A number to sort by; unknown ones come last."""
    return math.inf if value is None or not math.isfinite(value) else float(value)
