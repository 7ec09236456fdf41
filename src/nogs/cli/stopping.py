"""`nogs stopping`: how sure is sure enough, measured on a run's images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.flags import TaskArgs, parse
from nogs.cli.predict import NetworkArgs
from nogs.runtime.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from nogs.data import Task


@dataclass(frozen=True)
class StoppingArgs(TaskArgs, NetworkArgs):
    """Arguments of `nogs stopping`."""

    split: Literal["validation", "test", "train"] = "test"
    """Images to look at: choose a threshold on validation, report it on test."""
    trajectories: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Sampled glimpse sequences per image."""


def stopping(argv: list[str]) -> None:
    """Print and write accuracy against glimpses of one network."""
    args = parse(
        StoppingArgs,
        argv,
        prog="nogs stopping",
        description="Accuracy after each glimpse, and when a confidence ends the look early. Writes "
        "accuracy-by-glimpses.json (or -SPLIT.json) beside the network.",
    )
    from nogs.model.finding import find
    from nogs.model.loading import load_found
    from nogs.model.stopping import accuracy_by_glimpses, write_accuracy_by_glimpses

    if args.trajectories < 1:
        raise InputError(f"--trajectories must be at least 1, not {args.trajectories}.")
    found = find(args.run, network=args.network, best=args.best)
    model = load_found(found)
    task = run_task(args.run, args)
    curves = accuracy_by_glimpses(
        model.networks, dict(model.about), task, split=args.split, trajectories=args.trajectories
    )
    print(f"{model.why}; {curves['images']:,} {args.split} images\n\n{table(curves)}")
    print(f"\ncurves: {write_accuracy_by_glimpses(found.path, curves)}")


def run_task(run: str, args: TaskArgs) -> Task:
    """A run's own task, with the splits that it was trained on."""
    from pathlib import Path

    from nogs.data import read_splits
    from nogs.recipes import recipe

    folder: Path = Path(run)
    if not (folder / "recipe.yaml").exists():
        raise InputError(f"{folder} has no recipe.yaml, so its images can't be found; give the run's own folder.")
    # the run's own splits: drawn again from a folder that has changed, they would test on training images
    return read_splits(args.load(recipe(str(folder / "recipe.yaml"))), folder / "data")


def table(curves: dict[str, Any]) -> str:
    """Accuracy by number of glimpses and by threshold, both policies beside each other."""
    argmax, sample = curves["policies"]["argmax"], curves["policies"]["sample"]
    lines = [f"{'stop after':<16}{'argmax':>10}{'sample':>10}"]
    for t in curves["glimpses"]:
        name = f"{t} glimpse{'' if t == 1 else 's'}"
        lines.append(f"{name:<16}{argmax['accuracy'][t - 1]:>10.1%}{sample['accuracy'][t - 1]:>10.1%}")
    lines.append(f"\n{'stop when sure':<16}{'argmax':>10}{'glimpses':>10}{'sample':>10}{'glimpses':>10}")
    for left, right in zip(argmax["stopping"], sample["stopping"]):
        shown = "".join(f"{part['accuracy']:>10.1%}{part['mean_glimpses']:>10.2f}" for part in (left, right))
        lines.append(f"{left['stop_at']:<16}{shown}")
    return "\n".join(lines)
