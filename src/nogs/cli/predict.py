"""`nogs predict`: classify pictures with a trained network."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.args import NetworkArgs
from nogs.cli.flags import parse
from nogs.cli.lines import json_line
from nogs.cli.run import check_writable
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes
from nogs.runtime.progress import working

if TYPE_CHECKING:
    from nogs.model.answers import Answer
    from nogs.model.attributes import Answers
    from nogs.model.folders import Asked

_DRAWN = 40
"""Most tiles that --picture draws: evenly chosen pictures, each with a tile for every attribute."""


class PredictArgs(NetworkArgs):
    """Arguments of `nogs predict`."""

    images: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="PICTURE_OR_FOLDER")] = ()
    """Picture files, or folders of them; for folders named like classes the accuracy is printed too."""
    as_json: bool = False
    """Print one JSON object per picture instead of text."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also draw the glimpses, numbered in order, into this PNG file."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write a row for each picture into this CSV file."""
    policy: Literal["sample", "argmax"] | None = None
    """Sample each location, or take the most probable one; by default as the network was validated."""
    looks: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Average this many sampled looks: slower, reads more, and is more often right."""
    stop_at: Annotated[float | None, tyro.conf.arg(metavar="P")] = None
    """Stop looking once a label has this probability, such as 0.95; by default all glimpses are taken."""
    seed: int = 0
    """Seed of the policy sample: the same seed draws the same locations for the same picture."""


def predict(argv: list[str]) -> None:
    """Print a network's answers for pictures, with the glimpses."""
    args = parse(
        PredictArgs,
        argv,
        prog="nogs predict",
        description="Classify pictures. Prints for each picture the label, its probability, the glimpses taken and "
        "the share of the pixels read; for folders named like classes also the accuracy. A network of several "
        "attributes prints those that are present; --json, --csv and --picture have all.",
    )
    if not args.images:
        raise InputError("nogs predict needs pictures after the run: nogs predict RUN PICTURE_OR_FOLDER ...")
    for flag, path, ending in (("--picture", args.picture, ".png"), ("--csv", args.csv, ".csv")):
        if path is not None and path.suffix.lower() != ending:
            raise InputError(
                f"{flag} writes {ending[1:].upper()} files, so its name must end in {ending}, not {path.name!r}."
            )
        if path is not None:
            check_writable(path.parent, flag=flag)
    if args.stop_at is not None and not 0 < args.stop_at <= 1:
        raise InputError(f"--stop-at must lie above 0 and be at most 1, such as 0.95, not {args.stop_at:g}.")
    with working("Starting"):
        from nogs.model.attributes import Attributes
        from nogs.model.folders import pictures, summary, write_csv
        from nogs.model.loading import load

        model = load(args.run, network=args.network, attribute=args.attribute, best=args.best)
    print(f"Network: {model.why}.", file=sys.stderr)
    asked = pictures(args.images, labels=model.labels, run=Path(args.run))
    most = max(1, _DRAWN // len(model)) if isinstance(model, Attributes) else _DRAWN
    number = min(most, len(asked)) if args.picture is not None else 0
    drawn = {n * len(asked) // number for n in range(number)}
    known: list[Asked] = []
    rows: list[tuple[Asked, Answer]] = []
    answers, images, problems = [], {}, []
    try:
        # no bar on a terminal: it would mix with the answers, which show progress themselves
        with nullcontext() if sys.stdout.isatty() else working(f"looking at {len(asked):,} pictures"):
            for one in asked:
                try:
                    picture = model.picture(one.path)
                except InputError as error:
                    problems.append(str(error))
                    continue
                answer = model.classify_picture(
                    picture, policy=args.policy, looks=args.looks, stop_at=args.stop_at, seed=args.seed
                )
                if len(known) in drawn:
                    images[len(known)] = picture.pixels
                known.append(one)
                each = answer if isinstance(answer, dict) else {"": answer}
                light = {name: replace(said, picture=None) for name, said in each.items()}
                answers.append(light if isinstance(answer, dict) else light[""])
                rows += [(one, said) for said in light.values()]
                _print(one, answer, model.name, as_json=args.as_json)
    finally:  # also of an interrupted command
        if args.csv is not None and (rows or problems):
            write_csv(args.csv, rows)
            done = len(known) + len(problems)
            part = f", for the first {done:,} of {len(asked):,} pictures" if done < len(asked) else ""
            print(f"Answers written: {args.csv}{part}", file=sys.stderr)
    for line in summary(rows):
        print(line, file=sys.stderr if args.as_json else sys.stdout)
    if images and args.picture is not None:
        from nogs.model.drawing import attributes_sheet, glimpses_sheet

        names = [Path(*known[n].path.parts[-2:]).as_posix() for n in images]
        draw: Any = attributes_sheet if isinstance(model, Attributes) else glimpses_sheet
        sheet = draw(list(images.values()), [answers[n] for n in images], grid=model.grid, names=names)
        write_bytes(args.picture, sheet)
        some, tiles = "", "tiles, one for each attribute" if isinstance(model, Attributes) else "tiles"
        if len(images) < len(known):
            some = f", of {len(images)} of the {len(known):,} pictures, evenly chosen: it has at most {_DRAWN} {tiles}"
        print(f"Glimpses drawn: {args.picture}{some}", file=sys.stderr)
    for problem in problems[:-1]:
        print(f"nogs: error: {problem}", file=sys.stderr)
    if problems:
        raise InputError(problems[-1])


def _print(one: Asked, answer: Answer | Answers, network: str, *, as_json: bool) -> None:
    """Print one answer on its line."""
    true = {} if one.true is None else {"true": one.true}
    if isinstance(answer, dict):
        each = {name: said.to_json() for name, said in answer.items()}
        line = {"image": one.path, "network": network, "attributes": each}
        text = json_line(line) if as_json else f"{one.path}: {_told_of_all(answer)}"
    elif as_json:
        text = json_line({"image": one.path, "network": network, **answer.to_json(), **true})
    else:
        right = "" if one.true is None else "; right" if one.true == answer.label else f"; wrong, it is {one.true}"
        text = f"{one.path}: {told(answer)}{right}"
    print(text)


def _told_of_all(answers: Answers) -> str:
    """The attributes that are present, in one line."""
    first = next(iter(answers.values()))
    present = ", ".join(f"{name} {share:.1%}" for name, share in answers.present.items()) or "none"
    notes = f" [{'; '.join(first.notes)}]" if first.notes else ""
    glimpses = f"{len(answers)} attributes, {len(first.locations)} glimpses for"
    if all(one.locations == first.locations for one in answers.values()):
        return f"{present}; {glimpses} all, {answers.pixels_read:.1%} of the pixels{notes}"
    each = fmean(one.pixels_read for one in answers.values())
    return (
        f"{present}; {glimpses} each, {each:.1%} of the pixels for one attribute on average, "
        f"{answers.pixels_read:.1%} for all together{notes}"
    )


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
