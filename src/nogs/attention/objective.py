"""The partially supervised objective of section 5 (Eq. 8), as losses for one mixed batch of M networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.network import Rollout


@dataclass
class Losses:
    """Losses of each network, as means over the batch; `total` is minimised.

    `classification` trains the embedder, GRU and classifier; `reinforce` and `supervision` train the location network;
    `baseline` trains the baseline network. The network detaches the state where the paper does.
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
) -> Losses:
    """Negative lower bound on Eq. 8 for one batch.

    All images have the cross-entropy of the label. Unsupervised images have REINFORCE for each glimpse: the reward (1
    for a right prediction) less a learned baseline. Supervised images, whose sequence the rollout followed, have the
    log-likelihood of the sequence, times `weight`. Without `supervised` this is RAM.
    """
    cross_entropy = F.cross_entropy(rollout.logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    reward = (rollout.logits.detach().argmax(-1) == labels).float()
    log_probabilities = rollout.log_probabilities
    error = reward[..., None] - rollout.baselines
    reinforce = -(error.detach() * log_probabilities).sum(-1)
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
    return Losses(total, classification, reinforce, baseline, supervision, reward.mean(-1))
