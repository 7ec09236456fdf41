"""`nogs sequences heuristic | handcrafted`: the supervision of the paper's baselines, written as files."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from nogs.cli.flags import OptionalFolder, TaskArgs, find_source, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes, write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.recipes import Recipe
    from nogs.supervision import Heuristic

NameOrFile = Annotated[str | None, tyro.conf.arg(metavar="NAME_OR_FILE")]


@dataclass(frozen=True)
class HeuristicArgs(TaskArgs):
    """Arguments of `nogs sequences heuristic`."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder for the map (heuristic.safetensors, .json, .png) and the sequences of each kind."""
    posterior: NameOrFile = None
    """A published posterior, or a posterior's file, to make the map with; by default the recipe's published one."""
    bank: OptionalFolder = None
    """Folder of an image bank, or the run that holds one, to average over; without it the validation images are."""
    map: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Take the map from here instead of making one: a folder of this command, first.safetensors of nogs annotate, or
    an .npy file of entropies in nats."""
    kind: tuple[Literal["h1", "h5"], ...] = ("h1", "h5")
    """Sequences to write: h1 with 1/gamma = 1, h5 with 5, or none."""
    attribute: tuple[str, ...] = ()
    """For tasks with attributes: one or more of them, or all; each has its own sequences."""
    source: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The generator's file or folder, for a bank that keeps only numbers."""
    overwrite: bool = False
    """Replace other sequences that lie in OUT already."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


@dataclass(frozen=True)
class HandcraftedArgs(TaskArgs):
    """Arguments of `nogs sequences handcrafted`."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder for the sequences."""
    overwrite: bool = False
    """Replace other sequences that lie in OUT already."""


def heuristic(argv: list[str]) -> None:
    """Write the heuristic's map, a picture of it, and its sequences."""
    args, recipe = parse_with_recipe(
        HeuristicArgs,
        argv,
        prog="nogs sequences heuristic",
        description="The paper's heuristic (Eq. 17): how salient each location is, as the expected posterior entropy "
        "after a single glimpse there, and for each image to annotate a sequence of locations drawn from it.",
    )
    from nogs.attention.methods import of_heuristic
    from nogs.cli.annotate import chosen_attributes
    from nogs.sequences import save
    from nogs.sequences.store import MANIFEST
    from nogs.supervision import load_heuristic, save_heuristic

    if args.map is not None and (args.posterior is not None or args.bank is not None):
        raise InputError("--map is a map that was made before; leave --posterior and --bank out.")
    task = args.load(recipe)
    attributes, ids = chosen_attributes(args.attribute, task), task.splits["annotate"]
    if args.kind and not ids:
        raise InputError(f"Task {task.name!r} has no images to annotate; raise data.annotated.")
    if args.map is not None:
        found = load_heuristic(args.map, task=task)
    else:
        found = make_map(
            task,
            recipe,
            posterior=args.posterior,
            bank=args.bank,
            data=args.data,
            cache=args.cache,
            source=args.source,
            skip_corrupt=args.skip_corrupt,
            device=args.device,
        )
    made = {
        args.out / kind / (attribute or ""): of_heuristic(
            f"ps-{kind}", found, task, ids, attribute=attribute, glimpses=recipe.glimpses, seed=recipe.seed
        )
        for attribute in attributes
        for kind in args.kind
    }
    for folder, sequences in made.items():
        if (folder / MANIFEST).exists() and not args.overwrite:
            save(sequences, folder)  # refuses a folder of others, and writes nothing into one of these
    print(f"map: {save_heuristic(found, args.out, task=task)}")
    for attribute in attributes:
        draw(found, task, attribute, folder=args.out)
    for folder, sequences in made.items():
        save(sequences, folder, overwrite=args.overwrite)
        print(f"{folder}: {len(sequences):,} sequences of {sequences.length} glimpses")


def handcrafted(argv: list[str]) -> None:
    """Write hand-crafted sequences."""
    args, recipe = parse_with_recipe(
        HandcraftedArgs,
        argv,
        prog="nogs sequences handcrafted",
        description="Hand-crafted glimpse sequences for each image to annotate, by CUB's part labels: beak, eye (the "
        "left one if it is visible), forehead, belly, feet (the left leg if visible); a hidden part is replaced by a "
        "visible one at random.",
    )
    from nogs.sequences import save
    from nogs.supervision import handcrafted as by_hand

    task = args.load(recipe)
    sequences = by_hand(task, task.splits["annotate"], glimpses=recipe.glimpses, seed=recipe.seed)
    save(sequences, args.out, overwrite=args.overwrite)
    print(f"{args.out}: {len(sequences):,} sequences of {sequences.length} glimpses")


