"""Quality of the completions of any `Completion`, by number of glimpses, on patches that were not seen.

Measured are the effective sample size, the log-likelihood of hidden patches under the samples, and the time per image.
Coverage is how often a hidden pixel's true value lies in the samples' range. Diversity is how much the samples differ
where nothing was seen. Sharpness is how much neighbouring pixels of a sample differ, relative to the true image's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from nogs.completion.protocol import Completion, Completions
from nogs.data.task import Task
from nogs.glimpse import cut, mask
from nogs.runtime import progress
from nogs.runtime.streams import key, permutation

__all__ = ["evaluate_completion", "random_locations"]

WIDTHS = (4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
"""Standard deviations (grey levels) of the Gaussian around each sample; the one of largest likelihood counts."""


_DIAGNOSTICS = {"acceptance", "rhat"}


def random_locations(task: Task, ids: Sequence[str], number: int, *, seed: int) -> Int64[Tensor, "B T 2"]:
    """Different locations of the grid for each image, by its id."""
    chosen = [permutation(key(seed, "evaluation locations", id), len(task.grid))[:number] for id in ids]
    return task.grid.pixels[torch.stack(chosen)]


def evaluate_completion(
    completion: Completion,
    task: Task,
    ids: Sequence[str],
    *,
    glimpses: int,
    hidden: int = 8,
    batch: int = 16,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measures after 0 .. glimpses - 1 glimpses at random locations, as means over the images `ids`.

    The measures use `hidden` patches of each image at other locations of the grid, without the pixels that were seen.
    Grey levels are 0 .. 255.
    """
    rows = task.rows(ids)
    pixels = random_locations(task, ids, glimpses - 1 + hidden, seed=seed)
    seen, places = pixels[:, : glimpses - 1], pixels[:, glimpses - 1 :]
    out = []
    with progress.track("evaluating completions", total=glimpses * len(ids), unit="images") as bar:
        for observed in range(glimpses):
            found: list[dict[str, Any]] = []
            seconds = 0.0
            for first in range(0, len(ids), batch):
                part = slice(first, min(first + batch, len(ids)))
                images = torch.from_numpy(np.array(task.images[rows[part]]))
                began = time.monotonic()
                completions = completion.complete(images, seen[part, :observed], ids=ids[part])
                if completions.pool.device.type == "cuda":
                    torch.cuda.synchronize(completions.pool.device)
                seconds += time.monotonic() - began
                found += [
                    _measure(
                        completions, b, images[b], seen[first + b, :observed], places[first + b], task.grid.glimpse
                    )
                    for b in range(len(images))
                ]
                bar.advance(len(images))
            out.append({"observed": observed, **_summary(found), "seconds_per_image": round(seconds / len(ids), 5)})
    return out


def _measure(
    completions: Completions, b: int, image: Tensor, seen: Tensor, places: Tensor, glimpse: int
) -> dict[str, Any]:
    """Measures of one image's completions."""
    device = completions.pool.device
    used = completions.weights[b] > 0
    weights, flipped = completions.weights[b, used].double(), completions.flipped[b, used]
    index, pixels = completions.index[b, used], places.to(device)
    shape = (len(index), len(places))
    samples = cut(
        completions.pool,
        pixels.expand(*shape, 2),
        glimpse=glimpse,
        index=index[:, None].expand(shape),
        flip=flipped[:, None].expand(shape),
    )
    image = image.to(device)
    truth = cut(image[None], pixels[None], glimpse=glimpse)[0]
    observed = mask(seen.to(device), glimpse=glimpse, height=image.shape[0], width=image.shape[1])
    covered = cut(observed[None, ..., None].to(torch.uint8), pixels[None], glimpse=glimpse)[0, ..., 0].bool()
    hidden = ~covered[..., None].expand(truth.shape)  # M g g 3
    values, target, w = samples.float(), truth.float(), weights.float()
    low, high = values.amin(0), values.amax(0)
    # the weight of samples up to the truth, and below it, to be compared with quantiles
    upto = torch.einsum("n,n...->...", w, (values <= target).float())
    below = torch.einsum("n,n...->...", w, (values < target).float())
    mean = torch.einsum("n,n...->...", w, values)
    variance = torch.einsum("n,n...->...", w, (values - mean).square())
    # squared differences are whole numbers that float32 represents; their sum may not be
    squares = torch.where(hidden, (values - target).square(), 0).sum((2, 3, 4), dtype=torch.float64)  # n M
    numbers = hidden.sum((1, 2, 3))
    return {
        "effective": float(completions.effective[b]),
        "proposed": float(completions.proposed[b]),
        "temperature": float(completions.temperature[b]),
        "unique": int(used.sum()),
        "range": _share((target >= low) & (target <= high), hidden),
        "central": _share((upto >= 0.05 - 1e-6) & (below < 0.95 - 1e-6), hidden),
        "likelihoods": [_log_likelihood(squares, numbers, weights, width) for width in WIDTHS],
        "diversity": math.sqrt(float(variance[hidden].mean())) if hidden.any() else math.nan,
        "sharpness": _sharpness(values, target, w),
        "error": math.sqrt(float((mean - target).square()[hidden].mean())) if hidden.any() else math.nan,
        **{name: float(each[b]) for name, each in completions.diagnostics.items()},
    }


def _summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(name: str) -> float | None:
        values = [one[name] for one in found if not math.isnan(one[name])]
        return round(float(np.mean(values)), 4) if values else None

    likelihoods = np.array([one["likelihoods"] for one in found]).mean(0)
    best = int(likelihoods.argmax())
    return {
        "images": len(found),
        "effective_sample_size": mean("effective"),
        "effective_sample_size_lowest_tenth": round(float(np.quantile([one["effective"] for one in found], 0.1)), 4),
        "proposal_effective_sample_size": mean("proposed"),
        "proposal_temperature": mean("temperature"),
        "unique_completions": mean("unique"),
        "coverage_of_range": mean("range"),
        "coverage_of_central_90_percent": mean("central"),
        "log_likelihood_per_number": round(float(likelihoods[best]), 5),
        "log_likelihood_width": WIDTHS[best],
        "diversity": mean("diversity"),
        "sharpness": mean("sharpness"),
        "error_of_mean": mean("error"),
        **{name: mean(name) for name in sorted(found[0].keys() & _DIAGNOSTICS)},
    }


def _sharpness(samples: Tensor, truth: Tensor, weights: Tensor) -> float:
    """Mean absolute difference of neighbouring pixels in the samples' patches, divided by that in the true ones."""

    def edges(patches: Tensor) -> Tensor:
        return patches.diff(dim=-3).abs().mean((-4, -3, -2, -1)) + patches.diff(dim=-2).abs().mean((-4, -3, -2, -1))

    true = float(edges(truth))
    return float(torch.einsum("n,n->", weights, edges(samples))) / true if true else math.nan


def _share(inside: Tensor, hidden: Tensor) -> float:
    return float(inside[hidden].double().mean()) if hidden.any() else math.nan


def _log_likelihood(squares: Tensor, numbers: Tensor, weights: Tensor, width: float) -> float:
    """Mean over the patches of log sum_n w_n N(patch | sample n, width²), per number."""
    some = numbers > 0
    if not some.any():
        return math.nan
    constant = -0.5 * math.log(2 * math.pi * width**2) * numbers[some]
    mixture = torch.logsumexp(weights.log()[:, None] - squares[:, some] / (2 * width**2), 0)
    return float(((mixture + constant) / numbers[some]).mean())
