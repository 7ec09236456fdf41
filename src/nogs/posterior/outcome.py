"""Products of a training: the best network, calibrated, with its tables and a plot."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.calibration import fit_temperatures
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, uncalibrated
from nogs.posterior.evaluation import Row, evaluate, figure
from nogs.posterior.labels import label_table
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.queries import fixed_pixels, resident
from nogs.posterior.store import about_posterior, find_posterior, load_posterior, save_posterior
from nogs.posterior.trainer import Trainer
from nogs.runtime.device import versions
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_bytes, write_json
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.progress import track
from nogs.runtime.stage import Stage


def write_outcome(trainer: Trainer, path: Path) -> None:
    """Calibrate the best network and write it to `path`, with evaluation.json and posterior.png beside it.

    If the training failed, an error is raised afterwards.
    """
    found = math.isfinite(trainer.best_loss)
    if found:
        _write_best(trainer, path)
    if trainer.failed is not None:
        kept = "the best network before that is kept" if found else "no network is kept"
        raise InputError(
            f"The posterior's loss was not a finite number by iteration {trainer.failed}; {kept}; lower "
            "--posterior.learning-rate or set --posterior.clip 1: nogs run then continues here, nogs posterior train "
            "needs another --out."
        )


def _write_best(trainer: Trainer, path: Path) -> None:
    task, config = trainer.task, trainer.config
    trainer.network.load_state_dict(trainer.best)
    raw = NetworkPosterior(trainer.network, trainer.architecture, precision=config.precision)
    validation = torch.from_numpy(task.rows("validation")).to(trainer.device)
    temperatures = raw.inverse_temperature  # ones
    if config.temperature == "glimpses":
        temperatures = fit_temperatures(
            raw, trainer.images, trainer.labels, validation, locations=config.locations, seed=trainer.seed
        )
    calibrated = NetworkPosterior(
        trainer.network, trainer.architecture, inverse_temperature=temperatures, precision=config.precision
    )
    ways = {"before calibration": raw, "calibrated": calibrated}
    tables = _tables(ways, trainer.images, trainer.labels, task=task, config=config, seed=trainer.seed)
    about: dict[str, Any] = {
        "task": task.name,
        "task_fingerprint": task.fingerprint,
        "trained_on": f"{len(trainer.training):,} images of the split {config.split!r}",
        "iterations": trainer.iteration,
        "best_iteration": trainer.best_iteration,
        "parameters": sum(parameter.numel() for parameter in trainer.network.parameters()),
        "seed": trainer.seed,
        "config": config.model_dump(mode="json"),
        "inverse_temperature": temperatures.tolist(),
        "versions": versions(trainer.device),
        "tables": tables,
    }
    if trainer.started_from:
        about["started_from"] = trainer.started_from
    _write(path, calibrated, task=task, about=about, seconds=round(trainer.spent, 1))


def write_combined(
    parts: Sequence[NetworkPosterior | CrossFitted], path: Path, *, task: Task, config: PosteriorConfig, seed: int
) -> dict[str, Any]:
    """Write the networks of all folds, from folders beside `path`, as one posterior; returns evaluation.json."""
    members = [part for part in parts if isinstance(part, NetworkPosterior)]
    posterior, device = CrossFitted(members, splits=task.fingerprint), members[0].device
    each = [read_json(path.parent / f"fold-{fold}" / "evaluation.json") for fold in range(len(members))]
    ways = {"before calibration": uncalibrated(posterior, precision=config.precision), "calibrated": posterior}
    images, labels = resident(task.images, device), torch.from_numpy(label_table(task)).to(device)
    sums = ("iterations", "best_iteration", "parameters")
    about: dict[str, Any] = {
        "task": task.name,
        "task_fingerprint": task.fingerprint,
        "trained_on": f"{len(task.splits['posterior']):,} images of the split 'posterior', in {len(members)} networks, "
        f"each without 1/{len(members)} of them",
        **{name: sum(one[name] for one in each) for name in sums},
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "inverse_temperature": [one["inverse_temperature"] for one in each],
        "versions": versions(device),
        "tables": _tables(ways, images, labels, task=task, config=config, seed=seed),
    }
    seconds = round(sum(one["training_seconds"] for one in each), 1)
    _write(path, posterior, task=task, about=about, seconds=seconds)
    return {**about, "training_seconds": seconds}


def _tables(
    ways: Mapping[str, NetworkPosterior | CrossFitted],
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    *,
    task: Task,
    config: PosteriorConfig,
    seed: int,
) -> dict[str, list[Row]]:
    """Scores on validation and test images at random locations, the same for every posterior."""
    glimpses = next(iter(ways.values())).glimpses
    looks = {}
    for split in ("validation", "test"):
        rows = torch.from_numpy(task.rows(split)).to(images.device)
        looks[split] = (
            rows,
            fixed_pixels(
                len(rows),
                glimpses=glimpses,
                grid=task.grid,
                locations=config.locations,
                seed=seed,
                purpose=f"evaluation {split}",
                device=images.device,
            ),
        )
    tables: dict[str, list[Row]] = {}
    total = len(ways) * (glimpses + 1) * sum(len(rows) for rows, _ in looks.values())
    with track("evaluating", total=total, unit="evaluations") as bar:
        for split, (rows, where) in looks.items():
            for name, posterior in ways.items():
                tables[f"{split}, {name}"] = evaluate(posterior, images, labels, rows, where, advance=bar.advance)
    return tables


def adopt(source: str, path: Path, *, task: Task) -> dict[str, Any]:
    """Copy a trained posterior to `path`, with evaluation.json and posterior.png; returns its description."""
    file = find_posterior(source)
    load_posterior(source, task=task)  # refuses one of another task
    stage = Stage(path.parent, name="posterior", fingerprint=fingerprint("adopted", file_digest(file)))
    stage.check_folder()
    stage.begin()
    write_bytes(path, file.read_bytes())
    about = about_posterior(source)
    if "tables" in about:
        _write_evaluation(path, task=task, about=about)
    stage.finish(source=file.stem)
    return about


def _write(
    path: Path, posterior: NetworkPosterior | CrossFitted, *, task: Task, about: dict[str, Any], seconds: float
) -> None:
    # the file of weights holds no times, so that the same training gives the same bytes
    save_posterior(path, posterior, task=task, about=about)
    _write_evaluation(path, task=task, about={**about, "training_seconds": seconds})


def _write_evaluation(path: Path, *, task: Task, about: dict[str, Any]) -> None:
    write_json(path.with_name("evaluation.json"), about)
    title = f"posterior of {task.title} at random locations"
    write_figure(path.with_name("posterior.png"), about["tables"], title=title)


def write_figure(path: Path, tables: dict[str, list[Row]], *, title: str) -> None:
    """Write the plot of some tables."""
    picture = io.BytesIO()
    figure(tables, title=title).savefig(picture, format="png", dpi=120)
    write_bytes(path, picture.getvalue())
