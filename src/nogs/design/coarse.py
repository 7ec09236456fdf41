"""`coarse-to-fine`: a sparse grid first, then finer and finer steps around its best locations.

It relies on maps that are smooth at the first stride: a narrower minimum between the coarse locations is missed.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from nogs.design.entropies import Entropies
from nogs.design.epe import first_minimum
from nogs.design.search import Choice, conclude, every, means, neighbours

__all__ = ["CoarseToFine"]


class CoarseToFine:
    """Tries every `stride`-th row and column; then neighbours of the `basins` best locations, at half the stride, ...

    At stride 1 it continues until all neighbours of each best location have been tried: the result is a local minimum.
    """

    def __init__(self, *, stride: int = 4, basins: int = 4) -> None:
        self.stride, self.basins = stride, basins

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """See `LocationSearch`."""
        shape = entropies.posterior.grid.shape
        allowed = allowed.to(entropies.values.device)
        wanted, stride = every(allowed, shape, self.stride), self.stride
        tried = torch.zeros_like(allowed)
        while stride > 1 or wanted.any():
            entropies.fill(wanted)
            tried |= wanted
            stride = max(1, stride // 2)
            wanted = neighbours(self._best(means(entropies, tried)), shape, stride) & allowed & ~tried
        return conclude(entropies, allowed, first_minimum(means(entropies, tried)))

    def _best(self, mean: Float64[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        nearest = mean.sort(dim=1, stable=True).indices[:, : self.basins]
        return torch.zeros_like(mean, dtype=torch.bool).scatter(1, nearest, True) & mean.isfinite()
