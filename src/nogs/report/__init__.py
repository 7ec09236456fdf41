"""Figures of everything the method does, from the objects of the stages before; and one page about a run.

In: a `Task`, sequences, completions, an `Evaluation`, a comparison of methods; or the folders of runs. Out: matplotlib
figures, made without pyplot's global state (saving them is the caller's), and a self-contained HTML page.
"""

from nogs.report.completions import completions_figure
from nogs.report.diagrams import network_diagram, posterior_diagram
from nogs.report.glimpses import glimpses_figure
from nogs.report.learning import convergence_figure, curves_figure
from nogs.report.looking import heatmaps_figure, mean_image
from nogs.report.maps import epe_figure
from nogs.report.page import write_report
from nogs.report.quality import (
    effective_figure,
    pixels_figure,
    policy_figure,
    posterior_figure,
    scores_figure,
    stopping_figure,
)
from nogs.report.supervision import sequences_figure
from nogs.report.walk import boed_figure, walk_through

__all__ = [
    "boed_figure",
    "completions_figure",
    "convergence_figure",
    "curves_figure",
    "effective_figure",
    "epe_figure",
    "glimpses_figure",
    "heatmaps_figure",
    "mean_image",
    "network_diagram",
    "pixels_figure",
    "policy_figure",
    "posterior_diagram",
    "posterior_figure",
    "scores_figure",
    "sequences_figure",
    "stopping_figure",
    "walk_through",
    "write_report",
]
