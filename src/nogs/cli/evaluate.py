"""`nogs evaluate`: what the trained networks of a run do on a split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nogs.cli.flags import TaskArgs, parse
from nogs.runtime.errors import InputError
from nogs.runtime.files import save_array, write_json


@dataclass(frozen=True)
class EvaluateArgs(TaskArgs):
    """Arguments of `nogs evaluate`."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a run that nogs train made."""
    split: Literal["validation", "test", "train"] = "test"
    """Images to look at."""
    best: Literal["accuracy", "balanced_accuracy", "nll"] = "accuracy"
    """Which of the kept networks: the best on the validation images by this measure."""
    trajectories: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Sampled glimpse sequences per image."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def evaluate(argv: list[str]) -> None:
    """Evaluate every network of a run; write its scores and locations beside it."""
    args = parse(
        EvaluateArgs,
        argv,
        prog="nogs evaluate",
        description="Accuracy, NLL and glimpses of a run's networks on a split: sampled, averaged and greedy. Writes "
        "evaluation-SPLIT.json and locations-SPLIT.npy beside each network; --best nll adds -nll to their names.",
    )
    from nogs.attention.cohort import Cohort, Member
    from nogs.attention.evaluation import Evaluator, pixel_locations, summaries
    from nogs.attention.store import check_splits, load_network
    from nogs.data import read_splits
    from nogs.recipes import recipe
    from nogs.runtime.device import pick_device

    if args.trajectories < 1:
        raise InputError(f"--trajectories must be at least 1, not {args.trajectories}.")
    paths = sorted((args.run / "attention").glob(f"**/best-{args.best}.safetensors"))
    if not paths:
        raise InputError(f"{args.run} holds no trained networks; make some with nogs train ... --out {args.run}.")
    device = pick_device(args.device)
    config = recipe(str(args.run / "recipe.yaml"))
    task = args.load(config)
    # the run's own splits: drawn again from a folder that has changed, they would test on training images
    task = read_splits(task, args.run / "data")
    kind = args.split if args.best == "accuracy" else f"{args.split}-{args.best}"
    print(f"{'network':<40}{'accuracy':>10}{'averaged':>10}{'greedy':>10}{'balanced':>10}{'NLL':>8}{'pixels':>8}")
    refused: InputError | None = None
    for path in paths:
        network, about = load_network(path, device=device)
        names = [f"not {about['attribute']}", about["attribute"]] if about["attribute"] else list(task.space.names)
        if network.architecture.grid != task.grid or about["task"] != task.name or about["labels"] != names:
            raise InputError(
                f"{path} was trained on another grid, or other labels, than the data has; give its own data."
            )
        check_splits(about, task.splits)
        member = Member(about["method"], seed=about["seed"], attribute=about["attribute"])
        cohort = Cohort(
            task,
            [member],
            glimpses=network.architecture.glimpses,
            batch=1,
            flip=False,
            device=device,
        )
        sampled = Evaluator(network, cohort, args.split, trajectories=args.trajectories)()
        greedy = Evaluator(network, cohort, args.split, trajectories=1, greedy=True)()
        scores = summaries(sampled, greedy, task.grid)[0]
        known = {name: about[name] for name in ("task", "labels", "method", "attribute", "seed", "best", "iteration")}
        found = {**known, "split": args.split, "trajectories": args.trajectories, "scores": scores}
        # as the folder says: of one method there may be several weights of supervision
        name = path.parent.relative_to(args.run / "attention").as_posix()
        print(
            f"{name:<40}{scores['accuracy']:>10.1%}{scores['averaged_accuracy']:>10.1%}"
            f"{scores['greedy_accuracy']:>10.1%}{scores['balanced_accuracy']:>10.1%}{scores['nll']:>8.3f}"
            f"{scores['pixels_seen']:>8.1%}"
        )
        if scores["warning"]:
            print(f"  warning: {scores['warning']}")
        try:
            write_json(path.parent / f"evaluation-{kind}.json", found)
            save_array(path.parent / f"locations-{kind}.npy", pixel_locations(sampled, task.grid, 0))
        except InputError as error:  # the numbers of the other networks are still wanted
            refused = refused or error
    if refused:
        raise refused
