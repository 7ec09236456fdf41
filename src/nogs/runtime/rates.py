"""For captured graphs: Adam's state, running averages of weights, and step sizes that decay over iterations or time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["adam_state", "adam_tensors", "falling", "follow", "set_rate"]

_AVERAGE_START = 10
"""After n iterations an average's decay is n / (n + this), limited by the decay that was asked for."""


def adam_state(parameter: Tensor) -> dict[str, Tensor]:
    """Adam's state before its first step, which must exist before a graph is captured or a saved state restored."""
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def adam_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The optimiser's state of these parameters, by its names in a saved state."""
    return {
        f"adam.{part}.{name}": value
        for name, parameter in parameters.items()
        for part, value in optimizer.state.get(parameter, {}).items()
    }


def falling(done: int, total: int, *, seconds: float = 0.0, limit: float | None = None) -> float:
    """Factor of the step size after `done` of `total` iterations: a cosine from one to zero.

    With a `limit` in seconds, the larger share of iterations or time counts, so that it is zero by then.
    """
    share = done / max(1, total)
    if limit is not None:
        share = max(share, seconds / limit)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


@torch.no_grad()
def follow(kept: Iterable[Tensor], now: Iterable[Tensor], *, decay: float, iteration: Tensor) -> None:
    """Move averages towards the weights, at first by most of the difference, so that initial weights don't count."""
    share = 1 - (iteration / (iteration + _AVERAGE_START)).clamp(max=decay)
    for average, value in zip(kept, now):
        if average.is_floating_point():
            average.lerp_(value, share)
        else:
            average.copy_(value)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the step size of every group, times the group's `factor` if it has one.

    A tensor is changed in place, so that a captured graph reads the new value.
    """
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
