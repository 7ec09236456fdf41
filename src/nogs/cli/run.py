"""`nogs run`: all stages of a recipe, from labelled images to a report; a folder's sizes are chosen for it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.args import Attributes, NameOrFile, OptionalPath, Rare, StageArgs
from nogs.cli.flags import parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.progress import tell

if TYPE_CHECKING:
    from nogs.recipes import Recipe


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
    """A published posterior, or a file, in place of training."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """File or folder of the bank's generator, if it needs one."""
    until: Literal["data", "posterior", "bank", "sequences", "whole-image", "attention", "report"] = "report"
    """The last stage to do."""
    workers: Annotated[int | None, Rare] = None
    """Processes that annotate; by default one a GPU, else one a core."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """For a folder of pictures: the time that sizes are chosen for; by default 15 on a CPU, any on a GPU."""
    estimate: Annotated[bool, Rare] = True
    """Measure on a little of a run's and of each stage's work how long it will take."""


def run(argv: list[str]) -> None:
    """Do all stages of a recipe and name the report."""
    args, recipe = parse_with_recipe(
        RunArgs,
        argv,
        prog="nogs run",
        description="All stages of a recipe, from labelled images to a report. What is done is skipped; what was made "
        "with other settings is made again. nogs run PICTURES is short for nogs run folder --data PICTURES.",
        choose=_choose,
        tell=tell,
    )
    from nogs import stages

    settings = args.settings(command=shlex.join(["nogs", "run", *argv]))
    print(f"\nopen {stages.run(recipe, args.folder, settings, until=args.until, tell=tell)}")


def _choose(args: RunArgs, base: Recipe, given: Mapping[str, Any]) -> tuple[Recipe, list[str]]:
    """The recipe for a folder of pictures with sizes for these and this machine, and lines about them."""
    from nogs.recipes.folder import choose
    from nogs.stages.forecast import forecast

    if args.minutes is not None and not args.minutes > 0:
        raise InputError(f"--minutes must be more than 0, but is {args.minutes:g}.")
    assert args.data is not None
    measured = args.estimate or args.minutes is not None
    _check_writable(args.folder)  # before anything takes time
    ask = partial(forecast, settings=args.settings()) if measured else None
    found, lines = choose(base, args.data, given, device=args.device, forecast=ask, minutes=args.minutes)
    if measured and "ps-nogs" in args.method:
        lines.append("The time of the bank and the sequences, for ps-nogs, is said when they begin.")
    return found, lines


def _check_writable(folder: Path) -> None:
    """Refuse a folder that can't be made or written; nothing is written yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "is read-only" if there.is_dir() else "is a file"
        raise InputError(f"Cannot write into {folder}: {there} {why}; choose another folder.")
