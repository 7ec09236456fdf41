"""Figures of what networks do, from the objects of the stages before; saving them is the caller's.

In: a `Task`, the `Evaluation` of trained networks, a comparison of methods. Out: matplotlib figures, made without
pyplot's global state.
"""

from nogs.report.glimpses import glimpses_figure
from nogs.report.learning import convergence_figure, curves_figure

__all__ = ["convergence_figure", "curves_figure", "glimpses_figure"]
