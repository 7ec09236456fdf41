"""The stage `sequences`: near-optimal glimpse sequences for some images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nogs import __version__
from nogs.data.task import Task
from nogs.design import annotation
from nogs.design.confidence import sentence
from nogs.design.sharing import share
from nogs.design.tools import Files, bank_folder, check_leaks, check_sources, unseen
from nogs.posterior.store import find_posterior, identity, load_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.executors import LocalExecutor
from nogs.runtime.files import read_json
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.progress import working
from nogs.runtime.ray import RayExecutor
from nogs.stages import data, estimates
from nogs.stages.experiment import Experiment, counted
from nogs.stages.posterior import check_glimpses, name_of, needed

__all__ = ["annotate"]


@working("sequences")
def annotate(experiment: Experiment) -> list[Path]:
    """Annotate images by one or many workers, into a folder for each attribute; the folders.

    Everything is checked first. Sequences of test images, on which nothing may be trained, have a separate folder.
    """
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    ids, attributes = _images(settings.subset, task, settings.split), experiment.attributes
    stage = "sequences" if settings.split == "annotate" else f"sequences-{settings.split}"
    source = needed(experiment)
    check_glimpses(experiment, source)
    bank, posterior = bank_folder(settings.bank or experiment.folder), load_posterior(source, task=task)
    check_sources(posterior, bank=bank)
    if not settings.unchecked:
        unseen(task, ids, split=settings.split)
        check_leaks(task, posterior=source, bank=bank, split=settings.split)
    executor, device = _executor(experiment, len(ids))
    about_bank, digest = read_json(bank / "done.json"), file_digest(find_posterior(source))
    files = experiment.files(source, bank, device=None if isinstance(executor, LocalExecutor) else device)
    weights = files.weights
    made_by = {} if weights is None else {"completion_digest": file_digest(weights)}
    parts = {name: getattr(recipe, name).model_dump(mode="json") for name in ("completion", "design")}
    made_with = {"posterior_identity": identity(source), "bank": about_bank["fingerprint"]}
    job = partial(
        annotation.annotate,
        task,
        ids,
        inputs=(
            digest,
            about_bank["fingerprint"],
            fingerprint(recipe.completion, *made_by.values()),
            recipe.posterior.precision,
        ),
        config=recipe.design,
        glimpses=recipe.glimpses,
        seed=recipe.seed,
        executor=executor,
        provenance={
            "posterior": name_of(source),
            "posterior_digest": digest,
            **made_with,
            **made_by,
            **parts,
            "seed": recipe.seed,
            "nogs": __version__,
        },
        device=device,
    )
    home = experiment.folder / stage
    folders = {attribute: home / (attribute or "") for attribute in attributes}
    inputs = {"from the posterior": made_with["posterior_identity"], "from the bank": made_with["bank"]}
    inputs |= {f"from {recipe.completion.kind}": digest for digest in made_by.values()}
    if not settings.redo:  # else what differs is moved aside
        for attribute, folder in folders.items():
            job(folder=folder, attribute=attribute, open_tools=files, check=True)
    data.prepare(experiment)
    experiment.enter(stage, {**parts, **inputs, **experiment.common()})
    workers = executor.workers if isinstance(executor, LocalExecutor) else executor.places()
    opener = files if isinstance(executor, LocalExecutor) else share(files, executor)
    try:
        for attribute, folder in folders.items():
            if not experiment.skipped("sequences", folder):
                experiment.announce(
                    "sequences",
                    f"{f'{attribute}, ' if attribute else ''}near-optimal glimpses for {counted(len(ids), 'image')}, "
                    f"{counted(workers, 'worker')}",
                    partial(_seconds, experiment, ids, files, workers, attribute),
                )
            found = job(folder=folder, attribute=attribute, open_tools=opener)
            assert found is not None
            assert found.entropy_before is not None
            done = read_json(folder / "done.json")
            left = " ".join(f"{nats:z.2f}" for nats in found.entropy_before.mean(0))
            experiment.tell(
                f"  {counted(len(found), 'sequence')}; mean entropy (nats) before each glimpse: {left} "
                f"({done['evaluations']:,} evaluations, {done['seconds']:.0f} s)"
            )
            if "posterior_entropy" in done:
                experiment.tell(f"  {sentence(done['posterior_entropy'], generator=about_bank['generator'])}")
    finally:
        annotation.close_tools()
        if isinstance(executor, RayExecutor):
            executor.close()
    return list(folders.values())


def _seconds(experiment: Experiment, ids: Sequence[str], files: Files, workers: int, attribute: str | None) -> float:
    task = experiment.task
    column = None if attribute is None else task.attribute(attribute)
    return estimates.sequences_seconds(experiment.recipe, task, ids, tools=files(), workers=workers, attribute=column)


def _images(subset: str | None, task: Task, split: str) -> tuple[str, ...]:
    """The ids of --subset: a range of the split, or ids; by default the whole split."""
    every = task.splits[split]
    if not every and subset is None:
        raise InputError(f"Task {task.title!r} has no images to annotate; raise data.annotated.")
    if subset is None:
        return tuple(every)
    span = re.fullmatch(r"(\d*):(\d*)(?::(\d+))?", subset)
    if span is None:
        ids = tuple(subset.split(","))
        task.rows(ids)
        return ids
    start, stop, step = int(span[1] or 0), int(span[2] or len(every)), int(span[3] or 1)
    if not start < stop <= len(every) or not step:
        what, other = ("images to annotate", ", or another data.annotated")
        if split != "annotate":
            what, other = f"{split} images", ""
        raise InputError(
            f"--subset {subset} does not fit the {len(every):,} {what} of task {task.title!r}; choose a range in "
            f"0:{len(every)}{other}."
        )
    return tuple(every[start:stop:step])


def _executor(experiment: Experiment, images: int) -> tuple[LocalExecutor | RayExecutor, str]:
    """The executor and its kind of device; of a Ray cluster, the nodes' devices count."""
    settings = experiment.settings
    if settings.executor == "local":
        return LocalExecutor(experiment.workers(images)), experiment.device.type
    if settings.workers is not None:
        raise InputError("--workers is for --executor local; Ray uses its whole cluster.")
    if settings.device not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device {settings.device} is not available with --executor ray; choose auto, cpu or cuda.")
    executor = RayExecutor(address=settings.address)
    kind = "cuda" if settings.device == "cuda" or (settings.device == "auto" and executor.has_gpus()) else "cpu"
    executor.gpus = 1 if kind == "cuda" else 0
    if not executor.places():
        raise InputError(f"The Ray cluster at {settings.address!r} has no node with {executor.wanted}; see ray status.")
    return executor, kind
