"""`nogs sequences heuristic | fixed | handcrafted`: sequences that need no search for each image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from nogs.cli.args import Attributes, Device, Folder, NameOrFile, OptionalFolder, Overwrite, TaskArgs
from nogs.cli.flags import parse_with_recipe
from nogs.runtime.errors import InputError


class HeuristicArgs(TaskArgs):
    """Arguments of `nogs sequences heuristic`."""

    out: Folder
    """Folder for the map (heuristic.safetensors, .json, .png) and the sequences of each kind."""
    posterior: NameOrFile = None
    """A published posterior, or a posterior's file, to make the map with; by default the recipe's published one."""
    bank: OptionalFolder = None
    """Bank to average over: its folder, or the run that holds it; by default the validation images are used."""
    heuristic: Annotated[Path | None, tyro.conf.arg(metavar="DIR_OR_FILE")] = None
    """Read the map from here instead of making one: a folder of this command, first.safetensors of nogs annotate, or
    an .npy file of entropies in nats."""
    kind: tuple[Literal["h1", "h5"], ...] = ("h1", "h5")
    """Sequences to write: h1 with 1/gamma = 1, h5 with 5, or none."""
    attribute: Attributes = ()
    overwrite: Overwrite = False
    device: Device = "auto"


class FixedArgs(TaskArgs):
    """Arguments of `nogs sequences fixed`."""

    out: Folder
    """Folder for the sequences; with attributes, it gets a folder for each."""
    posterior: NameOrFile = None
    """A published posterior, or a posterior's file, that selects the order; by default the recipe's published one."""
    attribute: Attributes = ()
    overwrite: Overwrite = False
    device: Device = "auto"


class HandcraftedArgs(TaskArgs):
    """Arguments of `nogs sequences handcrafted`."""

    out: Folder
    """Folder for the sequences."""
    overwrite: Overwrite = False


def heuristic(argv: list[str]) -> None:
    """Write the heuristic's map, a picture of it, and its sequences."""
    args, recipe = parse_with_recipe(
        HeuristicArgs,
        argv,
        prog="nogs sequences heuristic",
        description="Compute the paper's heuristic (Eq. 17), a map of saliency: the expected posterior entropy after a "
        "single glimpse at each location. Draw a sequence of locations from it for each image to annotate.",
    )
    from nogs.attention.methods import of_heuristic
    from nogs.sequences import save
    from nogs.sequences.store import MANIFEST
    from nogs.stages import Experiment
    from nogs.stages.heuristic import draw, make_map
    from nogs.stages.posterior import find
    from nogs.supervision import load_heuristic, save_heuristic

    if args.heuristic is not None and (args.posterior is not None or args.bank is not None):
        raise InputError("--heuristic reads an existing map; leave --posterior and --bank out.")
    experiment = Experiment(recipe, args.out, args.settings())
    task, attributes, ids = experiment.task, experiment.attributes, experiment.task.splits["annotate"]
    if args.kind and not ids:
        raise InputError(f"Task {task.title!r} has no images to annotate; raise data.annotated.")
    if args.heuristic is not None:
        found = load_heuristic(args.heuristic, task=task)
    else:
        found = make_map(experiment, posterior=find(experiment), bank=args.bank)
    made = {
        args.out / kind / (attribute or ""): of_heuristic(
            f"ps-{kind}", found, task, ids, attribute=attribute, glimpses=recipe.glimpses, seed=recipe.seed
        )
        for attribute in attributes
        for kind in args.kind
    }
    for folder, sequences in made.items():
        if (folder / MANIFEST).exists() and not args.overwrite:
            save(sequences, folder)  # refuses a folder of other sequences, and rewrites nothing if they are the same
    print(f"map: {save_heuristic(found, args.out, task=task)}")
    for attribute in attributes:
        draw(found, task, attribute, folder=args.out)
    for folder, sequences in made.items():
        save(sequences, folder, overwrite=args.overwrite)
        print(f"{folder}: {len(sequences):,} sequences of {sequences.length} glimpses")


def fixed(argv: list[str]) -> None:
    """Write one fixed order of locations as sequences."""
    args, recipe = parse_with_recipe(
        FixedArgs,
        argv,
        prog="nogs sequences fixed",
        description="Select one order of locations for all images to annotate. Each step greedily takes the location "
        "with the least mean cross-entropy of the label, over images that the posterior was not trained on. Needs no "
        "bank.",
    )
    from nogs.sequences import save
    from nogs.stages import Experiment
    from nogs.stages.fixed import fixed_sequences

    for attribute, sequences in fixed_sequences(Experiment(recipe, args.out, args.settings())).items():
        folder = args.out / (attribute or "")
        save(sequences, folder, overwrite=args.overwrite)
        left = " ".join(f"{nats:z.3f}" for nats in sequences.provenance["cross_entropy"])
        print(
            f"{folder}: {len(sequences):,} sequences of {sequences.length} glimpses; cross-entropy (nats) after each: "
            f"{left}"
        )


def handcrafted(argv: list[str]) -> None:
    """Write hand-crafted sequences."""
    args, recipe = parse_with_recipe(
        HandcraftedArgs,
        argv,
        prog="nogs sequences handcrafted",
        description="Make hand-crafted glimpse sequences for the images to annotate, from CUB's part labels: beak, eye "
        "(the left one if visible), forehead, belly, feet (the left leg if visible). A random visible part replaces a "
        "hidden one.",
    )
    from nogs.sequences import save
    from nogs.stages.settings import load
    from nogs.supervision import handcrafted as by_hand

    task = load(recipe, args.settings())
    sequences = by_hand(task, task.splits["annotate"], glimpses=recipe.glimpses, seed=recipe.seed)
    save(sequences, args.out, overwrite=args.overwrite)
    print(f"{args.out}: {len(sequences):,} sequences of {sequences.length} glimpses")
