"""`Experiment`: a recipe, carried out in the folder of a run; decides device, threads and progress."""

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
from nogs.recipes.times import Expected, about
from nogs.runtime import progress
from nogs.runtime.device import one_thread, pick_device
from nogs.stages.ledger import Ledger
from nogs.stages.settings import Settings, check_recipe, chosen_attributes, load, remembered
from nogs.whole.network import pretrained

__all__ = ["STAGES", "Experiment", "cores", "counted", "one_is_enough"]

STAGES = ("data", "posterior", "bank", "sequences", "whole-image", "attention", "report")
"""The stages of a run, in order; `nogs.stages` has a function for each."""
_SMALL = 64 * 64  # pixels of images for which one thread is enough


@dataclass
class Experiment:
    """A recipe, its task, the folder of its run and the settings; `tell` gets a few lines per stage."""

    recipe: Recipe
    folder: Path
    settings: Settings = field(default_factory=Settings)
    tell: Callable[[str], None] = progress.say
    whole: bool = False  # all stages run, so lines begin with their number

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        self.settings = remembered(self.settings, run=self.folder)
        # on a cluster the nodes' devices count, which this machine need not have
        self.device = pick_device("auto" if self.settings.executor == "ray" else self.settings.device)
        if not self.settings.redo:
            check_recipe(self.recipe, run=self.folder)
        self.ledger = Ledger(self.folder)
        self.prepared = False

    @cached_property
    def task(self) -> Task:
        """The task, decoded when it is first asked for."""
        return load(self.recipe, self.settings)

    @cached_property
    def attributes(self) -> tuple[str | None, ...]:
        """The chosen attributes; (None,) for a task with one label."""
        if "task" not in self.__dict__:
            self.task = load(self.recipe, self.settings, for_networks=True)
        return chosen_attributes(self.settings.attribute, self.task.space, self.task.title)

    def head(self, stage: str) -> str:
        """The prefix of a stage's lines."""
        return f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage}" if self.whole else stage

    def enter(self, stage: str, made_from: dict[str, Any]) -> bool:
        """Record what a stage is made from; whether this differs from before. A product of other inputs is then moved
        aside, or refused if the settings don't ask to make it again."""
        why = self.ledger.enter(stage, made_from, redo=self.settings.redo)
        if why:
            self.tell(why)
        return why is not None

    def common(self, *, seed: bool = True) -> dict[str, Any]:
        """What all stages after the data depend on."""
        out: dict[str, Any] = {"glimpses": self.recipe.glimpses, "from data": self.task.fingerprint}
        return out | ({"seed": self.recipe.seed} if seed else {})

    def skipped(self, stage: str, folder: Path) -> bool:
        """Whether the product of a stage exists; `enter` has moved an outdated one aside."""
        done = (folder / "done.json").is_file()
        if done:
            self.tell(f"{self.head(stage)}: already done.")
        return done

    def announce(self, stage: str, what: str, estimate: Callable[[], Expected | float | None]) -> None:
        """Print what a stage will do and, if the settings ask for it, the estimated time."""
        time = ""
        if self.settings.estimate:
            with progress.working(f"{self.head(stage)}: estimating the time"):
                found = estimate()
                seconds = found.seconds if isinstance(found, Expected) else found
            time = "; its progress will show the time" if seconds is None else f"; {about(seconds)}"
        self.tell(f"{self.head(stage)}: {what}{time}.")

    def files(self, posterior: str, bank: Path, *, device: str | None = None) -> Files:
        """Opens this posterior and bank in any process, configured by the recipe."""
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
        """One thread for small work on a CPU: more gain little, and lose time beside other programs."""
        return one_thread(self.device) if one_is_enough(self.recipe, stage) else nullcontext()

    def workers(self, images: int) -> int:
        """Annotation processes: one per GPU or core, but each has at least four blocks, to be worth its start."""
        most = torch.cuda.device_count() if self.device.type == "cuda" else cores()
        return self.settings.workers or max(1, min(most, images // self.recipe.design.images // 4))


def one_is_enough(recipe: Recipe, stage: str) -> bool:
    """Whether a stage's work is small enough for one thread. Networks with the posterior as classifier are as large as
    the posterior."""
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
