"""`bayesopt`: Bayesian optimisation with a Gaussian process over the map (the paper's suggestion), by BoTorch.

It needs the extra `bayesopt` (pip install "nogs[bayesopt]"). It pays where an evaluation is expensive. With a fast
posterior the process itself costs more than it saves.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from nogs.design.entropies import Entropies
from nogs.design.epe import TIE, estimate, first_minimum
from nogs.design.search import Choice, conclude, means
from nogs.runtime.errors import InputError

__all__ = ["BayesOpt"]


class BayesOpt:
    """Tries `start` evenly spread locations, then the one of largest expected improvement, up to `budget` in all."""

    def __init__(self, *, start: int = 24, budget: int = 64) -> None:
        self.start, self.budget = start, budget

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """See `LocationSearch`."""
        model = _botorch()
        allowed = allowed.to(entropies.values.device)
        coordinates = entropies.posterior.grid.coordinates.double() / 2 + 0.5
        tried = self._spread(coordinates, allowed)
        entropies.fill(tried)
        for _ in range(self.budget - self.start):
            wanted = torch.zeros_like(tried)
            for b in range(len(tried)):
                open_ = (allowed[b] & ~tried[b]).nonzero()[:, 0]
                if len(open_):
                    known = tried[b].nonzero()[:, 0]
                    values, weights = entropies.values[b, : entropies.used[b]], entropies.weights[b]
                    mean, error = estimate(values[:, known], weights[: len(values)], leader=0, most=entropies.most())
                    gain = model(coordinates[known.cpu()], mean.cpu(), error.cpu(), coordinates[open_.cpu()])
                    wanted[b, open_[int(gain.argmax())]] = True
            if not wanted.any():
                break
            entropies.fill(wanted)
            tried |= wanted
        return conclude(entropies, allowed, first_minimum(means(entropies, tried)))

    def _spread(self, coordinates: Float[Tensor, "L 2"], allowed: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """The allowed locations nearest to the first points of Sobol's sequence."""
        points = torch.quasirandom.SobolEngine(2).draw(4 * self.start).double()
        near: Int64[Tensor, " P"] = torch.cdist(points, coordinates).argmin(1)
        out = torch.zeros_like(allowed)
        for b, row in enumerate(allowed.cpu()):
            chosen = list(dict.fromkeys(index for index in near.tolist() if row[index]))[: self.start]
            chosen = chosen or row.nonzero()[:1, 0].tolist()
            out[b, torch.tensor(chosen)] = True
        return out


def _botorch() -> Any:
    """Log expected improvement of open locations, from the coordinates, means and errors of tried ones."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these packages' warnings about each other don't concern the user
            from botorch.acquisition.analytic import LogExpectedImprovement
            from botorch.exceptions.errors import ModelFittingError
            from botorch.fit import fit_gpytorch_mll
            from botorch.models import SingleTaskGP
            from botorch.models.transforms import Standardize
            from gpytorch.mlls import ExactMarginalLogLikelihood
    except ImportError:
        raise InputError('The search bayesopt needs BoTorch; install it with pip install "nogs[bayesopt]".') from None

    def improvement(known: Tensor, mean: Tensor, error: Tensor, candidates: Tensor) -> Tensor:
        if float(mean.max() - mean.min()) <= TIE:  # a flat map gives no direction
            return torch.zeros(len(candidates))
        # all locations are tried on the same completions, so most of the error is common to them; a process that goes
        # through every value would fit the rest
        noise = error.square().clamp_min(1e-8)[:, None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            process = SingleTaskGP(known, -mean[:, None], noise, outcome_transform=Standardize(m=1))
            with contextlib.suppress(ModelFittingError):  # then the prior's length scales are used
                fit_gpytorch_mll(ExactMarginalLogLikelihood(process.likelihood, process))
            process.eval()
            gain: Tensor = LogExpectedImprovement(process, best_f=(-mean).max())(candidates[:, None])
        return gain.detach()

    return improvement
