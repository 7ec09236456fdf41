"""A figure of the heuristic: expected posterior entropy before any glimpse, and the distributions made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from nogs.glimpse import Grid
from nogs.supervision.distribution import LocationDistribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def heuristic_figure(
    epe: Float64[np.ndarray, " L"], grid: Grid, *, inverse_temperatures: Sequence[float] = (1.0, 5.0), title: str = ""
) -> Figure:
    """The map, and Eq. 17 for some inverse temperatures; axes are pixels of the glimpse's centre."""
    from nogs.runtime.figures import Figure

    panels = 1 + len(inverse_temperatures)
    figure = Figure(figsize=(3.6 * panels, 3.4), dpi=150, layout="constrained", facecolor="white")
    half = grid.glimpse / 2
    extent = (grid.columns[0] + half, grid.columns[-1] + half, grid.rows[-1] + half, grid.rows[0] + half)
    if len(grid.rows) == 1 or len(grid.columns) == 1:  # a line of locations has no extent to draw
        extent = (0.0, float(grid.width), float(grid.height), 0.0)
    pictures = [("expected posterior entropy (nats)", epe, "viridis_r")]
    for value in inverse_temperatures:
        probabilities = np.exp(LocationDistribution.heuristic(epe, inverse_temperature=value).log_probabilities)
        pictures.append((f"p(location), 1/γ = {value:g}", probabilities, "viridis"))
    for axes, (name, values, colours) in zip(np.atleast_1d(figure.subplots(1, panels)), pictures):
        shown = axes.imshow(values.reshape(grid.shape), cmap=colours, extent=extent)
        figure.colorbar(shown, ax=axes, shrink=0.8)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
