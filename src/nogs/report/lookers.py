"""`Looker`: a run's network, opened from its file and run again along the recorded trajectories on test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64

from nogs.attention.cohort import Member, member_labels
from nogs.attention.looking import Looking
from nogs.data.task import Task
from nogs.plus.store import load_network
from nogs.report.contents import Network
from nogs.report.rollouts import Trace, trace

__all__ = ["Looker", "looker"]

MOST = {"cuda": 20_000, "cpu": 5_000}
"""The most test images that a network classifies again for a page; a VGG on a CPU takes a tenth of a second each."""
_MOST_VGG = 300


@dataclass(frozen=True)
class Looker:
    """A network that can look at the images of its task."""

    network: Network
    loaded: Looking
    about: dict[str, Any]
    task: Task

    @property
    def labels(self) -> list[str]:
        """Its classes."""
        return list(self.about["labels"])

    @cached_property
    def truth(self) -> Int64[np.ndarray, " N"]:
        """The true class of every image of the task, as an index of this network's classes."""
        return np.asarray(member_labels(self.task, Member(self.network.method, attribute=self.network.attribute)))

    @cached_property
    def tested(self) -> tuple[str, ...]:
        """The test images, or evenly chosen ones if there are too many."""
        ids = self.task.splits["test"]
        device = self.loaded.coordinates.device.type
        most = MOST.get(device, MOST["cpu"])
        if self.loaded.architecture.embedder == "vgg" and device == "cpu":
            most = _MOST_VGG
        return tuple(ids[n] for n in np.unique(np.linspace(0, len(ids) - 1, min(most, len(ids))).astype(int)))

    @cached_property
    def said(self) -> Int64[np.ndarray, " n"]:
        """Its answer for each of the `tested` images."""
        return self.look(self.tested, maps=False).answers[:, -1].argmax(-1)

    @cached_property
    def right(self) -> Bool[np.ndarray, " n"]:
        """Whether each answer is right."""
        return np.asarray(self.said == self.truth[self.task.rows(self.tested)])

    def look(self, ids: Sequence[str], *, maps: bool = True) -> Trace:
        """Test images along the first trajectory of its evaluation, others along a new one."""
        test = {id: n for n, id in enumerate(self.task.splits["test"])}
        kept = self.network.locations() if all(id in test for id in ids) else None
        locations = None
        if kept is not None and len(kept) == len(test):
            pixels = torch.from_numpy(kept[[test[id] for id in ids], 0])
            locations = np.asarray(self.task.grid.index(pixels).numpy())
        images = self.task.images[self.task.rows(ids)]
        return trace(self.loaded, images, ids, locations=locations, seed=self.network.learned.seed, maps=maps)


def looker(network: Network, task: Task, *, device: torch.device | str = "cpu") -> Looker | None:
    """The network, opened; None if its grid is not the task's."""
    loaded, about = load_network(network.folder / "best-accuracy.safetensors", device=device)
    return Looker(network, loaded, about, task) if loaded.architecture.grid == task.grid else None
