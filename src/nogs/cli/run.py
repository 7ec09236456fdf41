"""`nogs run`: all stages of a recipe, from labelled images to a report; a folder's sizes are chosen for it."""

from __future__ import annotations

import shlex
from typing import Annotated, Literal

from nogs.cli.args import Attributes, NameOrFile, OptionalPath, Rare, StageArgs
from nogs.cli.flags import parse_with_recipe
from nogs.runtime.progress import tell


class RunArgs(StageArgs):
    """Arguments of `nogs run`."""

    fields_shown = (
        *("glimpses", "data.image_size", "data.glimpse", "data.annotated", "posterior.iterations"),
        *("plus.iterations", "attention.iterations"),
    )
    attribute: Attributes = ()
    method: tuple[str, ...] = ("ps-nogs+", "ram", "fixed", "centre-out", "random")
    """Methods to train, as in nogs train; ps-nogs needs a bank and sequences."""
    seeds: tuple[int, ...] = ()
    """Seeds, a network each; by default the recipe's."""
    posterior: NameOrFile = None
    """A published posterior, or a posterior's file, in place of one that is trained here."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """File or folder of the bank's generator, if it needs one."""
    until: Literal["data", "posterior", "bank", "sequences", "whole-image", "attention", "report"] = "report"
    """The last stage to do."""
    workers: Annotated[int | None, Rare] = None
    """Processes that annotate; by default one a GPU, else one a core."""
    estimate: Annotated[bool, Rare] = True
    """Measure before each stage, on a little of its work, how long it will take."""


def run(argv: list[str]) -> None:
    """Do all stages of a recipe and name the report."""
    args, recipe = parse_with_recipe(
        RunArgs,
        argv,
        prog="nogs run",
        description="All stages of a recipe, from labelled images to a report. What is done is skipped; what was made "
        "with other settings is made again. nogs run PICTURES is short for nogs run folder --data PICTURES.",
        choosing=True,
        tell=tell,
    )
    from nogs import stages

    settings = args.settings(command=shlex.join(["nogs", "run", *argv]))
    print(f"\nopen {stages.run(recipe, args.folder, settings, until=args.until, tell=tell)}")
