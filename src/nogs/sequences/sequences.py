"""`Sequences`: locations for each image of a task, and the entropies known when each was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError

STEP_FIELDS = {"entropy": "entropy_before", "epe": "epe", "epe_error": "epe_error"}
"""Name in files of each optional per-step number -> name of its array in `Sequences`."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """T = `length` locations for each of N images, as (row, column) of the glimpse's top-left pixel.

    `attribute` is the binary attribute that they were made for, or None where they serve the whole label. The optional
    arrays hold one number per glimpse, in nats: posterior entropy before it (eq. 1), expected posterior entropy of its
    location (eq. 3) and the standard error of that estimate. `provenance` says where they came from.
    """

    task: str
    attribute: str | None
    grid: Grid
    length: int
    ids: tuple[str, ...]
    locations: Int64[np.ndarray, "N T 2"]
    entropy_before: Float[np.ndarray, "N T"] | None = None
    epe: Float[np.ndarray, "N T"] | None = None
    epe_error: Float[np.ndarray, "N T"] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.ids), self.length)
        if self.length < 1:
            raise ValueError(f"A sequence needs at least one glimpse, not {self.length}.")
        if self.locations.shape != (*shape, 2) or self.locations.dtype != np.int64:
            raise ValueError(
                f"Locations must be int64 {[*shape, 2]}, not {self.locations.dtype} {list(self.locations.shape)}."
            )
        for name, numbers in self.steps().items():
            if numbers.shape != shape or numbers.dtype.kind != "f" or not np.isfinite(numbers).all():
                raise ValueError(f"{name!r} must hold finite floats of shape {list(shape)}.")
        if len(self.position) != len(self.ids):
            raise ValueError(f"{len(self.ids) - len(self.position)} ids name an image that has a sequence already.")
        self.indices()

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def position(self) -> dict[str, int]:
        """Row of each image id in the arrays."""
        return {id: n for n, id in enumerate(self.ids)}

    def rows(self, ids: Iterable[str]) -> Int64[np.ndarray, " n"]:
        """Rows in the arrays of some image ids; an image without a sequence is refused by name."""
        try:
            return np.array([self.position[id] for id in ids], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"Image {error.args[0]!r} of task {self.task!r} has no glimpse sequence.") from None

    def by_id(self, id: str) -> Int64[np.ndarray, "T 2"]:
        """The locations of one image; an image without a sequence is refused by name."""
        return self.locations[self.rows([id])[0]]

    def indices(self) -> Int64[np.ndarray, "N T"]:
        """The locations as row-major indices on the grid."""
        return self.grid.index(torch.from_numpy(self.locations)).numpy()

    def steps(self) -> dict[str, Float[np.ndarray, "N T"]]:
        """The per-step arrays that are present, by their names in files: some of `STEP_FIELDS`."""
        arrays = {name: getattr(self, attribute) for name, attribute in STEP_FIELDS.items()}
        return {name: numbers for name, numbers in arrays.items() if numbers is not None}

    def subset(self, ids: Iterable[str]) -> Sequences:
        """The sequences of these images alone, in this order."""
        ids = tuple(ids)
        rows = self.rows(ids)
        steps = {STEP_FIELDS[name]: numbers[rows] for name, numbers in self.steps().items()}
        return replace(self, ids=ids, locations=self.locations[rows], **steps)
