"""A distribution over locations that is the same for all glimpses and images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.runtime.streams import key, uniform
from nogs.sequences import Sequences

__all__ = ["LocationDistribution"]


@dataclass(frozen=True, eq=False)
class LocationDistribution:
    """Probabilities of the locations of a grid, from which glimpses are drawn independently."""

    name: str
    log_probabilities: Float64[np.ndarray, " L"]

    @classmethod
    def uniform(cls, grid: Grid) -> LocationDistribution:
        """All locations are equally likely."""
        return cls("uniform", np.full(len(grid), -np.log(len(grid))))

    @classmethod
    def heuristic(cls, epe: Float64[np.ndarray, " L"], *, inverse_temperature: float) -> LocationDistribution:
        """Eq. 17: log p(l) = C - EPE(l) / gamma, with the expected posterior entropy before any glimpse."""
        energy = -inverse_temperature * np.asarray(epe, dtype=np.float64)
        top = energy.max()
        return cls("heuristic", energy - top - np.log(np.exp(energy - top).sum()))

    def sequences(
        self,
        task: Task,
        ids: Iterable[str],
        *,
        glimpses: int,
        seed: int,
        attribute: str | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Sequences:
        """T independent draws for each image, which depend on the seed and the image's id alone."""
        ids = tuple(ids)
        ends = np.cumsum(np.exp(self.log_probabilities))
        counter = torch.arange(glimpses)
        drawn = [uniform(key(seed, "supervision/locations", id), counter).numpy() for id in ids]
        index = np.searchsorted(ends, np.stack(drawn).astype(np.float64) * ends[-1], side="right")
        return Sequences(
            task=task.name,
            attribute=attribute,
            grid=task.grid,
            length=glimpses,
            ids=ids,
            locations=task.grid.pixels.numpy()[np.minimum(index, len(ends) - 1)],
            provenance=dict(provenance or {}),
        )
