"""`nogs bank build`, `verify`, `evaluate` and `compare`: make an image bank, check it, measure completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from nogs.cli.args import (
    Args,
    AsJson,
    Device,
    NameOrFile,
    OptionalFolder,
    OptionalPath,
    Rare,
    RunFolder,
    StageArgs,
    TaskArgs,
)
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
    """Number of images."""
    shown: int = 6
    """Number of images in the picture."""
    as_json: AsJson = False
    device: Device = "auto"


class CompareArgs(StageArgs):
    """Arguments of `nogs bank compare`."""

    fields_shown = ("completion.kept", "completion.drawn", "completion.network.steps", "completion.hmc.steps")
    kinds: tuple[Literal["retrieval", "corrected", "cgan", "flow", "hmc"], ...] = ()
    """Kinds of completion; by default all that the bank has the files for."""
    split: Literal["validation", "annotate", "test"] = "validation"
    """Images whose glimpses are completed."""
    images: int = 32
    """Number of images."""
    shown: int = 3
    """Number of images in the figure."""
    judge: NameOrFile = None
    """Posterior that scores sequences made with each kind: a published name or a file, other than --posterior."""
    sequences: int = 32
    """With --judge: number of sequences made with each kind."""
    attribute: str | None = None
    """With --judge: the attribute, for a task with attributes."""
    posterior: NameOrFile = None
    """With --judge: posterior that makes the sequences; by default the run's own, else the recipe's published one."""
    bank: OptionalFolder = None
    """Folder of the image bank, or the run that holds it; by default RUN/bank."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """hmc: file of the bank's generator, unless it was trained with the bank."""
    as_json: AsJson = False


def build(argv: list[str]) -> None:
    """Make the bank of a recipe."""
    args, recipe = parse_with_recipe(
        BuildArgs,
        argv,
        prog="nogs bank build",
        description="Generate the images of a bank, leave out near-duplicates of held-out images, and compute their "
        "principal components. Then measure how well they complete glimpses of validation images.",
    )
    from nogs.runtime.files import read_json
    from nogs.stages import bank

    folder = bank.build(args.experiment(recipe))
    about = read_json(folder / "done.json")
    print(
        f"{about['images']:,} images of {recipe.bank.generator}; {about['near_duplicates_left_out']} near-duplicates "
        f"of held-out images left out; {recipe.bank.components} components explain "
        f"{about['explained_variance']:.1%} of the variance\nbank: {folder}"
    )


def verify(argv: list[str]) -> None:
    """Check every file of a bank."""
    args = parse(
        VerifyArgs,
        argv,
        prog="nogs bank verify",
        description="Read every file of a bank and check its counts and checksums.",
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
    print(f"{args.run / 'bank'} is intact")


def evaluate(argv: list[str]) -> None:
    """Measure completions from a bank and draw some."""
    args = parse(
        EvaluateArgs,
        argv,
        prog="nogs bank evaluate",
        description="Complete held-out images from glimpses at random locations. Prints effective sample size, "
        "coverage, log-likelihood and diversity, and draws some completions.",
    )
    from nogs.stages import bank, run_task

    folder = args.run / "bank"
    recipe, task = run_task(args.run, args.settings())
    found = bank.evaluate(
        recipe, task, args.settings(), folder=folder, split=args.split, images=args.images, shown=args.shown
    )
    text = f"{_lines(found['by_glimpses'])}\n\npicture: {folder / 'evaluation' / 'completions.png'}"
    show(found, text, as_json=args.as_json)


def compare(argv: list[str]) -> None:
    """Measure kinds of completion on the same glimpses, and draw them side by side."""
    args, recipe = parse_with_recipe(
        CompareArgs,
        argv,
        prog="nogs bank compare",
        description="Complete the same glimpses of held-out images with every kind of completion. Prints seconds per "
        "image, effective sample size, coverage, diversity, sharpness and log-likelihood of hidden patches, and draws "
        "a figure. With --judge, a second posterior also scores sequences made with each kind.",
    )
    from nogs.stages.completions import compare_completions

    found, folder = compare_completions(
        args.experiment(recipe, sequences=None),  # the flag of this name means something else
        kinds=args.kinds,
        split=args.split,
        images=args.images,
        shown=args.shown,
        judge=args.judge,
        sequences=args.sequences,
        attribute=args.attribute,
    )
    text = f"{_sides(found)}\n\nnumbers: {folder / 'compare.json'}\nfigure: {folder / 'compare.png'}"
    show(found, text, as_json=args.as_json)


def _sides(found: dict[str, Any]) -> str:
    """A row per kind: its measures after the most glimpses, then the scores of its sequences."""
    rows = {kind: table[-1] for kind, table in found["kinds"].items()}
    observed = next(iter(rows.values()))["observed"]
    lines = [
        f"after {observed} glimpses of {found['images']} images",
        f"{'':<11}{'s/image':>9}{'ESS':>7}{'in 90 %':>9}{'diversity':>11}{'sharpness':>11}{'log-lik.':>10}{'error':>8}",
    ]
    for kind, row in rows.items():
        lines.append(
            f"{kind:<11}{row['seconds_per_image']:>9.3f}{row['effective_sample_size']:>7.1f}"
            f"{row['coverage_of_central_90_percent']:>9.1%}{row['diversity']:>11.1f}{row['sharpness']:>11.2f}"
            f"{row['log_likelihood_per_number']:>10.3f}{row['error_of_mean']:>8.1f}"
        )
    for kind, row in rows.items():
        if "acceptance" in row:
            rhat = "-" if row["rhat"] is None else f"{row['rhat']:.2f}"
            lines.append(f"{kind}: acceptance {row['acceptance']:.1%}, R-hat {rhat}")
    if "sequences" in found:
        from nogs.design.scoring import text_table

        made = found["sequences"]
        lines += ["", f"{made['images']} sequences with each kind", text_table(made["ways"])]
    return "\n".join(lines)


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
