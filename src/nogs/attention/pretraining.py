"""Pretraining (appendix, CUB): embedder, RNN and classifier learn from locations of a fixed distribution.

The loss is the classification loss of training. The epoch with the best validation accuracy is kept as a trunk. It is
frozen while location networks learn on top of it, and shared by all methods with the same pretraining.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from nogs.attention.architecture import SHAPING
from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.pretrainer import STATE, Pretrainer
from nogs.attention.store import load_network, save_network
from nogs.attention.trunks import FILE, FOLDER, Frozen, set_precision, source_of, trunks_of, tuned_convolutions
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.metrics import Metrics
from nogs.runtime.stage import Stage

_FIELDS = (
    *SHAPING, "initial_state", "batch", "flip", "learning_rate", "trajectories", "precision", "pretrain_epochs",
    "pretrain_patience", "pretrain_seconds", "pretrain_learning_rate", "pretrain_schedule", "pretrain_dropout",
    "pretrain_smoothing", "pretrain_average", "pretrain_augment",
)  # fmt: skip
"""Fields of a recipe that change the result of pretraining."""


def pretrain(
    task: Task,
    members: Sequence[Member],
    *,
    config: AttentionConfig,
    glimpses: int,
    folder: Path,
    device: torch.device,
    weights: str,
) -> Frozen:
    """Pretrain the trunks of `members` below `folder`, `pretrain_abreast` at once; finished ones are loaded."""
    trunks, numbers = trunks_of(members)
    fields = {name: getattr(config, name) for name in _FIELDS}
    stages = []
    for trunk in trunks:
        what = (trunk.distribution.log_probabilities, trunk.attribute, trunk.seed)
        mark = fingerprint("pretraining 1", fields, task.fingerprint, glimpses, what, source_of(config, weights))
        stages.append(Stage(folder / trunk.name, name=f"pretraining {trunk.name}", fingerprint=mark))
    for stage in stages:
        stage.check_folder()
    waiting = [(trunk, stage) for trunk, stage in zip(trunks, stages) if not stage.done]
    size = config.pretrain_abreast
    for some in (waiting[n : n + size] for n in range(0, len(waiting), size)):
        trainers = []
        for trunk, stage in some:
            trainers.append(Pretrainer(task, trunk, config=config, glimpses=glimpses, device=device, weights=weights))
            if not stage.begun:
                stage.begin()
        _run_abreast(trainers, [stage for _, stage in some])
        for trainer, (trunk, stage) in zip(trainers, some):
            ended = trainer.outcome()
            about = {"task": task.name, "attribute": trunk.attribute, "seed": trunk.seed, "method": FOLDER, **ended}
            del about["pretraining_seconds"]  # the same training gives the same bytes
            tensors = {name: value[0] for name, value in trainer.best.items()}
            save_network(stage.folder / FILE, tensors, architecture=trainer.networks.architecture, about=about)
            stage.finish(device=device, **ended)
            (stage.folder / STATE).unlink(missing_ok=True)
        del trainer, trainers
        if device.type == "cuda":
            torch.cuda.empty_cache()
    loaded = [load_network(folder / trunk.name / FILE, device=device)[0].requires_grad_(False) for trunk in trunks]
    for network in loaded:
        set_precision(network, config, device)
    return Frozen(trunks, numbers, loaded)


def _run_abreast(trainers: Sequence[Pretrainer], stages: Sequence[Stage]) -> None:
    """Pretrain epoch by epoch; a GPU computes the others' epochs while one is validated."""
    epochs = trainers[0].config.pretrain_epochs
    title = "pretraining, " + ", ".join(trainer.trunk.name.partition("/")[2] for trainer in trainers)
    with tuned_convolutions(), ExitStack() as stack:
        done = 0
        for trainer, stage in zip(trainers, stages):
            done += trainer.start(stage.folder, mark=stage.fingerprint)
            trainer.metrics = stack.enter_context(
                Metrics(
                    stage.folder,
                    resume_after=trainer.epoch or -1,
                    digest=trainer.counters.metrics if trainer.epoch else None,
                    tensorboard=False,
                )
            )
        bar = stack.enter_context(progress.track(title, total=epochs * len(trainers), unit="epochs", start=done))
        running = list(trainers)
        while running:
            for trainer in running:
                trainer.enqueue()
            running = [trainer for trainer in running if not trainer.settle(bar)]
