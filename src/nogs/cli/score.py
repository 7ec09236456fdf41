"""`nogs sequences score`: score sequences and baselines with a posterior, glimpse by glimpse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nogs.cli.args import AsJson, Device, TaskArgs
from nogs.cli.flags import parse_with_recipe, show
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_json


class ScoreArgs(TaskArgs):
    """Arguments of `nogs sequences score`."""

    sequences: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]DIR")]
    """One or more folders of sequences. Without --elsewhere test or validation they are scored on the images that have
    a sequence in every folder."""
    judge: Annotated[str, tyro.conf.arg(metavar="NAME_OR_FILE")]
    """Posterior that scores the sequences: a published name or a file, not the one that made them, nor a copy of it."""
    attribute: str | None = None
    """The attribute, for a task with attributes."""
    elsewhere: Literal["test", "validation", "swapped"] | None = None
    """Score on images that the sequences were not made for. test, validation: all images of the split, along sequences
    drawn from a folder. swapped: the same images as without this flag, along sequences of other images."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all numbers and intervals to this JSON file."""
    own: bool = False
    """Allow the posterior that made the sequences to score them."""
    draws: int = 20
    """Sequences per image to average over: of random locations, and with --elsewhere of each folder."""
    as_json: AsJson = False
    device: Device = "auto"


def score(argv: list[str]) -> None:
    """Score sequences and print the table."""
    args, recipe = parse_with_recipe(
        ScoreArgs,
        argv,
        prog="nogs sequences score",
        description="Score glimpse sequences with a posterior that did not make them. Prints its entropy, the "
        "cross-entropy of the true label (nats) and its accuracy after each glimpse, with 95 % intervals. Baselines "
        "are random locations, centre-out, and the most salient locations first.",
    )
    from nogs.design.scoring import text_table
    from nogs.stages import scoring

    folders = _folders(args.sequences, taken=scoring.BASELINES)
    task, found = scoring.score(
        recipe,
        args.settings(),
        folders,
        judge=args.judge,
        attribute=args.attribute,
        elsewhere=args.elsewhere,
        draws=args.draws,
        own=args.own,
    )
    if args.out is not None:
        write_json(args.out, found)
    about = f", {args.attribute}" * bool(args.attribute) + f" ({args.elsewhere})" * bool(args.elsewhere)
    text = f"{found['images']:,} images of {task.title}{about}\n\n{text_table(found['ways'])}"
    if scoring.SALIENT not in found["ways"]:
        text += (
            "\n\nmost salient first is left out: there is no first.safetensors of nogs annotate beside the sequences"
        )
    show(found["ways"], text, as_json=args.as_json)


def _folders(texts: Sequence[str], *, taken: Sequence[str]) -> dict[str, Path]:
    """The folders by their names: NAME of NAME=DIR, or the folder's own."""
    out: dict[str, Path] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        path = Path(folder if equals else text)
        name = name if equals else path.name
        if name in taken:
            raise InputError(f"{name!r} is the name of a baseline; choose another with --sequences NAME=DIR.")
        if name in out:
            raise InputError(f"Two folders of sequences are called {name!r}; name them with --sequences NAME=DIR.")
        out[name] = path
    return out
