"""What is left of a training: the best network, calibrated, with its tables and a plot."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nogs.posterior.calibration import fit_temperatures
from nogs.posterior.evaluation import Row, evaluate, figure
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.queries import fixed_pixels
from nogs.posterior.store import save_posterior
from nogs.runtime.device import versions
from nogs.runtime.files import write_bytes, write_json

if TYPE_CHECKING:
    from nogs.posterior.training import Trainer


def write_outcome(trainer: Trainer, path: Path) -> None:
    """Calibrate the best network and write it to `path`, with evaluation.json and posterior.png beside it."""
    task, config = trainer.task, trainer.config
    trainer.network.load_state_dict(trainer.best)
    raw = trainer.posterior()
    validation = torch.from_numpy(task.rows("validation")).to(trainer.device)
    temperatures = fit_temperatures(
        raw,
        trainer.images,
        trainer.labels,
        validation,
        kind=config.temperature,
        locations=config.locations,
        seed=trainer.seed,
    )
    calibrated = NetworkPosterior(
        trainer.network, trainer.architecture, inverse_temperature=temperatures, precision=config.precision
    )
    tables: dict[str, list[Row]] = {}
    for split in ("validation", "test"):
        rows = torch.from_numpy(task.rows(split)).to(trainer.device)
        where = fixed_pixels(
            len(rows),
            glimpses=trainer.glimpses,
            grid=task.grid,
            locations=config.locations,
            seed=trainer.seed,
            purpose=f"evaluation {split}",
            device=trainer.device,
        )
        for name, posterior in (("before calibration", raw), ("calibrated", calibrated)):
            tables[f"{split}, {name}"] = evaluate(posterior, trainer.images, trainer.labels, rows, where)
    about: dict[str, Any] = {
        "task": task.name,
        "task_fingerprint": task.fingerprint,
        "trained_on": f"{len(trainer.training)} images of the split 'posterior'",
        "iterations": trainer.iteration,
        "best_iteration": trainer.best_iteration,
        "training_seconds": round(trainer.spent, 1),
        "parameters": sum(parameter.numel() for parameter in trainer.network.parameters()),
        "seed": trainer.seed,
        "config": config.model_dump(mode="json"),
        "inverse_temperature": temperatures.tolist(),
        "versions": versions(trainer.device),
        "tables": tables,
    }
    save_posterior(path, calibrated, task=task, about=about)
    write_json(path.with_name("evaluation.json"), about)
    write_figure(path.with_name("posterior.png"), tables, title=f"posterior of {task.name} at random locations")


def write_figure(path: Path, tables: dict[str, list[Row]], *, title: str) -> None:
    """Write the plot of some tables."""
    picture = io.BytesIO()
    figure(tables, title=title).savefig(picture, format="png", dpi=120)
    write_bytes(path, picture.getvalue())
