"""A sheet of pictures with the glimpses that were taken of them, drawn with Pillow alone."""

from __future__ import annotations

import importlib.util
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from nogs.glimpse import Grid

STEPS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00")
"""Colours of the first, second ... glimpse: Okabe and Ito's, which are safe for the colour-blind; boxes are numbered as
well."""
_TILE, _GAP, _CAPTION, _COLUMNS = 320, 12, 44, 4
_NOTE = "Squares: the glimpses that decide an attribute, in their order. Below: the answer and its probability."


_Line = tuple[str, str, str]  # the middle part, a name, may be shortened


class Drawn(Protocol):
    """The parts of an answer that are drawn."""

    @property
    def label(self) -> str: ...  # noqa: D102
    @property
    def probability(self) -> float: ...  # noqa: D102
    @property
    def probabilities(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def locations(self) -> Sequence[tuple[int, int]]: ...  # noqa: D102
    @property
    def pixels_read(self) -> float: ...  # noqa: D102


def glimpses_sheet(
    images: Sequence[npt.NDArray[np.uint8]], answers: Sequence[Drawn], *, grid: Grid, names: Sequence[str]
) -> bytes:
    """PNG: each image `[H, W, 3]` with numbered boxes in the order of the glimpses, and the answer below it."""
    tiles = []
    for image, answer, name in zip(images, answers, names):
        said = ("", answer.label, f" ({answer.probability:.1%}), {answer.pixels_read:.1%} of the pixels")
        tiles.append((image, answer.locations, (("", name or answer.label, ""), said)))
    return _sheet(tiles, grid=grid, width=_TILE, columns=_COLUMNS)


def attributes_sheet(
    images: Sequence[npt.NDArray[np.uint8]],
    answers: Sequence[Mapping[str, Drawn]],
    *,
    grid: Grid,
    names: Sequence[str],
) -> bytes:
    """PNG: each image once for every attribute, with that attribute's glimpses; the likeliest come first."""
    tiles = []
    for image, found, name in zip(images, answers, names):
        shares = {one: answer.probabilities[one] for one, answer in found.items()}
        for one in sorted(found, key=lambda one: -shares[one]):
            said = f"{'yes' if found[one].label == one else 'no'}, {found[one].probability:.1%}"
            line = (f"{said}, ", name, "") if len(images) > 1 else (said, "", "")
            tiles.append((image, found[one].locations, (("", one, ""), line)))
    return _sheet(tiles, grid=grid, width=_TILE // 2, columns=2 * _COLUMNS, note=_NOTE)


def _sheet(
    tiles: Sequence[tuple[npt.NDArray[np.uint8], Sequence[Sequence[int]], tuple[_Line, _Line]]],
    *,
    grid: Grid,
    width: int,
    columns: int,
    note: str = "",
) -> bytes:
    """PNG of images with the glimpses' locations and two lines below each, and a note below all."""
    columns = min(columns, len(tiles))
    rows = math.ceil(len(tiles) / columns)
    height = round(width * grid.height / grid.width)
    size = (columns * (width + _GAP) + _GAP, rows * (height + _CAPTION + _GAP) + _GAP)
    words = textwrap.wrap(note, size[0] // 7)
    sheet = Image.new("RGB", (size[0], size[1] + 18 * len(words)), "white")
    draw = ImageDraw.Draw(sheet)
    font = _font()
    for n, (image, locations, lines) in enumerate(tiles):
        left = _GAP + n % columns * (width + _GAP)
        top = _GAP + n // columns * (height + _CAPTION + _GAP)
        sheet.paste(tile(image, locations, grid, (width, height)), (left, top))
        for line, parts in enumerate(lines):
            shown = _short(draw, parts, font, width)
            draw.text((left, top + height + 4 + 18 * line), shown, "black" if line else "#555", font)
    for line, said in enumerate(words):
        draw.text((_GAP, size[1] - _GAP + 18 * line), said, "#555", font)
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()


def tile(
    image: npt.NDArray[np.uint8], locations: Sequence[Sequence[int]], grid: Grid, size: tuple[int, int]
) -> Image.Image:
    """The image, dimmed outside the glimpses, with a numbered box at each of the `locations`."""
    seen = np.zeros(image.shape[:2], bool)
    for row, column in locations:
        seen[row : row + grid.glimpse, column : column + grid.glimpse] = True
    shown = np.where(seen[..., None], image, image // 3 + 32).astype(np.uint8)
    nearest = grid.width < size[0]
    picture = Image.fromarray(shown).resize(size, Image.Resampling.NEAREST if nearest else Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(picture)
    scale = size[0] / grid.width
    height = max(16, size[0] // 20)
    font = ImageFont.load_default(height)
    thick = min(3, round(grid.glimpse * scale / 8))  # thick lines would hide the content of small boxes
    before: dict[tuple[int, int], int] = {}
    for step, (row, column) in enumerate(locations):
        colour = STEPS[step % len(STEPS)]
        again = before.get((row, column), 0)
        before[row, column] = again + 1
        corner = (column * scale, row * scale, (column + grid.glimpse) * scale - 1, (row + grid.glimpse) * scale - 1)
        draw.rectangle(corner, outline=colour, width=max(1, thick - again))
        # numbers of glimpses at the same place stand beside each other
        place = (corner[0] + 5 + 0.9 * height * again, min(corner[1] + 3, size[1] - 1.25 * height))
        draw.text(place, str(step + 1), colour, font, stroke_width=2, stroke_fill="black")
    return picture


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """DejaVu Sans from matplotlib's files, without importing it, since Pillow's own font covers only ASCII."""
    spec = importlib.util.find_spec("matplotlib")
    place = Path((spec and spec.origin) or "").parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(place), 12) if place.is_file() else ImageFont.load_default(15)


def _short(
    draw: ImageDraw.ImageDraw, parts: _Line, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int
) -> str:
    """A line whose name is shortened in the middle if it is wider than a tile; the numbers beside it are kept."""
    before, name, after = parts
    for keep in range(len(name) // 2, -1, -1):
        shown = name if 2 * keep + 1 >= len(name) else f"{name[:keep]}…{name[len(name) - keep :]}"
        if draw.textlength(before + shown + after, font) <= width:
            break
    return before + shown + after
