"""`nogs compare`: methods side by side, of runs that are there, or trained for it from a recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nogs.cli.flags import OptionalFolder, TaskArgs, find_source, parse, parse_with_recipe
from nogs.cli.train import Method
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes, write_json, write_text

if TYPE_CHECKING:
    from nogs.attention.cohort import Member
    from nogs.data import Task
    from nogs.recipes import Recipe


@dataclass(frozen=True)
class CompareArgs:
    """Arguments of `nogs compare` for runs."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Folders of runs that nogs train made, or curves.json files of earlier comparisons."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder for the tables, the curves and the figures."""
    reference: str = "ram"
    """The method that the others are compared with."""


@dataclass(frozen=True)
class CompareRecipeArgs(TaskArgs):
    """Arguments of `nogs compare` for a recipe."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; the comparison goes to RUN/comparison. What was stopped goes on, what is done is skipped."""
    methods: tuple[Method, ...] = ("ram", "ram+", "ps-nogs", "ps-hgs", "ps-h1", "ps-h5", "random", "centre-out")
    """Methods to train and compare; see nogs train."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds, a network each for every method."""
    weights: tuple[float, ...] = ()
    """Weights of supervision, a network each for every supervised method and seed; by default the recipe's."""
    attribute: tuple[str, ...] = ()
    """For tasks with attributes: one or more of them, or all."""
    sequences: OptionalFolder = None
    """Folder of near-optimal glimpse sequences, which ps-nogs needs; the other methods then supervise the same images.
    By default RUN/sequences."""
    heuristic: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Map of the heuristic; by default RUN/heuristic, which is made if it is not there."""
    posterior: Annotated[str | None, tyro.conf.arg(metavar="NAME_OR_FILE")] = None
    """Posterior to make that map with; by default RUN/posterior/posterior.safetensors."""
    bank: OptionalFolder = None
    """Bank to make it with; by default RUN/bank, and the validation images where there is none."""
    reference: str | None = None
    """The method that the others are compared with; by default ram+ where it is among them, else the first."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def compare(argv: list[str]) -> None:
    """Write tables, raw curves and figures of the methods side by side, and print the table."""
    if argv and _is_recipe(argv[0]):
        compare_recipe(argv)
        return
    args = parse(
        CompareArgs,
        argv,
        prog="nogs compare",
        description="Iterations to convergence and test accuracy of each method, averaged over attributes and seeds, "
        "with confidence intervals. Writes table.md, comparison.json, curves.json and figures, for several attributes "
        "also attributes.md. With a recipe (digits, celeba-hq, cub, folder or a .yaml file) in place of the runs, the "
        "methods are trained first: see nogs compare RECIPE --help.",
    )
    if not args.runs:
        raise InputError("nogs compare needs at least one RUN: a folder that nogs train made, or a curves.json.")
    write_comparison(args.runs, folder=args.out, reference=args.reference)


def compare_recipe(argv: list[str]) -> None:
    """Train methods x seeds of a recipe, then compare them."""
    args, recipe = parse_with_recipe(
        CompareRecipeArgs,
        argv,
        prog="nogs compare",
        description="Train methods and seeds of a recipe side by side, from the same images and random numbers, and "
        "compare them: iterations to convergence, test accuracy at the best validation accuracy, intervals over seeds, "
        "paired differences; beside them the majority class, and the same features with the whole image seen.",
    )
    from nogs.attention.training import train
    from nogs.cli.data import begin_run
    from nogs.cli.train import check_recipe, make
    from nogs.posterior.imagenet import find_weights
    from nogs.runtime.device import pick_device

    if not args.methods or not args.seeds:
        raise InputError("nogs compare needs at least one of --methods and one of --seeds.")
    if any(seed < 0 for seed in args.seeds):
        raise InputError(f"--seeds must not be negative, but are {', '.join(map(str, args.seeds))}.")
    if any(not 0 <= weight < math.inf for weight in args.weights):
        raise InputError(f"--weights must be numbers from 0 on, but are {', '.join(map(str, args.weights))}.")
    methods: list[str] = list(dict.fromkeys(args.methods))
    if len({f"{weight:g}" for weight in args.weights}) < len(args.weights):  # which names their folders
        raise InputError(
            f"--weights must differ in six digits, but are {', '.join(map(str, args.weights))}; leave out one of them."
        )
    if args.weights and not any(method.startswith("ps-") for method in methods):
        raise InputError(
            f"--weights is for methods with supervision, but --methods has none ({', '.join(methods)}); add one "
            "such as ps-nogs, or leave out --weights."
        )
    reference = args.reference or ("ram+" if "ram+" in methods else methods[0])
    pick_device(args.device)
    check_recipe(recipe, run=args.out)
    task = args.load(recipe)
    own = args.out / "sequences"
    networks = make(
        task,
        recipe,
        methods=methods,
        seeds=args.seeds,
        attributes=args.attribute,
        sequences=args.sequences or (own if own.is_dir() else None),
        heuristic=_heuristic(args, recipe, task, methods),
        weights=args.weights,
    )
    begin_run(task, recipe=recipe, run=args.out)
    train(
        task,
        networks,
        config=recipe.attention,
        glimpses=recipe.glimpses,
        folder=args.out / "attention",
        device=args.device,
        weights=find_weights(recipe.attention.weights, args.data, network=recipe.attention.embedder_network),
    )
    write_comparison([args.out], folder=args.out / "comparison", reference=reference, only=networks)


