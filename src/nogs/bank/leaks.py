"""Leakage checks: no held-out image or near-duplicate of one may be in a bank or train its generator.

Held out are the images that get glimpse sequences, and those of validation and test. Retrieval would find such an image
itself, and the uncertainty would collapse.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.runtime.errors import InputError

__all__ = ["Duplicates", "allowed_rows", "held_out", "refuse_ids"]

HELD_OUT = ("annotate", "validation", "test")
_CELLS = 16


def held_out(task: Task) -> frozenset[str]:
    """Ids of the images that no bank may hold."""
    return frozenset(id for split in HELD_OUT for id in task.splits.get(split, ()))


def refuse_ids(ids: Iterable[str], task: Task, *, what: str) -> None:
    """Refuse ids that include a held-out one."""
    leaked = sorted(held_out(task) & set(ids))
    if leaked:
        raise InputError(
            f"{what} was made with {len(leaked)} images that are held out, such as {leaked[0]!r}; make it again "
            "without the images to annotate and those of validation and test."
        )


def allowed_rows(task: Task, *, rms: float, device: torch.device | str = "cpu") -> Int64[np.ndarray, " n"]:
    """Rows of the training images that are neither held out nor near-duplicates of a held-out image."""
    forbidden = held_out(task)
    rows = task.rows([id for id in task.splits["train"] if id not in forbidden])
    if not len(rows):
        raise InputError(
            f"Task {task.title!r} annotates all of its training images, so a bank has none; lower data.annotated."
        )
    check = Duplicates.of(task, rms=rms, device=device)
    found = [check(torch.from_numpy(np.array(task.images[part]))).cpu().numpy() for part in _blocks(rows)]
    return rows[~np.concatenate(found)]


class Duplicates:
    """Finds near-duplicates of the protected images or of their mirror images.

    A near-duplicate has a root mean square difference below `rms` grey levels. It is computed from the 16 x 16 mean
    colours minus the picture's mean colour, so that re-encoded, slightly moved or brightened copies are found.
    """

    def __init__(self, protected: Float32[Tensor, "M D"], *, rms: float) -> None:
        self.protected, self.rms = protected, rms
        self._lengths = protected.square().sum(1)

    @classmethod
    def of(cls, task: Task, *, rms: float, device: torch.device | str = "cpu") -> Duplicates:
        """The check against a task's held-out images."""
        rows = task.rows(sorted(held_out(task)))
        parts = []
        for part in _blocks(rows):
            images = torch.from_numpy(np.array(task.images[part])).to(device)
            parts += [describe(images), describe(images.flip(2))]
        return cls(torch.cat(parts) if parts else torch.zeros(0, _CELLS**2 * 3, device=device), rms=rms)

    def __call__(self, images: UInt8[Tensor, "n H W 3"]) -> Bool[Tensor, " n"]:
        """Whether each image is a near-duplicate."""
        if not len(self.protected) or self.rms == 0:
            return torch.zeros(len(images), dtype=torch.bool, device=images.device)
        own = describe(images.to(self.protected.device))
        squares = own.square().sum(1)[:, None] + self._lengths - 2 * own @ self.protected.T
        return (squares.amin(1) < self.rms**2 * own.shape[1]).to(images.device)


def describe(images: UInt8[Tensor, "n H W 3"]) -> Float32[Tensor, "n D"]:
    """16 x 16 mean colours of each image, minus its mean colour."""
    cells = torch.nn.functional.adaptive_avg_pool2d(images.permute(0, 3, 1, 2).float(), _CELLS)
    return (cells - cells.mean((2, 3), keepdim=True)).flatten(1)


def _blocks(rows: np.ndarray, size: int = 1024) -> list[np.ndarray]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]
