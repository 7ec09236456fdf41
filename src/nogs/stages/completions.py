"""Kinds of completion side by side, on the same glimpses: pictures, measures, and the sequences made with each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from nogs.bank import Bank, load_bank
from nogs.completion.conditional import Learned
from nogs.completion.config import LEARNED, CompletionConfig, Kind
from nogs.completion.opening import weights_file
from nogs.completion.protocol import Completion
from nogs.completion.quality import evaluate_completion, random_locations
from nogs.design.baselines import random_locations as random_sequences
from nogs.design.entropies import objective
from nogs.design.scoring import Judged, compare, follow
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.design.tools import Files, bank_folder, check_leaks, check_sources
from nogs.posterior.labels import label_table
from nogs.posterior.store import identity, load_posterior
from nogs.report.completions import completions_figure
from nogs.runtime import progress
from nogs.runtime.device import one_thread, versions
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_json
from nogs.stages.experiment import Experiment
from nogs.stages.figures import save_figure
from nogs.stages.posterior import name_of, needed

__all__ = ["KINDS", "compare_completions"]

KINDS: tuple[str, ...] = get_args(Kind)
_DRAWS = 20  # sequences of random locations for each image


def compare_completions(
    experiment: Experiment,
    *,
    kinds: Sequence[str] = (),
    split: str = "validation",
    images: int = 32,
    shown: int = 3,
    judge: str | None = None,
    sequences: int = 32,
    attribute: str | None = None,
) -> tuple[dict[str, Any], Path]:
    """Measures of each kind on the same glimpses of `images` images, and a figure of some, kept beside the bank.

    A `judge`, a posterior that does not make sequences, scores `sequences` sequences made with each kind, and random
    ones. Without `kinds`, all kinds that this bank supports. Returns the numbers, and the folder of the numbers and the
    figure.
    """
    recipe, task = experiment.recipe, experiment.task
    folder = bank_folder(experiment.settings.bank or experiment.folder)
    ids = task.splits[split][:images]
    if not ids:
        raise InputError(f"Task {task.name!r} has no images in the split {split!r}; choose another --split.")
    files = experiment.files(needed(experiment) if judge else "", folder)
    if judge is not None:
        _check_judge(experiment, files.posterior, judge)
    bank = load_bank(folder, device=experiment.settings.device)
    opened = _open(files, bank, kinds, tell=experiment.tell)
    measured, pictures = {}, {}
    pixels = random_locations(task, ids[:shown], recipe.glimpses - 1, seed=recipe.seed)
    few = torch.from_numpy(np.array(task.images[task.rows(ids[:shown])]))
    for kind, completion in opened.items():
        experiment.tell(f"{kind}: completing {len(ids)} images of the split {split}.")
        with one_thread(experiment.device):
            measured[kind] = evaluate_completion(completion, task, ids, glimpses=recipe.glimpses, seed=recipe.seed)
            pictures[kind] = completion.complete(few, pixels, ids=ids[:shown])
    found: dict[str, Any] = {"task": task.name, "split": split, "images": len(ids), "kinds": measured}
    found["completions"] = {kind: completion.fingerprint for kind, completion in opened.items()}
    found["bank"] = bank.fingerprint
    if judge is not None:
        found["sequences"] = _sequences(experiment, files, opened, judge, number=sequences, attribute=attribute)
    out = folder / "evaluation"
    save_figure(completions_figure(task, ids[:shown], pixels.numpy(), pictures), out / "compare.png")
    write_json(out / "compare.json", {**found, "versions": versions(experiment.device)})
    return found, out


def _open(files: Files, bank: Bank, kinds: Sequence[str], *, tell: Any) -> dict[str, Completion]:
    """The completions of these kinds over one bank; by default all kinds whose files exist."""
    out: dict[str, Completion] = {}
    for kind in kinds or KINDS:
        try:
            config = files.completion.model_copy(update={"kind": kind})
            weights = weights_file(files.bank, config, generator_path=files.generator_path)
            if weights is not None and kind in LEARNED:
                config = _as_trained(config, weights)
            own = replace(files, completion=config)
            out[kind] = own.open_completion(bank, weights=weights)
        except InputError as error:
            if kinds:
                raise
            tell(f"{kind} is left out: {error}")
    return out


def _as_trained(config: CompletionConfig, weights: Path) -> CompletionConfig:
    """With the fields of the trained network: the kinds may have been trained with different ones."""
    trained = Learned.load(weights).config.model_copy(update={"steps": config.network.steps})
    return config.model_copy(update={"network": trained})


def _check_judge(experiment: Experiment, posterior: str, judge: str) -> None:
    if identity(judge) == identity(posterior):
        raise InputError(f"The judge {judge} is the posterior that makes the sequences; give another --judge.")


def _sequences(
    experiment: Experiment,
    files: Files,
    opened: dict[str, Completion],
    judge: str,
    *,
    number: int,
    attribute: str | None,
) -> dict[str, Any]:
    """Sequences of some images to annotate with each kind, scored by another posterior on those images."""
    recipe, task, device = experiment.recipe, experiment.task, experiment.device
    ids = task.splits["annotate"][:number]
    if not ids:
        raise InputError(f"Task {task.name!r} has no images to annotate; raise data.annotated.")
    column = None if attribute is None else task.attribute(attribute)
    if column is None and task.space.kind == "bernoulli":
        raise InputError(f"Task {task.name!r} has {len(task.space.names)} attributes; choose one with --attribute.")
    check_leaks(task, posterior=files.posterior, bank=files.bank)
    posterior = files.open_posterior(files.posterior, device=device)
    check_sources(posterior, bank=files.bank)
    rows = task.rows(ids)
    pictures, pixels = np.array(task.images[rows]), task.grid.pixels
    routes = {}
    first = None
    for kind, completion in opened.items():
        tools = Tools(posterior, completion, device)
        with one_thread(device):
            # before any glimpse the first step depends on the bank alone, and is the same for every kind
            first = first or first_step(tools, pictures[0], config=recipe.design, shown=True)
            with progress.track(f"sequences with {kind}", total=None, unit="evaluations") as bar:
                made = [
                    annotate_images(
                        tools,
                        pictures[start : start + recipe.design.images],
                        ids[start : start + recipe.design.images],
                        first=first,
                        config=recipe.design,
                        glimpses=recipe.glimpses,
                        attribute=column,
                        seed=recipe.seed,
                        advance=bar.advance,
                    ).locations
                    for start in range(0, len(ids), recipe.design.images)
                ]
        routes[kind] = pixels[torch.from_numpy(np.concatenate(made))][None]
    drawn = random_sequences(task.grid, ids, glimpses=recipe.glimpses, draws=_DRAWS, seed=recipe.seed)
    routes["random"] = pixels[drawn]
    judging = load_posterior(judge, task=task, device=device, precision=recipe.posterior.precision)
    labels = torch.from_numpy(label_table(task)[rows]).to(device)
    variables = objective(task.space, column)
    shown = torch.from_numpy(pictures).to(device)
    judged: dict[str, Judged] = {
        kind: follow(judging, shown, labels, route.to(device), variables=variables) for kind, route in routes.items()
    }
    told = {"images": len(ids), "posterior": name_of(files.posterior), "judge": name_of(judge), "attribute": attribute}
    return {**told, "ways": compare(judged, seed=recipe.seed)}
