"""Evaluation of trained networks on a split: accuracy, NLL, where they look, and whether their policy has collapsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nogs.attention.cohort import Cohort
from nogs.attention.frozen import Table
from nogs.attention.looking import Looking
from nogs.glimpse import Grid, shown
from nogs.runtime import streams
from nogs.runtime.capture import captured

LIMIT = {"cuda": 1 << 17, "cpu": 1 << 12}
"""Glimpses of one step that are held at once, over all networks; bounds the memory of an evaluation."""


@dataclass
class Evaluation:
    """M networks on the n images of a split, with S trajectories for each image (S = 1 for the greedy policy)."""

    log_probabilities: Float[Tensor, "M n S K"]
    locations: Int[Tensor, "M n S T"]
    entropies: Float[Tensor, "M T"]
    labels: Int[Tensor, "M n"]

    def scores(self) -> dict[str, Float[Tensor, " M"]]:
        """Scores of single trajectories, and of the average over an image's trajectories (`averaged_...`)."""
        samples = self.log_probabilities.shape[2]
        averaged = torch.logsumexp(self.log_probabilities, 2, keepdim=True) - np.log(samples)
        out: dict[str, Tensor] = {}
        for prefix, log_probabilities in (("", self.log_probabilities), ("averaged_", averaged)):
            labels = self.labels[..., None].expand(log_probabilities.shape[:3])
            right = (log_probabilities.argmax(-1) == labels).float()
            # argmax takes NaN for the largest, but a failed network must not count as right
            right = torch.where(log_probabilities.isnan().any(-1), torch.nan, right)
            out[f"{prefix}nll"] = -log_probabilities.gather(-1, labels[..., None])[..., 0].mean((1, 2))
            out[f"{prefix}accuracy"] = right.mean((1, 2))
            out[f"{prefix}balanced_accuracy"] = _balanced(right.mean(2), self.labels, log_probabilities.shape[-1])
        return out

    def usage(self, locations: int) -> Float[Tensor, "M T L"]:
        """Share of trajectories that chose each location at each step."""
        networks, _, _, glimpses = self.locations.shape
        flat = self.locations.permute(0, 3, 1, 2).flatten(2)
        counts = torch.zeros(networks, glimpses, locations, device=flat.device)
        counts.scatter_add_(2, flat, torch.ones_like(flat, dtype=counts.dtype))
        return counts / flat.shape[-1]


