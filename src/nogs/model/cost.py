"""The cost of a look: parameters and multiply-adds, counted from the operations that are executed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nogs.attention.looking import Looking


class Step(nn.Module):
    """One step of a network (M = 1) as a function of plain tensors, as in an exported file."""

    def __init__(self, networks: Looking) -> None:
        super().__init__()
        self.networks = networks

    def forward(
        self, state: torch.Tensor, patch: torch.Tensor, location: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The next state, the labels' probabilities, and those of the next location."""
        state = self.networks.see(state[None], patch[None], location[None])
        labels = torch.softmax(self.networks.classify(state)[0], -1)
        return state[0], labels, torch.softmax(self.networks.location_logits(state)[0], -1)


def example_inputs(networks: Looking) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A state, a patch and a location of the right shapes, for one image."""
    a = networks.architecture
    patch = torch.zeros(1, a.grid.glimpse, a.grid.glimpse, 3, dtype=torch.uint8)
    return torch.zeros(1, a.hidden), patch, torch.zeros(1, dtype=torch.int64)


def multiply_adds(module: nn.Module, *inputs: torch.Tensor) -> int:
    """Multiplications, each with its addition, of the matrix products and convolutions of one call."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        module(*inputs)
    return int(counter.get_total_flops()) // 2


def cost(networks: Looking) -> dict[str, Any]:
    """Parameters that are used after training, and multiply-adds of a glimpse and of a whole look."""
    training_only = ("baseline_weight", "baseline_bias")
    parameters = sum(p.numel() for name, p in networks.named_parameters() if not name.endswith(training_only))
    step = multiply_adds(Step(networks), *example_inputs(networks))
    return {
        "parameters": parameters,
        "multiply_adds_per_glimpse": step,
        "multiply_adds": step * networks.architecture.glimpses,
        "glimpses": networks.architecture.glimpses,
    }
