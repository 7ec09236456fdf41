"""`nogs posterior train`, `evaluate` and `publish`: what do glimpses say about the label, and is it right?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.flags import OptionalFolder, TaskArgs, find_source, parse, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.posterior.evaluation import Row


@dataclass(frozen=True)
class TrainArgs(TaskArgs):
    """Arguments of `nogs posterior train`."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; a training that was stopped goes on."""
    kind: Literal["cnn", "tokens"] | None = None
    """Short for --posterior.kind."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class EvaluateArgs(TaskArgs):
    """Arguments of `nogs posterior evaluate`."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; evaluation-SPLIT.json and evaluation-SPLIT.png go into RUN/posterior."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A posterior's file, or the name of a published one; by default the run's own, or the recipe's published one."""
    split: Literal["validation", "test", "annotate"] = "test"
    """Images to look at."""
    sequences: OptionalFolder = None
    """Look along these glimpse sequences, at the images that have one, besides random locations."""
    attribute: str | None = None
    """For sequences of one attribute: its name; the numbers are then of this attribute alone."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class PublishArgs:
    """Arguments of `nogs posterior publish`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run that nogs posterior train made."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """File to write, ending in .safetensors; the card goes beside it, ending in .md."""
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
    from nogs.cli.data import begin_run
    from nogs.cli.train import check_recipe
    from nogs.posterior.evaluation import text_table
    from nogs.posterior.training import train_posterior
    from nogs.recipes import validated

    if args.kind is not None:
        values = recipe.model_dump()
        values["posterior"]["kind"] = args.kind
        recipe = validated(values, source=f"Recipe {recipe.name!r} with --kind {args.kind}")
    check_recipe(recipe, run=args.out)
    task = args.load(recipe)
    begin_run(task, recipe=recipe, run=args.out)
    folder = args.out / "posterior"
    train_posterior(
        task,
        config=recipe.posterior,
        glimpses=recipe.glimpses,
        folder=folder,
        seed=recipe.seed,
        device=args.device,
        data=args.data,
    )
    found = read_json(folder / "evaluation.json")
    print(text_table(found["tables"]))
    print(
        f"\n{found['parameters']:,} weights, best after {found['best_iteration']:,} of {found['iterations']:,} "
        f"iterations, {found['training_seconds']:.0f} s\nposterior, tables and plot: {folder}"
    )


def evaluate(argv: list[str]) -> None:
    """Print and write the tables of a trained posterior on a split, at random locations and along sequences."""
    args, recipe = parse_with_recipe(
        EvaluateArgs,
        argv,
        prog="nogs posterior evaluate",
        description="Accuracy, cross-entropy, mean entropy and calibration error of a posterior for each number of "
        "glimpses, before and after calibration.",
    )
    import torch

    from nogs.posterior.crossfit import uncalibrated
    from nogs.posterior.evaluation import evaluate as evaluate_posterior
    from nogs.posterior.evaluation import text_table
    from nogs.posterior.labels import label_table
    from nogs.posterior.outcome import write_figure
    from nogs.posterior.queries import fixed_pixels, resident
    from nogs.posterior.store import load_posterior
    from nogs.runtime.device import pick_device, versions
    from nogs.runtime.progress import track

    device = pick_device(args.device)
    task = args.load(recipe)
    source = find_source(recipe, task, given=args.checkpoint, run=args.out, flag="--checkpoint")
    if source is None:
        raise InputError(f"{args.out} holds no posterior; train one with nogs posterior train, or give --checkpoint.")
    calibrated = load_posterior(source, task=task, device=device, precision=recipe.posterior.precision)
    raw = uncalibrated(calibrated, precision=recipe.posterior.precision)
    variables = None if args.attribute is None else [task.attribute(args.attribute)]
    images, labels = resident(task.images, device), torch.from_numpy(label_table(task)).to(device)
    rows = torch.from_numpy(task.rows(args.split)).to(device)
    random = fixed_pixels(
        len(rows),
        glimpses=calibrated.glimpses,
        grid=task.grid,
        locations=recipe.posterior.locations,
        seed=recipe.seed,
        purpose=f"evaluation {args.split}",
        device=device,
    )
    looks = {f"{args.split}, random locations": (rows, random)}
    if args.sequences is not None:
        ids, pixels = _sequences(args, task, calibrated.glimpses)
        looks["along the sequences"] = (
            torch.from_numpy(task.rows(ids)).to(device),
            torch.from_numpy(pixels).to(device),
        )
    tables: dict[str, list[Row]] = {}
    kinds = {"before calibration": raw, "calibrated": calibrated}
    total = len(kinds) * sum(len(chosen) * (where.shape[1] + 1) for chosen, where in looks.values())
    with track("evaluating", total=total, unit="evaluations") as bar:
        for place, (chosen, where) in looks.items():
            for name, posterior in kinds.items():
                tables[f"{place}, {name}"] = evaluate_posterior(
                    posterior, images, labels, chosen, where, variables=variables, advance=bar.advance
                )
    path = args.out / "posterior" / f"evaluation-{args.split}.json"
    write_json(path, {"posterior": source, "versions": versions(device), "tables": tables})
    write_figure(path.with_suffix(".png"), tables, title=f"posterior of {task.name}")
    print(text_table(tables))
    print(f"\ntables and plot: {path} and {path.with_suffix('.png').name}")


def publish(argv: list[str]) -> None:
    """Write a posterior at half its size, with a card."""
    args = parse(
        PublishArgs,
        argv,
        prog="nogs posterior publish",
        description="Copy a run's posterior with float16 weights, and write a card that says what it is, what it "
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
    publish_posterior(source, args.out, fields=fields, defaults=defaults, notes=args.notes)
    print(f"{args.out} ({args.out.stat().st_size / 2**20:.1f} MiB) and {args.out.with_suffix('.md').name}")


def _sequences(args: EvaluateArgs, task: Task, glimpses: int) -> tuple[tuple[str, ...], Any]:
    from nogs.sequences import load_for

    assert args.sequences is not None
    found = load_for(args.sequences, task=task, attribute=args.attribute)
    return found.ids, found.locations[:, :glimpses]
