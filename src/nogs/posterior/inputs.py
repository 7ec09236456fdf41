"""Inputs of a posterior's training: the images that it may use, its fields, and its initial weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, names_task
from nogs.posterior.network import Architecture
from nogs.posterior.store import about_posterior, find_posterior, load_posterior
from nogs.runtime import progress
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest


def training_rows(task: Task) -> npt.NDArray[np.int64]:
    """Rows of the images that may train the posterior; an annotated one among them is refused."""
    if not task.splits.get("posterior"):
        raise InputError(f"Task {task.title!r} has no images for the posterior; lower data.annotated to leave some.")
    for split in ("annotate", "validation", "test"):
        shared = sorted(set(task.splits["posterior"]) & set(task.splits.get(split, ())))
        if shared:
            raise InputError(
                f"Image {shared[0]!r} of task {task.title!r} is in the split {split!r} and would train the posterior; "
                "take it out of the split 'posterior'."
            )
    return task.rows("posterior")


def training_fields(config: PosteriorConfig) -> dict[str, Any]:
    """The fields that determine a training, with a digest in place of every file that they name."""
    out = config.model_dump()
    named = {} if config.weights in ("none", "imagenet") else {"weights": Path(config.weights)}
    for field in ("teacher", "start"):
        if getattr(config, field) is not None:
            named[field] = find_posterior(getattr(config, field))
    for field, path in named.items():
        if not path.is_file():
            raise InputError(f"There is no file {path}; check --posterior.{field}.")
        out[field] = file_digest(path)
    return out


def read_start(source: str, *, task: Task, architecture: Architecture) -> tuple[dict[str, Tensor], list[str]]:
    """Initial weights of a training, and fingerprints of other tasks on which they may have been trained."""
    other = load_posterior(source, task=task)
    if isinstance(other, CrossFitted):
        raise InputError(
            f"{source} can't be the start of this posterior: it has {len(other.members)} networks; give the file "
            "of one, such as fold-0/posterior.safetensors beside it."
        )
    ours, theirs = (found.to_json() for found in (architecture, other.architecture))
    if ours != theirs:
        fields = {**ours["config"], "glimpses": 0, "head": 0}
        here, there = ({**found["config"], **found} for found in (ours, theirs))
        differing = next(name for name in fields if here[name] != there[name])
        raise InputError(
            f"{source} can't be the start of this posterior: its {differing} is {there[differing]}, not "
            f"{here[differing]}; set the same sizes or leave out --posterior.start."
        )
    about = about_posterior(source)
    trained_on = [about.get("task_fingerprint"), *about.get("started_from", ())]
    started_from = [one for one in trained_on if one is not None and not names_task(one, task)]
    if started_from:
        progress.say(
            f"{source} was trained for other data or splits, which may include images to annotate: "
            "nogs annotate will refuse this posterior without --unchecked."
        )
    return other.network.state_dict(), started_from
