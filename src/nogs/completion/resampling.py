"""Residual resampling with keyed random numbers, and effective sample sizes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nogs.runtime.streams import bits

__all__ = ["effective_size", "resample"]

_FIXED = 2.0**40  # remainders are added up as integers, so that the order of the sum does not matter


def resample(
    log_weights: Float[Tensor, "*batch M"], n: int, *, key: int | Int64[Tensor, "*batch"]
) -> Int64[Tensor, "*batch M"]:
    """How often each of M is drawn in n draws: floor(n p) times for sure; the remaining draws are random.

    The expected number is n p for each. The draws depend on `key` and the weights alone.
    """
    share = torch.softmax(log_weights.double(), -1) * n
    counts = (share + 1e-9).floor()  # a share that rounding put just below a whole number counts as whole
    cumulative = ((share - counts).clamp_min(0) * _FIXED).long().cumsum(-1)
    counts = counts.long()
    remaining = n - counts.sum(-1, keepdim=True)
    draws = torch.arange(n, device=log_weights.device)
    keys = torch.as_tensor(key, device=log_weights.device)[..., None]
    uniform = ((bits(keys, draws) >> 11) & ((1 << 53) - 1)).double() * 2.0**-53
    chosen = torch.searchsorted(cumulative, (uniform * cumulative[..., -1:]).long(), right=True)
    return counts.scatter_add_(-1, chosen.clamp_(max=counts.shape[-1] - 1), (draws < remaining).long())


def effective_size(log_weights: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch"]:
    """1 / sum of squared normalised weights."""
    first, second = torch.logsumexp(log_weights, -1), torch.logsumexp(2 * log_weights, -1)
    return (2 * first - second).exp()
