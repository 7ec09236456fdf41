"""Training of a posterior as a stage: one network, or one for each fold."""

from __future__ import annotations

import gc
from pathlib import Path

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, fold_task, whole_task
from nogs.posterior.imagenet import find_weights
from nogs.posterior.inputs import training_fields, training_rows
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.outcome import write_combined, write_outcome
from nogs.posterior.store import load_posterior
from nogs.posterior.teaching import check_teacher
from nogs.posterior.trainer import Trainer
from nogs.runtime import progress
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.stage import Stage

__all__ = ["FILE", "Trainer", "train_posterior", "with_weights"]

FILE = "posterior.safetensors"


def with_weights(config: PosteriorConfig, data: Path | None) -> PosteriorConfig:
    """The configuration with the file of VGG-16's ImageNet weights in the folder `data`, if it asks for them."""
    if config.backbone == "vgg16" if config.kind == "cnn" else config.stem == "vgg":
        return config.model_copy(update={"weights": find_weights(config.weights, data)})
    return config


def train_posterior(
    task: Task,
    *,
    config: PosteriorConfig,
    glimpses: int,
    folder: Path,
    seed: int = 0,
    device: str = "auto",
    data: Path | None = None,
    above: Stage | None = None,
) -> NetworkPosterior | CrossFitted:
    """Train, calibrate and evaluate a posterior; a finished one is loaded, an interrupted training resumes.

    `folder` gets posterior.safetensors, evaluation.json, posterior.png and metrics.jsonl. With `config.folds` > 1 each
    network has its own subfolder, fold-0 and so on; the first one to start also begins the stage `above`. VGG-16's
    ImageNet weights are first searched in the folder `data`.
    """
    if config.split == "train":
        task = whole_task(task)
    config = with_weights(config, data)
    fields = training_fields(config)
    mark = fingerprint(fields, task.fingerprint, glimpses, seed)
    named = dotted({"posterior": fields, "glimpses": glimpses, "seed": seed, "data": task.fingerprint})
    stage = Stage(folder, name="posterior", fingerprint=mark, fields=named)
    stage.check_folder()
    chosen = pick_device(device)
    if above is None and not stage.done:
        check_teacher(config, task=task, glimpses=glimpses)
    if stage.done:
        return load_posterior(folder / FILE, task=task, device=chosen, precision=config.precision)
    if config.folds > 1:
        images = len(training_rows(task))
        if config.folds > images:
            raise InputError(
                f"--posterior.folds is {config.folds}, but only {images} images train the posterior, and each network "
                f"must leave one out; use at most {images}."
            )
        single, parts = config.model_copy(update={"folds": 1}), []
        for fold in range(config.folds):
            progress.say(f"Network {fold + 1} of {config.folds} of the posterior.")
            part, own = fold_task(task, fold=fold, folds=config.folds), folder / f"fold-{fold}"
            parts.append(
                train_posterior(
                    part, config=single, glimpses=glimpses, folder=own, seed=seed, device=device, above=stage
                )
            )
            gc.collect()  # the trainer refers to itself, and its images may fill a GPU
        about = write_combined(parts, folder / FILE, task=task, config=config, seed=seed)
        stage.finish(device=chosen, iterations=about["iterations"], training_seconds=about["training_seconds"])
    else:
        trainer = Trainer(task, config=config, glimpses=glimpses, seed=seed, device=chosen)
        if above is not None and not above.begun:  # only after the first network could be made
            above.begin()
        stage.begin()
        trainer.run(folder)
        write_outcome(trainer, folder / FILE)
        stage.finish(device=chosen, iterations=trainer.iteration, training_seconds=round(trainer.spent, 1))
        (folder / "state.safetensors").unlink(missing_ok=True)
    return load_posterior(folder / FILE, task=task, device=chosen, precision=config.precision)
