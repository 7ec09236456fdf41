"""Muon for the matrices of transformer layers: momentum whose singular values are made equal (Jordan et al. 2024).

torch.optim.Muon works matrix by matrix and reads its step size on the host, which a captured graph can't.
The step is scaled to the size of Adam's (Liu et al. 2025, arXiv:2502.16982), so that one learning rate suits both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_MOMENTUM = 0.95
_QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan's: brings singular values of 0.001 to 1 within 0.7 to 1.2 in five rounds
_ROUNDS = 5
_ADAM_RMS = 0.2
"""Root mean square of Adam's steps, as measured in that paper, in units of the learning rate."""


class MuonAdamW(torch.optim.AdamW):
    """Muon for the groups whose `muon` is true, AdamW for the others."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step, which discards the gradients of Muon's matrices."""
        assert closure is None
        for group in self.param_groups:
            if group["muon"]:
                self._orthogonal_step(group)
        super().step()

    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        stacks: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for weight in group["params"]:
            if weight.grad is None:
                continue
            momentum = self.state[weight]["momentum"]
            momentum.lerp_(weight.grad, 1 - _MOMENTUM)
            ahead = weight.grad.lerp(momentum, _MOMENTUM)
            weight.grad = None
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            # queries, keys and values are three matrices in one
            parts = 3 if weight.shape[0] == 3 * weight.shape[1] else 1
            for part, change in zip(weight.chunk(parts), ahead.chunk(parts)):
                rows, columns = part.shape
                wide = (part, change) if rows <= columns else (part.T, change.T)
                stacks.setdefault((min(rows, columns), max(rows, columns)), []).append(wide)
        for (_, longest), members in stacks.items():
            changes = orthogonal(torch.stack([change for _, change in members]))
            size = group["lr"] * _ADAM_RMS * longest**0.5
            for (part, _), change in zip(members, changes):
                part.sub_(change * size)


def orthogonal(matrices: Float[Tensor, "B m n"]) -> Float[Tensor, "B m n"]:
    """Each matrix (m <= n) with its singular values brought near 1 by a few rounds of a polynomial."""
    a, b, c = _QUINTIC
    x = matrices / matrices.flatten(1).norm(dim=1)[:, None, None].clamp(min=1e-12)
    x = x.bfloat16() if x.is_cuda else x
    for _ in range(_ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.to(matrices.dtype)
