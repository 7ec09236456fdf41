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
    """test: test images, to score the search itself, into RUN/sequences-test."""
    subset: Annotated[str | None, tyro.conf.arg(metavar="FROM:TO[:STEP]")] = None
    """Range of these images, counted from 0, or ids separated by commas; by default all."""
    unchecked: Annotated[bool, Rare] = False
    """Allow any image, and a posterior and bank made with other splits; these must not have seen the images."""
    executor: Literal["local", "ray"] = "local"
    """Processes on this machine, or a running Ray cluster."""
    workers: int | None = None
    """local: processes; by default one per GPU or core."""
    address: Annotated[str, Rare] = "auto"
    """ray: address of the cluster as HOST:PORT; auto finds the cluster of this machine."""
    generator_path: Annotated[OptionalPath, Rare] = None
    """hmc: file of the bank's generator, unless it was trained with the bank."""


def annotate(argv: list[str]) -> None:
    """Annotate images, and print the folders of the sequences."""
    args, recipe = parse_with_recipe(
        AnnotateArgs,
        argv,
        prog="nogs annotate",
        description="Find a near-optimal glimpse sequence for each image (algorithm 1): each glimpse goes where the "
        "expected posterior entropy is least. On one kind of device, workers and restarts do not change the files.",
    )
    from nogs.runtime.files import read_json
    from nogs.stages import sequences

    for folder in sequences.annotate(args.experiment(recipe)):
        done = read_json(folder / "done.json")
        print(
            f"{folder}: {done['images']:,} sequences of {recipe.glimpses} glimpses, {done['evaluations']:,} "
            f"evaluations in {done['seconds']:.0f} s"
        )
