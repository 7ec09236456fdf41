"""`nogs posterior train`, `evaluate` and `publish`: train, evaluate and share the classifier of glimpses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from nogs.cli.args import Args, AsJson, NameOrFile, OptionalFolder, StageArgs
from nogs.cli.flags import parse, parse_with_recipe, show
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json


class TrainArgs(StageArgs):
    """Arguments of `nogs posterior train`."""

    fields_shown = (
        *("glimpses", "data.image_size", "data.glimpse", "posterior.kind", "posterior.iterations", "posterior.seconds"),
        *("posterior.batch", "posterior.learning_rate", "posterior.folds"),
    )
    as_json: AsJson = False


class EvaluateArgs(StageArgs):
    """Arguments of `nogs posterior evaluate`."""

    posterior: NameOrFile = None
    """A posterior's file, or the name of a published one; by default the run's own, or the recipe's published one."""
    split: Literal["validation", "test", "annotate"] = "test"
    """Images to evaluate on."""
    sequences: OptionalFolder = None
    """Also evaluate along these glimpse sequences, on the images that have one."""
    attribute: str | None = None
    """For sequences of one attribute: its name; the scores are then for this attribute only."""
    as_json: AsJson = False


class PublishArgs(Args):
    """Arguments of `nogs posterior publish`."""

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_OR_FILE")]
    """A run, to publish its posterior; or the file of a network in a run (ps-nogs+, fixed), to publish it together
    with its posterior."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write, ending in .safetensors; the card goes beside it, ending in .md."""
    bits: Literal[16, 8, 7, 6, 5, 4] = 16
    """Bits per weight: 16 (float16), or fewer for a smaller file; in our trials 8 lost nothing and 5 little."""
    notes: str = ""
    """A sentence for the card, such as the terms of the data."""


def train(argv: list[str]) -> None:
    """Train a posterior, calibrate it, and print its tables."""
    args, recipe = parse_with_recipe(
        TrainArgs,
        argv,
        prog="nogs posterior train",
        description="Train the posterior on images that get no sequences, calibrate it on validation images, and print "
        "its accuracy, cross-entropy, entropy and calibration error by number of glimpses.",
    )
    from nogs.posterior.evaluation import text_table
    from nogs.stages import posterior

    folder = posterior.train(args.experiment(recipe.model_copy(update={"published": None})))
    found = read_json(folder / "evaluation.json")
    text = (
        f"{text_table(found['tables'])}\n\n{found['parameters']:,} weights, best after {found['best_iteration']:,} of "
        f"{found['iterations']:,} iterations, {found['training_seconds']:.0f} s\nposterior, tables and plot: {folder}"
    )
    show(found["tables"], text, as_json=args.as_json)


def evaluate(argv: list[str]) -> None:
    """Print and write the tables of a trained posterior on a split, at random locations and along sequences."""
    args, recipe = parse_with_recipe(
        EvaluateArgs,
        argv,
        prog="nogs posterior evaluate",
        description="Evaluate a posterior for each number of glimpses, before and after calibration: accuracy, "
        "cross-entropy, mean entropy and calibration error. Writes RUN/posterior/evaluation-SPLIT.json and .png.",
    )
    from nogs.posterior.evaluation import text_table
    from nogs.stages import posterior

    experiment = args.experiment(recipe)
    path, tables = posterior.evaluate(experiment, split=args.split, sequences=args.sequences, attribute=args.attribute)
    text = f"{text_table(tables)}\n\ntables and plot: {path} and {path.with_suffix('.png').name}"
    show(tables, text, as_json=args.as_json)


def publish(argv: list[str]) -> None:
    """Write a posterior, or a network with its posterior, at half its size or less, with a card."""
    args = parse(
        PublishArgs,
        argv,
        prog="nogs posterior publish",
        description="Copy a run's posterior, or a network with its posterior, with fewer bits per weight. Also writes "
        "a card with its description, its scores and the commands that made it. Every --posterior flag takes the "
        "file; nogs predict, export and hub push take a network's file too.",
    )
    from nogs.plus.publishing import publish as publish_file
    from nogs.posterior.training import FILE
    from nogs.recipes import recipe as read_recipe

    source = args.source / "posterior" / FILE if args.source.is_dir() else args.source
    if not source.is_file():
        what = "holds no posterior; train one with nogs posterior train" if args.source.is_dir() else "is not there"
        raise InputError(f"{args.source} {what}.")
    run = next((folder for folder in source.absolute().parents if (folder / "recipe.yaml").is_file()), None)
    if run is None:
        raise InputError(f"{source} is not in a run, whose recipe the card needs; give the file in the run's folder.")
    recipe = read_recipe(run / "recipe.yaml")
    fields, defaults = (one.model_dump(mode="json") for one in (recipe, read_recipe(recipe.data.kind)))
    looks = publish_file(source, args.out, fields=fields, defaults=defaults, notes=args.notes, bits=args.bits)
    size = f"{args.out.stat().st_size / 2**20:.1f} MiB"
    size += f", {looks / 2**20:.1f} of them for where it looks" if looks else ""
    print(f"{args.out} ({size}) and {args.out.with_suffix('.md').name}")
