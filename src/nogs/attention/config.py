"""The fields of a hard-attention experiment: architecture, objective, schedule."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class AttentionConfig(BaseModel):
    """Hard-attention network and its training; the defaults are the paper's for CelebA-HQ."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    embedder: Literal["paper", "release"] = "paper"
    """Glimpse embedder: the paper's appendix, or the release's variant with batch norm, ReLU6 and a 128-unit layer."""
    scales: int = Field(1, ge=1, le=4)
    """Concentric patches per glimpse, each twice as wide as the last at the same number of pixels (RAM has 3)."""
    hidden: int = Field(64, ge=1)
    """Units of the GRU."""
    embedding: int = Field(64, ge=1)
    """Size of the RNN's input."""
    location_hidden: int = Field(32, ge=1)
    """Hidden units of the location network and of the location embedding."""
    policy: Literal["categorical", "mixture"] = "categorical"
    """Distribution over locations: one probability each, or a mixture of Gaussians restricted to the grid."""
    mixture_components: int = Field(5, ge=1)
    """Gaussians of the mixture policy."""

    supervision_weight: float = Field(1.0, ge=0)
    """Weight of the supervised sequences' log-likelihood: 1 is the paper's objective, 64 the release's."""
    supervision_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How that weight falls to zero over `supervision_until` iterations."""
    supervision_until: int | None = Field(None, ge=1)
    """Iteration at which a falling weight reaches zero; by default the last."""
    entropy_bonus: float = Field(0.0, ge=0)
    """Weight of the policy's entropy (nats, summed over glimpses) on unsupervised images."""
    reward: Literal["accuracy", "confidence"] = "accuracy"
    """Reward of REINFORCE: 1 if the prediction is right, or max(p(label) - 1/K, 0)."""

    learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size."""
    batch: int = Field(64, ge=1)
    """Images per iteration."""
    iterations: int = Field(30_000, ge=1)
    """Training iterations: the one horizon at which methods are compared."""
    flip: bool = True
    """Mirror half of the unsupervised images."""
    validate_every: int = Field(100, ge=1)
    """Iterations between validations."""
    trajectories: int = Field(5, ge=1)
    """Sampled glimpse sequences per image at evaluation."""
    convergence: Literal["nll", "accuracy"] = "nll"
    """Rule for iterations to convergence: first NLL within 0.01 nats of the best, or accuracy within 1 % of it."""
    save_every: int = Field(10, ge=1)
    """Validations between two saved states to resume from."""
    precision: Literal["auto", "float32", "tf32"] = "auto"
    """Arithmetic of matrix products; auto is TF32 on GPUs and float32 on CPUs."""
    fuse: bool = True
    """On a GPU, compile the step of the network first (15 s): a third faster from then on."""
