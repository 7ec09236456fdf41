"""The embedded task: scikit-learn's handwritten digits, each at a random position among fragments of others.

Nothing is downloaded and any number of images can be made, so that the whole method runs on a fresh installation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float32, Int64, UInt8

from nogs.data.task import LabelSpace, Task
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.memory import physical_memory
from nogs.runtime.streams import numpy_stream

if TYPE_CHECKING:
    from nogs.data.config import DataConfig

POOLS = (*("annotate",) * 2, *("posterior",) * 6, "validation", "test")
"""Image n shows a source digit of the pool `POOLS[n % 10]`, so that image n is the same at any count.

Pools share no source digit: no digit of a test image was seen in training, none of an annotated image by the posterior.
"""

_CELLS = 10  # a source digit has 8 x 8 cells; one empty cell around them lets its strokes fade out
_SIZES = (25, 26, 27, 28, 29, 30)  # px of those 10 cells on a canvas of 64 px: the digit itself is 20 to 24 px
_FRAGMENTS = (6, 7, 8, 9)  # px of a fragment on a canvas of 64 px
_BACKGROUND, _INK, _TINT = (10, 40), (200, 245), 10  # ranges of two grey levels, and the largest offset of a channel


def load_digits_task(config: DataConfig) -> Task:
    """The task `digits`: `count` images with ids "0" .. "count - 1", split 80 / 10 / 10 by the last digit of the id."""
    if config.count < len(POOLS):
        raise InputError(f"data.count must be at least {len(POOLS)} so that no split is empty, but is {config.count}.")
    memory, needed = physical_memory(), config.count * config.image_size**2 * 3
    if memory is not None and needed > memory:
        raise InputError(
            f"{config.count:,} digits of {config.image_size} px take {needed / 2**30:,.0f} GiB, and this machine has "
            f"{memory / 2**30:,.0f} GiB of memory; lower data.count or data.image_size."
        )
    members = {pool: [n for n in range(config.count) if POOLS[n % 10] == pool] for pool in dict.fromkeys(POOLS)}
    if not 0 <= config.annotated <= len(members["annotate"]):
        raise InputError(
            f"data.annotated must be in 0..{len(members['annotate'])}, a fifth of data.count = {config.count}, but is "
            f"{config.annotated}; raise data.count or annotate fewer images."
        )
    size = config.image_size
    images = np.empty((config.count, size, size, 3), np.uint8)
    labels = np.empty(config.count, np.int64)
    boxes = np.empty((config.count, 4), np.float32)
    for pool, rows in members.items():
        images[rows], labels[rows], boxes[rows] = render_digits(
            rows, pool=pool, seed=0, fragments=config.fragments, image_size=size
        )
    ids = {pool: tuple(str(n) for n in rows) for pool, rows in members.items()}
    train = tuple(str(n) for n in range(config.count) if POOLS[n % 10] in ("annotate", "posterior"))
    return Task(
        name="digits",
        images=images,
        ids=tuple(str(n) for n in range(config.count)),
        labels=labels,
        space=LabelSpace("categorical", tuple("0123456789")),
        splits={
            "train": train,
            "validation": ids["validation"],
            "test": ids["test"],
            "annotate": ids["annotate"][: config.annotated],
            "posterior": ids["posterior"],
        },
        grid=config.grid,
        fingerprint=fingerprint("digits", config),
        boxes=boxes,
    )


def render_digits(
    ids: Sequence[int], *, pool: str, seed: int, fragments: int, image_size: int
) -> tuple[UInt8[np.ndarray, "N H W 3"], Int64[np.ndarray, " N"], Float32[np.ndarray, "N 4"]]:
    """Images, labels and boxes (row, column, height, width of the digit's ink in px) of the images `ids`.

    The digits come from one of the `POOLS`, or from "train": annotate and posterior together. An image depends only on
    its id and the other arguments, not on the other ids.
    """
    sources = _pool(pool)
    sizes = tuple(_scaled(size, image_size) for size in _SIZES)
    crops = tuple(_scaled(size, image_size) for size in _FRAGMENTS)
    if image_size < 16:
        raise InputError(f"data.image_size must be at least 16 px for digits, but is {image_size}.")
    glyphs = {size: _glyphs(size) for size in set(sizes)}
    truth = _source_digits()[1]
    images = np.empty((len(ids), image_size, image_size, 3), np.uint8)
    boxes = np.empty((len(ids), 4), np.float32)
    chosen = np.empty(len(ids), np.int64)
    ramp = np.linspace(0, 1, 256)[:, None]
    for n, id in enumerate(ids):
        # one array of uniform numbers per image: the digit's come first, so `fragments` does not move the digit
        draws = numpy_stream(seed, f"digits/{pool}", str(id)).random((2 + fragments, 7))
        place, colour, clutter = draws[0], draws[1], draws[2:]
        own = int(place[0] * len(sources))
        chosen[n] = sources[own]
        canvas = np.zeros((image_size, image_size), np.uint8)
        for u in clutter:
            other = sources[(own + 1 + int(u[0] * (len(sources) - 1))) % len(sources)]
            size, crop = sizes[int(u[1] * len(sizes))], crops[int(u[2] * len(crops))]
            margin = size // _CELLS
            row, column = margin + ((size - 2 * margin - crop + 1) * u[3:5]).astype(int)
            _paste(canvas, _fade(glyphs[size][other][row : row + crop, column : column + crop]), u[5:7])
        size = sizes[int(place[1] * len(sizes))]
        glyph = glyphs[size][chosen[n]]
        boxes[n] = _ink_box(glyph) + np.array([*_paste(canvas, glyph, place[2:4]), 0, 0])
        background, ink = (low + (high - low) * u for (low, high), u in zip((_BACKGROUND, _INK), colour))
        tint = _TINT * (2 * colour[2:5] - 1)
        images[n] = np.rint(background + (ink - background) * ramp + tint).astype(np.uint8)[canvas]
    return images, truth[chosen], boxes


def _paste(canvas: npt.NDArray[np.uint8], patch: npt.NDArray[np.uint8], spot: npt.NDArray[np.float64]) -> list[int]:
    """Paste a patch at `spot` in [0, 1)^2, keeping the brighter pixels; returns its top-left pixel."""
    row, column = (int(x) for x in (len(canvas) - len(patch) + 1) * spot)
    under = canvas[row : row + len(patch), column : column + len(patch)]
    np.maximum(under, patch, out=under)
    return [row, column]


def _fade(patch: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Soften the outer pixels of a fragment: a hard edge would distinguish it from a digit."""
    edge = _window(len(patch))
    return (patch * edge[:, None] * edge).astype(np.uint8)


@cache
def _window(size: int) -> npt.NDArray[np.float64]:
    steps = np.arange(size)
    return np.minimum(1, (np.minimum(steps, size - 1 - steps) + 1) / 2)


def _ink_box(glyph: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    inked = glyph > 64
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    return np.array([rows[0], columns[0], rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1])


def _scaled(pixels: int, image_size: int) -> int:
    return round(pixels * image_size / 64)


@cache
def _source_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # takes a second, and only this task needs it

    images, labels = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8) / 16, labels.astype(np.int64)


@cache
def _pool(pool: str) -> npt.NDArray[np.int64]:
    """Source digits of a pool, fixed for all seeds: each class is shuffled once and dealt to the pools in turn."""
    if pool == "train":
        return np.concatenate([_pool("annotate"), _pool("posterior")])
    if pool not in POOLS:
        raise ValueError(f"No pool {pool!r} of digits; choose one of {sorted({*POOLS, 'train'})}.")
    labels = _source_digits()[1]
    order = np.lexsort((numpy_stream(0, "digits/pools").random(len(labels)), labels))
    return order[np.array([POOLS[k % 10] == pool for k in range(len(order))])]


@cache
def _glyphs(size: int) -> npt.NDArray[np.uint8]:
    """All source digits with their empty margin, smoothly enlarged to `size` px."""
    padded = torch.from_numpy(np.pad(_source_digits()[0], ((0, 0), (1, 1), (1, 1))))
    smooth = torch.nn.functional.interpolate(padded[:, None], size=(size, size), mode="bicubic", align_corners=False)
    return (smooth[:, 0].clamp(0, 1) * 255).round().to(torch.uint8).numpy()
