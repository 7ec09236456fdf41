"""New pictures: any file, Pillow image or array as the pixels that a network's glimpses are cut from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from nogs.data.archives import MOST
from nogs.data.images import Fit, Preparation, decode, fitted, reason
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.reading import read_regular


class Picture(NamedTuple):
    """Prepared pixels `[H, W, 3]`, and what had to be done to get them."""

    pixels: npt.NDArray[np.uint8]
    notes: tuple[str, ...]


def read_picture(image: str | Path | Image.Image | npt.NDArray[np.uint8], *, grid: Grid, fit: Fit) -> Picture:
    """A picture as `nogs data prepare` would make it; an array of the grid's own size is taken as it is."""
    how = Preparation(grid.height, fit=fit, upright=True)
    name = f"The picture {image}" if isinstance(image, str | Path) else "The picture"
    if isinstance(image, np.ndarray):
        if image.dtype == np.uint8 and image.shape == (grid.height, grid.width, 3):
            return Picture(np.array(image), ())
        image = _pillow(image)
    if not isinstance(image, str | Path | Image.Image):
        raise InputError(f"A picture must be a file's path, a Pillow image or a uint8 array, not {_kind(image)}.")
    if isinstance(image, str | Path) and Path(image).is_dir():
        raise InputError(f"{image} is a folder; classify each picture in it, or run nogs predict RUN {image}.")
    if grid.height != grid.width:
        raise InputError(
            f"The network's images are {grid.height} x {grid.width} px, not square; give an array of that size."
        )
    try:
        decoded = decode(read_regular(image, most=MOST), how) if isinstance(image, str | Path) else fitted(image, how)
    except FileNotFoundError:
        raise InputError(f"There is no file {image}; check its path.") from None
    except Exception as error:  # Pillow's readers raise many kinds of errors for damaged files
        raise InputError(f"{name} can't be read: {reason(error)}; save it again as PNG or JPEG.") from error
    return Picture(np.array(decoded.pixels), (*decoded.conversions, *_resized(decoded.size, grid, fit)))


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of the type {type(value).__name__}"


def _pillow(image: npt.NDArray[np.uint8]) -> Image.Image:
    """An array `[H, W]`, `[H, W, 3]` or `[H, W, 4]` as a picture."""
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (3, 4)):
        raise InputError(
            f"An image must be a uint8 array [H, W, 3] (or grey [H, W], or with alpha [H, W, 4]), not {image.dtype} of "
            f"shape {image.shape}."
        )
    return Image.fromarray(np.ascontiguousarray(image))


def _resized(size: tuple[int, int], grid: Grid, fit: Fit) -> tuple[str, ...]:
    """Changes of the picture's shape and size that matter for the answer."""
    width, height = size
    notes = []
    if width != height:
        how = {"crop": "cropped to its middle", "pad": "padded with black", "stretch": "stretched to a square"}[fit]
        notes.append(f"{width} x {height} px, {how}")
    side = max(size) if fit == "pad" else min(size)
    if side < grid.glimpse:
        notes.append(f"enlarged from {side} px, less than one glimpse of {grid.glimpse} px shows: trust it little")
    elif side < grid.height:
        notes.append(f"enlarged from {side} to {grid.height} px")
    return tuple(notes)
