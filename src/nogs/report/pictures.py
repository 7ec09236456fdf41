"""Figures as files and as parts of a page: PNG and SVG on disk; in the page SVG where it is small, else PNG.

On a dark page, an SVG takes the page's text colour, and a PNG has a dark version.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.report.drawing import GREY
from nogs.runtime.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "data_uri", "save_figure"]

SMALL = 160_000
"""Bytes up to which an SVG goes into the page."""
_TICKS = (0, 1, 2, 3)  # matplotlib's markers of ticks on the four sides
_DARK = {"#000000": "#E6E9EC", GREY: "#A9B1BA", "#ffffff": "#171B20"}


@dataclass(frozen=True)
class Picture:
    """A figure as it goes into the page: either `svg`, or PNGs as data addresses for a light and a dark page."""

    name: str
    width: int
    height: int
    svg: str = ""
    light: str = ""
    dark: str = ""


def save_figure(figure: Figure, folder: Path, name: str, *, files: bool = True) -> Picture:
    """Write NAME.png and NAME.svg into `folder`, where `files` are wanted, and return what the page shows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # it draws a box instead
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once; every file is then the same picture
        light = b""
        if files:
            light = _saved(figure, "png")
            write_bytes(folder / f"{name}.png", light, durable=False)
            write_bytes(folder / f"{name}.svg", _saved(figure, "svg"), durable=False)
        width, height = (round(inches * figure.dpi) for inches in figure.get_size_inches())
        inline = _inline(_saved(figure, "svg", text=True).decode(), name)
        if len(inline) <= SMALL:
            return Picture(name, width, height, svg=inline)
        light = light or _saved(figure, "png")
        with _on_dark(figure):
            dark = _saved(figure, "png")
    return Picture(name, width, height, light=data_uri(light, "png"), dark=data_uri(dark, "png"))


def data_uri(data: bytes, kind: str) -> str:
    """Bytes of an image as an address that holds them."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _saved(figure: Figure, kind: str, *, text: bool = False) -> bytes:
    from matplotlib import rc_context

    out = io.BytesIO()
    # without a date and with a fixed salt, the same figure is the same file
    with rc_context({"svg.fonttype": "none" if text else "path", "svg.hashsalt": "nogs"}):
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _inline(svg: str, name: str) -> str:
    """An SVG for the page: no prologue, unique ids, lines in the page's text colour, no background."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<image[^>]*?) id="[^"]*"', r"\1", svg)  # of one that is drawn twice, both have the same
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace("fill: #ffffff", "fill: none").replace("#000000", "currentColor")
    svg = svg.replace(GREY, "var(--muted)").replace(GREY.lower(), "var(--muted)")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg ", '<svg fill="currentColor" aria-hidden="true" ', 1).strip()


@contextmanager
def _on_dark(figure: Figure) -> Iterator[None]:
    """Swap the dark and light colours of a figure while it is saved."""
    from matplotlib.axes import Axes
    from matplotlib.colors import to_hex
    from matplotlib.lines import Line2D
    from matplotlib.spines import Spine
    from matplotlib.text import Text

    changed: list[tuple[Any, Any]] = []

    def swap(colour: Any, change: Any) -> None:
        dark = _DARK.get(to_hex(colour)) if not isinstance(colour, str) or colour != "none" else None
        if dark:
            changed.append((change, colour))
            change(dark)

    swap(figure.get_facecolor(), figure.set_facecolor)
    for artist in figure.findobj():
        if isinstance(artist, Axes):
            swap(artist.get_facecolor(), artist.set_facecolor)
        elif isinstance(artist, Spine):
            swap(artist.get_edgecolor(), artist.set_edgecolor)
        elif isinstance(artist, Text) or (isinstance(artist, Line2D) and artist.get_marker() in _TICKS):
            swap(artist.get_color(), artist.set_color)
            if isinstance(artist, Line2D):
                swap(artist.get_markeredgecolor(), artist.set_markeredgecolor)
    try:
        yield
    finally:
        for change, colour in reversed(changed):
            change(colour)
