"""The results of networks on a posterior: their file, their scores, and where they looked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from nogs.attention.cohort import Member, label_names
from nogs.attention.evaluation import pixel_locations, summaries
from nogs.attention.store import splits_mark
from nogs.data.task import Task
from nogs.plus.network import TokenNetwork
from nogs.plus.store import attributes_of, save_network, save_view
from nogs.plus.together import look_at
from nogs.posterior.network import NetworkPosterior
from nogs.runtime.files import save_array, write_json
from nogs.runtime.metrics import Metrics

__all__ = ["judge", "write_outcomes"]

NETWORK = "best-accuracy.safetensors"


def judge(
    network: TokenNetwork,
    group: Sequence[Member],
    task: Task,
    *,
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    trajectories: int,
    iteration: int,
    iterations: int,
) -> list[dict[str, Any]]:
    """For each of the network's attributes its scores on validation and test images, and where it looked at the latter.

    `labels` are those of the network's variables. The network's version is that of `iteration` out of `iterations`.
    """
    given = network.looks.head is None  # one order for all images is then intended
    scores, number = {}, network.enough(trajectories)
    for split in ("validation", "test"):
        rows = torch.from_numpy(task.rows(split)).to(images.device)
        looked = look_at(network, images, rows, key=(group[0].seed, split), trajectories=number)
        sampled = looked.evaluation(labels[rows].T)
        scores[split] = summaries(sampled, sampled, task.grid, given=given)
    out = []
    for n, (member, validation, test) in enumerate(zip(group, scores["validation"], scores["test"])):
        truth = sampled.labels[n]
        evaluation = {
            "member": {"method": member.method, "attribute": member.attribute, "seed": member.seed, "weight": None},
            "iterations": iterations,
            "convergence": None,
            "majority_class_accuracy": truth.bincount().max().item() / len(truth),
            "whole_image_accuracy": None,
            "best": {
                kind: {"iteration": iteration, "validation": validation[kind], "test": test}
                for kind in ("accuracy", "balanced_accuracy", "nll")
            },
        }
        locations = pixel_locations(sampled, task.grid, n)
        out.append({"locations": locations, "validation": validation, "evaluation": evaluation})
    return out


def write_outcomes(
    network: TokenNetwork,
    posterior: NetworkPosterior,
    group: Sequence[Member],
    outcomes: Sequence[dict[str, Any]],
    *,
    task: Task,
    folder: Path,
    trained: Mapping[str, Any],
) -> None:
    """Write each member's files, and a network of several attributes beside them. `trained` describes its core."""
    about = {
        member.attribute or "": {
            "task": task.name,
            "title": task.title,
            "labels": label_names(task, member.attribute),
            "method": member.method,
            "attribute": member.attribute,
            "seed": member.seed,
            "splits": splits_mark(task.splits),
            "test_images": len(task.splits["test"]),
            "best": "accuracy",
            **outcome["evaluation"]["best"]["accuracy"],
        }
        for member, outcome in zip(group, outcomes)
    }
    shared = group[0].attribute is not None
    path = folder / group[0].name / NETWORK
    if shared:
        path = _free(folder / group[0].method / f"seed-{group[0].seed}.safetensors", about)
    save_network(path, network, posterior, task=task, about=about, trained=trained)
    for member, outcome in zip(group, outcomes):
        own = folder / member.name
        if shared:
            save_view(own / NETWORK, f"../../{path.name}", attribute=str(member.attribute))
        save_array(own / "locations.npy", outcome["locations"])
        if not (own / "metrics.jsonl").exists():
            with Metrics(own) as metrics:
                values = {name: outcome["validation"][name] for name in ("nll", "accuracy", "balanced_accuracy")}
                metrics.log(0, **{f"validation_{name}": value for name, value in values.items()})
        write_json(own / "evaluation.json", outcome["evaluation"])


def _free(path: Path, attributes: Collection[str]) -> Path:
    """The path, or one numbered from 2 on if it holds the network of other attributes."""
    number, free = 1, path
    while free.is_file() and not set(attributes_of(free)) <= set(attributes):
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
