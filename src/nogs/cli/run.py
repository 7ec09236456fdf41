"""`nogs run`: all stages of a recipe, from labelled images to a report; chooses sizes for a folder of pictures."""

from __future__ import annotations

import math
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
    """Seeds, one network each; by default the recipe's."""
    posterior: NameOrFile = None
    """A published posterior, or a file, instead of training one."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """File or folder of the bank's generator, if it needs one."""
    until: Literal["data", "posterior", "bank", "sequences", "whole-image", "attention", "report"] = "report"
    """The last stage to run."""
    workers: Annotated[int | None, Rare] = None
    """Number of annotation processes; by default one per GPU, else one per core."""
    minutes: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """For a folder of pictures: choose sizes for this time; by default 15 on a CPU, no limit on a GPU."""
    estimate: Annotated[bool, Rare] = True
    """Estimate the time of the run and of each stage from a small part of its work."""


def run(argv: list[str]) -> None:
    """Run all stages of a recipe and print the path of the report."""
    args, recipe = parse_with_recipe(
        RunArgs,
        argv,
        prog="nogs run",
        description="Run all stages of a recipe, from labelled images to a report. Finished stages are skipped; those "
        "with other settings run again. nogs run PICTURES is short for nogs run folder --data PICTURES.",
        choose=_choose,
        tell=tell,
    )
    from nogs import stages

    if args.minutes is not None and recipe.data.kind != "folder":
        raise InputError(
            f"--minutes chooses sizes for a folder of pictures; for {recipe.name} set --posterior.iterations, "
            "--plus.iterations and --attention.iterations."
        )
    check_writable(args.folder)
    settings = args.settings(command=shlex.join(["nogs", "run", *argv]))
    end = stages.run(recipe, args.folder, settings, until=args.until, tell=tell, conclude=print)
    print(f"\nopen {end}")


def _choose(args: RunArgs, base: Recipe, given: Mapping[str, Any]) -> tuple[Recipe, list[str]]:
    """The recipe for a folder of pictures with sizes for these and this machine, and lines about them."""
    from nogs.data import LabelSpace
    from nogs.recipes.folder import choose
    from nogs.stages import attention
    from nogs.stages.forecast import forecast
    from nogs.stages.settings import chosen_attributes

    if args.minutes is not None and not 0 < args.minutes < math.inf:
        raise InputError(f"--minutes must be a number above 0, but is {args.minutes:g}.")
    assert args.data is not None
    measured = args.estimate or args.minutes is not None
    check_writable(args.folder)  # like the next checks, before anything takes time
    settings = args.settings()
    chosen_attributes(settings.attribute, LabelSpace("categorical", ()), args.data.resolve().name)
    fields = {name.removeprefix("attention."): value for name, value in given.items() if name.startswith("attention.")}
    named = base.model_copy(update={"attention": base.attention.model_copy(update=fields)})
    attention.check(named, settings.method, sequences=True)
    ask = partial(forecast, settings=settings) if measured else None
    found, lines = choose(base, args.data, given, device=args.device, forecast=ask, minutes=args.minutes)
    if measured and "ps-nogs" in args.method:
        lines.append("The time of the bank and the sequences, for ps-nogs, is estimated when they begin.")
    return found, lines


def check_writable(folder: Path, *, flag: str = "--out") -> None:
    """Refuse a folder, which `flag` names, that can't be made or written; nothing is written yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "is read-only" if there.is_dir() else "is a file"
        raise InputError(f"Cannot write into {folder}: {there} {why}; choose another {flag}.")
