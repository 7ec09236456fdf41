"""Estimated time of all stages of a run on pictures before they are decoded, measured on blank images."""

from __future__ import annotations

import os
from contextlib import nullcontext

import numpy as np

from nogs.attention.cohort import Member
from nogs.attention.methods import ON_POSTERIOR
from nogs.data import cache_folder, read_catalogue
from nogs.data.cache import shortage
from nogs.data.folder import Survey
from nogs.data.task import LabelSpace, Task
from nogs.recipes import Recipe
from nogs.recipes.times import Expected
from nogs.runtime.device import one_thread, pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.progress import working
from nogs.stages import estimates
from nogs.stages.experiment import one_is_enough
from nogs.stages.settings import Settings

__all__ = ["forecast"]

_REPORT = 20.0  # s, which hardly depends on the pictures


def forecast(recipe: Recipe, seen: Survey, *, settings: Settings) -> list[Expected]:
    """The time of each stage but bank and sequences, which depend on networks that are not trained yet."""
    task, device = _blank(recipe, seen), pick_device(settings.device)
    seeds = settings.seeds or (recipe.seed,)
    learning = [Member("ram", seed=seed) for method in settings.method if method not in ON_POSTERIOR for seed in seeds]
    plain = [method for method in settings.method if method in ON_POSTERIOR]
    found = read_catalogue(recipe.data, data=settings.data, cache=settings.cache)
    if lacking := shortage(settings.cache or cache_folder(), images=0, size=found.how.size):
        raise InputError(lacking)  # one picture is too large to be decoded; others may be in the cache
    decoding = estimates.decoding_seconds(found, workers=os.cpu_count() or 1)
    out: list[Expected | None] = [Expected("data", 0, decoding)]

    data = settings.data
    with working(f"Estimating the time for images of {recipe.data.image_size} px"):
        for stage, measure in (("posterior", estimates.posterior), ("whole-image", estimates.whole)):
            if stage == "posterior" and settings.posterior is not None:
                continue
            with one_thread(device) if one_is_enough(recipe, stage) else nullcontext():
                out.append(measure(recipe, task, device=device, data=data))
        out.append(
            estimates.networks(
                recipe, task, learning, plain, (None,), seeds=len(seeds), source=None, data=data, device=device
            )
        )
    return [one for one in (*out, Expected("report", 0, _REPORT)) if one is not None]


def _blank(recipe: Recipe, seen: Survey) -> Task:
    """A task of black images: as many as there are pictures, with the recipe's size and splits."""
    data, number = recipe.data, seen.images
    validation = max(1, round(number * data.validation_share))
    ids = tuple(map(str, range(number)))
    train, rest = ids[: seen.training], ids[seen.training :]
    annotated = min(data.annotated, seen.training // 2)
    names = tuple(seen.classes)
    return Task(
        name="blank",
        # one image in memory, whatever their number
        images=np.broadcast_to(np.uint8(0), (number, data.image_size, data.image_size, 3)),
        ids=ids,
        labels=np.arange(number) % len(names),
        space=LabelSpace("categorical", names),
        splits={
            "train": train,
            "validation": rest[:validation],
            "test": rest[validation:] or rest[-1:],
            "annotate": train[:annotated],
            "posterior": train[annotated:],
        },
        grid=data.grid,
        fingerprint="blank",
    )
