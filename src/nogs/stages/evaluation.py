"""What one trained network does on a split of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluator, pixel_locations, summaries
from nogs.attention.methods import GIVEN
from nogs.data.task import Task
from nogs.model.stopping import accuracy_by_glimpses, check
from nogs.plus.network import TokenNetwork
from nogs.plus.store import load_network

__all__ = ["evaluate"]


def evaluate(
    path: Path, task: Task, *, split: str, trajectories: int, device: torch.device, attribute: str | None = None
) -> tuple[dict[str, Any], Int[np.ndarray, "n S T 2"], dict[str, Any]]:
    """Scores of the network in a file, the locations that it looked at, and its accuracy after each glimpse.

    `attribute` chooses where the file has several.
    """
    network, about = load_network(path, attribute=attribute, device=device)
    check(network, about, task, name=path)
    trajectories = network.enough(trajectories)
    member = Member(about["method"], seed=about["seed"], attribute=about["attribute"])
    glimpses = network.architecture.glimpses
    cohort = Cohort(task, [member], glimpses=glimpses, batch=1, flip=False, device=device)
    sampled = Evaluator(network, cohort, split, trajectories=trajectories, once=True)()
    greedy = Evaluator(network, cohort, split, trajectories=1, greedy=True, once=True)()
    known = {name: about[name] for name in ("task", "labels", "method", "attribute", "seed", "best", "iteration")}
    found = {**known, "split": split, "trajectories": trajectories}
    fixed = isinstance(network, TokenNetwork) and network.looks.head is None  # PS-NOGS+ may keep the fixed order
    found["scores"] = summaries(sampled, greedy, task.grid, given=fixed or about["method"] in GIVEN)[0]
    by_glimpses = accuracy_by_glimpses(network, about, task, split=split, trajectories=trajectories)
    return found, pixel_locations(sampled, task.grid, 0), by_glimpses
