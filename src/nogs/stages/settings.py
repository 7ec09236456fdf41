"""`Settings`: what an experiment needs beside its recipe; and its task, loaded from where they say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from nogs.attention.methods import METHODS
from nogs.attention.trainer import ELSEWHERE
from nogs.data import Task, load_task, read_splits
from nogs.recipes import Recipe, recipe
from nogs.report.contents import LOCAL
from nogs.runtime.errors import InputError
from nogs.runtime.fields import differing, dotted
from nogs.runtime.files import read_sealed
from nogs.runtime.progress import say

__all__ = ["Settings", "check_recipe", "load", "remembered", "run_task"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an experiment needs beside its recipe: where things lie, which networks it trains, on what it computes."""

    data: Path | None = None
    cache: Path | None = None
    skip_corrupt: bool = True
    generator_path: Path | None = None  # what the bank's generator is read from
    posterior: str | None = None  # a file or a published name, in place of the run's own
    bank: Path | None = None  # in place of the run's own, as are the next two
    sequences: Path | None = None
    heuristic: Path | None = None
    attribute: tuple[str, ...] = ()
    method: tuple[str, ...] = ("ps-nogs+", "ram", "fixed", "centre-out", "random")
    seeds: tuple[int, ...] = ()  # by default the recipe's
    weights: tuple[float, ...] = ()  # of supervision; by default the recipe's
    split: str = "annotate"  # the images that get sequences; those of test score the search, and train nothing
    subset: str | None = None  # of these images
    unchecked: bool = False
    executor: str = "local"
    address: str = "auto"
    workers: int | None = None  # processes that annotate
    device: str = "auto"
    estimate: bool = False  # measure before a stage how long it will take
    redo: bool = False  # make again what was made from something else, instead of refusing
    verify: bool = False  # compare every decoded image with its checksum
    command: str = ""  # what was typed, for the report

    def check(self) -> None:
        """Refuse what no experiment can do."""
        if not self.method:
            raise InputError(f"--method needs at least one of {', '.join(METHODS)}.")
        for method in self.method:
            if method not in METHODS:
                raise InputError(f"--method must be one of {', '.join(METHODS)}, not {method!r}.")
        if any(seed < 0 for seed in self.seeds):
            raise InputError(f"--seeds must not be negative, but are {', '.join(map(str, self.seeds))}.")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"--seeds must be different, but are {', '.join(map(str, self.seeds))}.")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers must be at least 1, not {self.workers}.")


def load(recipe: Recipe, settings: Settings) -> Task:
    """The task of a recipe, from where the settings say."""
    recipe.data.check_glimpses(recipe.glimpses)
    config = recipe.data if settings.skip_corrupt else recipe.data.remembering(False)
    task = load_task(
        config,
        data=settings.data,
        cache=settings.cache,
        skip_corrupt=settings.skip_corrupt,
        verify=settings.verify,
    )
    if task.skipped and config.skip_corrupt:  # not said now, but when the run was made
        say(f"note: {len(task.skipped)} unreadable {'picture' if len(task.skipped) == 1 else 'pictures'} left out.")
    return task


def run_task(run: Path, settings: Settings) -> tuple[Recipe, Task]:
    """A run's own recipe, and its task with the splits that it was trained on."""
    if not (run / "recipe.yaml").exists():
        raise InputError(f"{run} has no recipe.yaml, so its images can't be found; give the run's own folder.")
    found = recipe(run / "recipe.yaml")
    # the run's own splits: drawn again from a folder that has changed, they would test on training images
    return found, read_splits(load(found, remembered(settings, run=run)), run / "data")


def remembered(settings: Settings, *, run: Path) -> Settings:
    """The settings with a run's own data and cache, where others are not given."""
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
                "the same recipe and flags to go on with it."
            )
