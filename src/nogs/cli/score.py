"""`nogs sequences score`: what a judge knows after each glimpse along sequences, and along plain ways to look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.flags import TaskArgs, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.sequences import Sequences


@dataclass(frozen=True)
class ScoreArgs(TaskArgs):
    """Arguments of `nogs sequences score`."""

    sequences: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME=]DIR")]
    """One or more folders of sequences; they are judged on the images that have one in all of them."""
    judge: Annotated[str, tyro.conf.arg(metavar="NAME_OR_FILE")]
    """The posterior that judges: a published one or a file; not the one that made the sequences, nor a copy of it."""
    attribute: str | None = None
    """The attribute, for a task with attributes."""
    elsewhere: Literal["annotate", "validation", "test"] | None = None
    """Follow them on all images of this split, each along sequences drawn from a folder whatever image they were made
    for: what their places tell when they are not chosen for the image."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write all numbers and intervals to this JSON file."""
    own: bool = False
    """Allow the posterior that made the sequences to judge them."""
    draws: int = 20
    """Sequences of random locations, and with --elsewhere of each folder, for each image, whose mean counts."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


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

    from nogs.design.baselines import centre_out, drawn_sequences, random_locations, salient_first
    from nogs.design.entropies import objective
    from nogs.design.scoring import compare, follow, text_table
    from nogs.posterior.labels import label_table
    from nogs.posterior.store import find_posterior, identity, load_posterior
    from nogs.runtime.device import pick_device, versions
    from nogs.runtime.fingerprint import file_digest
    from nogs.runtime.progress import track

    device = pick_device(args.device)
    task = args.load(recipe)
    column = _attribute(args.attribute, task)
    judge = load_posterior(args.judge, task=task, device=device, precision=recipe.posterior.precision)
    digest = file_digest(find_posterior(args.judge))
    marks = {"posterior_digest": digest, "posterior_identity": identity(args.judge)}  # older sequences have the first
    given = _sequences(args, task)
    for name, (_, sequences) in given.items():
        if not args.own and any(sequences.provenance.get(field) == mark for field, mark in marks.items()):
            raise InputError(
                f"The judge {args.judge} made the sequences {name!r} itself; give another one, or pass --own."
            )
    common = [id for id in next(iter(given.values()))[1].ids if all(id in s.position for _, s in given.values())]
    if not common:
        raise InputError("No image has a sequence in all of the folders, so they can't be compared.")
    length = min(sequences.length for _, sequences in given.values())
    rows = task.rows(args.elsewhere or common)
    if not len(rows):
        raise InputError(f"The split {args.elsewhere} of {task.name!r} has no images; give another one.")
    ids, which = [task.ids[row] for row in rows], np.arange(len(common))[None]
    if args.elsewhere is not None:
        which = drawn_sequences(ids, of=len(common), draws=args.draws, seed=recipe.seed).numpy()
    routes = {
        name: torch.from_numpy(sequences.locations[sequences.rows(common), :length][which])
        for name, (_, sequences) in given.items()
    }
    places, number = task.grid.pixels, len(ids)
    salient = _first_map([folder for folder, _ in given.values()], column)
    routes["random"] = places[random_locations(task.grid, ids, glimpses=length, draws=args.draws, seed=recipe.seed)]
    routes["centre-out"] = places[centre_out(task.grid, glimpses=length)].expand(1, number, -1, -1)
    if salient is not None:
        routes["most salient first"] = places[salient_first(task.grid, salient, glimpses=length)].expand(
            1, number, -1, -1
        )
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
    print(f"{number:,} images of {task.name}{about}\n")
    print(text_table(found))
    if salient is None:
        print("\nmost salient first is left out: no first.safetensors of nogs annotate lies beside these sequences")


def _attribute(name: str | None, task: Task) -> int | None:
    if name is not None:
        return task.attribute(name)
    if task.space.kind == "bernoulli":
        raise InputError(f"Task {task.name!r} has {len(task.space.names)} attributes; choose one with --attribute.")
    return None


def _sequences(args: ScoreArgs, task: Task) -> dict[str, tuple[Path, Sequences]]:
    from nogs.sequences import load_for

    out: dict[str, tuple[Path, Sequences]] = {}
    for text in args.sequences:
        name, equals, folder = text.partition("=")
        place = Path(folder if equals else text)
        name = name if equals else place.name
        if name in out:
            raise InputError(f"Two folders of sequences are called {name!r}; name them with --sequences NAME=DIR.")
        out[name] = place, load_for(place, task=task, attribute=args.attribute)
    return out


def _first_map(folders: list[Path], column: int | None) -> Any:
    """The map of the first step that `nogs annotate` left beside one of the folders."""
    from nogs.design.annotation import FIRST

    for folder in folders:
        for place in (folder / FIRST, folder.parent / FIRST):
            if place.is_file():
                return load_tensors(place)[0]["estimate"][0 if column is None else column]
    return None
