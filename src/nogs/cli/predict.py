"""`nogs predict`: ask a trained network about pictures."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from nogs.cli.args import NetworkArgs
from nogs.cli.flags import parse
from nogs.runtime.errors import InputError
from nogs.runtime.files import plain, write_bytes

if TYPE_CHECKING:
    from nogs.model.classifier import Answer


class PredictArgs(NetworkArgs):
    """Arguments of `nogs predict`."""

    images: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="IMAGE")] = ()
    """One or more picture files."""
    as_json: bool = False
    """Print one JSON object a picture instead of text."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also draw the glimpses, numbered in order, into this PNG file."""
    policy: Literal["sample", "argmax"] = "sample"
    """Draw each location by its probability, as in training and validation, or take the most probable one."""
    looks: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Average this many sampled looks: slower, reads more, and is more often right."""
    stop_at: Annotated[float | None, tyro.conf.arg(metavar="P")] = None
    """Stop looking once a label has this probability, such as 0.95; by default all glimpses are taken."""
    seed: int = 0
    """Of the policy sample: the same seed draws the same locations."""


def predict(argv: list[str]) -> None:
    """Print what a network says about pictures, and from which glimpses."""
    args = parse(
        PredictArgs,
        argv,
        prog="nogs predict",
        description="Label, probability, glimpses taken and share of the pixels read, for each picture.",
    )
    if not args.images:
        raise InputError("nogs predict needs pictures after the run: nogs predict RUN IMAGE ...")
    if args.picture is not None and args.picture.suffix.lower() != ".png":
        raise InputError(f"--picture writes PNG files, so its name must end in .png, not {args.picture.name!r}.")
    from nogs.model.loading import load

    model = load(args.run, network=args.network, best=args.best)
    print(f"Network: {model.why}.", file=sys.stderr)
    images, answers, names, problems = [], [], [], []
    for path in args.images:
        try:
            picture = model.picture(path)
        except InputError as error:
            folder = f"{path} is a folder, not a picture; give the pictures in it, such as {path / '*.png'}."
            problems.append(folder if os.path.isdir(path) else str(error))
            continue
        answer = model.classify_picture(
            picture, policy=args.policy, looks=args.looks, stop_at=args.stop_at, seed=args.seed
        )
        if args.as_json:
            print(json.dumps({"image": path, "network": model.name, **answer.to_json()}, default=plain))
        else:
            print(f"{path}: {told(answer)}")
        images.append(picture.pixels)
        answers.append(answer)
        names.append(Path(*path.parts[-2:]).as_posix())
    if args.picture is not None and images:
        from nogs.model.drawing import glimpses_sheet

        write_bytes(args.picture, glimpses_sheet(images, answers, grid=model.grid, names=names))
        print(f"Glimpses drawn: {args.picture}", file=sys.stderr)
    for problem in problems[:-1]:
        print(f"nogs: error: {problem}", file=sys.stderr)
    if problems:
        raise InputError(problems[-1])


def told(answer: Answer) -> str:
    """An answer in one line."""
    glimpses = f"{len(answer.locations)} glimpse{'' if len(answer.locations) == 1 else 's'}"
    early = " (stopped early)" if answer.stopped_early else ""
    pixels = " ".join(f"({row}, {column})" for row, column in answer.locations)
    notes = f" [{'; '.join(answer.notes)}]" if answer.notes else ""
    return (
        f"{answer.label}, {answer.probability:.1%}, {glimpses}{early} at {pixels}, {answer.pixels_read:.1%} of the "
        f"pixels{notes}"
    )
