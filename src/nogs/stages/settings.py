"""`Settings`: what an experiment needs besides its recipe; and the loading of its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nogs.attention.methods import METHODS
from nogs.attention.trainer import ELSEWHERE
from nogs.data import LabelSpace, Task, load_task, read_splits
from nogs.posterior.store import find_posterior
from nogs.recipes import Recipe, recipe
from nogs.report.contents import LOCAL
from nogs.runtime.errors import InputError
from nogs.runtime.fields import differing, dotted
from nogs.runtime.files import read_sealed
from nogs.runtime.progress import say
from nogs.runtime.spelling import instead

__all__ = ["Settings", "check_recipe", "chosen_attributes", "load", "remembered", "run_task"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an experiment needs besides its recipe: paths, the networks to train, and the device."""

    data: Path | None = None
    cache: Path | None = None
    skip_corrupt: bool = True
    generator_path: Path | None = None  # file or folder of the bank's generator
    posterior: str | None = None  # a file or a published name, instead of the run's own
    bank: Path | None = None  # instead of the run's own, as are the next two
    sequences: Path | None = None
    heuristic: Path | None = None
    attribute: tuple[str, ...] = ()
    method: tuple[str, ...] = ("ps-nogs+", "ram", "fixed", "centre-out", "random")
    seeds: tuple[int, ...] = ()  # by default the recipe's
    weights: tuple[float, ...] = ()  # of supervision; by default the recipe's
    split: str = "annotate"  # images to annotate; sequences of test images score the search
    subset: str | None = None  # of the split
    unchecked: bool = False
    executor: str = "local"
    address: str = "auto"
    workers: int | None = None  # processes that annotate
    device: str = "auto"
    estimate: bool = False  # estimate each stage's time before it begins
    redo: bool = False  # make outdated products again, instead of refusing
    verify: bool = False  # compare every decoded image with its checksum
    command: str = ""  # what was typed, for the report

    def __post_init__(self) -> None:
        """Refuse invalid settings before anything takes time."""
        if not self.method:
            raise InputError(f"--method needs at least one of {', '.join(METHODS)}.")
        for method in self.method:
            if method not in METHODS:
                meant = instead(method, METHODS, otherwise=f"choose {', '.join(METHODS)}.")
                raise InputError(f"There is no --method {method}; {meant}")
        if any(seed < 0 for seed in self.seeds):
            raise InputError(f"--seeds must not be negative, but are {', '.join(map(str, self.seeds))}.")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"--seeds must be different, but are {', '.join(map(str, self.seeds))}.")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers must be at least 1, not {self.workers}.")
        if self.posterior is not None and not (path := find_posterior(self.posterior)).is_file():
            raise InputError(f"There is no posterior {path}; check --posterior.")


def load(recipe: Recipe, settings: Settings, *, for_networks: bool = False) -> Task:
    """The task of a recipe, loaded with the settings. Wrong attributes, and with `for_networks` missing ones, are
    refused before any picture is decoded."""
    recipe.data.check_glimpses(recipe.glimpses)
    config = recipe.data if settings.skip_corrupt else recipe.data.remembering(False)
    task = load_task(
        config,
        data=settings.data,
        cache=settings.cache,
        skip_corrupt=settings.skip_corrupt,
        verify=settings.verify,
        check=partial(chosen_attributes, settings.attribute) if settings.attribute or for_networks else None,
    )
    if task.skipped and config.skip_corrupt:  # noted when the run was made, not in this load
        say(f"note: {len(task.skipped)} unreadable {'picture' if len(task.skipped) == 1 else 'pictures'} left out.")
    return task


def chosen_attributes(names: Sequence[str], space: LabelSpace, title: str) -> tuple[str | None, ...]:
    """The attributes of a task that networks are for; none where it has one label."""
    if space.kind == "categorical":
        for name in names[:1]:
            space.column(name, task=title)  # refused, with the reason
        return (None,)
    if not names:
        raise InputError(
            f"Task {title!r} has {len(space.names)} attributes; choose some with --attribute, or all of them with "
            "--attribute all."
        )
    if tuple(names) == ("all",):
        return space.names
    for name in names:
        space.column(name, task=title)
    return tuple(names)


def run_task(run: Path, settings: Settings) -> tuple[Recipe, Task]:
    """A run's own recipe, and its task with the splits that it was trained on."""
    if not (run / "recipe.yaml").exists():
        raise InputError(f"{run} has no recipe.yaml, so its images can't be found; give the run's own folder.")
    found = recipe(run / "recipe.yaml")
    # the run's own splits: new ones from a changed folder could test on training images
    return found, read_splits(load(found, remembered(settings, run=run)), run / "data")


def remembered(settings: Settings, *, run: Path) -> Settings:
    """The settings with a run's own data and cache, unless others are given."""
    path = run / LOCAL
    if not path.is_file():
        return settings
    found = read_sealed(path)
    if not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"{path} must say where the data lie; delete it, and give --data.")
    known = {name: Path(where) for name, where in found.items() if name != "command"}
    return replace(settings, data=settings.data or known.get("data"), cache=settings.cache or known.get("cache"))


def check_recipe(recipe_: Recipe, *, run: Path) -> None:
    """Refuse a run's folder whose networks were begun with another recipe; the first field that differs is named."""
    path = run / "recipe.yaml"
    if not path.exists():
        return
    before, now = dotted(recipe(path).model_dump()), dotted(recipe_.model_dump())
    free = {f"attention.{field}" for field in ELSEWHERE}
    for name in differing(before, now):
        if name not in free and (name in ("name", "glimpses") or name.startswith(("data.", "attention."))):
            raise InputError(
                f"{run} was begun with {name} = {before.get(name)!r}, not {now.get(name)!r}; choose another --out, or "
                "the same recipe and flags to resume it."
            )
