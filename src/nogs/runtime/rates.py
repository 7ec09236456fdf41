"""Step sizes that fall over the iterations of a training, or over the time it may take."""

from __future__ import annotations

import math

import torch

__all__ = ["falling", "set_rate"]


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
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
