"""What decides a training of a posterior: the images that it may see, and its fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.store import find_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest


def training_rows(task: Task) -> npt.NDArray[np.int64]:
    """Rows of the images that may train the posterior; an annotated one among them is refused."""
    if not task.splits.get("posterior"):
        raise InputError(f"Task {task.name!r} has no images for the posterior; lower data.annotated to leave some.")
    for split in ("annotate", "validation", "test"):
        shared = sorted(set(task.splits["posterior"]) & set(task.splits.get(split, ())))
        if shared:
            raise InputError(
                f"Image {shared[0]!r} of task {task.name!r} is in the split {split!r} and would train the posterior; "
                "take it out of the split 'posterior'."
            )
    return task.rows("posterior")


def telling_fields(config: PosteriorConfig) -> dict[str, Any]:
    """What decides a training; files that it names are known by what they hold, wherever they lie."""
    # a single network is the same, whether or not there could have been more
    out = config.model_dump(exclude={"save_every"} if config.folds > 1 else {"save_every", "folds"})
    named = {} if config.weights in ("none", "imagenet") else {"weights": Path(config.weights)}
    for field in ("teacher", "start"):
        if getattr(config, field) is not None:
            named[field] = find_posterior(getattr(config, field))
    for field, path in named.items():
        if not path.is_file():
            raise InputError(f"There is no file {path}; check --posterior.{field}.")
        out[field] = file_digest(path)
    return out
