"""`nogs annotate`: near-optimal glimpse sequences for the images of a recipe."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro

from nogs.cli.args import Attributes, NameOrFile, OptionalFolder, OptionalPath, Rare, StageArgs
from nogs.cli.flags import parse_with_recipe


class AnnotateArgs(StageArgs):
    """Arguments of `nogs annotate`."""

    fields_shown = ("glimpses", "data.annotated", "completion.kind", "completion.kept", "design.search")
    attribute: Attributes = ()
    bank: OptionalFolder = None
    """Folder of a bank or of its run; by default RUN/bank."""
    posterior: NameOrFile = None
    """A published posterior, or a file; by default the run's, else the recipe's published one."""
    split: Literal["annotate", "test"] = "annotate"
    """test: search on test images, to score the search itself, into RUN/sequences-test."""
    subset: Annotated[str | None, tyro.conf.arg(metavar="FROM:TO[:STEP]")] = None
    """Which of these images, counted from 0, or ids with commas between; by default all."""
    unchecked: Annotated[bool, Rare] = False
    """Take any image, and a posterior and bank made with other splits: they must not have seen these images."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster that is running."""
    workers: int | None = None
    """local: processes; by default one a GPU or a core."""
    address: Annotated[str, Rare] = "auto"
    """ray: the cluster's address, as HOST:PORT; auto finds the one that this machine is part of."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """hmc: the file of the bank's generator, where it was not trained with the bank."""


def annotate(argv: list[str]) -> None:
    """Annotate images, and say where the sequences are."""
    args, recipe = parse_with_recipe(
        AnnotateArgs,
        argv,
        prog="nogs annotate",
        description="Find for each image, glimpse after glimpse, the location that is expected to leave the label "
        "least uncertain (algorithm 1). On one kind of device the bytes are the same, whatever the workers and "
        "restarts.",
    )
    from nogs.runtime.files import read_json
    from nogs.stages import sequences

    for folder in sequences.annotate(args.experiment(recipe)):
        done = read_json(folder / "done.json")
        print(
            f"{folder}: {done['images']:,} sequences of {recipe.glimpses} glimpses, {done['evaluations']:,} "
            f"evaluations in {done['seconds']:.0f} s"
        )
