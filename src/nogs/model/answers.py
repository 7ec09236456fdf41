"""A network's answer for an image, with its glimpses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from nogs.glimpse import Grid, mask

__all__ = ["Answer", "Location", "answer_of", "location_at", "share_of"]


class Location(NamedTuple):
    """Top-left pixel of a glimpse in the prepared image."""

    row: int
    column: int


@dataclass(frozen=True, repr=False)
class Answer:
    """The network's answer after the glimpses at `locations`, and its confidence after each of them."""

    label: str
    probability: float
    probabilities: Mapping[str, float]
    locations: tuple[Location, ...]
    confidence: tuple[float, ...]
    pixels_read: float
    """Share of the image's pixels inside a glimpse; overlaps count once."""
    stopped_early: bool
    notes: tuple[str, ...] = ()
    picture: npt.NDArray[np.uint8] | None = field(default=None, compare=False)
    """The prepared pixels, where the whole picture was given."""
    grid: Grid | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the pixels."""
        said = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("picture", "grid")}
        return {
            **said,
            "probabilities": dict(self.probabilities),
            "locations": [list(location) for location in self.locations],
            "confidence": list(self.confidence),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        glimpses = f"{len(self.locations)} glimpse{'' if len(self.locations) == 1 else 's'}"
        return f"<Answer {self.label!r}, {self.probability:.1%}, {glimpses}, {self.pixels_read:.1%} of the pixels>"

    def _repr_png_(self) -> bytes | None:
        """In a notebook: the picture with its glimpses, and the answer below it."""
        if self.picture is None or self.grid is None:
            return None
        from nogs.model.drawing import glimpses_sheet

        return glimpses_sheet([self.picture], [self], grid=self.grid, names=[""])


def location_at(index: int, grid: Grid) -> Location:
    """The pixel of a location's index on the grid."""
    row, column = divmod(index, grid.shape[1])
    return Location(grid.rows[row], grid.columns[column])


def answer_of(
    probabilities: npt.NDArray[np.float32],
    *,
    labels: Sequence[str],
    grid: Grid,
    seen: Sequence[int],
    confidence: Sequence[float],
    stopped_early: bool = False,
) -> Answer:
    """The answer with these probabilities of the labels, after glimpses at these indices of the grid."""
    best = int(probabilities.argmax())
    locations = tuple(location_at(index, grid) for index in seen)
    return Answer(
        label=labels[best],
        probability=float(probabilities[best]),
        probabilities={name: float(p) for name, p in zip(labels, probabilities)},
        locations=locations,
        confidence=tuple(confidence),
        pixels_read=share_of(locations, grid),
        stopped_early=stopped_early,
    )


def share_of(locations: Sequence[Location], grid: Grid) -> float:
    """Share of the image inside the glimpses at these locations."""
    if not locations:
        return 0.0
    seen = mask(torch.tensor(locations), glimpse=grid.glimpse, height=grid.height, width=grid.width)
    return seen.float().mean().item()
