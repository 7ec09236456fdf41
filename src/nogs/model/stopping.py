"""Early stopping: a network's accuracy after each glimpse, and with a confidence threshold that ends the look.

The paper's classifier is trained only on the state after all T glimpses; its earlier answers are measured here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from nogs.attention import policy as policies
from nogs.attention.cohort import Member, label_names, member_labels
from nogs.attention.looking import Looking
from nogs.attention.store import check_splits
from nogs.data.task import Task
from nogs.glimpse import Grid, cut, shown
from nogs.plus.network import TokenNetwork
from nogs.plus.together import look_at
from nogs.posterior.queries import resident
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_json

FORMAT = "nogs accuracy by glimpses 1"
FILE = "accuracy-by-glimpses.json"
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
_CHUNK = 1024


def accuracy_by_glimpses(
    networks: Looking,
    about: dict[str, Any],
    task: Task,
    *,
    split: str = "test",
    trajectories: int = 5,
    thresholds: Sequence[float] = THRESHOLDS,
) -> dict[str, Any]:
    """The content of `accuracy-by-glimpses.json`, for one network (M = 1) on a split of its task.

    For the policies argmax and sample, it has accuracy, NLL and mean confidence after 1, 2 ... T glimpses. For each
    threshold it has the accuracy, mean number of glimpses and share of pixels read when the first confidence that
    reaches it ends the look. Sampled looks use the random numbers of `nogs evaluate`. A network whose own policy is
    argmax draws nothing in either.
    """
    how: dict[str, Any] = {"split": split, "trajectories": trajectories, "thresholds": thresholds}
    return accuracies_by_glimpses(networks, [about], task, **how)[0]


def accuracies_by_glimpses(
    networks: Looking,
    abouts: Sequence[dict[str, Any]],
    task: Task,
    *,
    split: str = "test",
    trajectories: int = 5,
    thresholds: Sequence[float] = THRESHOLDS,
) -> list[dict[str, Any]]:
    """`accuracy_by_glimpses` for each of `abouts`: every attribute of a network, or its selected one."""
    for about in abouts:
        check(networks, about, task)
    rows, architecture = torch.from_numpy(task.rows(split)), networks.architecture
    out: list[dict[str, Any]] = [{} for _ in abouts]
    for name, samples in (("argmax", 0), ("sample", trajectories if networks.policy == "sample" else 0)):
        if name == "sample" and not samples:
            out = [{**found, name: found["argmax"]} for found in out]
            continue
        looks = _looks(networks, abouts, task, split=split, samples=samples)
        for found, about, (log_probabilities, locations) in zip(out, abouts, looks):
            labels = member_labels(task, Member(about["method"], seed=about["seed"], attribute=about["attribute"]))
            truth = torch.from_numpy(labels)[rows].repeat_interleave(samples or 1)
            found[name] = summary(log_probabilities, locations, truth, grid=architecture.grid, thresholds=thresholds)
    return [
        {
            "format": FORMAT,
            **{name: about.get(name) for name in ("task", "method", "attribute", "seed", "best", "iteration")},
            "split": split,
            "images": len(rows),
            "trajectories": trajectories,
            "own": networks.policy,
            "glimpses": list(range(1, architecture.glimpses + 1)),
            "policies": found,
        }
        for about, found in zip(abouts, out)
    ]


def _looks(
    networks: Looking, abouts: Sequence[dict[str, Any]], task: Task, *, split: str, samples: int
) -> Iterable[tuple[Float[Tensor, "n T K"], Int[Tensor, "n T"]]]:
    """For each of `abouts`, what `watch` finds on a split with so many drawn looks at each image; 0: the best one."""
    rows, seed = torch.from_numpy(task.rows(split)), abouts[0]["seed"]
    if isinstance(networks, TokenNetwork):
        device = networks.pixels.device
        looked = look_at(
            networks,
            resident(task.images, device),
            rows.to(device),
            key=(seed, split),
            trajectories=samples or 1,
            attributes=[networks.attribute] if len(abouts) == 1 else None,
            greedy=not samples,
        )
        return zip(looked.answers.cpu(), looked.locations.cpu())
    images, uniforms = rows.repeat_interleave(samples or 1), None
    if samples:
        counter = torch.arange(len(images) * networks.architecture.glimpses).view(len(images), -1)
        uniforms = streams.uniform(streams.key(seed, "evaluation", split), counter)
    return [watch(networks, task.images, images, uniforms)]


def write_accuracy_by_glimpses(path: Path, found: dict[str, Any]) -> Path:
    """Write the result of `accuracy_by_glimpses` beside the network of `path`; the name has a split other than test."""
    name = FILE if found["split"] == "test" else FILE.replace(".json", f"-{found['split']}.json")
    write_json(path.parent / name, found)
    return path.parent / name


def check(networks: Looking, about: dict[str, Any], task: Task, *, name: object = "The network") -> None:
    """Refuse a task that the network of that `name` was not trained for."""
    names = label_names(task, about["attribute"])
    if networks.architecture.grid != task.grid or about["task"] != task.name or about["labels"] != names:
        raise InputError(
            f"{name} was trained on task {about['task']!r} with another grid, or other labels, than this data has; "
            "give its own data."
        )
    check_splits(about, task.splits)


@torch.no_grad()
def watch(
    networks: Looking,
    images: npt.NDArray[np.uint8],
    rows: Int[Tensor, " n"],
    uniforms: Float[Tensor, "n T"] | None,
) -> tuple[Float[Tensor, "n T K"], Int[Tensor, "n T"]]:
    """Log-probabilities of the labels after each glimpse of the images `rows`, and the locations (grid indices)."""
    architecture, device = networks.architecture, networks.coordinates.device
    grid = architecture.grid
    chunk = 256 if architecture.embedder == "release" else _CHUNK  # it normalises by the chunk, as evaluation does
    parts = []
    for start in range(0, len(rows), chunk):
        part = slice(start, start + chunk)
        pixels: UInt8[Tensor, "b H W 3"] = torch.from_numpy(images[rows[part].numpy()]).to(device)
        state = networks.start(len(pixels))
        said, places = [], []
        for t in range(architecture.glimpses):
            drawn = None if uniforms is None else uniforms[part, t].to(device)[None]
            location, _ = policies.choose(networks.location_logits(state), drawn, width=grid.shape[1])
            patches = cut(pixels, networks.pixels[location[0]], glimpse=grid.glimpse)
            state = networks.see(state, patches[None], location)
            said.append(torch.log_softmax(networks.classify(state)[0], -1).cpu())
            places.append(location[0].cpu())
        parts.append((torch.stack(said, 1), torch.stack(places, 1)))
    log_probabilities, locations = (torch.cat(x) for x in zip(*parts))
    return log_probabilities, locations


def summary(
    log_probabilities: Float[Tensor, "n T K"],
    locations: Int[Tensor, "n T"],
    labels: Int[Tensor, " n"],
    *,
    grid: Grid,
    thresholds: Sequence[float],
) -> dict[str, Any]:
    """One policy's curves, as JSON values."""
    confidence, said = log_probabilities.exp().max(-1)
    right = (said == labels[:, None]).float()
    nll = -log_probabilities.gather(-1, labels[:, None, None].expand(*said.shape, 1))[..., 0]
    glimpses = said.shape[1]
    orders, which = locations.unique(dim=0, return_inverse=True)  # often few, or one
    read = shown(grid.pixels[orders], glimpse=grid.glimpse, height=grid.height, width=grid.width)[which]
    stopping = []
    for threshold in sorted(thresholds):
        sure = confidence >= threshold
        sure[:, -1] = True
        last = sure.float().argmax(1)[:, None]  # the first glimpse after which it is sure
        stopping.append(
            {
                "stop_at": threshold,
                "accuracy": right.gather(1, last).mean().item(),
                "mean_glimpses": (last + 1).float().mean().item(),
                "pixels_read": read.gather(1, last).mean().item(),
                "stopped_after": [(last == t).float().mean().item() for t in range(glimpses)],
            }
        )
    return {
        "accuracy": right.mean(0).tolist(),
        "nll": nll.mean(0).tolist(),
        "confidence": confidence.mean(0).tolist(),
        "pixels_read": read.mean(0).tolist(),
        "stopping": stopping,
    }
