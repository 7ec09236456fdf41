"""Shared parts of all figures: a palette safe for colour-blind readers, boxes of glimpses, maps over the grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from nogs.glimpse import Grid
from nogs.model.drawing import STEPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999", "#A83260")
"""Okabe and Ito's colours, for methods; markers and line styles differ too. Grey stands in for black, which a dark
page would hide, and crimson for yellow, which a light one would."""
MARKERS, LINES = "os^Dv*PX", ("-", "--", "-.", ":")
GREY, WRONG = "#555555", "#D55E00"
UNSEEN = 215
"""Grey level of pixels that were not observed."""
LOOK_HERE = "viridis_r"
"""Colours of expected posterior entropy: the least is brightest, as the most is with `LOOKED`."""
LOOKED = "viridis"
_OWN = {"ram": 0, "ps-nogs": 1, "ps-nogs+": 2, "fixed": 3, "random": 6, "ps-hgs": 4, "ram+": 5, "centre-out": 7}


def method_styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line of each method: its own in every figure, or the next that is free."""
    chosen: dict[str, int] = {}
    methods = list(dict.fromkeys(methods))
    for method in methods:
        place = _OWN.get(method.partition(",")[0].partition(" ")[0].lower())
        if place is not None and place not in chosen.values():
            chosen[method] = place
    for method in methods:
        free = [n for n in range(len(COLOURS)) if n not in chosen.values()]
        chosen.setdefault(method, free[0] if free else len(chosen) % len(COLOURS))
    return {
        method: {
            "color": COLOURS[chosen[method]],
            "marker": MARKERS[chosen[method]],
            "linestyle": LINES[chosen[method] % len(LINES)],
        }
        for method in methods
    }


def new_figure(width: float, height: float, *, dpi: int = 120, **layout: Any) -> Figure:
    """A figure on white with constrained layout, made without pyplot's global state."""
    from nogs.runtime.figures import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    figure.set_layout_engine("constrained", **layout)
    return figure


def short(text: str, most: int = 20) -> str:
    """A name that fits above a picture; a longer one is cut off."""
    text = text.replace("_", " ")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def frame(axes: Axes, grid: Grid) -> None:
    """The image's extent, without ticks."""
    axes.set(xlim=(-0.5, grid.width - 0.5), ylim=(grid.height - 0.5, -0.5), xticks=[], yticks=[], aspect="equal")


def bare(axes: Axes) -> None:
    """No ticks and no frame."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def cells(axes: Axes, grid: Grid, values: Float[np.ndarray, " L"], **how: Any) -> Any:
    """A map over the locations: each cell around the centre of its glimpse. What was not tried (NaN) stays empty."""
    x, y = (edges(positions, grid.glimpse) for positions in (grid.columns, grid.rows))
    shown = axes.pcolormesh(x, y, np.ma.masked_invalid(values.reshape(grid.shape)), rasterized=True, **how)
    frame(axes, grid)
    return shown


def edges(positions: Sequence[int], glimpse: int) -> Float[np.ndarray, " P1"]:
    """Borders of the cells around the centres of glimpses at these positions."""
    centres = np.asarray(positions) + (glimpse - 1) / 2
    if len(centres) == 1:
        return np.array([centres[0] - glimpse / 2, centres[0] + glimpse / 2])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.array([2 * centres[0] - middle[0], *middle, 2 * centres[-1] - middle[-1]])


def boxes(axes: Axes, pixels: Int[np.ndarray, "T 2"], side: int, *, size: float = 11.5) -> None:
    """Numbered boxes with a line from each to the next."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    centres = pixels + (side - 1) / 2
    axes.plot(centres[:, 1], centres[:, 0], color="white", linewidth=1, alpha=0.6)
    before: dict[tuple[int, int], int] = {}
    for step, (row, column) in enumerate(pixels.tolist()):
        colour = STEPS[step % len(STEPS)]
        again = before.get((row, column), 0)
        before[row, column] = again + 1
        # thinner the second time, so that a later glimpse of the same place hides no earlier one
        line = (2.2 if again == 0 else 1.1) * min(1, size / 11.5)
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), side, side, fill=False, linewidth=line, edgecolor=colour))
        # numbers of glimpses at the same place stand beside each other
        place, anchor = (column + side * (0.15 + 0.24 * again) - 0.5, row + 0.2 * side - 0.5), ("center", "center")
        if side < 0.12 * abs(axes.get_xlim()[1] - axes.get_xlim()[0]):  # it would hide the glimpse
            place, anchor = (column + side * again - 0.5, row - 0.5), ("left", "bottom")
        outline = [withStroke(linewidth=2.5, foreground="#111111")]  # not ink, which a dark page turns light
        number = axes.text(*place, str(step + 1), ha=anchor[0], va=anchor[1], clip_on=True, color=colour)
        number.set(fontsize=size, fontweight="bold", path_effects=outline)


def cross(axes: Axes, pixel: Int[np.ndarray, " 2"], side: int) -> None:
    """The chosen location, at the centre of its glimpse."""
    row, column = (pixel + (side - 1) / 2).tolist()
    for colour, line in (("white", 4.0), (WRONG, 2.0)):
        axes.plot(column, row, "x", markersize=8, markeredgewidth=line, color=colour, clip_on=False, zorder=5)


def seen(image: UInt8[np.ndarray, "H W 3"], pixels: Int[np.ndarray, "t 2"], side: int) -> UInt8[np.ndarray, "H W 3"]:
    """The image where glimpses at `pixels` show it, and even grey elsewhere."""
    out = np.full_like(image, UNSEEN)
    for row, column in pixels.tolist():
        out[row : row + side, column : column + side] = image[row : row + side, column : column + side]
    return out


def observed_share(
    pixels: Int[np.ndarray, "n 2"], *, glimpse: int, height: int, width: int
) -> Float[np.ndarray, "H W"]:
    """Share of n glimpses in which each pixel was observed."""
    corners = np.zeros((height + 1, width + 1))
    rows, columns = np.asarray(pixels, dtype=np.int64).T
    for down, right, sign in ((0, 0, 1), (glimpse, 0, -1), (0, glimpse, -1), (glimpse, glimpse, 1)):
        np.add.at(corners, (rows + down, columns + right), sign)
    return corners.cumsum(0).cumsum(1)[:height, :width] / max(len(rows), 1)


def colour_bar(part: Figure | SubFigure, shown: Any, axes: Any, label: str, **how: Any) -> Any:
    """A slim bar without a frame."""
    bar = part.colorbar(shown, ax=axes, **{"shrink": 0.8, "aspect": 30, "pad": 0.02, **how})
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8.5)
    bar.outline.set_visible(False)
    return bar