def write_comparison(
    runs: Sequence[Path],
    *,
    folder: Path,
    reference: str,
    only: Sequence[Member] | None = None,
) -> None:
    """Read the networks of some runs (or `only` some of them), and write and print how they compare."""
    import io

    from nogs.attention.comparison import RELEASE, curves_json, read_run, table, tasks_table
    from nogs.attention.comparison import compare as compare_networks

    networks = [network for run in runs for network in read_run(run)]
    if only is not None:
        places = {(member.label, member.attribute, member.seed): n for n, member in enumerate(only)}
        numbered = [(places.get((n.method.removesuffix(RELEASE), n.attribute, n.seed)), n) for n in networks]
        networks = [n for place, n in sorted(numbered, key=lambda pair: pair[0] or 0) if place is not None]
        reference = next((n.method for n in networks if n.method.partition(",")[0] == reference), reference)
    methods = sorted({network.method for network in networks})
    if reference not in methods:
        raise InputError(f"There is no method {reference!r} among these; --reference may be {', or '.join(methods)}.")
    networks.sort(key=lambda network: network.method != reference)
    found = compare_networks(networks, reference=reference)
    write_text(folder / "curves.json", curves_json(networks))
    write_json(folder / "comparison.json", found)
    write_text(folder / "table.md", table(found) + "\n")
    several = len(found["tasks"]) > 1
    if several:
        write_text(folder / "attributes.md", tasks_table(found) + "\n")
    else:  # what an earlier comparison of several attributes left here
        for name in ("attributes.md", "convergence.png", "convergence.svg"):
            (folder / name).unlink(missing_ok=True)
    print(table(found))
    from nogs.report.learning import convergence_figure, curves_figure  # after all numbers are safe

    figures = {"curves": curves_figure(networks)} | ({"convergence": convergence_figure(found)} if several else {})
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            picture = io.BytesIO()
            figure.savefig(picture, format=kind)
            write_bytes(folder / f"{name}.{kind}", picture.getvalue())
    print(f"\ntables, curves and figures: {folder}")


def _heuristic(args: CompareRecipeArgs, recipe: Recipe, task: Task, methods: Sequence[str]) -> Path | None:
    """The heuristic's map, if a method needs one: as given, as made before, or made now and kept in the run.

    One that was made before from another posterior or bank than would be used now is refused.
    """
    from nogs.attention.methods import needs_heuristic
    from nogs.supervision.heuristic import FILE, load_heuristic, save_heuristic

    if args.heuristic is not None or not any(needs_heuristic(method, recipe.attention) for method in methods):
        return args.heuristic
    from nogs.cli.heuristic import draw, made_from, make_map

    kept = args.out / "heuristic"
    there = (kept / FILE).is_file()
    try:
        posterior = find_source(recipe, task, given=args.posterior, run=args.out, flag="--posterior")
    except InputError:
        if not there:
            raise
        posterior = None
    if posterior is None:
        return kept if there else None  # without a map, the method says what it lacks and how to make it
    bank = args.bank or (args.out / "bank" if (args.out / "bank" / "done.json").is_file() else None)
    if there:
        before, now = load_heuristic(kept, task=task).provenance, made_from(posterior, bank)
        others = {"posterior_digest": "another posterior", "over": "other images", "bank": "another bank"}
        # a map that was brought from elsewhere may say nothing of what it was made from
        for other in (others[name] for name in others if name in before and before[name] != now.get(name)):
            raise InputError(
                f"{kept} holds a map that was made with {other} than this command would use; delete that folder, "
                f"choose another --out, or take the map as it is with --heuristic {kept}."
            )
        return kept
    found = make_map(
        task,
        recipe,
        posterior=posterior,
        bank=bank,
        data=args.data,
        cache=args.cache,
        skip_corrupt=args.skip_corrupt,
        device=args.device,
    )
    save_heuristic(found, kept, task=task)
    if task.space.kind == "categorical":
        draw(found, task, None, folder=kept)
    return kept


def _is_recipe(word: str) -> bool:
    """Whether the first argument names a recipe; a run's folder of such a name is given as ./NAME."""
    if word.startswith("-"):
        return False
    from nogs.recipes import names

    return word in names() or word.endswith((".yaml", ".yml"))
