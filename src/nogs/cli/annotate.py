"""`nogs annotate`: near-optimal glimpse sequences for the images of a recipe."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.flags import OptionalFolder, TaskArgs, find_source, parse_with_recipe
from nogs.runtime.errors import InputError

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.runtime.executors import LocalExecutor
    from nogs.runtime.ray import RayExecutor


@dataclass(frozen=True)
class AnnotateArgs(TaskArgs):
    """Arguments of `nogs annotate`."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; the result goes to RUN/sequences[/ATTRIBUTE], and work that was stopped goes on."""
    attribute: tuple[str, ...] = ()
    """For tasks with attributes: one or more of them, or all; each has its own sequences."""
    bank: OptionalFolder = None
    """Folder of the image bank, or the run that holds it; by default RUN/bank."""
    posterior: Annotated[str | None, tyro.conf.arg(metavar="NAME_OR_FILE")] = None
    """A published posterior, or a posterior's file; by default RUN/posterior/posterior.safetensors,
    and where there is none the recipe's published one."""
    images: Annotated[str | None, tyro.conf.arg(metavar="RANGE")] = None
    """Which of the images to annotate, as FROM:TO counted from 0, or ids with commas between; by default all."""
    unchecked: bool = False
    """Take any image, and a posterior and bank made with other splits: they must not have seen these images."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster that is running."""
    workers: int | None = None
    """local: how many processes; by default one a GPU, or one a core where there is none."""
    address: str = "auto"
    """ray: the cluster's address, as HOST:PORT; auto finds the one that this machine is part of."""
    source: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The generator's file or folder, for a bank that keeps only numbers."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def annotate(argv: list[str]) -> None:
    """Annotate images and print what is left unknown after each glimpse."""
    args, recipe = parse_with_recipe(
        AnnotateArgs,
        argv,
        prog="nogs annotate",
        description="Find, for each image and one glimpse after the other, the location that is expected to leave the "
        "label least uncertain (algorithm 1). The same recipe and inputs give the same bytes on one kind of device, "
        "whatever the number of workers and however often it was stopped.",
    )
    from nogs import __version__
    from nogs.cli.data import begin_run
    from nogs.cli.train import check_recipe
    from nogs.design.annotation import annotate as annotate_task
    from nogs.design.annotation import close_tools
    from nogs.design.confidence import sentence
    from nogs.design.sharing import share
    from nogs.design.tools import bank_folder, check_leaks, check_sources, unseen
    from nogs.posterior.store import find_posterior, identity, load_posterior
    from nogs.runtime.executors import LocalExecutor
    from nogs.runtime.files import read_json
    from nogs.runtime.fingerprint import file_digest, fingerprint

    check_recipe(recipe, run=args.out)
    task = args.load(recipe)
    ids = chosen_images(args.images, task)
    attributes = chosen_attributes(args.attribute, task)
    source = find_source(recipe, task, given=args.posterior, run=args.out, flag="--posterior")
    if source is None:
        raise InputError(f"{args.out} holds no posterior; train one with nogs posterior train, or give --posterior.")
    opened = load_posterior(source, task=task)  # one of another task is refused here, before anything is written
    if opened.glimpses < recipe.glimpses:
        raise InputError(
            f"The posterior {source} was trained for up to {opened.glimpses} glimpses, not {recipe.glimpses}; train "
            f"one with --glimpses {recipe.glimpses}, or give another --posterior."
        )
    bank = bank_folder(args.bank or args.out)
    check_sources(opened, bank=bank)
    if not args.unchecked:
        unseen(task, ids)
        check_leaks(task, posterior=source, bank=bank)
    executor, device = make_executor(args)
    about_bank, digest = read_json(bank / "done.json"), file_digest(find_posterior(source))
    tools = recipe.tools(
        task,
        posterior=source,
        bank=bank,
        device=args.device if args.executor == "local" else device,
        data=args.data,
        cache=args.cache,
        source=args.source,
        skip_corrupt=args.skip_corrupt,
    )
    provenance = {
        "posterior": find_posterior(source).stem,
        "posterior_digest": digest,
        "posterior_identity": identity(source),
        "bank": about_bank["fingerprint"],
        "completion": recipe.completion.model_dump(mode="json"),
        "design": recipe.design.model_dump(mode="json"),
        "seed": recipe.seed,
        "nogs": __version__,
    }
    folders = {attribute: args.out / "sequences" / (attribute or "") for attribute in attributes}
    job = partial(
        annotate_task,
        task,
        ids,
        marks=(digest, about_bank["fingerprint"], fingerprint(recipe.completion), recipe.posterior.precision),
        config=recipe.design,
        glimpses=recipe.glimpses,
        seed=recipe.seed,
        executor=executor,
        provenance=provenance,
        device=device,
    )
    for attribute, folder in folders.items():
        job(folder=folder, attribute=attribute, open_tools=tools, check=True)
    begin_run(task, recipe=recipe, run=args.out)
    opener = tools if isinstance(executor, LocalExecutor) else share(tools, executor)
    for attribute, folder in folders.items():
        sequences = job(folder=folder, attribute=attribute, open_tools=opener)
        done = read_json(folder / "done.json")
        assert sequences is not None
        assert sequences.entropy_before is not None
        left = " ".join(f"{value:.3f}" for value in sequences.entropy_before.mean(0))
        what = f"{attribute}: " if attribute else ""
        print(
            f"{what}{len(sequences):,} sequences of {sequences.length} glimpses, {done['evaluations']:,} evaluations "
            f"in {done['seconds']:.0f} s\nmean entropy before each glimpse (nats): {left}"
        )
        if "posterior_entropy" in done:
            print(sentence(done["posterior_entropy"], generator=about_bank["generator"]))
        print(f"sequences: {folder}")
    close_tools()
    if not isinstance(executor, LocalExecutor):
        executor.close()


