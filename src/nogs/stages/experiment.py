"""`Experiment`: a recipe carried out in the folder of a run; where device, threads and progress are decided."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nogs.data.task import Task
from nogs.design.tools import Files
from nogs.recipes import Recipe
from nogs.recipes.times import Expected, clock
from nogs.runtime import progress
from nogs.runtime.device import one_thread, pick_device
from nogs.runtime.errors import InputError
from nogs.stages.ledger import Ledger
from nogs.stages.settings import Settings, check_recipe, load, remembered
from nogs.whole.network import pretrained

__all__ = ["STAGES", "Experiment", "cores", "counted", "one_is_enough"]

STAGES = ("data", "posterior", "bank", "sequences", "whole-image", "attention", "report")
"""The stages of a run, in order; `nogs.stages` has a function for each."""
_SMALL = 64 * 64  # pixels of images that one thread is enough for


@dataclass
class Experiment:
    """A recipe, its task, the folder of its run and the settings; `tell` gets a line or a few of each stage."""

    recipe: Recipe
    folder: Path
    settings: Settings = field(default_factory=Settings)
    tell: Callable[[str], None] = progress.say
    whole: bool = False  # all stages are done, and each line says which of them it is

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        self.settings = remembered(self.settings, run=self.folder)
        self.settings.check()
        # of a cluster its nodes' devices count, which this machine need not have
        self.device = pick_device("auto" if self.settings.executor == "ray" else self.settings.device)
        if not self.settings.redo:
            check_recipe(self.recipe, run=self.folder)
        self.task: Task = load(self.recipe, self.settings)
        self.ledger = Ledger(self.folder)
        self.prepared = False

    @cached_property
    def attributes(self) -> tuple[str | None, ...]:
        """The attributes that are asked for; none for a task with one label."""
        task, names = self.task, self.settings.attribute
        if task.space.kind == "categorical":
            if names:
                task.attribute(names[0])  # refused, with the reason
            return (None,)
        if not names:
            raise InputError(
                f"Task {task.title!r} has {len(task.space.names)} attributes; choose some with --attribute, or all of "
                "them with --attribute all."
            )
        if names == ("all",):
            return task.space.names
        for name in names:
            task.attribute(name)
        return names

    def head(self, stage: str) -> str:
        """What the lines of a stage begin with."""
        return f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage}" if self.whole else stage

    def enter(self, stage: str, made_from: dict[str, Any]) -> bool:
        """Note what a stage is made from; whether it was made from something else before, which is then moved aside,
        or refused where the settings don't ask to make it again."""
        why = self.ledger.enter(stage, made_from, redo=self.settings.redo)
        if why:
            self.tell(why)
        return why is not None

    def common(self, *, seed: bool = True) -> dict[str, Any]:
        """What all stages after the data depend on."""
        out: dict[str, Any] = {"glimpses": self.recipe.glimpses, "from data": self.task.fingerprint}
        return out | ({"seed": self.recipe.seed} if seed else {})

    def skipped(self, stage: str, folder: Path) -> bool:
        """Whether the product of a stage is there; whatever changed was moved aside when it was entered."""
        done = (folder / "done.json").is_file()
        if done:
            self.tell(f"{self.head(stage)}: done before.")
        return done

    def announce(self, stage: str, what: str, estimate: Callable[[], Expected | float | None]) -> None:
        """Say what a stage is about to do, and how long that will take where that is asked for."""
        time = ""
        if self.settings.estimate:
            with progress.working(f"{self.head(stage)}: measuring how long it will take"):
                found = estimate()
                seconds = found.seconds if isinstance(found, Expected) else found
            time = "; how long, its progress will tell" if seconds is None else f"; about {clock(seconds)}"
        self.tell(f"{self.head(stage)}: {what}{time}.")

    def files(self, posterior: str, bank: Path, *, device: str | None = None) -> Files:
        """What opens this posterior and bank, in whatever process, to be used as the recipe says."""
        recipe, settings = self.recipe, self.settings
        return Files(
            posterior=posterior,
            bank=bank,
            completion=recipe.completion,
            design=recipe.design,
            task=recipe.data,
            glimpse=self.task.grid.glimpse,
            seed=recipe.seed,
            precision=recipe.posterior.precision,
            device=device or settings.device,
            generator_path=settings.generator_path,
        )

    def threads(self, stage: str) -> AbstractContextManager[None]:
        """One thread for small work on a CPU: more gain little, and beside other programs they wait for each other."""
        return one_thread(self.device) if one_is_enough(self.recipe, stage) else nullcontext()

    def workers(self, images: int) -> int:
        """Processes that annotate: one a GPU, or one a core; no more than a few blocks each are worth their start."""
        most = torch.cuda.device_count() if self.device.type == "cuda" else cores()
        return self.settings.workers or max(1, min(most, images // self.recipe.design.images // 4))


def one_is_enough(recipe: Recipe, stage: str) -> bool:
    """Whether a stage's work is so small that one thread does it soon enough. What stands on the posterior is as large
    as the posterior."""
    posterior, attention, grid = recipe.posterior, recipe.attention, recipe.data.grid
    few = grid.height * grid.width <= _SMALL
    features = posterior.kind == "tokens" and posterior.stem == "vgg"
    return {
        "posterior": posterior.kind == "tokens" and posterior.width <= 128 and not features,
        "bank": few,
        "whole-image": few and not pretrained(posterior),
        "attention": attention.embedder != "vgg" and attention.hidden <= 256,
    }[stage]


def cores() -> int:
    """Cores that this process may use."""
    allowed: Any = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
