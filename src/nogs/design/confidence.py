"""Is the posterior surer of the bank's images than of those to annotate? Then it knows them by heart, and misleads.

A completion is an image of the bank. Where the posterior was trained on it, little seems to be left unknown wherever
one looks, and the location that would tell most about a new image is not found.
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
"""Images that are looked at, of the bank and of those to annotate."""

_LOWER = 0.85  # the bank's entropy may be so many times the other; on CUB 0.89 chose as well as 0.97


def confidence(tools: Tools, images: UInt8[np.ndarray, "n H W 3"], *, glimpses: int, seed: int) -> dict[str, Any]:
    """Mean entropy (nats) of each label variable after T random glimpses, of the bank's images and of `images`.

    With their standard errors. The bank's images are completions of nothing. Where there are several networks, each of
    these is asked of the one that has not seen it, and each of `images` of one as well: their mean is less sure.
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
    banks = _asked(networks, fold, found.pool, where[: len(chosen)], index, flip)
    others = _asked(
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
    """T random locations of the grid for each image that is looked at."""
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
    """All of `number` indices, or `most` of them at equal distances: they may be sorted by class."""
    return torch.linspace(0, number - 1, min(number, most), dtype=torch.float64).round().long()


def of_variables(found: Mapping[str, Any], variables: Sequence[int]) -> dict[str, float]:
    """The numbers of one objective: sums over its label variables, and the error of the difference."""
    means = {name: round(sum(found[name]["mean"][v] for v in variables), 6) for name in ("bank", "images")}
    # of a sum only a bound is known: errors that all go the same way
    errors = [sum(found[name]["error"][v] for v in variables) for name in ("bank", "images")]
    return {**means, "error_of_difference": round(math.hypot(*errors), 6)}


def sentence(found: Mapping[str, Any], *, generator: str) -> str:
    """What `done.json` says about this, in words; where the posterior is too sure of the bank's images, what to do."""
    bank, images, error = (found[name] for name in ("bank", "images", "error_of_difference"))
    out = (
        f"mean entropy after {found['glimpses']} random glimpses (nats): {bank:.3f} on images of the bank, "
        f"{images:.3f} on images to annotate (standard error of the difference {error:.3f})"
    )
    if found["networks"] > 1 or bank >= _LOWER * images or images - bank <= 2 * error:
        return out
    if generator == "training-images":
        return (
            f"{out}: the posterior has learned the bank's images by heart, which misleads the search; train it with "
            "--posterior.folds 4, or build the bank with another --bank.generator"
        )
    return f"{out}: the bank's images are easier for the posterior; consider another --bank.generator"


def _asked(
    networks: Sequence[Posterior], fold: Tensor, images: Tensor, pixels: Tensor, index: Tensor, flip: Tensor
) -> Float32[Tensor, "Q V"]:
    """Entropies of Q queries, each asked of the network that its fold names."""
    order = fold.argsort(stable=True)
    parts = []
    for number, network in enumerate(networks):
        mine = (fold == number).nonzero()[:, 0]
        parts.append(entropy(network.log_probabilities(images, pixels[mine], index=index[mine], flip=flip[mine])))
    return torch.cat(parts)[order.argsort()]


def _mean(values: Tensor, weights: Tensor) -> dict[str, list[float]]:
    """Weighted means over the rows, and their standard errors; of a single row nothing is known but the mean."""
    numbers: Float64[np.ndarray, "n V"] = values.double().cpu().numpy()
    share = weights.double().cpu().numpy()[:, None] / float(weights.double().sum())
    mean, n = (share * numbers).sum(0), len(numbers)
    error = np.sqrt((share**2 * (numbers - mean) ** 2).sum(0) * n / (n - 1)) if n > 1 else mean
    return {"mean": mean.round(6).tolist(), "error": error.round(6).tolist()}
