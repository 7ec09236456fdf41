"""The results of training a network: its best versions, their scores on the test images, and how fast it learned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nogs.attention.cohort import label_names
from nogs.attention.convergence import iterations_to_convergence
from nogs.attention.evaluation import Evaluator, pixel_locations, summaries
from nogs.attention.store import save_network, splits_mark
from nogs.runtime.files import save_array, write_json
from nogs.runtime.metrics import read_metrics

if TYPE_CHECKING:
    from nogs.attention.trainer import Trainer


def write_outcomes(trainer: Trainer, folder: Path) -> None:
    """For every network: best-KIND.safetensors, evaluation.json and locations.npy (of the most accurate version)."""
    cohort, config, networks = trainer.cohort, trainer.config, trainer.networks
    sampled = Evaluator(networks, cohort, "test", trajectories=config.trajectories)
    greedy = Evaluator(networks, cohort, "test", trajectories=1, greedy=True)
    outcomes: list[dict[str, Any]] = [_learning(trainer, folder, m) for m in range(len(networks))]
    for kind, parameters in trainer.best_networks.items():
        networks.load_state_dict(parameters, strict=False)  # frozen parameters are loaded already
        evaluation = sampled()
        scores = summaries(evaluation, greedy(), cohort.task.grid)
        for m, member in enumerate(trainer.members):
            best = {
                "iteration": int(trainer.best_iteration[kind][m]),
                "validation": abs(best_value) if math.isfinite(best_value := float(trainer.best[kind][m])) else None,
                "test": scores[m],
            }
            outcomes[m]["best"][kind] = best
            about = {
                "task": cohort.task.name,
                "title": cohort.task.title,
                "labels": label_names(cohort.task, member.attribute),
                "method": member.method,
                "attribute": member.attribute,
                "seed": member.seed,
                "splits": splits_mark(cohort.task.splits),
                "test_images": len(cohort.task.splits["test"]),
                "best": kind,
                **best,
            }
            save_network(
                folder / member.name / f"best-{kind}.safetensors",
                {name: value[m] for name, value in parameters.items()},
                architecture=networks.architecture,
                about=about,
                trunk=None if trainer.frozen is None else trainer.frozen.below(m, member),
            )
            if kind == "accuracy":
                save_array(folder / member.name / "locations.npy", pixel_locations(evaluation, cohort.task.grid, m))
    for m, member in enumerate(trainer.members):
        write_json(folder / member.name / "evaluation.json", outcomes[m])


def _learning(trainer: Trainer, folder: Path, m: int) -> dict[str, Any]:
    member, config, cohort = trainer.members[m], trainer.config, trainer.cohort
    lines = read_metrics(folder / member.name)
    steps = [line["step"] for line in lines]
    rule = config.convergence
    curve = [np.nan if line[f"validation_{rule}"] is None else line[f"validation_{rule}"] for line in lines]
    test = cohort.labels[m, cohort.task.rows("test")]
    return {
        "member": {
            "method": member.method,
            "attribute": member.attribute,
            "seed": member.seed,
            "weight": member.weight,
        },
        "iterations": steps[-1],
        "convergence": {
            "rule": rule,
            "iterations": iterations_to_convergence(steps, curve, rule=rule),
            "iterations_smoothed": iterations_to_convergence(steps, curve, rule=rule, smooth=5),
        },
        "majority_class_accuracy": test.bincount().max().item() / len(test),
        "whole_image_accuracy": trainer.whole_image[m],
        "best": {},
    }
