"""Adam for captured graphs: its state in place, and step sizes that fall over the iterations or the time there is."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["adam_state", "adam_tensors", "falling", "set_rate"]


def adam_state(parameter: Tensor) -> dict[str, Tensor]:
    """Adam's state before its first step: it must lie in memory before a graph is captured or a saved one copied in."""
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def adam_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the optimiser knows of these parameters, by names for a saved state."""
    return {
        f"adam.{part}.{name}": value
        for name, parameter in parameters.items()
        for part, value in optimizer.state.get(parameter, {}).items()
    }


def falling(done: int, total: int, *, seconds: float = 0.0, limit: float | None = None) -> float:
    """Share of the step size after `done` of `total` iterations: a cosine from one to zero.

    Where training may take `limit` seconds, it is over by then: what is further along counts.
    """
    share = done / max(1, total)
    if limit is not None:
        share = max(share, seconds / limit)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group its step size, times the group's `factor` where it has one; a tensor's value changes in place,
    so that a captured graph reads the new one."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
