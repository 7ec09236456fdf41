"""`nogs compare`: compare the methods of existing runs, or of a recipe that it trains first."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import tyro

from nogs.cli.args import Args, AsJson, Attributes, Folder, NameOrFile, OptionalFolder, Rare, StageArgs
from nogs.cli.flags import parse, parse_with_recipe, show
from nogs.runtime.errors import InputError


class CompareArgs(Args):
    """Arguments of `nogs compare` for runs."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Folders of runs that nogs train made, or curves.json files of earlier comparisons."""
    out: Folder
    """Folder for the tables, the curves and the figures."""
    reference: str = "ram"
    """The method that the others are compared with."""
    as_json: AsJson = False


class CompareRecipeArgs(StageArgs):
    """Arguments of `nogs compare` for a recipe."""

    fields_shown = ("glimpses", "attention.iterations")
    method: tuple[str, ...] = (
        *("ram", "ram+", "ps-nogs", "ps-hgs", "ps-h1", "ps-h5"),
        *("ps-nogs+", "fixed", "centre-out", "random"),
    )
    """Methods to train and compare; see nogs train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds; every method trains a network for each."""
    weights: tuple[float, ...] = ()
    """Weights of supervision; every supervised method trains a network for each; by default the recipe's."""
    attribute: Attributes = ()
    sequences: OptionalFolder = None
    """Folder of near-optimal glimpse sequences, which ps-nogs needs; the other methods then supervise the same images.
    By default RUN/sequences."""
    heuristic: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Map of the heuristic; by default the one in RUN/sequences or RUN/heuristic, made if missing."""
    posterior: Annotated[NameOrFile, Rare] = None
    """Posterior for that map, and for methods that use it as classifier; by default
    RUN/posterior/posterior.safetensors, or the recipe's published one."""
    bank: Annotated[OptionalFolder, Rare] = None
    """Bank for that map; by default RUN/bank, or the validation images if there is none."""
    reference: str | None = None
    """The method that the others are compared with; by default ram+ if it is one of them, else the first."""
    as_json: AsJson = False


def compare(argv: list[str]) -> None:
    """Write tables, raw curves and figures of the methods side by side, and print the table."""
    if argv and _is_recipe(argv[0]):
        compare_recipe(argv)
        return
    args = parse(
        CompareArgs,
        argv,
        prog="nogs compare",
        description="Print iterations to convergence and test accuracy of each method, averaged over attributes and "
        "seeds, with confidence intervals. Writes table.md, comparison.json, curves.json and figures, and "
        "attributes.md for several attributes. With a recipe (digits, celeba-hq, cub, folder or a .yaml file) in place "
        "of the runs, the methods are trained first: see nogs compare RECIPE --help.",
    )
    from nogs.stages import comparison

    if not args.runs:
        raise InputError("nogs compare needs at least one RUN: a folder that nogs train made, or a curves.json.")
    found, table = comparison.write(args.runs, folder=args.out, reference=args.reference)
    show(found, f"{table}\n\ntables, curves and figures: {args.out}", as_json=args.as_json)


def compare_recipe(argv: list[str]) -> None:
    """Train the methods and seeds of a recipe, then compare them."""
    args, recipe = parse_with_recipe(
        CompareRecipeArgs,
        argv,
        prog="nogs compare",
        description="Train the methods and seeds of a recipe with the same images and random numbers, and compare "
        "them in RUN/comparison. The table has iterations to convergence, test accuracy at the best validation "
        "accuracy, intervals over seeds and paired differences. References are the majority class, and the same "
        "features of the whole image.",
    )
    from nogs.stages import attention, comparison

    methods = tuple(dict.fromkeys(args.method))
    if not methods or not args.seeds:
        raise InputError("nogs compare needs at least one of --method and one of --seeds.")
    if any(not 0 <= weight < math.inf for weight in args.weights):
        raise InputError(f"--weights must be 0 or more, but are {', '.join(map(str, args.weights))}.")
    if len({f"{weight:g}" for weight in args.weights}) < len(args.weights):  # the digits that name their folders
        raise InputError(
            f"--weights must differ in six digits, but are {', '.join(map(str, args.weights))}; leave out one of them."
        )
    if args.weights and not any(method.startswith("ps-") for method in methods):
        raise InputError(
            f"--weights is for methods with supervision, but --method has none ({', '.join(methods)}); add one "
            "such as ps-nogs, or leave out --weights."
        )
    reference = args.reference or ("ram+" if "ram+" in methods else methods[0])
    comparison.check_reference(reference.partition(",")[0], methods)  # before the training
    folders = attention.train(args.experiment(recipe))
    folder = args.folder / "comparison"
    found, table = comparison.write([args.folder], folder=folder, reference=reference, only=folders)
    show(found, f"{table}\n\ntables, curves and figures: {folder}", as_json=args.as_json)


def _is_recipe(word: str) -> bool:
    """Whether the first argument names a recipe; a run's folder of such a name is given as ./NAME."""
    if word.startswith("-"):
        return False
    from nogs.recipes import names

    return word in names() or word.endswith((".yaml", ".yml"))
