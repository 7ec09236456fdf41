"""Arguments that several commands share: the dataset, the run and the network."""

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
    """Marks a flag that only --help-all shows."""


class Args(BaseModel):
    """Arguments of a command: each field is a flag, and its docstring the help text."""

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
Attributes = Annotated[tuple[str, ...], Field(description="For tasks with attributes: their names, or all.")]
Overwrite = Annotated[bool, Field(description="Replace other sequences in OUT.")]
Best = Annotated[
    Literal["accuracy", "balanced_accuracy", "nll"],
    Field(description="Which checkpoint of a network: the best on the validation images by this measure."),
]


class TaskArgs(Args):
    """Flags of every command that reads a dataset."""

    data: OptionalFolder = None
    """Dataset folder; a run remembers it, digits needs none."""
    cache: Annotated[OptionalFolder, Rare] = None
    """Folder of the decoded images; by default $NOGS_CACHE, else ~/.cache/nogs."""
    skip_corrupt: Annotated[bool, Rare] = True
    """Skip images that can't be read, and record them."""

    def settings(self, **more: Any) -> Settings:
        """The settings of the stages, from the flags of the same names."""
        from nogs.stages import Settings

        known = {field.name for field in fields(Settings)}
        values = {name: value for name, value in self if name in known} | more
        if isinstance(one := values.get("attribute", ()), str) or one is None:
            values["attribute"] = () if one is None else (one,)
        return Settings(**values)


class StageArgs(TaskArgs):
    """Flags of every command that runs a stage."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: runs/NAME)")] = None
    """Folder of the run; finished work is skipped, stopped work resumes."""
    device: Device = "auto"

    @property
    def folder(self) -> Path:
        """The run's folder, which `parse_with_recipe` chooses if it is not given."""
        assert self.out is not None
        return self.out

    def experiment(self, recipe: Recipe, **more: Any) -> Experiment:
        """The recipe in the run's folder, with these flags as its settings."""
        from nogs.stages import Experiment

        return Experiment(recipe, self.folder, self.settings(**more))


class NetworkArgs(Args):
    """Flags that select a trained network."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Folder of a run, a published name (celeba-hq, cub), a packed folder, a network's file, or
    hf://user/repository."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """A network of the run: its name (ram/seed-0) or words of it (Smiling); by default the best one."""
    attribute: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """For networks of several attributes: the one for this attribute, such as Smiling."""
    best: Best = "accuracy"
