"""Arguments that several commands share, each field a flag: where data lie, which run, which network."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import tyro
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from nogs.recipes import Recipe
    from nogs.stages import Experiment, Settings


class Rare:
    """Marks a flag that --help-all alone shows."""


class Args(BaseModel):
    """Arguments of a command: each field is a flag, its docstring the help."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    fields_shown: ClassVar[tuple[str, ...]] = ()
    """Fields of the recipe that --help shows, by their dotted names."""


A = TypeVar("A", bound=Args)
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
OptionalFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
NameOrFile = Annotated[str | None, tyro.conf.arg(metavar="NAME_OR_FILE")]
Device = Annotated[str, Field(description="auto, cpu, cuda, cuda:N or mps.")]
AsJson = Annotated[bool, Field(description="Print the numbers as JSON.")]
Attributes = Annotated[tuple[str, ...], Field(description="For tasks with attributes: one or more, or all.")]
Overwrite = Annotated[bool, Field(description="Replace other sequences that lie in OUT already.")]
Best = Annotated[
    Literal["accuracy", "balanced_accuracy", "nll"],
    Field(description="Which of the kept networks: the best on the validation images by this measure."),
]


class TaskArgs(Args):
    """Flags of every command that reads a dataset."""

    data: OptionalFolder = None
    """The dataset; a run remembers it, digits needs none."""
    cache: Annotated[OptionalFolder, Rare] = None
    """Folder of the decoded images; by default $NOGS_CACHE, else ~/.cache/nogs."""
    skip_corrupt: Annotated[bool, Rare] = True
    """Go on without images that can't be read, and record which."""

    def settings(self, **more: Any) -> Settings:
        """The settings of the stages, from the flags of the same names."""
        from nogs.stages import Settings

        known = {field.name for field in fields(Settings)}
        return Settings(**{name: value for name, value in self if name in known} | more)


class StageArgs(TaskArgs):
    """Flags of every command that does a stage of a run."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: runs/NAME)")] = None
    """Folder of the run; what is done there is skipped, what was stopped goes on."""
    device: Device = "auto"

    @property
    def folder(self) -> Path:
        """The run's folder, which `parse_with_recipe` has chosen where it is not given."""
        assert self.out is not None
        return self.out

    def experiment(self, recipe: Recipe, **more: Any) -> Experiment:
        """The recipe in the run's folder, with these flags as its settings."""
        from nogs.stages import Experiment

        return Experiment(recipe, self.folder, self.settings(**more))


class NetworkArgs(Args):
    """Which trained network a command is about."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a run, a published name (celeba-hq, cub), a packed folder, a network's file, or
    hf://user/repository."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Which network of a run with several: its name (ram/seed-0) or words of it (Smiling); by default the best one."""
    attribute: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Of networks of several attributes the one for this, such as Smiling."""
    best: Best = "accuracy"
