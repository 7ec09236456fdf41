"""Training of hard-attention networks as a stage of a run: pretraining where the recipe has it, training, outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from nogs.attention.architecture import Architecture
from nogs.attention.bounds import whole_images
from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.embedders import EMBEDDERS
from nogs.attention.outcome import write_outcomes
from nogs.attention.pretraining import pretrain
from nogs.attention.trainer import BEST, LOSSES, STATE, Counters, Trainer, state_mark, training_fields
from nogs.attention.trunks import source_of
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.device import Precision, pick_device, pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.lock import only_one
from nogs.runtime.stage import Stage
from nogs.runtime.state import read_counters, state_of

__all__ = ["BEST", "LOSSES", "STATE", "Trainer", "train"]


def train(
    task: Task,
    members: Sequence[Member],
    *,
    config: AttentionConfig,
    glimpses: int,
    folder: Path,
    device: str = "auto",
    weights: str | None = None,
) -> list[Path]:
    """Train `members` side by side; finished ones are skipped, begun ones resumed. Returns each one's folder.

    Where the recipe pretrains, this is done first, once for each distribution and seed. `weights` overrides the
    recipe's path of ImageNet weights.
    """
    weights = weights or config.weights
    stages = {member.name: _stage(member, task, config, glimpses, folder, weights) for member in members}
    if len(stages) != len(members):
        raise InputError("Two networks of this run have the same method, attribute and seed; ask for each once.")
    for stage in stages.values():
        stage.check_folder()
    waiting = [member for member in members if not stages[member.name].done]
    if 0 < len(waiting) < len(members):
        progress.say(f"{len(members) - len(waiting)} of {len(members)} networks are trained already.")
    if waiting:
        chosen = pick_device(device)
        check_state(folder / STATE, state_mark(task, waiting, config, glimpses))
        if config.pretrain_epochs:
            _check(task, waiting, config, glimpses)
        with pick(config, chosen).active(), only_one(folder) if config.pretrain_epochs else nullcontext():
            frozen = None
            if config.pretrain_epochs:
                frozen = pretrain(
                    task, waiting, config=config, glimpses=glimpses, folder=folder, device=chosen, weights=weights
                )
            trainer = Trainer(
                task, waiting, config=config, glimpses=glimpses, device=chosen, frozen=frozen, weights=weights
            )
        for member in waiting:
            stages[member.name].begin()
        with pick(config, chosen).active(), only_one(folder):
            if frozen is not None:
                trainer.whole_image = whole_images(trainer, folder)
            trainer.run(folder)
            write_outcomes(trainer, folder)
        for m, member in enumerate(waiting):
            if m not in trainer.failed:
                stages[member.name].finish(device=chosen, iterations=config.iterations, side_by_side=len(waiting))
        (folder / STATE).unlink(missing_ok=True)
        trainer.complain()
    return [folder / member.name for member in members]


def _check(task: Task, members: Sequence[Member], config: AttentionConfig, glimpses: int) -> None:
    """Refuse what can't be trained, before any pretraining."""
    if config.embedder == "release":
        raise InputError("The release embedder normalises by the batch and can't be frozen; choose another embedder.")
    cpu = torch.device("cpu")
    cohort = Cohort(task, members, glimpses=glimpses, batch=config.batch, flip=config.flip, device=cpu)
    EMBEDDERS[config.embedder](Architecture.of(config, grid=task.grid, glimpses=glimpses, labels=cohort.classes))


def pick(config: AttentionConfig, device: torch.device) -> Precision:
    """The arithmetic that a recipe asks for."""
    automatic = "tf32" if device.type == "cuda" else "float32"
    return pick_precision(automatic if config.precision == "auto" else config.precision, device)


def check_state(path: Path, mark: str) -> None:
    """Refuse to start if the unfinished training of other networks would be lost."""
    if path.exists() and state_of(path) != mark:
        raise InputError(
            f"{path} is the unfinished training of {read_counters(path, Counters).networks}; finish it with the "
            "command that began it, delete it to start again, or choose another --out."
        )


def _stage(member: Member, task: Task, config: AttentionConfig, glimpses: int, folder: Path, weights: str) -> Stage:
    mark = fingerprint(
        training_fields(config), task.fingerprint, glimpses, member.fingerprint(), source_of(config, weights)
    )
    return Stage(folder / member.name, name=f"network {member.name}", fingerprint=mark)
