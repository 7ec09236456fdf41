"""Estimates of a stage's time from a small part of its work; networks trained for this are discarded.

Every estimate is for this machine, and wrong if other programs slow it down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from nogs.posterior.queries import resident
from nogs.recipes import Recipe
from nogs.recipes.times import Expected
from nogs.runtime.capture import captured
from nogs.runtime.device import one_thread
from nogs.stages.experiment import one_is_enough

if TYPE_CHECKING:
    from nogs.posterior.network import NetworkPosterior

__all__ = [
    "bank_seconds",
    "decoding_seconds",
    "networks",
    "posterior",
    "sequences_seconds",
    "whole",
]

_JUDGED = 64  # validation images that are timed
_LOCATIONS = 400  # locations of the fixed order that are timed
_LONG = 1.0  # s


def decoding_seconds(catalogue: Catalogue, *, workers: int, tried: int = 16) -> float:
    """Time to decode all pictures by `workers` processes, from a few; unreadable ones count the same."""
    chosen = np.unique(np.linspace(0, len(catalogue.entries) - 1, tried).astype(int))
    began = time.monotonic()
    for index in chosen:
        box = None if catalogue.boxes is None else catalogue.boxes[index].tolist()
        try:
            decode(catalogue.entries[index].read(), catalogue.how, box)
        except Exception:  # Pillow raises many kinds; the real decoding names the file
            continue
    return (time.monotonic() - began) / len(chosen) * len(catalogue.entries) / workers


def posterior(recipe: Recipe, task: Task, *, device: torch.device, data: Path | None = None) -> Expected | None:
    """All iterations and validations, or the recipe's limit; None for a compiled network without a limit."""
    from nogs.posterior.crossfit import fold_task
    from nogs.posterior.training import Trainer, with_weights

    config = with_weights(recipe.posterior, data)  # frozen layers are faster
    if config.compile and device.type == "cuda":
        return None if config.seconds is None else Expected("posterior", 0, config.folds * config.seconds)
    if config.folds > 1:
        task = fold_task(task, fold=0, folds=config.folds)  # the images of one cross-fitted network
    few, times = _fewer(task)
    trainer = Trainer(few, config=config, glimpses=recipe.glimpses, seed=recipe.seed, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), trainer.precision.active():
        step = _seconds(trainer.step, device)
        validation = times * _seconds(lambda: trainer.validate(), device)
    rounds = math.ceil(config.iterations / (config.validate_every or trainer.per_epoch))
    training, judging = step * config.iterations, validation * rounds
    limit = config.seconds or math.inf
    if training + judging > limit:
        training, judging = limit, 0
    # calibration, and tables before and after it
    judging += validation * (3 + 2 * len(task.splits["test"]) / len(task.splits["validation"]))
    return Expected("posterior", config.folds * training, config.folds * judging)


def bank_seconds(recipe: Recipe, task: Task, *, device: torch.device, path: Path | None) -> float | None:
    """Time to train the generator and encode its images, to generate the bank's images and to fit their components;
    None for a training without a limit."""
    config, training = recipe.bank, 0.0
    if config.generator == "trained" and path is None:
        from nogs.bank.generators.trained import Trained

        if config.trained.seconds is None:
            return None
        size, images = (task.grid.height, task.grid.width), len(set(task.splits["train"]) - held_out(task))
        untrained = Trained.untrained(config.trained, size=size, device=device)
        batch = torch.zeros(min(64, max(1, images)), 3, *size, device=device)
        with torch.no_grad(), untrained.precision.active():
            encoding = _seconds(lambda: untrained.autoencoder.encode(batch), device) / len(batch)
        training = config.trained.seconds + 2 * encoding * images  # each one and its mirror image
        generator: Generator = untrained
    else:
        generator = make_generator(config, task=task, path=path, device=device)
    number = min(config.batch, config.count, generator.count or config.count)
    each = _seconds(lambda: generator.generate(np.arange(number), seed=SEED), device) / number
    width = 3 * task.grid.height * task.grid.width
    pixels, basis = torch.ones(number, width, device=device), torch.ones(width, config.components, device=device)
    # fitting and encoding cost about as much as ten projections of every image
    project = 10 * _seconds(lambda: pixels @ basis, device) / number
    return training + (each + project) * config.count


def sequences_seconds(
    recipe: Recipe, task: Task, ids: Sequence[str], *, tools: Tools, workers: int, attribute: int | None
) -> float:
    """Time to annotate all images by `workers`, from a few of them and the task's first step."""
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


def whole(recipe: Recipe, task: Task, *, device: torch.device, data: Path | None) -> Expected:
    """All iterations and validations of the whole-image reference, or its limit; or the features of all images."""
    from nogs.whole.trainer import Trainer

    config = recipe.whole
    how: dict[str, Any] = {"config": config, "posterior": recipe.posterior, "seed": recipe.seed}
    trainer = Trainer(task, **how, device=device, mark="", data=data)
    few = trainer.training[:16]
    with trainer.precision.active():
        look = _seconds(lambda: trainer.features(few), device) / len(few)
        step = 0 if trainer.frozen else _seconds(trainer.step, device)
    rounds = 1 if trainer.frozen else config.iterations // trainer.validate_every
    judging = look * (rounds * len(task.splits["validation"]) + len(task.splits["test"]))
    limit = config.seconds or math.inf
    looking = min(look * len(trainer.training), limit) if trainer.frozen else 0
    learning = step * config.iterations
    if learning > limit:
        return Expected("whole image", 0, limit + judging)
    return Expected("whole image", learning, looking + judging)


