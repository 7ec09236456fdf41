"""Scores of glimpse sequences: a posterior's entropy, cross-entropy and accuracy after each glimpse along them.

The posterior should not be the one that made them. Entropy alone rewards overconfidence, so the cross-entropy of the
true label and the accuracy are measured too. All sequences are scored on the same images. Intervals are bootstraps over
images, with the same draws for all, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int, Int64, UInt8
from torch import Tensor

from nogs.posterior.protocol import Posterior, cross_entropy, entropy
from nogs.runtime.streams import numpy_stream

__all__ = ["MEASURES", "Judged", "compare", "follow", "text_table"]

MEASURES = ("entropy", "cross_entropy", "accuracy")
_TOGETHER = 128  # images between two updates of the progress bar


@dataclass(frozen=True)
class Judged:
    """The three measures of each of n images after t = 0..T glimpses."""

    numbers: Float64[np.ndarray, "n T1 M"]


def follow(
    posterior: Posterior,
    images: UInt8[Tensor, "n H W 3"],
    labels: Int64[Tensor, "n V"],
    pixels: Int[Tensor, "R n T 2"],
    *,
    variables: Sequence[int],
    advance: Callable[[int], object] = lambda evaluations: None,
) -> Judged:
    """Follow R sequences of each image; where R > 1, as for random ones, their mean counts."""
    parts = [slice(start, start + _TOGETHER) for start in range(0, len(images), _TOGETHER)]
    rounds = []
    for one in pixels:
        found = []
        for part in parts:
            found.append(_follow(posterior, images[part], labels[part], one[part], variables))
            advance(found[-1].shape[0] * found[-1].shape[1])
        rounds.append(np.concatenate(found))
    return Judged(np.mean(rounds, 0))


def compare(
    judged: Mapping[str, Judged], *, draws: int = 2000, level: float = 0.95, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """For each kind of sequence: means of the measures by t, and differences to the first kind, both with intervals."""
    first = next(iter(judged))
    number = len(judged[first].numbers)
    rng = numpy_stream(seed, "design/bootstrap")
    counts = rng.multinomial(number, np.full(number, 1 / number), size=draws) / number
    ends = [(1 - level) / 2, (1 + level) / 2]

    def summary(numbers: np.ndarray) -> dict[str, Any]:
        mean = numbers.mean(0)
        low, high = np.quantile(np.tensordot(counts, numbers, 1), ends, axis=0)
        return {
            name: {"mean": mean[:, m].tolist(), "low": low[:, m].tolist(), "high": high[:, m].tolist()}
            for m, name in enumerate(MEASURES)
        }

    out = {}
    for name, one in judged.items():
        out[name] = {"measures": summary(one.numbers)}
        if name != first:
            out[name][f"minus {first}"] = summary(one.numbers - judged[first].numbers)
    return out


def text_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The means with their intervals after the last glimpse, and their paired differences to the first kind; then the
    means by number of glimpses."""
    names = list(found)
    apart = {f"{name} - {names[0]}": found[name][f"minus {names[0]}"] for name in names[1:]}
    width = max(map(len, (*names, *apart))) + 2
    head = "".join(f"{name.replace('_', '-'):>28}" for name in MEASURES)
    last = len(found[names[0]]["measures"][MEASURES[0]]["mean"]) - 1
    lines = [f"after {last} glimpses".ljust(width) + head]
    for name, measured in {**{name: found[name]["measures"] for name in names}, **apart}.items():
        cells = (measured[measure] for measure in MEASURES)
        lines.append(name.ljust(width) + "".join(f"{_interval(cell, last):>28}" for cell in cells))
    for measure in MEASURES:
        lines += ["", measure.replace("_", "-").ljust(width) + "".join(f"{f't={t}':>9}" for t in range(last + 1))]
        for name in names:
            means = found[name]["measures"][measure]["mean"]
            lines.append(name.ljust(width) + "".join(f"{mean:>z9.4f}" for mean in means))
    return "\n".join(lines)


def _follow(
    posterior: Posterior, images: Tensor, labels: Tensor, pixels: Tensor, variables: Sequence[int]
) -> Float64[np.ndarray, "n T1 M"]:
    chosen, truth = list(variables), labels[:, list(variables)]
    steps = []
    for t in range(pixels.shape[1] + 1):
        answers = posterior.log_probabilities(images, pixels[:, :t])[:, chosen]
        right = (answers.argmax(-1) == truth).double()
        each = [entropy(answers).double().sum(-1), cross_entropy(answers, truth).double().sum(-1), right.mean(-1)]
        steps.append(torch.stack(each, -1).cpu().numpy())
    return np.stack(steps, 1)


def _interval(cell: Mapping[str, Sequence[float]], t: int) -> str:
    return f"{cell['mean'][t]:z.4f} [{cell['low'][t]:z.4f}, {cell['high'][t]:z.4f}]"
