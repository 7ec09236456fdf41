"""`nogs train`: hard-attention networks of one or several methods, attributes and seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import tyro

from nogs.cli.flags import OptionalFolder, TaskArgs, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import read_json

if TYPE_CHECKING:
    from nogs.attention.cohort import Member
    from nogs.data import Task
    from nogs.recipes import Recipe

Method = Literal["ram", "ram+", "ps-nogs", "ps-hgs", "ps-h1", "ps-h5", "random", "centre-out"]
"""As in `nogs.attention.methods`, which brings torch."""


@dataclass(frozen=True)
class TrainArgs(TaskArgs):
    """Arguments of `nogs train`."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; a run that was stopped goes on, what is done is skipped."""
    method: tuple[Method, ...] = ("ram",)
    """One or more: ram (REINFORCE alone), ram+ (the same, pretrained with the heuristic); partly supervised ps-nogs (by
    near-optimal sequences), ps-hgs (hand-crafted ones), ps-h1 and ps-h5 (the heuristic's); random and centre-out
    locations, which are not learned."""
    attribute: tuple[str, ...] = ()
    """For tasks with attributes: one or more of them, or all."""
    sequences: OptionalFolder = None
    """Folder of glimpse sequences, as nogs sequences import makes it; ps-nogs needs it."""
    heuristic: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Map of the heuristic, as nogs sequences heuristic makes it; ps-h1 and ps-h5 need it, and where there is a
    pretraining all but ram and random."""
    seeds: tuple[int, ...] = ()
    """One or more seeds, a network each; by default the recipe's."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def train(argv: list[str]) -> None:
    """Train networks and print how fast they learned and how well they do."""
    args, recipe = parse_with_recipe(
        TrainArgs,
        argv,
        prog="nogs train",
        description="Train hard-attention networks; every method, attribute and seed is a network of its own, "
        "and all of them train side by side.",
    )
    from nogs.attention.training import train as train_networks
    from nogs.cli.data import begin_run
    from nogs.posterior.imagenet import find_weights
    from nogs.runtime.device import pick_device

    if not args.method:
        raise InputError(f"--method needs at least one of {', '.join(get_args(Method))}.")
    if any(seed < 0 for seed in args.seeds):
        raise InputError(f"--seeds must not be negative, but are {', '.join(map(str, args.seeds))}.")
    pick_device(args.device)
    check_recipe(recipe, run=args.out)
    task = args.load(recipe)
    networks = members(args, recipe, task)
    begin_run(task, recipe=recipe, run=args.out)
    folders = train_networks(
        task,
        networks,
        config=recipe.attention,
        glimpses=recipe.glimpses,
        folder=args.out / "attention",
        device=args.device,
        weights=find_weights(recipe.attention.weights, args.data, network=recipe.attention.embedder_network),
    )
    print(table(folders))
    print(f"\nnetworks, curves and locations: {args.out / 'attention'}")


def check_recipe(recipe: Recipe, *, run: Path) -> None:
    """Refuse a run's folder whose networks were begun with another recipe; the first field that differs is named."""
    from nogs.attention.trainer import ELSEWHERE
    from nogs.recipes import recipe as read_recipe

    path = run / "recipe.yaml"
    if not path.exists():
        return
    before, now = dotted(read_recipe(str(path)).model_dump()), dotted(recipe.model_dump())
    for name in before:
        used = name in ("name", "glimpses") or name.startswith(("data.", "attention."))
        free = {f"attention.{field}" for field in ELSEWHERE}
        if used and before[name] != now[name] and name not in free:
            raise InputError(
                f"{run} was begun with {name} = {before[name]!r}, not {now[name]!r}; choose another --out, or the same "
                "recipe and flags to go on with it."
            )


def members(args: TrainArgs, recipe: Recipe, task: Task) -> list[Member]:
    """The networks that the flags ask for."""
    return make(
        task,
        recipe,
        methods=args.method,
        seeds=args.seeds,
        attributes=args.attribute,
        sequences=args.sequences,
        heuristic=args.heuristic,
    )


def make(
    task: Task,
    recipe: Recipe,
    *,
    methods: Sequence[str],
    seeds: Sequence[int],
    attributes: Sequence[str],
    sequences: Path | None,
    heuristic: Path | None,
    weights: Sequence[float] = (),
) -> list[Member]:
    """A network for each method, attribute and seed; no seed means the recipe's, `all` every attribute."""
    from nogs.attention.methods import Inputs, make_members

    chosen: Sequence[str | None] = attributes or (None,)
    if tuple(attributes) == ("all",):
        if task.space.kind != "bernoulli":
            raise InputError(f"Task {task.name!r} has one categorical label and no attributes; leave --attribute out.")
        chosen = task.space.names
    return make_members(
        task,
        methods,
        seeds=seeds or (recipe.seed,),
        attributes=chosen,
        config=recipe.attention,
        glimpses=recipe.glimpses,
        inputs=Inputs(sequences=sequences, heuristic=heuristic),
        weights=weights,
        seed=recipe.seed,
    )


def table(folders: list[Path]) -> str:
    """One line a network: iterations to convergence, and test accuracy at the best validation accuracy."""
    names = [folder.as_posix().rpartition("/attention/")[2] for folder in folders]
    width = max(map(len, names)) + 2
    lines = [f"{'network':<{width}}{'converged at':>14}{'accuracy':>10}{'balanced':>10}{'NLL':>8}{'majority':>10}"]
    for name, folder in zip(names, folders):
        found = read_json(folder / "evaluation.json")
        test = found["best"]["accuracy"]["test"]
        converged = found["convergence"]["iterations"]
        lines.append(
            f"{name:<{width}}{'-' if converged is None else f'{converged:,}':>14}{test['accuracy']:>10.1%}"
            f"{test['balanced_accuracy']:>10.1%}{test['nll']:>8.3f}{found['majority_class_accuracy']:>10.1%}"
        )
        if test["warning"]:
            lines.append(f"  warning: {test['warning']}")
    return "\n".join(lines)