class Evaluator:
    """Runs networks on a split in captured, equal chunks; the random numbers are the same at every call."""

    def __init__(
        self,
        networks: Looking,
        cohort: Cohort,
        split: str,
        *,
        trajectories: int,
        greedy: bool = False,
        once: bool = False,
    ) -> None:
        """With `once` no graph is captured, which would take longer than one evaluation, and hold much memory."""
        self.networks, self.cohort = networks, cohort
        self.samples = 1 if greedy else trajectories
        self.rows = torch.from_numpy(cohort.task.rows(split)).to(cohort.device)
        total = len(self.rows) * self.samples
        limit = LIMIT.get(cohort.device.type, LIMIT["cpu"]) // len(networks)
        if networks.architecture.embedder == "release":  # it normalises by the chunk, whose size must not depend on M
            limit = 256
        if networks.architecture.embedder == "vgg" and not isinstance(networks.embed, Table):  # wide feature maps
            limit //= 16
        self.chunk = max(1, min(total, limit))
        self.start = torch.zeros((), dtype=torch.int64, device=cohort.device)
        key = torch.tensor([streams.key(seed, "evaluation", split) for seed in cohort.seeds], device=cohort.device)

        def look() -> tuple[Tensor, Tensor, Tensor]:
            trajectory = (self.start + torch.arange(self.chunk, device=cohort.device)).clamp(max=total - 1)
            steps = torch.arange(cohort.glimpses, device=cohort.device)
            counter = trajectory[:, None] * cohort.glimpses + steps
            uniforms = None if greedy else streams.uniform(key[:, None, None], counter)[cohort.seed_of]
            rows = self.rows[trajectory // self.samples].expand(len(networks), -1)
            with torch.no_grad():
                rollout = networks(cohort.images, rows, uniforms=uniforms, entropies=True)
            assert rollout.entropies is not None
            return torch.log_softmax(rollout.logits, -1), rollout.locations, rollout.entropies

        self._look: Callable[[], tuple[Tensor, Tensor, Tensor]] = look
        self._total = total
        self._captured = once

    def __call__(self) -> Evaluation:
        """Evaluate the networks as they are now."""
        if not self._captured:
            self._look, self._captured = captured(self._look, self.cohort.device), True
        parts = []
        for start in range(0, self._total, self.chunk):
            self.start.fill_(start)
            keep = min(self.chunk, self._total - start)
            parts.append([x[:, :keep].clone() for x in self._look()])
        log_probabilities, locations, entropies = (torch.cat(x, 1) for x in zip(*parts))
        shape = (len(self.rows), self.samples)
        return Evaluation(
            log_probabilities.unflatten(1, shape),
            locations.unflatten(1, shape),
            entropies.mean(1),
            self.cohort.labels[:, self.rows],
        )


def coverage(locations: Int[Tensor, "n S T"], grid: Grid) -> float:
    """Mean share of the image's pixels that a trajectory (the first of each image) saw; overlaps count once."""
    pixels = grid.pixels.to(locations.device)[locations[:, 0]]
    return shown(pixels, glimpse=grid.glimpse, height=grid.height, width=grid.width)[:, -1].mean().item()


def collapse(usage: Float[Tensor, "T L"], grid: Grid) -> str | None:
    """A warning if nearly all trajectories look at one place in every step after the first, which sees nothing."""
    share, place = usage.max(-1)
    if len(share) < 2 or share[1:].min() < 0.95:
        return None
    rows, columns = grid.pixels[place[1:].cpu()].T.tolist()
    corner = all(
        r in (grid.rows[0], grid.rows[-1]) and c in (grid.columns[0], grid.columns[-1]) for r, c in zip(rows, columns)
    )
    where = "a corner of the image" if corner else "one place"
    return (
        f"the policy has collapsed: from the second glimpse on, {share[1:].min():.0%} of the trajectories look at "
        f"{where} whatever they have seen; try another seed or more sequences"
    )


def summaries(evaluation: Evaluation, greedy: Evaluation, grid: Grid, *, given: bool = False) -> list[dict[str, Any]]:
    """Each network's numbers on a split, as JSON values; with `given`, locations are prescribed, and a constant one is
    not reported as a collapsed policy."""
    usage = evaluation.usage(len(grid))
    columns = {
        **evaluation.scores(),
        **{f"greedy_{name}": value for name, value in greedy.scores().items() if "averaged" not in name},
        "policy_entropy": evaluation.entropies,
        "most_common_share": usage.max(-1).values,
        "distinct_locations": (usage > 0).sum(-1),
    }
    lists = {name: value.tolist() for name, value in columns.items()}
    return [
        {
            **{name: values[m] for name, values in lists.items()},
            "pixels_seen": coverage(evaluation.locations[m], grid),
            "warning": None if given else collapse(usage[m], grid),
        }
        for m in range(len(usage))
    ]


def pixel_locations(evaluation: Evaluation, grid: Grid, network: int) -> npt.NDArray[np.uint16]:
    """(row, column) of every glimpse `[n, S, T, 2]`, in the order of the split's ids."""
    return grid.pixels.numpy()[evaluation.locations[network].cpu().numpy()].astype(np.uint16)


def _balanced(right: Float[Tensor, "M n"], labels: Int[Tensor, "M n"], classes: int) -> Float[Tensor, " M"]:
    """Mean accuracy over the classes that are present."""
    zeros = right.new_zeros(len(right), classes)
    hits = zeros.scatter_add(1, labels, right)
    counts = zeros.scatter_add(1, labels, torch.ones_like(right))
    present = counts > 0
    return torch.where(present, hits / counts.clamp(min=1), 0).sum(1) / present.sum(1)
