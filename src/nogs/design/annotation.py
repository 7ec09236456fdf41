"""Annotation: glimpse sequences for many images, in blocks, by any number of workers, resumable at any moment.

A block of images is one piece of work, fixed by the list of images and the recipe alone. Its result is a file in
`blocks/`. Finished blocks are joined in order, so the outcome has the same bytes for any workers and any schedule.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nogs.data.task import Task
from nogs.design.blocks import (
    FIRST,
    MAPS,
    NUMBERS,
    Block,
    blocks,
    read_block,
    read_maps,
    save_maps,
    write_block,
)
from nogs.design.confidence import of_variables
from nogs.design.config import DesignConfig
from nogs.design.entropies import objective
from nogs.design.once import CONFIDENCE, close_tools, confidence_of_task, first_of_task, opened
from nogs.design.steps import First, Tools, annotate_images
from nogs.runtime import progress
from nogs.runtime.device import one_thread
from nogs.runtime.errors import InputError
from nogs.runtime.executors import Executor, LocalExecutor
from nogs.runtime.fields import dotted
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.stage import Stage
from nogs.sequences import Sequences, load, save
from nogs.sequences.store import MANIFEST

__all__ = ["Job", "annotate", "close_tools", "first_of_task"]


@dataclass(frozen=True)
class Job:
    """What all blocks of an annotation share; `open_tools` is called once in each worker."""

    open_tools: Callable[[], Tools]
    config: DesignConfig
    glimpses: int
    seed: int
    attribute: int | None
    first: First
    made_from: str  # fingerprint of what `open_tools` opens, and of the recipe


def annotate(
    task: Task,
    ids: Sequence[str],
    *,
    open_tools: Callable[[], Tools],
    inputs: Sequence[str],
    config: DesignConfig,
    glimpses: int,
    folder: Path,
    attribute: str | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    provenance: dict[str, Any] | None = None,
    device: str = "cpu",
    check: bool = False,
) -> Sequences | None:
    """Sequences of T = `glimpses` locations for the images `ids`, written to `folder`; finished blocks are not redone.

    `inputs` are fingerprints of what `open_tools` opens, and `device` is the kind of device that it opens it on. With
    the recipe's fields and the images they determine the result. A folder that was begun with other ones is refused;
    `check` does no more than this. The first location is computed once for a task, and kept in `first.safetensors`
    beside the attributes' folders.
    """
    ids = tuple(ids)
    if not ids or len(set(ids)) < len(ids):
        raise InputError(f"Give images to annotate, each once, not {len(ids)} ids of {len(set(ids))} images.")
    column = None if attribute is None else task.attribute(attribute)
    made_from = fingerprint("tools", task.fingerprint, inputs, config, seed, device)
    titles = {"completion": "completion", "bank": "digest of the bank", "posterior_digest": "digest of the posterior"}
    made = {titles[name]: value for name, value in (provenance or {}).items() if name in titles}
    chosen = {"images": len(ids), "digest of their ids": fingerprint(ids), "device": device}
    stage = Stage(
        folder,
        name="annotation",
        fingerprint=fingerprint("annotation 1", made_from, glimpses, ids, attribute),
        fields=dotted({"design": config.model_dump(), "glimpses": glimpses, "seed": seed, **made, **chosen}),
    )
    stage.check_folder()
    if check:
        return None
    if stage.done:
        shutil.rmtree(folder / "blocks", ignore_errors=True)
        return load(folder)
    if why := stage.why():
        progress.say(why)
    if not stage.begun:
        if (folder / MANIFEST).exists():
            raise InputError(f"{folder} holds sequences that were not annotated here; choose another folder.")
        stage.begin()
    home = folder.parent if attribute is not None else folder
    with one_thread(device):
        executor = executor or LocalExecutor()
        first = first_of_task(
            task, home / FIRST, open_tools=open_tools, config=config, made_from=made_from, executor=executor
        )
        known = confidence_of_task(
            task,
            home / CONFIDENCE,
            ids,
            open_tools=open_tools,
            glimpses=glimpses,
            seed=seed,
            made_from=made_from,
            executor=executor,
        )
        job = Job(open_tools, config, glimpses, seed, column, first, made_from)
        _work(task, ids, job, folder / "blocks", executor=executor)
    shape, every = (glimpses, len(task.grid)), blocks(ids, config.images)
    found = [read_block(folder / "blocks", block, glimpses=glimpses, locations=len(task.grid)) for block in every]
    sequences = _joined(task, ids, found, attribute=attribute, glimpses=glimpses, provenance=provenance or {})
    if config.keep_maps:
        parts = [
            read_maps(folder / "blocks" / f"{block.number:05}.safetensors", (len(block.ids), *shape)) for block in every
        ]
        save_maps(folder / MAPS, **{name: torch.cat([part[name] for part in parts]) for name in parts[0]})
    save(sequences, folder)
    sure = {**of_variables(known, objective(task.space, column)), **{n: known[n] for n in ("glimpses", "networks")}}
    where = torch.device("cpu") if device == "cpu" else None  # a Ray cluster may have GPUs that are not here
    stage.finish(device=where, **_summary(found, first), posterior_entropy=sure)
    shutil.rmtree(folder / "blocks", ignore_errors=True)
    return sequences


def annotate_block(block: Block, job: Job, *, advance: Callable[[int], object] | None = None) -> dict[str, Any]:
    """The result of one block, in any process: plain numbers, and arrays of maps if they are kept."""
    tools = opened(job.made_from, job.open_tools)
    with one_thread(tools.device.type):
        found = annotate_images(
            tools,
            block.images,
            block.ids,
            first=job.first,
            config=job.config,
            glimpses=job.glimpses,
            attribute=job.attribute,
            seed=job.seed,
            advance=advance,
        )
    out: dict[str, Any] = {"ids": list(block.ids), "locations": found.locations.tolist()}
    out |= {name: np.where(np.isfinite(a := getattr(found, name)), a, -1).tolist() for name in NUMBERS}
    return {**out, "evaluations": found.evaluations, "maps": found.maps}


def _work(task: Task, ids: Sequence[str], job: Job, folder: Path, *, executor: Executor) -> None:
    """Compute the missing blocks, and write each when it is done."""
    every = blocks(ids, job.config.images)
    missing = [block for block in every if not (folder / f"{block.number:05}.json").exists()]
    if not missing:
        return
    here = isinstance(executor, LocalExecutor) and min(executor.workers, len(missing)) <= 1
    if here:
        executor = LocalExecutor()  # one block needs no other process
    else:
        close_tools()  # those of the first step, whose memory the workers need
    items = (Block(b.number, b.ids, np.array(task.images[task.rows(b.ids)])) for b in missing)
    done = len(ids) - sum(len(block.ids) for block in missing)
    began, evaluations = time.monotonic(), 0
    with progress.track("annotating", total=len(ids), unit="images", start=done) as bar:

        def report(more: int, images: int = 0) -> None:
            nonlocal evaluations
            evaluations += more
            rate = f"{evaluations / max(time.monotonic() - began, 1e-9):,.0f}"
            bar.advance(images, **{"evaluations/s": rate})

        work = partial(annotate_block, advance=report) if here else annotate_block
        for index, found in executor.map(work, items, shared=job):
            block, maps = missing[index], found.pop("maps")
            if maps is not None:
                estimate, error = (torch.from_numpy(maps[:, :, part]) for part in (0, 1))
                save_maps(folder / f"{block.number:05}.safetensors", estimate=estimate, error=error)
            write_block(folder, block, found)
            report(0 if here else found["evaluations"], len(block.ids))


def _joined(
    task: Task,
    ids: tuple[str, ...],
    found: list[dict[str, Any]],
    *,
    attribute: str | None,
    glimpses: int,
    provenance: dict[str, Any],
) -> Sequences:
    def column(name: str) -> np.ndarray:
        return np.array([row for part in found for row in part[name]], dtype=np.float64)

    indices = np.array([row for part in found for row in part["locations"]], dtype=np.int64)
    return Sequences(
        task=task.name,
        attribute=attribute,
        grid=task.grid,
        length=glimpses,
        ids=ids,
        locations=task.grid.pixels.numpy()[indices],
        entropy_before=column("entropy"),
        epe=column("epe"),
        epe_error=column("error"),
        provenance={"method": "near-optimal glimpse sequences", **provenance},
    )


def _summary(found: list[dict[str, Any]], first: First) -> dict[str, Any]:
    """Evaluations spent, and the confidence of the steps, for `done.json`."""
    sure, effective = (np.concatenate([np.array(part[name]) for part in found]) for name in ("sure", "effective"))
    return {
        "images": len(sure),
        "evaluations": sum(part["evaluations"] for part in found),
        "evaluations_of_first_step": first.evaluations,
        "median_sure_by_step": [None, *np.median(sure[:, 1:], 0).round(4).tolist()],
        "median_completions_by_step": np.median(effective, 0).round(1).tolist(),
    }
