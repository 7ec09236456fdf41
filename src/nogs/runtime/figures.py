"""Figures whose text is plain: names of classes and files are drawn as they are, and nothing is taken for TeX."""

from __future__ import annotations

from typing import Any

from matplotlib import figure as matplotlib_figure
from matplotlib import rc_context
from matplotlib.text import Text

__all__ = ["Figure"]


class Figure(matplotlib_figure.Figure):
    """matplotlib's figure, without its mathematics between dollar signs; every figure of the package is one."""

    def draw(self, renderer: Any) -> None:
        """Draw with all text plain: what there is now, and the labels of ticks that are made while drawing."""
        for text in self.findobj(Text):
            assert isinstance(text, Text)
            text.set_parse_math(False)
        with rc_context({"text.parse_math": False}):
            super().draw(renderer)
