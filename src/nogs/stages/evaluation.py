"""Evaluate one trained network on a split of its task, for each of its attributes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluation, Evaluator, pixel_locations, summaries
from nogs.attention.looking import Looking
from nogs.attention.methods import GIVEN
from nogs.data.task import Task
from nogs.model.stopping import accuracies_by_glimpses, check
from nogs.plus.network import TokenNetwork
from nogs.plus.store import attributes_of, load_attributes, load_network
from nogs.plus.together import look_at

__all__ = ["evaluate"]

Found = tuple[dict[str, Any], Int[np.ndarray, "n S T 2"], dict[str, Any]]


def evaluate(
    path: Path, task: Task, *, split: str, trajectories: int, device: torch.device, attribute: str | None = None
) -> list[Found]:
    """Scores of the network in a file, its locations, and its accuracy after each glimpse.

    One entry for each attribute of a file with several, or for the given `attribute`.
    """
    if attribute is None and attributes_of(path):
        network, every = load_attributes(path, device=device)
        abouts = list(every.values())
    else:
        network, about = load_network(path, attribute=attribute, device=device)
        abouts = [about]
    for about in abouts:
        check(network, about, task, name=path)
    trajectories = network.enough(trajectories)
    sampled = _look(network, abouts, task, split=split, trajectories=trajectories, device=device)
    greedy = sampled
    if network.policy == "sample":
        greedy = _look(network, abouts, task, split=split, trajectories=1, device=device, greedy=True)
    fixed = isinstance(network, TokenNetwork) and network.looks.head is None  # PS-NOGS+ may keep the fixed order
    scores = summaries(sampled, greedy, task.grid, given=fixed or abouts[0]["method"] in GIVEN)
    by_glimpses = accuracies_by_glimpses(network, abouts, task, split=split, trajectories=trajectories)
    out = []
    for n, about in enumerate(abouts):
        known = {name: about[name] for name in ("task", "labels", "method", "attribute", "seed", "best", "iteration")}
        said = {**known, "split": split, "trajectories": trajectories, "scores": scores[n]}
        out.append((said, pixel_locations(sampled, task.grid, n), by_glimpses[n]))
    return out


def _look(
    network: Looking,
    abouts: Sequence[dict[str, Any]],
    task: Task,
    *,
    split: str,
    trajectories: int,
    device: torch.device,
    greedy: bool = False,
) -> Evaluation:
    """The network's trajectories for all `abouts`, as an evaluation of that many networks."""
    members = [Member(about["method"], seed=about["seed"], attribute=about["attribute"]) for about in abouts]
    cohort = Cohort(task, members, glimpses=network.architecture.glimpses, batch=1, flip=False, device=device)
    if not isinstance(network, TokenNetwork):
        return Evaluator(network, cohort, split, trajectories=trajectories, greedy=greedy, once=True)()
    rows = torch.from_numpy(task.rows(split)).to(device)
    looked = look_at(
        network,
        cohort.images,
        rows,
        key=(members[0].seed, split),
        trajectories=trajectories,
        attributes=[network.attribute] if len(abouts) == 1 else None,
        greedy=greedy,
    )
    return looked.evaluation(cohort.labels[:, rows])
