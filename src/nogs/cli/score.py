"""`nogs sequences score`: what a judge knows after each glimpse along sequences, and along plain ways to look."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.args import AsJson, Device, TaskArgs
from nogs.cli.flags import parse_with_recipe, show
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.sequences import Sequences


_PLAIN = ("random", "centre-out", "most salient first")
"""Ways to look that are always beside the given ones, by name."""


class ScoreArgs(TaskArgs):
    """Arguments of `nogs sequences score`."""

    sequences: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]DIR")]
    """One or more folders of sequences; without --elsewhere test or validation they are judged on the images that have
    one in all of them."""
    judge: Annotated[str, tyro.conf.arg(metavar="NAME_OR_FILE")]
    """The posterior that judges: a published one or a file; not the one that made the sequences, nor a copy of it."""
    attribute: str | None = None
    """The attribute, for a task with attributes."""
    elsewhere: Literal["test", "validation", "swapped"] | None = None
    """Follow them on images that they were not made for: on all test or validation images, each along sequences drawn
    from a folder, or swapped: on the same images as without this flag, each along those of others."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all numbers and intervals to this JSON file."""
    own: bool = False
    """Allow the posterior that made the sequences to judge them."""
    draws: int = 20
    """Sequences of random locations, and with --elsewhere of each folder, for each image, whose mean counts."""
    as_json: AsJson = False
    device: Device = "auto"


def score(argv: list[str]) -> None:
    """Judge sequences and print the table."""
    args, recipe = parse_with_recipe(
        ScoreArgs,
        argv,
        prog="nogs sequences score",
        description="Follow glimpse sequences under a posterior that did not make them: its entropy, the cross-entropy "
        "of the true label (nats) and its accuracy after each glimpse, against random locations, from the centre "
        "outwards, and the most salient first; with 95 % intervals.",
    )
    import numpy as np
    import torch

    from nogs.attention.cohort import check_attribute
    from nogs.design.baselines import any_of, centre_out, others, random_locations, salient_first
    from nogs.design.entropies import objective
    from nogs.design.scoring import compare, follow, text_table
    from nogs.posterior.labels import label_table
    from nogs.posterior.store import find_posterior, identity, load_posterior
    from nogs.runtime.device import pick_device, versions
    from nogs.runtime.fingerprint import file_digest
    from nogs.runtime.progress import track
    from nogs.stages.settings import load

    if args.draws < 1:
        raise InputError(f"--draws must be at least 1, not {args.draws}.")
    device = pick_device(args.device)
    task = load(recipe, args.settings())
    check_attribute(task, args.attribute)
    column = None if args.attribute is None else task.attribute(args.attribute)
    judge = load_posterior(args.judge, task=task, device=device, precision=recipe.posterior.precision)
    digest = file_digest(find_posterior(args.judge))
    own = identity(args.judge)
    given = _sequences(args, task)
    for name, (_, sequences) in given.items():
        if not args.own and sequences.provenance.get("posterior_identity") == own:
            raise InputError(
                f"The judge {args.judge} made the sequences {name!r} itself; give another one, or pass --own."
            )
    length = min(sequences.length for _, sequences in given.values())
    ids = _images(args.elsewhere, [sequences for _, sequences in given.values()], task)
    routes = {}
    for name, (_, sequences) in given.items():
        if args.elsewhere is None:
            which = sequences.rows(ids)[None]
        elif args.elsewhere == "swapped":
            which = sequences.rows(ids)[others(ids, draws=args.draws, seed=recipe.seed)]
        else:
            which = any_of(len(sequences), ids, draws=args.draws, seed=recipe.seed).numpy()
        routes[name] = torch.from_numpy(sequences.locations[which, :length])
    pixels_of, number = task.grid.pixels, len(ids)
    salient = _first_map([folder for folder, _ in given.values()], column)
    random, centre, first = _PLAIN
    routes[random] = pixels_of[random_locations(task.grid, ids, glimpses=length, draws=args.draws, seed=recipe.seed)]
    routes[centre] = pixels_of[centre_out(task.grid, glimpses=length)].expand(1, number, -1, -1)
    if salient is not None:
        routes[first] = pixels_of[salient_first(task.grid, salient, glimpses=length)].expand(1, number, -1, -1)
    rows = task.rows(ids)
    images = torch.from_numpy(np.array(task.images[rows])).to(device)
    labels = torch.from_numpy(label_table(task)[rows]).to(device)
    variables = objective(task.space, column)
    total = sum(pixels.shape[0] for pixels in routes.values()) * number * (length + 1)
    with track("judging", total=total, unit="evaluations") as bar:
        judged = {
            name: follow(judge, images, labels, pixels.to(device), variables=variables, advance=bar.advance)
            for name, pixels in routes.items()
        }
    found = compare(judged, seed=recipe.seed)
    if args.out is not None:
        record: dict[str, Any] = {"task": task.name, "attribute": args.attribute, "images": number, "judge": digest}
        record |= {} if args.elsewhere is None else {"elsewhere": args.elsewhere, "draws": args.draws}
        write_json(args.out, {**record, "versions": versions(device), "ways": found})
    about = f", {args.attribute}" * bool(args.attribute) + f" ({args.elsewhere})" * bool(args.elsewhere)
    text = f"{number:,} images of {task.title}{about}\n\n{text_table(found)}"
    if salient is None:
        text += "\n\nmost salient first is left out: no first.safetensors of nogs annotate lies beside these sequences"
    show(found, text, as_json=args.as_json)


def _images(elsewhere: str | None, given: list[Sequences], task: Task) -> list[str]:
    """The images on which they are judged."""
    if elsewhere in ("test", "validation"):
        ids = [task.ids[row] for row in task.rows(elsewhere)]
        if not ids:
            raise InputError(f"Task {task.title!r} has no {elsewhere} images; give another --elsewhere.")
        return ids
    common = [id for id in given[0].ids if all(id in sequences.position for sequences in given)]
    if not common:
        raise InputError(
            "No image has a sequence in all of the folders; score each folder alone, or all with --elsewhere test."
        )
    if elsewhere == "swapped" and len(common) == 1:
        raise InputError("Only one image has a sequence, so there is nothing to swap; leave --elsewhere out.")
    return common


def _sequences(args: ScoreArgs, task: Task) -> dict[str, tuple[Path, Sequences]]:
    from nogs.sequences import load_for

    out: dict[str, tuple[Path, Sequences]] = {}
    for text in args.sequences:
        name, equals, folder = text.partition("=")
        path = Path(folder if equals else text)
        name = name if equals else path.name
        if name in _PLAIN:
            raise InputError(f"{name!r} is the name of a plain way to look; give another one, --sequences NAME=DIR.")
        if name in out:
            raise InputError(f"Two folders of sequences are called {name!r}; name them with --sequences NAME=DIR.")
        out[name] = path, load_for(path, task=task, attribute=args.attribute, held_out=True)
    return out


def _first_map(folders: list[Path], column: int | None) -> Any:
    """The map of the first step that `nogs annotate` left beside one of the folders."""
    from nogs.design.blocks import FIRST, first_map

    for folder in folders:
        for path in (folder / FIRST, folder.parent / FIRST):
            if path.is_file():
                return first_map(path, column)
    return None
