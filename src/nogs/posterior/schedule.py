"""The optimiser of a posterior: weight decay, a factor for loaded weights, and the schedule of the step size."""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
from torch import nn

from nogs.posterior.config import PosteriorConfig
from nogs.posterior.muon import MuonAdamW
from nogs.runtime.rates import adam_state, falling


def learning_rate(config: PosteriorConfig, iteration: int, seconds: float = 0.0) -> float:
    """Adam's step size: a linear warm-up, then constant or a cosine to zero.

    The cosine spans the remaining iterations, or the limit of the training time if that ends sooner.
    """
    if iteration < config.warmup:
        return config.learning_rate * (iteration + 1) / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    rest = config.iterations - config.warmup
    return config.learning_rate * falling(iteration - config.warmup, rest, seconds=seconds, limit=config.seconds)


def make_optimizer(
    parameters: Mapping[str, nn.Parameter],
    *,
    config: PosteriorConfig,
    loaded: Set[str],
    frozen: Set[str] = frozenset(),
) -> MuonAdamW:
    """AdamW (Adam without weight decay), or Muon for the transformer's matrices, with initialised state.

    A group's `factor` multiplies the step size; for the parameters named in `loaded` it is `pretrained_rate`.
    Parameters in `frozen` don't change, nor do loaded ones if that rate is 0.
    """
    groups: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        factor = 0.0 if name in frozen else config.pretrained_rate if name in loaded else 1.0
        parameter.requires_grad_(factor > 0)
        muon = config.optimizer == "muon" and config.kind == "tokens" and "blocks." in name and parameter.ndim == 2
        if factor > 0:
            groups.setdefault((muon, parameter.ndim > 1, factor), []).append(parameter)
    # on a GPU a step is a captured graph, which reads the step size from memory
    capturable = all(parameter.is_cuda for parameter in parameters.values())
    optimizer = MuonAdamW(
        [
            {
                "params": members,
                "muon": muon,
                "factor": factor,
                "weight_decay": config.weight_decay if matrices else 0.0,
            }
            for (muon, matrices, factor), members in groups.items()
        ],
        lr=config.learning_rate,
        fused=True,
        capturable=capturable,
    )
    for group in optimizer.param_groups:
        if capturable:
            group["lr"] = torch.tensor(config.learning_rate, device=group["params"][0].device)
        for parameter in group["params"]:
            optimizer.state[parameter] = (
                {"momentum": torch.zeros_like(parameter)} if group["muon"] else adam_state(parameter)
            )
    return optimizer
