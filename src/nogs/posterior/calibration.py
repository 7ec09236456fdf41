"""Temperature calibration: one temperature for each number of glimpses, fitted on validation images.

The design minimises entropy, so an overconfident posterior would choose the wrong locations.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float32, Int, UInt8
from torch import Tensor

from nogs.posterior.labels import Head
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.protocol import cross_entropy
from nogs.posterior.queries import fixed_pixels

RANGE = (0.05, 20.0)
"""Smallest and largest inverse temperature."""

_QUERIES = 4096  # per number of glimpses, about: few validation images are each used at several sets of locations


def fit_temperatures(
    posterior: NetworkPosterior,
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    rows: Int[Tensor, " n"],
    *,
    locations: Literal["anywhere", "grid"],
    seed: int,
) -> Float32[Tensor, "T1 1"]:
    """Inverse temperatures by number of glimpses t = 0..T, for the images `rows` at random locations."""
    glimpses, head = posterior.glimpses, posterior.architecture.head
    table = torch.ones(glimpses + 1, 1, device=images.device)
    draws = max(1, min(4, _QUERIES // len(rows)))
    where = fixed_pixels(
        draws * len(rows),
        glimpses=glimpses,
        grid=posterior.grid,
        locations=locations,
        seed=seed,
        purpose="calibration",
        device=images.device,
    )
    which = rows.repeat(draws)
    for t in range(glimpses + 1):
        logits = posterior.logits(images, where[:, :t], index=which)
        table[t] = fit_inverse_temperature(logits, labels[which], head=head)
    return table


def fit_inverse_temperature(
    logits: Float32[Tensor, "Q O"], labels: Int[Tensor, "Q V"], *, head: Head
) -> Float32[Tensor, " 1"]:
    """The factor on the logits with the least cross-entropy, one for all label variables.

    The cross-entropy is convex in the factor, so its slope changes sign once: bisection on a logarithmic scale.
    """
    low = torch.full((1,), RANGE[0], dtype=torch.float64, device=logits.device)
    high = torch.full_like(low, RANGE[1])
    for _ in range(40):
        middle = (low * high).sqrt()
        with torch.enable_grad():
            factor = middle.float().requires_grad_()
            answers = head.log_probabilities(logits, factor.expand(len(logits), -1))
            (slope,) = torch.autograd.grad(cross_entropy(answers, labels).mean(0).sum(), factor)
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    return (low * high).sqrt().float()
