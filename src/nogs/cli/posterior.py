"""`nogs posterior train`, `evaluate` and `publish`: what do glimpses say about the label, and is it right?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from nogs.cli.args import Args, AsJson, NameOrFile, OptionalFolder, RunFolder, StageArgs
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
    """Images to look at."""
    sequences: OptionalFolder = None
    """Look along these glimpse sequences, at the images that have one, besides random locations."""
    attribute: str | None = None
    """For sequences of one attribute: its name; the numbers are then of this attribute alone."""
    as_json: AsJson = False


class PublishArgs(Args):
    """Arguments of `nogs posterior publish`."""

    run: RunFolder
    """Folder of a run that nogs posterior train made."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write, ending in .safetensors; the card goes beside it, ending in .md."""
    bits: Literal[16, 8, 7, 6, 5, 4] = 16
    """Bits a weight: 16 (float16), or fewer for a smaller file; in our trials 8 lost nothing and 5 little."""
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
        description="Accuracy, cross-entropy, mean entropy and calibration error of a posterior for each number of "
        "glimpses, before and after calibration; into RUN/posterior/evaluation-SPLIT.json and .png.",
    )
    from nogs.posterior.evaluation import text_table
    from nogs.stages import posterior

    experiment = args.experiment(recipe, attribute=())
    path, tables = posterior.evaluate(experiment, split=args.split, sequences=args.sequences, attribute=args.attribute)
    text = f"{text_table(tables)}\n\ntables and plot: {path} and {path.with_suffix('.png').name}"
    show(tables, text, as_json=args.as_json)


def publish(argv: list[str]) -> None:
    """Write a posterior at half its size or less, with a card."""
    args = parse(
        PublishArgs,
        argv,
        prog="nogs posterior publish",
        description="Copy a run's posterior with weights in fewer bits, and write a card that says what it is, what it "
        "scores and which command made it. The file can be given to --posterior of every command.",
    )
    from nogs.posterior.card import publish as publish_posterior
    from nogs.posterior.training import FILE
    from nogs.recipes import recipe as read_recipe

    source = args.run / "posterior" / FILE
    if not source.is_file():
        raise InputError(f"{args.run} holds no posterior; train one with nogs posterior train.")
    recipe = read_recipe(args.run / "recipe.yaml")
    fields, defaults = (one.model_dump(mode="json") for one in (recipe, read_recipe(recipe.data.kind)))
    publish_posterior(source, args.out, fields=fields, defaults=defaults, notes=args.notes, bits=args.bits)
    print(f"{args.out} ({args.out.stat().st_size / 2**20:.1f} MiB) and {args.out.with_suffix('.md').name}")
