"""Run a function of fixed shapes as a CUDA graph, which removes the launch cost of its many small kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


def captured(
    function: Callable[[], Result], device: torch.device, *, changes: Iterable[Tensor] = ()
) -> Callable[[], Result]:
    """On a CPU the function itself; on a GPU its captured graph, which returns the same tensors at every call.

    On a GPU the function first runs three times. The tensors that it `changes` are then restored.
    """
    if device.type != "cuda":
        return function
    before = [(value, value.clone()) for value in changes]
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    with torch.no_grad():
        for value, old in before:
            value.copy_(old)

    def replay(keep: Callable[[], Result] = function) -> Result:
        """Run the graph; `keep` holds the tensors that the graph reads and writes."""
        graph.replay()
        return result

    return replay