def chosen_images(text: str | None, task: Task) -> tuple[str, ...]:
    """The ids that --images means: part of the images to annotate, or ids."""
    every = task.splits["annotate"]
    if not every and text is None:
        raise InputError(f"Task {task.name!r} has no images to annotate; raise data.annotated.")
    if text is None:
        return every
    span = re.fullmatch(r"(\d*):(\d*)", text)
    if span is None:
        ids = tuple(text.split(","))
        task.rows(ids)
        return ids
    start, stop = int(span[1] or 0), int(span[2] or len(every))
    if not start < stop <= len(every):
        raise InputError(
            f"--images {text} does not fit the {len(every):,} images to annotate of task {task.name!r}; choose a range "
            f"in 0:{len(every)}, or another data.annotated."
        )
    return every[start:stop]


def chosen_attributes(names: tuple[str, ...], task: Task) -> tuple[str | None, ...]:
    """The attributes that --attribute means; none for a task with one label."""
    if task.space.kind == "categorical" and not names:
        return (None,)
    if not names:
        raise InputError(
            f"Task {task.name!r} has {len(task.space.names)} attributes; choose some with --attribute, or all of them "
            "with --attribute all."
        )
    if names == ("all",) and task.space.kind == "bernoulli":
        return task.space.names
    for name in names:
        task.attribute(name)
    return names


def make_executor(args: AnnotateArgs) -> tuple[LocalExecutor | RayExecutor, str]:
    """The executor that the flags ask for, and the kind of device that its workers compute on."""
    from nogs.runtime.device import pick_device
    from nogs.runtime.executors import LocalExecutor

    if args.executor == "ray":
        return _on_cluster(args)
    if args.workers is not None and args.workers < 1:
        raise InputError(f"--workers must be at least 1, not {args.workers}.")
    kind = pick_device(args.device).type
    return LocalExecutor(args.workers or _places(kind)), kind


def _on_cluster(args: AnnotateArgs) -> tuple[RayExecutor, str]:
    """This machine may be another kind than the cluster's nodes: what they have counts."""
    from nogs.runtime.ray import RayExecutor

    if args.workers is not None:
        raise InputError("--workers is for --executor local; Ray uses all that its cluster has.")
    if args.device not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device {args.device} can't be had with --executor ray; choose auto, cpu or cuda.")
    executor = RayExecutor(address=args.address)
    kind = "cuda" if args.device == "cuda" or (args.device == "auto" and executor.has_gpus()) else "cpu"
    executor.gpus = 1 if kind == "cuda" else 0
    if not executor.places():
        raise InputError(f"The Ray cluster at {args.address!r} has no node with {executor.wanted}; see ray status.")
    return executor, kind


def _places(device: str) -> int:
    import torch

    if device == "cuda":
        return torch.cuda.device_count()
    cores: Any = getattr(os, "sched_getaffinity", None)
    return len(cores(0)) if cores else os.cpu_count() or 1
