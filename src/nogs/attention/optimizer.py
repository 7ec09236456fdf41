"""Adam for hard-attention networks, with a separate step size for the location network and the baseline."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from nogs.runtime.rates import adam_state

LOCATION = "policy_parameters."
"""Prefixes of the parameters of the location network and the baseline."""


def make_adam(
    parameters: Mapping[str, nn.Parameter], *, rate: float, location_rate: float = 1.0, falls: bool = False
) -> torch.optim.Adam:
    """Fused Adam with its state allocated, so that its step can be captured in a graph and a saved state copied in.

    A group's `factor` multiplies the step size: `location_rate` for the location network and the baseline. Where the
    step size `falls`, a captured graph reads it from memory; see `runtime.rates.set_rate`.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        groups.setdefault(location_rate if name.startswith(LOCATION) else 1.0, []).append(parameter)
    on_gpu = all(parameter.is_cuda for parameter in parameters.values())
    optimizer = torch.optim.Adam(
        [{"params": members, "factor": factor, "lr": rate * factor} for factor, members in groups.items()],
        fused=True,
        capturable=on_gpu,
    )
    for group in optimizer.param_groups:
        if falls and on_gpu:
            group["lr"] = torch.tensor(group["lr"], device=group["params"][0].device)
        for parameter in group["params"]:
            optimizer.state[parameter] = adam_state(parameter)
    return optimizer
