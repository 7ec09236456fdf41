"""`nogs bank build`, `verify` and `evaluate`: make an image bank, check it, and see how good its completions are."""

from __future__ import annotations

from typing import Any, Literal

from nogs.cli.args import Args, AsJson, Device, OptionalPath, RunFolder, StageArgs, TaskArgs
from nogs.cli.flags import parse, parse_with_recipe, show
from nogs.runtime.errors import InputError


class BuildArgs(StageArgs):
    """Arguments of `nogs bank build`."""

    fields_shown = ("data.image_size", "bank.generator", "bank.count", "bank.components")
    generator_path: OptionalPath = None
    """File or folder of the generator: public weights, an ONNX file, pictures, or one trained before."""


class VerifyArgs(Args):
    """Arguments of `nogs bank verify`."""

    run: RunFolder
    """Folder of a run that nogs bank build made."""


class EvaluateArgs(TaskArgs):
    """Arguments of `nogs bank evaluate`."""

    run: RunFolder
    """Folder of a run that nogs bank build made."""
    split: Literal["validation", "annotate", "test"] = "validation"
    """Images whose glimpses are completed."""
    images: int = 64
    """How many of them."""
    shown: int = 6
    """How many of them the picture shows."""
    as_json: AsJson = False
    device: Device = "auto"


def build(argv: list[str]) -> None:
    """Make the bank of a recipe."""
    args, recipe = parse_with_recipe(
        BuildArgs,
        argv,
        prog="nogs bank build",
        description="Generate the images of a bank, without any that is held out, code them by their principal "
        "components, and measure how well they complete glimpses of validation images.",
    )
    from nogs.runtime.files import read_json
    from nogs.stages import bank

    folder = bank.build(args.experiment(recipe))
    about = read_json(folder / "done.json")
    print(
        f"{about['images']:,} images of {recipe.bank.generator}; {about['near_duplicates_left_out']} near-duplicates "
        f"of held-out images left out; {recipe.bank.components} components hold "
        f"{about['explained_variance']:.1%} of the variance\nbank: {folder}"
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
    from nogs.stages import bank, run_task

    folder = args.run / "bank"
    recipe, task = run_task(args.run, args.settings())
    found = bank.evaluate(
        recipe, task, args.settings(), folder=folder, split=args.split, images=args.images, shown=args.shown
    )
    text = f"{_lines(found['by_glimpses'])}\n\npicture: {folder / 'evaluation' / 'completions.png'}"
    show(found, text, as_json=args.as_json)


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