def make_map(
    task: Task,
    recipe: Recipe,
    *,
    posterior: str | None,
    bank: Path | None = None,
    data: Path | None = None,
    cache: Path | None = None,
    source: Path | None = None,
    skip_corrupt: bool = False,
    device: str = "auto",
) -> Heuristic:
    """The expected posterior entropy of every location with nothing seen; over a bank's images, or over held-out ones.

    The validation images never trained the posterior, and no label is used.
    """
    posterior = find_source(recipe, task, given=posterior, run=None, flag="--posterior")
    if posterior is None:
        raise InputError(
            f"The heuristic needs a posterior: train one with nogs posterior train {recipe.name} --out RUN, and give "
            "--posterior RUN/posterior/posterior.safetensors; or give a map that was made before."
        )
    import numpy as np
    import torch

    from nogs.design.steps import Tools, first_step
    from nogs.design.tools import bank_folder
    from nogs.posterior.store import load_posterior
    from nogs.runtime.device import pick_device
    from nogs.runtime.progress import say
    from nogs.supervision import Heuristic
    from nogs.supervision.heuristic import ImagePrior

    chosen = pick_device(device)
    load_posterior(posterior, task=task)  # one of another task is refused
    provenance = {**made_from(posterior, bank), "seed": recipe.seed}
    if bank is not None:
        tools = recipe.tools(
            task,
            posterior=posterior,
            bank=bank_folder(bank),
            device=device,
            data=data,
            cache=cache,
            source=source,
            skip_corrupt=skip_corrupt,
        )()
    else:
        rows = task.rows("validation")
        provenance["images"] = len(rows)
        prior = ImagePrior(torch.from_numpy(np.array(task.images[rows])).to(chosen), fingerprint=task.fingerprint)
        batch = recipe.design.batch_on(chosen.type)
        opened = load_posterior(posterior, device=chosen, precision=recipe.posterior.precision, chunk=batch)
        tools = Tools(opened, prior, chosen)
    say(f"Expected posterior entropy of {len(task.grid):,} locations over {provenance['over']}.")
    first = first_step(tools, np.array(task.images[0]), config=recipe.design, shown=True)
    return Heuristic(first.map.estimate.double().numpy(), first.map.error.double().numpy(), provenance)


def made_from(posterior: str, bank: Path | None) -> dict[str, str]:
    """What a map's provenance says of the posterior and of the bank that it is made with."""
    from nogs.design.tools import bank_folder
    from nogs.posterior.store import find_posterior
    from nogs.runtime.files import read_json
    from nogs.runtime.fingerprint import file_digest

    digest = {"posterior_digest": file_digest(find_posterior(posterior))}
    if bank is None:
        return {**digest, "over": "validation images"}
    return {**digest, "over": "bank", "bank": read_json(bank_folder(bank) / "done.json")["fingerprint"]}


def draw(found: Heuristic, task: Task, attribute: str | None, *, folder: Path) -> None:
    """Write heuristic[-ATTRIBUTE].png, and .json with the map and what it becomes."""
    import numpy as np

    from nogs.supervision.picture import heuristic_figure

    epe = found.of(task, attribute)
    name = "heuristic" + (f"-{attribute}" if attribute else "")
    picture = io.BytesIO()
    title = task.name + (f", {attribute}" if attribute else "")
    heuristic_figure(epe, task.grid, title=title).savefig(picture, format="png")
    write_bytes(folder / f"{name}.png", picture.getvalue())
    best = int(epe.argmin())
    write_json(
        folder / f"{name}.json",
        {
            "task": task.name,
            "attribute": attribute,
            "most_salient": task.grid.pixels[best].tolist(),
            "epe": epe.reshape(task.grid.shape).round(6).tolist(),
            "largest_error": float(np.nan_to_num(found.error).max()),
            "provenance": dict(found.provenance),
        },
    )
