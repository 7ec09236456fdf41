"""Random changes of training images: zoom, rotation, shift and colour, computed only for the pixels that are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Int64, UInt8
from torch import Tensor

from nogs.runtime import streams

__all__ = ["Changes", "changed", "draw_changes"]

_GREY = 115.0  # ImageNet's mean, around which contrast changes


@dataclass(frozen=True)
class Changes:
    """One change for each of B images.

    `turn` and `move` map a pixel of the changed image, relative to the centre, to where it is read. `gain` multiplies
    the channels. `tone` holds factors of contrast and saturation and what is added to all channels.
    """

    turn: Float[Tensor, "B 2 2"]
    move: Float[Tensor, "B 2"]
    gain: Float[Tensor, "B 3"]
    tone: Float[Tensor, "B 3"] | None = None

    def __getitem__(self, rows: slice | Tensor) -> Changes:
        """The changes of some of the images."""
        tone = None if self.tone is None else self.tone[rows]
        return Changes(self.turn[rows], self.move[rows], self.gain[rows], tone)


def draw_changes(
    key: int,
    counter: Int64[Tensor, " B"],
    *,
    zoom: tuple[float, float],
    turn: float,
    move: float,
    colour: float,
    contrast: float = 0.0,
) -> Changes:
    """The change that each counter draws from the stream `key`, each part uniform up to its maximum.

    `zoom` (smaller and larger), `colour` (of each channel's brightness) and `contrast` (of contrast and
    saturation) are relative, `turn` is in degrees, `move` in px.
    """
    drawn = 2 * streams.uniform(key, 8 * counter[:, None] + torch.arange(7, device=counter.device)) - 1
    smaller, larger = zoom
    scale = 1 / (1 + (larger - smaller) / 2 + (larger + smaller) / 2 * drawn[:, 0])
    angle = math.radians(turn) * drawn[:, 1]
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    matrix = torch.stack([torch.stack([cosine, -sine], -1), torch.stack([sine, cosine], -1)], -2)
    tone = None
    if contrast:
        places = 3 * counter[:, None] + torch.arange(3, device=counter.device)
        more = 2 * streams.uniform(streams.key(key, "tone"), places) - 1
        tone = torch.cat([1 + contrast * more[:, :2], 255 / 4 * contrast * more[:, 2:]], 1)
    return Changes(matrix, move * drawn[:, 2:4], 1 + colour * drawn[:, 4:7], tone)


def changed(
    images: UInt8[Tensor, "N H W 3"],
    changes: Changes,
    *,
    index: Int[Tensor, " B"],
    flip: Bool[Tensor, " B"] | None = None,
    pixels: Int[Tensor, "B T 2"] | None = None,
    glimpse: int | None = None,
) -> UInt8[Tensor, "B *shape 3"]:
    """The changed images `index`, mirrored first where `flip` is true; given `pixels`, only glimpses of them.

    Colours are interpolated bilinearly; outside the image its border is repeated.
    """
    _, height, width, _ = images.shape
    if pixels is None:
        rows = torch.arange(height, device=images.device)[None, :, None].expand(len(index), -1, width)
        columns = torch.arange(width, device=images.device)[None, None].expand(len(index), height, -1)
    else:
        assert glimpse is not None
        steps = torch.arange(glimpse, device=images.device)
        rows = (pixels[..., 0, None, None] + steps[:, None]).expand(*pixels.shape[:2], glimpse, glimpse)
        columns = (pixels[..., 1, None, None] + steps).expand(*pixels.shape[:2], glimpse, glimpse)
    shape, spread = rows.shape, (-1, *(1,) * (rows.ndim - 1))
    middle = ((height - 1) / 2, (width - 1) / 2)
    down, right = rows - middle[0], columns - middle[1]
    matrix, move = changes.turn, changes.move
    row = matrix[:, 0, 0].view(spread) * down + matrix[:, 0, 1].view(spread) * right + move[:, 0].view(spread)
    column = matrix[:, 1, 0].view(spread) * down + matrix[:, 1, 1].view(spread) * right + move[:, 1].view(spread)
    if flip is not None:
        column = torch.where(flip.view(spread), -column, column)
    row = (row + middle[0]).clamp(0, height - 1)
    column = (column + middle[1]).clamp(0, width - 1)
    top, left = row.floor().long(), column.floor().long()
    below, beside = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    across, along = (row - top)[..., None], (column - left)[..., None]
    which = index.view(spread).expand(shape)
    upper = torch.lerp(images[which, top, left].float(), images[which, top, beside].float(), along)
    lower = torch.lerp(images[which, below, left].float(), images[which, below, beside].float(), along)
    shown = torch.lerp(upper, lower, across) * changes.gain.view(len(index), *(1,) * (len(shape) - 1), 3)
    if changes.tone is not None:
        contrast, saturation, more = (part.view(*spread, 1) for part in changes.tone.unbind(1))
        grey = shown.mean(-1, keepdim=True)
        shown = (grey - _GREY + saturation * (shown - grey)) * contrast + _GREY + more
    return shown.round().clamp(0, 255).byte()
