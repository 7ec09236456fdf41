"""`nogs train`: hard-attention networks of one or several methods, attributes and seeds, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from nogs.cli.args import AsJson, Attributes, NameOrFile, OptionalFolder, StageArgs
from nogs.cli.flags import parse_with_recipe, show
from nogs.runtime.files import read_json


class TrainArgs(StageArgs):
    """Arguments of `nogs train`."""

    fields_shown = ("glimpses", "attention.iterations", "attention.batch", "attention.learning_rate")
    method: tuple[str, ...] = ("ram",)
    """One or more. REINFORCE alone: ram, and ram+ (pretrained with the heuristic). Partly supervised: ps-nogs (by
    near-optimal sequences), ps-hgs (hand-crafted ones), ps-h1 and ps-h5 (the heuristic's). With the posterior as
    classifier: ps-nogs+, and the baselines fixed (one order for all images), centre-out and random."""
    attribute: Attributes = ()
    sequences: OptionalFolder = None
    """Folder of glimpse sequences, which ps-nogs needs; by default RUN/sequences."""
    heuristic: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Map of the heuristic, which ps-h1 and ps-h5 need, and with pretraining every method but ram; by default the one
    in RUN/sequences or RUN/heuristic, made if missing."""
    posterior: NameOrFile = None
    """Posterior that ps-nogs+ and the baselines use as classifier; by default RUN/posterior/posterior.safetensors, or
    the recipe's published one."""
    seeds: tuple[int, ...] = ()
    """Seeds, one network each; by default the recipe's."""
    as_json: AsJson = False


def train(argv: list[str]) -> None:
    """Train networks and print their convergence and test scores."""
    args, recipe = parse_with_recipe(
        TrainArgs,
        argv,
        prog="nogs train",
        description="Train hard-attention networks: one for each method, attribute and seed, all side by side.",
    )
    from nogs.stages import attention

    folders, home = attention.train(args.experiment(recipe)), args.folder / "attention"
    found = {folder.relative_to(home).as_posix(): _row(folder) for folder in folders}
    text = f"{_table(found)}\n\nnetworks, curves and locations: {home}"
    show(found, text, as_json=args.as_json)


def _row(folder: Path) -> dict[str, Any]:
    found = read_json(folder / "evaluation.json")
    test = found["best"]["accuracy"]["test"]
    known = {name: test[name] for name in ("accuracy", "balanced_accuracy", "nll", "warning")}
    rule = found["convergence"]  # None with a posterior as classifier
    return {"converged_at": rule and rule["iterations"], **known, "majority": found["majority_class_accuracy"]}


def _table(rows: dict[str, dict[str, Any]]) -> str:
    """One line per network: iterations to convergence, and test accuracy at the best validation accuracy."""
    width = max(map(len, rows)) + 2
    lines = [f"{'network':<{width}}{'converged at':>14}{'accuracy':>10}{'balanced':>10}{'NLL':>8}{'majority':>10}"]
    for name, row in rows.items():
        converged = row["converged_at"]
        lines.append(
            f"{name:<{width}}{'-' if converged is None else f'{converged:,}':>14}{row['accuracy']:>10.1%}"
            f"{row['balanced_accuracy']:>10.1%}{row['nll']:>z8.3f}{row['majority']:>10.1%}"
        )
        if row["warning"]:
            lines.append(f"  warning: {row['warning']}")
    return "\n".join(lines)
