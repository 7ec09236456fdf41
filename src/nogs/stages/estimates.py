"""How long a stage will take, measured on a little of its own work; what a stage's network learns from that is lost.

Every estimate is of this machine as it is now: another program on it makes it wrong.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from nogs.attention.cohort import Member
from nogs.bank.config import SEED
from nogs.bank.generators import Generator, make_generator
from nogs.bank.leaks import held_out
from nogs.data.catalogue import Catalogue
from nogs.data.images import decode
from nogs.data.task import Task
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.recipes import Recipe
from nogs.runtime.capture import captured

__all__ = [
    "attention_seconds",
    "bank_seconds",
    "clock",
    "decoding_seconds",
    "plus_seconds",
    "posterior_seconds",
    "sequences_seconds",
    "whole_seconds",
]


def clock(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"{math.ceil(seconds / 10) * 10} s"
    minutes = seconds / 60
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def decoding_seconds(catalogue: Catalogue, *, workers: int, tried: int = 16) -> float:
    """All pictures by `workers` processes, from the time of some; unreadable ones cost as much."""
    chosen = np.unique(np.linspace(0, len(catalogue.entries) - 1, tried).astype(int))
    began = time.monotonic()
    for index in chosen:
        box = None if catalogue.boxes is None else catalogue.boxes[index].tolist()
        try:
            decode(catalogue.entries[index].read(), catalogue.how, box)
        except Exception:  # Pillow's readers raise many kinds; decoding in earnest names the file
            continue
    return (time.monotonic() - began) / len(chosen) * len(catalogue.entries) / workers


def posterior_seconds(recipe: Recipe, task: Task, *, device: torch.device, data: Path | None = None) -> float | None:
    """All iterations and validations, or the recipe's limit; a network that is compiled first can't be told."""
    from nogs.posterior.crossfit import fold_task
    from nogs.posterior.training import Trainer, with_weights

    config = with_weights(recipe.posterior, data)  # layers that keep what was loaded are quicker
    if config.compile and device.type == "cuda":
        return None if config.seconds is None else config.folds * config.seconds
    if config.folds > 1:
        task = fold_task(task, fold=0, folds=config.folds)  # the part of a cross-fitted teacher that one is taught by
    trainer = Trainer(task, config=config, glimpses=recipe.glimpses, seed=recipe.seed, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), trainer.precision.active():
        step = _seconds(trainer.step, device)
        validation = _seconds(lambda: trainer.validate(), device, times=1)
    rounds = math.ceil(config.iterations / (config.validate_every or trainer.per_epoch))
    return config.folds * min(step * config.iterations + validation * rounds, config.seconds or math.inf)


def bank_seconds(recipe: Recipe, task: Task, *, device: torch.device, path: Path | None) -> float | None:
    """Generating the images and fitting their components, after the time that the generator's training may take and
    that of encoding its images; how long a training without a limit takes can't be told."""
    config, training = recipe.bank, 0.0
    if config.generator == "trained" and path is None:
        from nogs.bank.generators.trained import Trained

        if config.trained.seconds is None:
            return None
        size, images = (task.grid.height, task.grid.width), len(set(task.splits["train"]) - held_out(task))
        untrained = Trained.untrained(config.trained, size=size, device=device)
        batch = torch.zeros(min(64, max(1, images)), 3, *size, device=device)
        with torch.no_grad(), untrained.precision.active():
            encoding = _seconds(lambda: untrained.autoencoder.encode(batch), device, times=1) / len(batch)
        training = config.trained.seconds + 2 * encoding * images  # each one and its mirror image
        generator: Generator = untrained
    else:
        generator = make_generator(config, task=task, path=path, device=device)
    number = min(config.batch, config.count, generator.count or config.count)
    each = _seconds(lambda: generator.generate(np.arange(number), seed=SEED), device, times=1) / number
    width = 3 * task.grid.height * task.grid.width
    pixels, basis = torch.ones(number, width, device=device), torch.ones(width, config.components, device=device)
    # fitting and encoding cost about as much as ten projections of every image
    project = 10 * _seconds(lambda: pixels @ basis, device) / number
    return training + (each + project) * config.count


