"""Drawing a location from the policy by inverse CDF, with its log-probability and gradient.

`torch.multinomial` over 2,500 locations took a third of a training step on a CPU. One uniform number and a cumulative
sum do the same, with numbers from a keyed stream, so that a run repeats exactly.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor


def choose(
    logits: Float[Tensor, "*batch L"],
    uniform: Float[Tensor, "*batch"] | None,
    forced: Int[Tensor, "*batch"] | None = None,
    *,
    width: int | None = None,
) -> tuple[Int[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """A location for each row and its log-probability.

    `uniform` in [0, 1) draws it; None takes the most probable one. Where `forced` is not negative it is taken instead;
    if all are forced, nothing is drawn. `width` divides L (the grid's columns). Drawing a block of so many locations
    and then one of its entries is faster than one long cumulative sum.
    """
    location, log_probability = _Choose.apply(logits, uniform, forced, width or logits.shape[-1])
    return location, log_probability


def entropy(logits: Float[Tensor, "*batch L"]) -> Float[Tensor, "*batch"]:
    """Entropy of the policy in nats."""
    log_probabilities = torch.log_softmax(logits.float(), -1)
    # not torch.special.entr, whose gradient is NaN where a probability rounds to zero
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


class _Choose(torch.autograd.Function):
    """Softmax, draw and log-probability from one array of exponentials, which also gives the gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, uniform: Tensor | None, forced: Tensor | None, width: int
    ) -> tuple[Tensor, Tensor]:
        logits = logits.float()
        top = logits.amax(-1, keepdim=True)
        weights = (logits - top).exp_()
        if uniform is None:
            location, total = logits.argmax(-1), weights.sum(-1, keepdim=True)
        else:
            location, total = _draw(weights, uniform, width)
        if forced is not None:
            location = torch.where(forced >= 0, forced, location)
        log_probability = (logits.gather(-1, location[..., None]) - top - total.log())[..., 0]
        ctx.save_for_backward(weights, total, location)
        ctx.mark_non_differentiable(location)
        return location, log_probability

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        weights, total, location = ctx.saved_tensors
        gradient = gradients[1][..., None]
        out = weights * (-gradient / total)
        return out.scatter_add_(-1, location[..., None], gradient), None, None, None


def _draw(weights: Tensor, uniform: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Inverse CDF in two levels, first a block of `width` locations and then one in it. Also the weights' sum."""
    blocks = weights.unflatten(-1, (-1, width))
    before = blocks.sum(-1).cumsum(-1)
    threshold = uniform[..., None] * before[..., -1:]
    # rounding may make a threshold equal to the last sum
    block = torch.searchsorted(before, threshold, right=True).clamp_(max=before.shape[-1] - 1)
    chosen = blocks.gather(-2, block[..., None].expand(*block.shape, width))[..., 0, :].cumsum(-1)
    rest = threshold - torch.where(block > 0, before.gather(-1, (block - 1).clamp_(min=0)), 0)
    # a block's sum and its last cumulative sum round differently; beyond the latter are only impossible locations
    rest = torch.minimum(rest, chosen[..., -1:] * (1 - 2.0**-23))
    within = torch.searchsorted(chosen, rest, right=True).clamp_(max=width - 1)
    return (block * width + within)[..., 0], before[..., -1:]