def networks(
    recipe: Recipe,
    task: Task,
    members: Sequence[Member],
    plain: Sequence[str],
    attributes: Sequence[str | None],
    *,
    seeds: int,
    source: str | None,
    data: Path | None,
    device: torch.device,
) -> Expected | None:
    """The networks `members`, and for each seed those of the methods `plain`, whose classifier is a posterior."""
    training, other = 0.0, 0.0
    if members:
        with one_thread(device) if one_is_enough(recipe, "attention") else nullcontext():
            found = _attention(recipe, task, members, device=device)
        if found is None:
            return None
        training, other = found.training, found.other
    if plain:
        with one_thread(device) if one_is_enough(recipe, "posterior") else nullcontext():
            found = _on_posterior(recipe, task, plain, attributes, source=source, data=data, device=device)
        training, other = training + seeds * found.training, other + seeds * found.other
    return Expected("networks", training, other)


def _attention(recipe: Recipe, task: Task, members: Sequence[Member], *, device: torch.device) -> Expected | None:
    """All iterations and validations of the networks side by side; None if they are pretrained first."""
    from nogs.attention.training import Trainer, pick

    config = recipe.attention
    if config.pretrain_epochs or config.embedder == "vgg":
        return None
    few, times = _fewer(task)
    with pick(config, device).active():
        # compiling would take longer than the measurement
        trainer = Trainer(few, members, config=config, glimpses=recipe.glimpses, device=device, fuse=False)
        trainer.cohort.start_epoch(0)
        step = _seconds(captured(trainer.step, device), device)
        validation = times * _seconds(lambda: trainer.validate(), device)
    rounds = math.ceil(config.iterations / config.validate_every)
    return Expected("networks", step * config.iterations, validation * rounds)


def _on_posterior(
    recipe: Recipe,
    task: Task,
    methods: Sequence[str],
    attributes: Sequence[str | None],
    *,
    source: str | None,
    data: Path | None,
    device: torch.device,
) -> Expected:
    """The networks of one seed with the posterior `source`, or one as the recipe trains it, as classifier: the fixed
    order, the training of ps-nogs+, and all evaluations."""
    from nogs.plus.network import TokenNetwork
    from nogs.plus.store import token_posterior
    from nogs.plus.trainer import Trainer
    from nogs.plus.training import frozen_stem

    config, precision = recipe.plus, recipe.posterior.precision
    if source is None:
        known = _untrained(recipe, task, data=data, device=device)
    else:
        known = token_posterior(source, task=task, device=device, precision=precision)
    variables = [0 if attribute is None else task.attribute(attribute) for attribute in attributes]
    ways = 1 if config.shared else len(attributes)
    network = TokenNetwork.on(known, torch.zeros(ways, recipe.glimpses, len(task.grid)), variables=variables)
    images, rows = resident(task.images, device), torch.from_numpy(task.rows("validation")[:16]).to(device)
    count = {split: len(ids) for split, ids in task.splits.items()}
    training, other = 0.0, 0.0
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), known.precision.active():
        if {"fixed", "ps-nogs+"} & set(methods):
            pixels, seen = task.grid.pixels[:_LOCATIONS].to(device), torch.zeros(len(rows), 0, 2, dtype=torch.int64)
            ahead = _seconds(lambda: known.look_ahead(images, seen.to(device), pixels, index=rows), device) / len(rows)
            # on ImageNet's features nearly all the time is that of encoding, which is done once on a small grid
            once = frozen_stem(known, recipe.posterior) and len(task.grid) <= _LOCATIONS
            steps = 1 if once else recipe.glimpses
            other += ways * ahead * steps * (count["validation"] + count["annotate"])
        if "ps-nogs+" in methods:
            flip, learned = recipe.posterior.flip, torch.from_numpy(task.rows("train")).to(device)
            how: dict[str, Any] = {"config": config, "seed": 0, "precision": known.precision, "mark": "", "flip": flip}
            how |= {"frozen_stem": frozen_stem(known, recipe.posterior)}
            trainer = Trainer(task, network, training=learned, validation=rows, **how)
            if trainer.encodes:
                other += (1 + flip) * ahead * len(task.grid) / len(pixels) * len(trainer.training)
                trainer.training = trainer.training[: trainer.batch]
                trainer.encode()
            training = _seconds(trainer.step, device) * config.iterations
        first = torch.zeros_like(rows)
        look = _seconds(lambda: network.look(images, rows, first), device) / len(rows)
    for method in methods:
        rounds = math.ceil(config.iterations / config.validate_every) if method == "ps-nogs+" else 0
        each = recipe.attention.trajectories if method == "random" else 1
        tested = 2 * each + (method == "random")  # scores, accuracy by glimpses, and what is not drawn
        looks = (rounds + 1 + each) * count["validation"] + tested * count["test"]
        other += look * looks * (1 if method in ("random", "centre-out") else ways)
    return Expected("networks", training, other)


def _untrained(recipe: Recipe, task: Task, *, data: Path | None, device: torch.device) -> NetworkPosterior:
    """An untrained posterior of the recipe."""
    from nogs.posterior.network import Architecture, NetworkPosterior
    from nogs.posterior.training import with_weights

    config = with_weights(recipe.posterior, data)
    architecture = Architecture.of(config, task=task, glimpses=recipe.glimpses)
    return NetworkPosterior(architecture.build(seed=0).to(device), architecture, precision=config.precision)


def _fewer(task: Task) -> tuple[Task, float]:
    """The task with some of its validation images, and how many times as many there are."""
    every = task.splits["validation"]
    few = every[:_JUDGED]
    return replace(task, splits={**task.splits, "validation": few}), len(every) / len(few)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The time of the fastest of some calls, which other programs slow least; of one call if that takes long."""
    _timed(work, device)  # warm-up
    times = [_timed(work, device)]
    while len(times) < 20 and sum(times) < _LONG:
        times.append(_timed(work, device))
    return min(times)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    began = time.monotonic()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic() - began
