"""The stage `whole-image`: a small classifier of whole images, the reference for glimpses."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from nogs.runtime.files import read_json
from nogs.stages import data, estimates
from nogs.stages.experiment import Experiment
from nogs.whole.evaluation import FILE, FOLDER
from nogs.whole.training import made_from, train_whole

__all__ = ["train"]


def train(experiment: Experiment) -> Path:
    """Train a small classifier of whole images; one network for all attributes of a task."""
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    folder = experiment.folder / FOLDER
    fields = made_from(recipe.whole, recipe.posterior, data=settings.data)
    data.prepare(experiment)
    experiment.enter(FOLDER, {**fields, "seed": recipe.seed, "from data": task.fingerprint})
    with experiment.threads(FOLDER):
        if not experiment.skipped(FOLDER, folder):
            experiment.announce(
                FOLDER,
                "training a small classifier of whole images, the reference",
                lambda: estimates.whole(recipe, task, device=experiment.device, data=settings.data),
            )
        train_whole(
            task,
            config=recipe.whole,
            posterior=recipe.posterior,
            folder=folder,
            seed=recipe.seed,
            device=settings.device,
            data=settings.data,
        )
    found = read_json(folder / FILE)
    experiment.tell(f"  {_scores(found)} ({found['seconds']:.0f} s)")
    return folder


def _scores(found: dict[str, Any]) -> str:
    tests = found["tests"]
    accuracy, nll = (fmean(test[name] for test in tests.values()) for name in ("accuracy", "nll"))
    over = f", mean of {len(tests)} attributes" if len(tests) > 1 else ""
    return f"test accuracy {accuracy:.1%}, NLL {nll:z.3f} nats{over}"
