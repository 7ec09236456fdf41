"""Cross-fitting: several networks, so that for every image there is one that was not trained on it.

A network is overconfident about images that it was trained on, and a bank of training images consists of these. So the
design evaluates a completion with the network that left out the completion's source image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import torch
from jaxtyping import Bool, Float32, Int, UInt8
from torch import Tensor

from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.glimpse.changes import Changes
from nogs.posterior.network import NetworkPosterior
from nogs.runtime.fingerprint import fingerprint

__all__ = ["CrossFitted", "fold_of", "fold_task", "names_task", "uncalibrated", "whole_task"]

_MOST = 64  # largest number of folds that `names_task` tries


def fold_task(task: Task, *, fold: int, folds: int) -> Task:
    """The task for network `fold`: every `folds`-th image of the split 'posterior' is left out, starting at `fold`."""
    kept = tuple(id for rank, id in enumerate(task.splits["posterior"]) if rank % folds != fold)
    return replace(task, splits={**task.splits, "posterior": kept}, fingerprint=_of_fold(task.fingerprint, fold, folds))


def whole_task(task: Task) -> Task:
    """The task in which all training images train the posterior and none is annotated."""
    splits = {**task.splits, "posterior": task.splits["train"], "annotate": ()}
    return replace(task, splits=splits, fingerprint=fingerprint("all training images", task.fingerprint))


def fold_of(task: Task, *, splits: str | None, folds: int) -> int | None:
    """The fold that a task is of the task with the fingerprint `splits`; None if it is not a fold."""
    return next((fold for fold in range(folds) if task.fingerprint == _of_fold(splits, fold, folds)), None)


def names_task(other: str, task: Task) -> bool:
    """Whether a fingerprint belongs to the task or to one of its folds."""
    return other == task.fingerprint or any(
        other == _of_fold(task.fingerprint, fold, folds) for folds in range(2, _MOST + 1) for fold in range(folds)
    )


def _of_fold(splits: str | None, fold: int, folds: int) -> str:
    return fingerprint("fold", splits, fold, folds)


class CrossFitted:
    """K networks; number k was not trained on the images whose rank in the split 'posterior' is k modulo K.

    As a `Posterior`, for images that no network was trained on, it gives the mean of their probabilities.
    """

    def __init__(self, members: Sequence[NetworkPosterior], *, splits: str | None = None) -> None:
        self.members = list(members)
        first = self.members[0]
        self.architecture, self.device, self.precision = first.architecture, first.device, first.precision
        self.chunk = first.chunk
        self.splits = splits
        """Fingerprint of the task that defines the images' ranks."""

    @property
    def grid(self) -> Grid:
        """Image size, glimpse size and allowed locations."""
        return self.members[0].grid

    @property
    def space(self) -> LabelSpace:
        """What is predicted."""
        return self.members[0].space

    @property
    def glimpses(self) -> int:
        """T: the largest number of glimpses that it was trained for."""
        return self.members[0].glimpses

    def log_probabilities(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q T"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> Float32[Tensor, "Q V C"]:
        """See `Posterior`; with `changes` the images are changed first."""
        return self._mean(
            lambda one: one.log_probabilities(
                images, pixels, index=index, observed=observed, flip=flip, changes=changes
            )
        )

    def look_ahead(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        candidates: Int[Tensor, "*#Q L 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q P"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Float32[Tensor, "Q L V C"]:
        """See `Posterior`."""
        return self._mean(
            lambda one: one.look_ahead(images, pixels, candidates, index=index, observed=observed, flip=flip)
        )

    def _mean(self, ask: Callable[[NetworkPosterior], Tensor]) -> Tensor:
        return reduce(torch.logaddexp, map(ask, self.members)) - math.log(len(self.members))


def uncalibrated(posterior: NetworkPosterior | CrossFitted, *, precision: str) -> NetworkPosterior | CrossFitted:
    """The same networks without their temperatures."""
    if isinstance(posterior, CrossFitted):
        members = [NetworkPosterior(one.network, one.architecture, precision=precision) for one in posterior.members]
        return CrossFitted(members, splits=posterior.splits)
    return NetworkPosterior(posterior.network, posterior.architecture, precision=precision)
