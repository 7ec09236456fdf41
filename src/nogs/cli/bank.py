"""`nogs bank build`, `verify` and `evaluate`: make an image bank, check it, and see how good its completions are."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from nogs.cli.flags import TaskArgs, parse, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes, write_json

Run = Annotated[Path, tyro.conf.arg(metavar="RUN")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]


@dataclass(frozen=True)
class BuildArgs(TaskArgs):
    """Arguments of `nogs bank build`."""

    out: Run
    """Folder of the run; the bank goes to RUN/bank, and one that was begun goes on."""
    source: OptionalPath = None
    """File or folder of the generator: public weights, an ONNX file, pictures, or one trained before."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class VerifyArgs:
    """Arguments of `nogs bank verify`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run that nogs bank build made."""


@dataclass(frozen=True)
class EvaluateArgs(TaskArgs):
    """Arguments of `nogs bank evaluate`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run that nogs bank build made."""
    split: Literal["validation", "annotate", "test"] = "validation"
    """Images whose glimpses are completed."""
    images: int = 64
    """How many of them."""
    shown: int = 6
    """How many of them the picture shows."""
    source: OptionalPath = None
    """The generator's file or folder, for a bank that keeps only numbers."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def build(argv: list[str]) -> None:
    """Make the bank of a recipe."""
    args, recipe = parse_with_recipe(
        BuildArgs,
        argv,
        prog="nogs bank build",
        description="Generate the images of a bank, without any that is held out, and code them by their principal "
        "components.",
    )
    from nogs.bank import build_bank
    from nogs.cli.data import begin_run
    from nogs.cli.train import check_recipe

    check_recipe(recipe, run=args.out)
    task = args.load(recipe)
    begin_run(task, recipe=recipe, run=args.out)
    about = build_bank(task, config=recipe.bank, folder=args.out / "bank", source=args.source, device=args.device)
    print(
        f"{about['images']:,} images of {recipe.bank.generator}; {about['near_duplicates_left_out']} near-duplicates "
        f"of held-out images left out; {recipe.bank.components} components hold "
        f"{about['explained_variance']:.1%} of the variance\nbank: {args.out / 'bank'}"
    )


def verify(argv: list[str]) -> None:
    """Check every file of a bank."""
    args = parse(
        VerifyArgs,
        argv,
        prog="nogs bank verify",
        description="Read every file of a bank and check its counts and sums.",
    )
    from nogs.bank import verify_bank
    from nogs.runtime.progress import track

    with track("verifying the bank", total=None, unit="images") as bar:
        problems = verify_bank(args.run / "bank", advance=bar.advance)
    for problem in problems[1:]:
        print(problem)
    if problems:
        more = f" ({len(problems)} problems in all)" if len(problems) > 1 else ""
        raise InputError(problems[0] + more)
    print(f"{args.run / 'bank'} is whole")


def evaluate(argv: list[str]) -> None:
    """Measure completions from a bank and draw some."""
    args = parse(
        EvaluateArgs,
        argv,
        prog="nogs bank evaluate",
        description="Complete held-out images from glimpses at random locations; print effective sample size, "
        "coverage, log-likelihood and diversity, and draw some completions.",
    )
    from nogs.bank import load_bank
    from nogs.completion import Retrieval
    from nogs.completion.picture import completion_sheet
    from nogs.completion.quality import evaluate_completion, random_locations
    from nogs.data import read_splits
    from nogs.recipes import recipe as read_recipe
    from nogs.runtime.device import versions

    recipe = read_recipe(args.run / "recipe.yaml")
    task = args.load(recipe)
    task = read_splits(task, args.run / "data")
    bank = load_bank(args.run / "bank", device=args.device, task=task, source=args.source)
    retrieval = Retrieval(bank, config=recipe.completion, glimpse=task.grid.glimpse, seed=recipe.seed)
    ids = task.splits[args.split][: args.images]
    if not ids:
        raise InputError(f"Task {task.name!r} has no images in the split {args.split!r}; choose another --split.")
    table = evaluate_completion(retrieval, task, ids, glimpses=recipe.glimpses, seed=recipe.seed)
    folder = args.run / "bank" / "evaluation"
    record: dict[str, Any] = {"split": args.split, "completion": retrieval.fingerprint, "by_glimpses": table}
    write_json(folder / f"{args.split}.json", {**record, "bank": bank.about, "versions": versions(bank.device)})
    few = ids[: args.shown]
    places = random_locations(task, few, recipe.glimpses - 1, seed=recipe.seed)
    picture = io.BytesIO()
    completion_sheet(retrieval, task, few, places).savefig(picture, format="png")
    write_bytes(folder / "completions.png", picture.getvalue())
    print(_lines(table))
    print(f"\npicture: {folder / 'completions.png'}")


def _lines(table: list[dict[str, Any]]) -> str:
    lines = [
        f"{'glimpses':>8}{'ESS':>9}{'of proposal':>13}{'unique':>8}{'in range':>10}{'in 90 %':>9}"
        f"{'log-lik.':>10}{'diversity':>11}{'error':>8}"
    ]
    for row in table:
        proposed = row["proposal_effective_sample_size"]
        of_proposal = "-" if proposed is None else f"{proposed:,.0f}"
        lines.append(
            f"{row['observed']:>8}{row['effective_sample_size']:>9.1f}{of_proposal:>13}"
            f"{row['unique_completions']:>8.0f}{row['coverage_of_range']:>10.1%}"
            f"{row['coverage_of_central_90_percent']:>9.1%}{row['log_likelihood_per_number']:>10.3f}"
            f"{row['diversity']:>11.1f}{row['error_of_mean']:>8.1f}"
        )
    return "\n".join(lines)
