"""Distillation: a network learns the predictions of a teacher, a trained posterior, in addition to the labels.

For an image that it was trained on, a teacher repeats the label. So a cross-fitted teacher uses the network that was
not trained on the image, or teaches a cross-fitted posterior fold by fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32, Int, Int64, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.glimpse.changes import Changes
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, fold_of, fold_task, names_task
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.store import load_posterior, trained_elsewhere
from nogs.runtime import progress
from nogs.runtime.errors import InputError


@dataclass(frozen=True)
class Teacher:
    """One network for every image, or several, each for the images that it was not trained on."""

    members: tuple[NetworkPosterior, ...]
    member_of: Int64[Tensor, " N"] | None = None
    """The network for each image of the task; beyond the last for images that no network left out."""

    @classmethod
    def of(cls, source: str, *, task: Task, device: torch.device, precision: str) -> Teacher:
        """The teacher for networks of a task or of one of its folds (see `fold_task`); other folds are refused."""
        found = load_posterior(source, task=task, device=device, precision=precision)
        if isinstance(found, NetworkPosterior):
            return cls((found,))
        fold = _common_fold(found, source, task)
        if fold is not None:
            return cls((found.members[fold],))
        folds = len(found.members)
        member_of = torch.full((len(task.ids),), folds)
        rows = torch.from_numpy(task.rows("posterior"))
        member_of[rows] = torch.arange(len(rows)) % folds
        return cls(tuple(found.members), member_of.to(device))

    def answers(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        *,
        index: Int[Tensor, " Q"],
        observed: Bool[Tensor, "Q T"],
        groups: tuple[tuple[int, int], ...],
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> Float32[Tensor, "Q V C"]:
        """Log-probabilities for queries about images of the task, in `groups` of (number, t) as `strata` gives them.

        All networks are evaluated, so that shapes do not depend on the queries and a graph can be captured.
        """
        asked, first = [], 0
        for count, t in groups:
            part = slice(first, first + count)
            where, seen = pixels[part, :t], observed[part, :t]
            mirrored, changed = None if flip is None else flip[part], None if changes is None else changes[part]
            each = [
                one.log_probabilities(images, where, index=index[part], observed=seen, flip=mirrored, changes=changed)
                for one in self.members
            ]
            asked.append(torch.stack(each))
            first += count
        answers = torch.cat(asked, 1)
        if self.member_of is None:
            return answers[0]
        return answers[self.member_of[index], torch.arange(len(index), device=index.device)]


def check_teacher(config: PosteriorConfig, *, task: Task, glimpses: int) -> None:
    """Refuse a teacher for fewer glimpses, or of other data, splits or folds than the whole task's.

    A message warns if the teacher may have been trained on images that a fold leaves out.
    """
    if config.teacher is None:
        return
    found = load_posterior(config.teacher, task=task)
    for other in trained_elsewhere(config.teacher, task):
        if not names_task(other, task):
            raise InputError(
                f"The teacher {config.teacher} was trained for other data or splits than these ({other}, not "
                f"{task.fingerprint}), so it may have seen images to validate or to annotate; train it again on these, "
                "or give another --posterior.teacher."
            )
    if found.glimpses < glimpses:
        raise InputError(
            f"The teacher {config.teacher} was trained for up to {found.glimpses} glimpses, not the {glimpses} of this "
            "posterior; lower --glimpses, or give another --posterior.teacher."
        )
    if isinstance(found, CrossFitted):
        _common_fold(found, config.teacher, task if config.folds == 1 else fold_task(task, fold=0, folds=config.folds))
    elif config.folds > 1:
        progress.say(
            f"The teacher {config.teacher} may have seen the images that each network leaves out; to avoid that, train "
            f"it with --posterior.folds {config.folds} too."
        )


def _common_fold(found: CrossFitted, source: str, task: Task) -> int | None:
    """The number of the teacher's network that left out the same images as this fold; None for the whole task."""
    folds = len(found.members)
    fold = fold_of(task, splits=found.splits, folds=folds)
    if fold is None and found.splits != task.fingerprint:
        raise InputError(
            f"The teacher {source} has {folds} networks, none of which is known to have left out the same images "
            f"as a network of this posterior; train both with --posterior.folds {folds} on the same data and "
            "splits, or give another --posterior.teacher."
        )
    return fold
