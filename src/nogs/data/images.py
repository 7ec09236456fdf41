"""Decode, convert, crop and resize a picture, or many of them in a worker.

Nothing here imports torch, so that a decoding process starts in a fraction of a second.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from nogs.data.archives import Entry

__all__ = [
    "Chunk",
    "Decoded",
    "Preparation",
    "box_square",
    "decode",
    "decode_chunk",
    "fitted",
    "open_picture",
    "reason",
]

VERSION = 1
"""Increased whenever the same file would give other pixels: older caches are then not used."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
"""File formats that are decoded, whatever the suffix. Pillow would pass others, such as EPS, to programs that execute
their content."""

_UPRIGHT = {  # by EXIF's orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

Fit = Literal["crop", "pad", "stretch"]


@dataclass(frozen=True)
class Preparation:
    """How every picture of a task becomes `size` x `size` pixels."""

    size: int
    fit: Fit = "stretch"
    upright: bool = False  # rotate by the EXIF orientation (not where annotations refer to raw pixels)


class Decoded(NamedTuple):
    """Pixels of one picture, its original (width, height), and the conversions that were needed."""

    pixels: npt.NDArray[np.uint8]  # H W 3
    size: tuple[int, int]
    conversions: tuple[str, ...]


class Chunk(NamedTuple):
    """Work for one call of `decode_chunk`: pictures, and the offset of the first one in the output file."""

    entries: Sequence[Entry]
    boxes: Sequence[Sequence[float]] | None
    offset: int


def box_square(box: Sequence[float], width: int, height: int) -> tuple[int, int, int, int]:
    """CUB's crop (left, top, right, bottom): half-side int(0.75 max(w, h)) about the box's centre, clipped."""
    x, y, w, h = box
    half = int(0.75 * max(w, h))
    column, row = int(x + w / 2), int(y + h / 2)
    return max(0, column - half), max(0, row - half), min(width, column + half), min(height, row + half)


def open_picture(data: bytes) -> Image.Image:
    """Open a picture file and read its header; raises if it is not a picture."""
    return Image.open(io.BytesIO(data), formats=_FORMATS)


def decode(data: bytes, how: Preparation, box: Sequence[float] | None = None) -> Decoded:
    """Pixels of a picture file, cropped to `box_square` if there is a box; raises if it can't be read."""
    with warnings.catch_warnings(), open_picture(data) as opened:
        warnings.simplefilter("ignore")  # odd metadata does not matter as long as the pixels are intact
        opened.load()
        return fitted(opened, how, box)


def fitted(opened: Image.Image, how: Preparation, box: Sequence[float] | None = None) -> Decoded:
    """Pixels of an open picture, as `decode` makes them."""
    picture, conversions = _to_rgb(opened)
    turn = _UPRIGHT.get(opened.getexif().get(0x0112, 1)) if how.upright else None
    if turn is not None:
        picture, conversions = picture.transpose(turn), (*conversions, "turned upright")
    size = picture.size
    crop = None
    if box is not None:
        crop = box_square(box, *size)
        if crop[0] >= crop[2] or crop[1] >= crop[3]:
            raise ValueError(f"its bounding box lies outside the picture of {size[0]} x {size[1]} px")
    elif how.fit == "crop" and size[0] != size[1]:
        side = min(size)
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        crop = (left, top, left + side, top + side)
    square = (how.size, how.size)
    if how.fit == "pad" and size[0] != size[1]:
        picture = ImageOps.pad(picture, square, Image.Resampling.LANCZOS)
    else:
        if crop is not None and crop != (0, 0, *size):
            picture = picture.crop(crop)
        if picture.size != square:
            picture = picture.resize(square, Image.Resampling.LANCZOS)
    return Decoded(np.asarray(picture), size, conversions)


def decode_chunk(chunk: Chunk, shared: tuple[str, Preparation]) -> tuple[list[tuple[int, int]], list[str], list[str]]:
    """Decode pictures directly into their place in the file `shared[0]`.

    Returns for each picture its size, its problem ("" if none) and its conversions ("" if none).
    """
    path, how = shared
    # glibc returns each picture's buffers to the system and faults them in again for the next; after a larger block was
    # freed it keeps them, which halves the time
    bytes(2**24)
    sizes, problems, conversions = [], [], []
    with open(path, "r+b") as file:
        for n, entry in enumerate(chunk.entries):
            try:
                picture = decode(entry.read(), how, None if chunk.boxes is None else chunk.boxes[n])
            except Exception as error:  # Pillow raises many types of errors on damaged files
                picture = Decoded(np.zeros((how.size, how.size, 3), np.uint8), (0, 0), ())
                problems.append(reason(error))
            else:
                problems.append("")
            sizes.append(picture.size)
            conversions.append("; ".join(picture.conversions))
            # one write per picture, directly from Pillow's bytes: a buffer for all of them would cost another copy
            file.seek(chunk.offset + n * how.size * how.size * 3)
            file.write(picture.pixels.data)
    return sizes, problems, conversions


def _to_rgb(picture: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    mode = picture.mode
    if mode == "RGB" and "transparency" not in picture.info:
        return picture, ()
    if mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, clear).convert("RGB"), ("transparent, laid on white",)
    if mode in ("1", "L"):
        return picture.convert("RGB"), ("grey",)
    if mode.startswith("I"):
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"its mode {mode} has values outside 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB"), ("16-bit grey",)
    if mode in ("P", "CMYK", "YCbCr", "HSV"):
        name = {"P": "palette"}.get(mode, mode)
        return picture.convert("RGB"), (name,)
    raise ValueError(f"its mode {mode} can't be turned into RGB")


def reason(error: Exception) -> str:
    """Why a picture can't be read, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    if isinstance(error, OSError) and error.strerror:  # without the path, which the list names already
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
