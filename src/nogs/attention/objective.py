"""The partially supervised objective of section 5 (Eq. 8), as losses for one mixed batch of M networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.config import AttentionConfig
from nogs.attention.network import Rollout


@dataclass
class Losses:
    """Per network, each a mean over the batch; `total` is what is minimised.

    Which parameters each reaches: `classification` the embedder, GRU and classifier; `reinforce` and `supervision` the
    location network; `baseline` the baseline network. The network detaches the state where the paper does.
    """

    total: Float[Tensor, " M"]
    classification: Float[Tensor, " M"]
    reinforce: Float[Tensor, " M"]
    baseline: Float[Tensor, " M"]
    supervision: Float[Tensor, " M"]
    reward: Float[Tensor, " M"]


def objective(
    rollout: Rollout,
    labels: Int[Tensor, "M B"],
    *,
    supervised: Bool[Tensor, "M B"] | None,
    weight: Float[Tensor, " M"] | float = 1.0,
    reward: Literal["accuracy", "confidence"] = "accuracy",
    entropy_bonus: float = 0.0,
    class_weights: Float[Tensor, "M K"] | None = None,
) -> Losses:
    """Negative lower bound on Eq. 8 for one batch.

    Every image: cross-entropy of its label, times its class's weight where there are `class_weights`. Unsupervised
    images: REINFORCE, the reward less a learned baseline, for each glimpse. Supervised images (whose sequence the
    rollout followed): log-likelihood of the sequence, times `weight`. Without `supervised` this is RAM.
    """
    cross_entropy = F.cross_entropy(rollout.logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    if class_weights is not None:
        cross_entropy = cross_entropy * class_weights.gather(1, labels)
    gain = rewards(rollout.logits, labels, reward)
    log_probabilities = rollout.log_probabilities
    error = gain[..., None] - rollout.baselines
    reinforce = -(error.detach() * log_probabilities).sum(-1)
    if entropy_bonus:
        if rollout.entropies is None:
            raise ValueError("An entropy bonus needs a rollout with entropies.")
        reinforce = reinforce - entropy_bonus * rollout.entropies.sum(-1)
    baseline = error.square().mean(-1)
    if supervised is None:
        supervision = torch.zeros_like(cross_entropy)
    else:
        supervision = torch.where(supervised, -log_probabilities.sum(-1), 0.0)
        reinforce = torch.where(supervised, 0.0, reinforce)
        baseline = torch.where(supervised, 0.0, baseline)
    classification, reinforce, baseline, supervision = (
        loss.mean(-1) for loss in (cross_entropy, reinforce, baseline, supervision)
    )
    total = classification + reinforce + baseline + weight * supervision
    return Losses(total, classification, reinforce, baseline, supervision, gain.mean(-1))


def rewards(logits: Float[Tensor, "M B K"], labels: Int[Tensor, "M B"], kind: str) -> Float[Tensor, "M B"]:
    """1 for a right prediction, or how far the label's probability exceeds chance; constants for the gradient."""
    if kind == "accuracy":
        return (logits.detach().argmax(-1) == labels).float()
    probability = logits.detach().softmax(-1).gather(-1, labels[..., None])[..., 0]
    return (probability - 1 / logits.shape[-1]).clamp(min=0)


def supervision_share(config: AttentionConfig, iteration: int) -> float:
    """The share of its weight that supervision has at an iteration, by the recipe's schedule."""
    if config.supervision_schedule == "constant":
        return 1.0
    passed = min(iteration / (config.supervision_until or config.iterations), 1.0)
    return 1 - passed if config.supervision_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * passed))