def sequences_seconds(
    recipe: Recipe, task: Task, ids: Sequence[str], *, tools: Tools, workers: int, attribute: int | None
) -> float:
    """All images by `workers`, from a few of them and the task's first step."""
    began = time.monotonic()
    first = first_step(tools, np.array(task.images[0]), config=recipe.design)
    between = time.monotonic()

    def seconds(few: Sequence[str]) -> float:
        since = time.monotonic()
        annotate_images(
            tools,
            np.array(task.images[task.rows(few)]),
            few,
            first=first,
            config=recipe.design,
            glimpses=recipe.glimpses,
            attribute=attribute,
            seed=recipe.seed,
        )
        return (time.monotonic() - since) / len(few)

    each = seconds(ids[:2])
    if tools.device.type == "cuda":  # the first ones wait for kernels, and two don't fill a GPU
        each = seconds(ids[: min(16, recipe.design.images)])
    blocks = math.ceil(len(ids) / recipe.design.images)
    return between - began + each * len(ids) / min(workers, blocks)


def whole_seconds(recipe: Recipe, task: Task, *, device: torch.device, data: Path | None) -> float:
    """All iterations and validations of the whole-image reference, or its limit; or the features of all images."""
    from nogs.whole.trainer import Trainer

    config = recipe.whole
    trainer = Trainer(task, config=config, posterior=recipe.posterior, seed=recipe.seed, device=device, data=data)
    few = trainer.training[:16]
    with trainer.precision.active():
        look = _seconds(lambda: trainer.features(few), device, times=1) / len(few)
        learning = (
            look * len(trainer.training) if trainer.frozen else _seconds(trainer.step, device) * config.iterations
        )
    rounds = 1 if trainer.frozen else config.iterations // trainer.validate_every
    judging = look * (rounds * len(task.splits["validation"]) + len(task.splits["test"]))
    return min(learning, config.seconds or math.inf) + judging


def attention_seconds(recipe: Recipe, task: Task, members: Sequence[Member], *, device: torch.device) -> float | None:
    """All iterations and validations of the networks side by side; what is pretrained first can't be told."""
    from nogs.attention.training import Trainer, pick

    config = recipe.attention
    if config.pretrain_epochs or config.embedder == "vgg":
        return None
    with pick(config, device).active():
        # compiling would take longer than all that is measured here
        trainer = Trainer(task, members, config=config, glimpses=recipe.glimpses, device=device, fuse=False)
        trainer.cohort.start_epoch(0)
        step = _seconds(captured(trainer.step, device), device)
        validation = _seconds(lambda: trainer.validate(), device, times=1)
    return step * config.iterations + validation * math.ceil(config.iterations / config.validate_every)


def plus_seconds(
    recipe: Recipe, task: Task, attributes: Sequence[str | None], *, posterior: str, device: torch.device
) -> float:
    """All iterations and validations of a network that stands on a posterior; the fixed order before them is less."""
    from nogs.plus.network import TokenNetwork
    from nogs.plus.store import token_posterior
    from nogs.plus.trainer import Trainer

    config = recipe.plus
    known = token_posterior(posterior, task=task, device=device, precision=recipe.posterior.precision)
    table = torch.zeros(len(attributes), recipe.glimpses, len(task.grid))
    variables = [0 if attribute is None else task.attribute(attribute) for attribute in attributes]
    network = TokenNetwork.on(known, table, variables=variables)
    training, validation = (torch.from_numpy(task.rows(split)).to(device) for split in ("train", "validation"))
    trainer = Trainer(
        task,
        network,
        config=config,
        seed=0,
        precision=known.precision,
        mark="",
        training=training,
        validation=validation,
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), known.precision.active():
        step = _seconds(trainer.step, device)
        judging = _seconds(trainer.validate, device, times=1)
    return step * config.iterations + judging * (math.ceil(config.iterations / config.validate_every) + 1)


def _seconds(work: Callable[[], object], device: torch.device, *, times: int = 3) -> float:
    """Mean time of some calls after a first one, which is slower than the rest."""
    work()
    _finish(device)
    began = time.monotonic()
    for _ in range(times):
        work()
    _finish(device)
    return (time.monotonic() - began) / times


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
