"""`nogs evaluate`: scores of a run's trained networks on a split, also after fewer glimpses."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any, Literal

import tyro

from nogs.cli.args import Best, Device, RunFolder, TaskArgs
from nogs.cli.flags import parse
from nogs.cli.lines import json_line
from nogs.runtime.errors import InputError
from nogs.runtime.files import save_array, write_json
from nogs.runtime.spelling import instead, instead_of_run, without_networks

_COLUMNS = ("accuracy", "averaged_accuracy", "greedy_accuracy", "balanced_accuracy", "nll", "pixels_seen")
_HEAD = f"{'network':<40}{'accuracy':>10}{'averaged':>10}{'greedy':>10}{'balanced':>10}{'NLL':>8}{'pixels':>8}"
_LEGEND = (
    "accuracy: of one look; averaged: of {} looks together; greedy: with the most probable locations; "
    "balanced: mean over the classes; -: nothing is drawn"
)


class EvaluateArgs(TaskArgs):
    """Arguments of `nogs evaluate`."""

    run: RunFolder
    """Folder of a run that nogs train made; or a published name (celeba-hq, cub) or a network's file, for which no
    files are written."""
    network: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Only this network: its name (ram/seed-0) or words of it (Smiling); by default all of them."""
    attribute: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """For a published network or a file with several attributes: only this one; by default all of them."""
    split: Literal["validation", "test", "train"] = "test"
    """Images to evaluate on. Choose a stopping threshold on validation, and report it on test."""
    best: Best = "accuracy"
    trajectories: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Sampled glimpse sequences per image."""
    as_json: bool = False
    """Print all numbers, one JSON object per network."""
    device: Device = "auto"


def evaluate(argv: list[str]) -> None:
    """Evaluate every network of a run; write its scores and locations beside it."""
    args = parse(
        EvaluateArgs,
        argv,
        prog="nogs evaluate",
        description="Evaluate a run's networks on a split: accuracy with sampled, averaged and greedy glimpses, NLL "
        "and pixels seen. For the best or the named network, also print the accuracy after each glimpse and with early "
        "stopping. Writes evaluation-SPLIT.json, locations-SPLIT.npy and accuracy-by-glimpses[-SPLIT].json beside each "
        "network; --best nll adds -nll to their names.",
    )
    from nogs.model.finding import find
    from nogs.model.stopping import write_accuracy_by_glimpses
    from nogs.posterior.store import published
    from nogs.runtime.device import pick_device
    from nogs.stages import evaluation, run_task

    if args.trajectories < 1:
        raise InputError(f"--trajectories must be at least 1, not {args.trajectories}.")
    if str(args.run) in published() or args.run.is_file():
        _evaluate_file(args)
        return
    if not args.run.is_dir():
        meant = instead_of_run(args.run, otherwise="give the folder of a run.")
        raise InputError(f"There is no folder {args.run}; {instead(str(args.run), published(), otherwise=meant)}")
    if args.attribute is not None:
        raise InputError(f"--attribute is for a published network or a file; in {args.run} choose one with --network.")
    paths = sorted((args.run / "attention").glob(f"**/best-{args.best}.safetensors"))
    if not paths:
        raise InputError(without_networks(args.run))
    shown = None
    with contextlib.suppress(InputError) if args.network is None else contextlib.nullcontext():
        shown = find(args.run, network=args.network, best=args.best)  # with several attributes there is no best one
    paths = [shown.path] if args.network is not None and shown is not None else paths
    device, (_, task) = pick_device(args.device), run_task(args.run, args.settings())
    kind = args.split if args.best == "accuracy" else f"{args.split}-{args.best}"
    if not args.as_json:
        print(_HEAD)
    refused, curves = None, ""
    for path in paths:
        ((found, locations, by_glimpses),) = evaluation.evaluate(
            path, task, split=args.split, trajectories=args.trajectories, device=device
        )
        # the folder's name: a method may have several weights of supervision
        name, scores = path.parent.relative_to(args.run / "attention").as_posix(), found["scores"]
        if args.as_json:
            line = {"network": name, **found, "by_glimpses": by_glimpses["policies"]}
            print(json_line(line))
        else:
            print(_line(name, scores, drawn=by_glimpses["own"] == "sample"))
        try:
            write_json(path.parent / f"evaluation-{kind}.json", found)
            save_array(path.parent / f"locations-{kind}.npy", locations)
            if args.best == "accuracy":
                write_accuracy_by_glimpses(path, by_glimpses)
        except InputError as error:  # still evaluate the other networks
            refused = refused or error
        if shown is not None and path == shown.path:
            curves = (
                f"\n\nNetwork: {shown.why}; {by_glimpses['images']:,} {args.split} images\n\n{_curves(by_glimpses)}"
            )
    if not args.as_json:
        print(_LEGEND.format(args.trajectories) + curves)
    if refused:
        raise refused


def _evaluate_file(args: EvaluateArgs) -> None:
    """Evaluate a network outside a run, for each of its attributes; write no files."""
    from nogs.model.finding import find
    from nogs.plus.store import about_network, attributes_of
    from nogs.recipes import recipe
    from nogs.runtime.device import pick_device
    from nogs.stages import evaluation
    from nogs.stages.settings import load

    found, device = find(str(args.run), network=args.network), pick_device(args.device)
    first = args.attribute or next(iter(attributes_of(found.path)), None)
    task = load(recipe(about_network(found.path, attribute=first)["task"]), args.settings())
    every = []
    if not args.as_json:
        print(_HEAD)
    how: dict[str, Any] = {"split": args.split, "trajectories": args.trajectories, "attribute": args.attribute}
    for said, _, by_glimpses in evaluation.evaluate(found.path, task, device=device, **how):
        name = said["attribute"] if first else None
        every.append(said["scores"])
        if args.as_json:
            line = {"network": name or found.name, **said, "by_glimpses": by_glimpses["policies"]}
            print(json_line(line))
        else:
            print(_line(name or found.name, said["scores"], drawn=(drawn := by_glimpses["own"] == "sample")))
    if args.as_json:
        return
    if len(every) > 1:
        mean = {one: sum(scores[one] for scores in every) / len(every) for one in _COLUMNS}
        print(_line(f"mean of {len(every)} attributes", {**mean, "warning": None}, drawn=drawn))
    print(_LEGEND.format(args.trajectories))


def _line(name: str, scores: dict[str, Any], *, drawn: bool) -> str:
    """A row of the table; without locations that are `drawn` there is only one accuracy."""
    warning = f"\n  warning: {scores['warning']}" if scores["warning"] else ""
    averaged, greedy = (f"{scores[f'{kind}_accuracy']:.1%}" if drawn else "-" for kind in ("averaged", "greedy"))
    return (
        f"{name:<40}{scores['accuracy']:>10.1%}{averaged:>10}{greedy:>10}"
        f"{scores['balanced_accuracy']:>10.1%}{scores['nll']:>z8.3f}{scores['pixels_seen']:>8.1%}{warning}"
    )


def _curves(curves: dict[str, Any]) -> str:
    """Accuracy by number of glimpses and by threshold, for both policies, or for the one where they are the same."""
    policies = curves["policies"]
    if policies["argmax"] == policies["sample"]:
        policies = {"accuracy": policies["argmax"]}
    lines = [f"{'stop after':<16}" + "".join(f"{name:>10}" for name in policies)]
    for t in curves["glimpses"]:
        name = f"{t} glimpse{'' if t == 1 else 's'}"
        lines.append(f"{name:<16}" + "".join(f"{policy['accuracy'][t - 1]:>10.1%}" for policy in policies.values()))
    lines.append(f"\n{'stop when sure':<16}" + "".join(f"{name:>10}{'glimpses':>10}" for name in policies))
    for parts in zip(*(policy["stopping"] for policy in policies.values())):
        shown = "".join(f"{part['accuracy']:>10.1%}{part['mean_glimpses']:>10.2f}" for part in parts)
        lines.append(f"{parts[0]['stop_at']:<16}{shown}")
    return "\n".join(lines)
