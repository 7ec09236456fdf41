"""Check whether the posterior is more confident on the bank's images than on those to annotate: a sign of overfitting.

A completion is an image of the bank. If the posterior was trained on it, its entropy is low after every location, and
the search misses the location that is most informative about a new image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64, UInt8
from torch import Tensor

from nogs.design.steps import Tools
from nogs.posterior.protocol import Posterior, entropy, members
from nogs.posterior.queries import fixed_pixels

__all__ = ["MOST", "confidence", "evenly", "of_variables", "random_locations", "sentence"]

MOST = 256
"""Largest number of images evaluated, of the bank and of those to annotate."""

_LOWER = 0.85  # smallest tolerated ratio of the bank's entropy to the other; on CUB 0.89 chose as well as 0.97


def confidence(tools: Tools, images: UInt8[np.ndarray, "n H W 3"], *, glimpses: int, seed: int) -> dict[str, Any]:
    """Mean entropy (nats) of each label variable after T random glimpses, of the bank's images and of `images`.

    Standard errors are given too. The bank's images are completions before any glimpse. Of several networks, the one
    that was not trained on it evaluates each bank image. Each of `images` also gets one network, since the mean of all
    networks is less confident.
    """
    posterior, device = tools.posterior, tools.device
    networks = members(posterior)
    own = torch.from_numpy(images).to(device)
    rows = torch.arange(len(own), device=device)
    found = tools.completion.complete(own[:1], torch.zeros(1, 0, 2, dtype=torch.int64), ids=[""])
    chosen = (found.weights[0] > 0).nonzero()[:, 0]
    chosen = chosen[evenly(len(chosen), MOST).to(device)]
    fold, index, flip = (part[0, chosen] for part in (found.folds(len(networks)), found.index, found.flipped))
    where = random_locations(posterior, glimpses=glimpses, seed=seed, device=device)
    banks = _entropies(networks, fold, found.pool, where[: len(chosen)], index, flip)
    others = _entropies(
        networks, rows % len(networks), own, where[: len(own)], rows, torch.zeros_like(rows, dtype=torch.bool)
    )
    return {
        "networks": len(networks),
        "bank": _mean(banks, found.weights[0, chosen]),
        "images": _mean(others, torch.ones(len(others))),
    }


def random_locations(
    posterior: Posterior, *, glimpses: int, seed: int, device: torch.device
) -> Int64[Tensor, "MOST T 2"]:
    """T random locations of the grid for each image that is evaluated."""
    return fixed_pixels(
        MOST,
        glimpses=glimpses,
        grid=posterior.grid,
        locations="grid",
        seed=seed,
        purpose="confidence",
        device=device,
    )


def evenly(number: int, most: int) -> Int64[Tensor, " n"]:
    """All of `number` indices, or `most` of them at equal distances, since they may be sorted by class."""
    return torch.linspace(0, number - 1, min(number, most), dtype=torch.float64).round().long()


def of_variables(found: Mapping[str, Any], variables: Sequence[int]) -> dict[str, float]:
    """The numbers of one objective: sums over its label variables, and the error of the difference."""
    means = {name: round(sum(found[name]["mean"][v] for v in variables), 6) for name in ("bank", "images")}
    # for a sum only a bound is known: errors of the same sign
    errors = [sum(found[name]["error"][v] for v in variables) for name in ("bank", "images")]
    return {**means, "error_of_difference": round(math.hypot(*errors), 6)}


def sentence(found: Mapping[str, Any], *, generator: str) -> str:
    """The numbers of `done.json` as a sentence; where the posterior overfits the bank's images, with a remedy."""
    bank, images, error = (found[name] for name in ("bank", "images", "error_of_difference"))
    out = (
        f"mean entropy after {found['glimpses']} random glimpses (nats): {bank:.3f} on images of the bank, "
        f"{images:.3f} on images to annotate (standard error of the difference {error:.3f})"
    )
    if found["networks"] > 1 or bank >= _LOWER * images or images - bank <= 2 * error:
        return out
    if generator == "training-images":
        return (
            f"{out}: the posterior overfits the bank's images, which misleads the search; train it with "
            "--posterior.folds 4, or build the bank with another --bank.generator"
        )
    return f"{out}: the bank's images are easier for the posterior; consider another --bank.generator"


def _entropies(
    networks: Sequence[Posterior], fold: Tensor, images: Tensor, pixels: Tensor, index: Tensor, flip: Tensor
) -> Float32[Tensor, "Q V"]:
    """Entropies of Q queries, each from the network of its fold."""
    order = fold.argsort(stable=True)
    parts = []
    for number, network in enumerate(networks):
        mine = (fold == number).nonzero()[:, 0]
        parts.append(entropy(network.log_probabilities(images, pixels[mine], index=index[mine], flip=flip[mine])))
    return torch.cat(parts)[order.argsort()]


def _mean(values: Tensor, weights: Tensor) -> dict[str, list[float]]:
    """Weighted means over the rows, and their standard errors; a single row has no error."""
    numbers: Float64[np.ndarray, "n V"] = values.double().cpu().numpy()
    share = weights.double().cpu().numpy()[:, None] / float(weights.double().sum())
    mean, n = (share * numbers).sum(0), len(numbers)
    error = np.sqrt((share**2 * (numbers - mean) ** 2).sum(0) * n / (n - 1)) if n > 1 else mean
    return {"mean": mean.round(6).tolist(), "error": error.round(6).tolist()}
