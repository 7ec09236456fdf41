"""Figures with plain text: names of classes and files are drawn as they are, never as TeX."""

from __future__ import annotations

from typing import Any

from matplotlib import figure as matplotlib_figure
from matplotlib import rc_context
from matplotlib.text import Text

__all__ = ["Figure"]


class Figure(matplotlib_figure.Figure):
    """matplotlib's figure without TeX between dollar signs; the package uses it for every figure."""

    def draw(self, renderer: Any) -> None:
        """Draw with all text plain, including the tick labels that are made while drawing."""
        for text in self.findobj(Text):
            assert isinstance(text, Text)
            text.set_parse_math(False)
        with rc_context({"text.parse_math": False}):
            super().draw(renderer)
