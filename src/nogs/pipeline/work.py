"""A run in work: its settings, what every stage needs of it, and what it tells."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nogs.data.task import Task
from nogs.design.tools import Files
from nogs.pipeline import estimates
from nogs.pipeline.ledger import Ledger
from nogs.posterior.store import find_posterior, misfit
from nogs.posterior.training import FILE
from nogs.recipes import Recipe
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes
from nogs.runtime.fingerprint import file_digest

__all__ = ["STAGES", "Settings", "Work", "counted", "digest_of", "save_figure"]

STAGES = ("data", "posterior", "bank", "sequences", "attention", "report")


@dataclass(frozen=True)
class Settings:
    """What a run needs beside its recipe: where things lie, on what it computes, and which networks it trains."""

    data: Path | None = None
    cache: Path | None = None
    skip_corrupt: bool = False
    source: Path | None = None  # of the bank's generator
    posterior: str | None = None  # a file or a published name, in place of one trained here
    attributes: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("ram", "ps-nogs")
    seeds: tuple[int, ...] = ()
    workers: int | None = None  # processes that annotate
    device: str = "auto"
    until: str = "report"  # the last stage
    estimate: bool = True  # measure before each stage how long it will take


class Work:
    """A run's recipe, task, folder and settings; `head` names the stage in work."""

    def __init__(self, recipe: Recipe, task: Task, run: Path, settings: Settings, tell: Callable[[str], None]) -> None:
        self.recipe, self.task, self.run, self.settings, self.tell = recipe, task, run, settings, tell
        self.device = pick_device(settings.device)
        self.attributes = _attributes(settings.attributes, task)
        if settings.until not in STAGES:
            raise InputError(f"There is no stage {settings.until!r}; choose {', '.join(STAGES)}.")
        if settings.workers is not None and settings.workers < 1:
            raise InputError(f"--workers must be at least 1, not {settings.workers}.")
        if not task.splits["annotate"] and "ps-nogs" in settings.methods:
            raise InputError(f"Task {task.name!r} has no images to annotate; raise data.annotated.")
        self.ledger = Ledger(run)
        self.head = ""

    def enter(self, stage: str, made_from: dict[str, Any]) -> str | None:
        """Note what a stage is made from; if it was made from something else before, that is told and moved aside."""
        why = self.ledger.enter(stage, made_from)
        if why:
            self.tell(why)
        return why

    def common(self, *, seed: bool = True) -> dict[str, Any]:
        """What all stages after the data depend on."""
        out: dict[str, Any] = {"glimpses": self.recipe.glimpses, "from data": self.task.fingerprint}
        return out | ({"seed": self.recipe.seed} if seed else {})

    def skipped(self, folder: Path, *, say: bool = True) -> bool:
        """Whether a stage is done; whatever changed was moved aside when it was entered."""
        done = (folder / "done.json").is_file()
        if done and say:
            self.tell(f"{self.head}: done before.")
        return done

    def measured(self, work: Callable[..., float | None], *given: Any, **named: Any) -> float | None:
        """A stage's estimate, unless none is wanted."""
        return work(*given, **named) if self.settings.estimate else None

    def announce(self, what: str, seconds: float | None) -> None:
        """Say what a stage is about to do and how long that will take."""
        time = "how long, its progress will tell" if seconds is None else f"about {estimates.clock(seconds)}"
        self.tell(f"{self.head}: {what}{f'; {time}' if self.settings.estimate else ''}.")

    def posterior_file(self) -> str:
        """The posterior of this run, trained here or a copy."""
        return str(self.run / "posterior" / FILE)

    @cached_property
    def ready(self) -> str | None:
        """A posterior that need not be trained: given, published and fit, or lying there from nogs posterior train."""
        published, own = self.recipe.published, self.posterior_file()
        if self.settings.posterior or published is None:
            return self.settings.posterior
        entry = self.ledger.entries.get("posterior")
        if (self.run / "posterior" / "done.json").is_file() and entry in (None, {"file": digest_of(own)}):
            return own
        why = misfit(published, self.task, glimpses=self.recipe.glimpses)
        if why is not None:
            self.tell(f"The published posterior {published} is not used: {why}.")
        return published if why is None else None

    def tools(self, source: str) -> Files:
        """How workers open posterior and bank."""
        recipe, settings = self.recipe, self.settings
        return recipe.tools(
            self.task,
            posterior=source,
            bank=self.run / "bank",
            device=settings.device,
            data=settings.data,
            cache=settings.cache,
            source=settings.source,
            skip_corrupt=settings.skip_corrupt,
        )

    def places(self, images: int) -> int:
        """Workers that annotate: one a GPU, or one a core; no more than a few blocks each are worth their start."""
        most = torch.cuda.device_count() if self.device.type == "cuda" else cores()
        return max(1, min(most, images // self.recipe.design.images // 4))

    @contextmanager
    def threads(self, small: bool) -> Iterator[None]:
        """One thread for small networks on a CPU: more gain little, and where others work they wait for each other."""
        before = torch.get_num_threads()
        if small and self.device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def cores() -> int:
    """Cores that this process may use."""
    allowed: Any = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _attributes(names: tuple[str, ...], task: Task) -> tuple[str | None, ...]:
    """The attributes that are asked for; none for a task with one label."""
    if task.space.kind == "categorical":
        if names:
            task.attribute(names[0])  # refused, with the reason
        return (None,)
    if not names:
        raise InputError(
            f"Task {task.name!r} has {len(task.space.names)} attributes; choose some with --attribute, or all of them "
            "with --attribute all."
        )
    if names == ("all",):
        return task.space.names
    for name in names:
        task.attribute(name)
    return names


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def digest_of(source: str) -> str:
    """What a posterior's file holds."""
    path = find_posterior(source)
    if not path.is_file():
        raise InputError(f"There is no posterior {path}; check --checkpoint.")
    return file_digest(path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as PNG."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # it draws a box instead
        figure.savefig(picture, format="png")
    write_bytes(path, picture.getvalue())
