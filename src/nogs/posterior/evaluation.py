"""Evaluate a posterior after t = 0..T glimpses: accuracy, cross-entropy, entropy and calibration error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from nogs.posterior.protocol import Posterior, cross_entropy, entropy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = {
    "accuracy": "accuracy",
    "cross_entropy": "cross-entropy (nats)",
    "entropy": "mean entropy (nats)",
    "calibration_error": "calibration error",
}
"""Column of a table -> its title. With several label variables each number is their mean."""

Row = dict[str, float]

_AT_ONCE = 2048  # evaluations between two updates of the progress


def evaluate(
    posterior: Posterior,
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    rows: Int[Tensor, " n"],
    pixels: Int[Tensor, "n T 2"],
    *,
    variables: Sequence[int] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Row]:
    """A row of numbers for each t: images `rows` after the first t of their glimpses `pixels`.

    `variables` restricts the numbers to some label variables, as for a sequence made for one attribute. `advance` is
    called with the number of evaluations done.
    """
    glimpses = pixels.shape[1]
    table = []
    for t in range(glimpses + 1):
        parts = []
        for some, where in zip(rows.split(_AT_ONCE), pixels.split(_AT_ONCE)):
            parts.append(posterior.log_probabilities(images, where[:, :t], index=some))
            advance(len(some))
        answers = torch.cat(parts)
        truth = labels[rows]
        if variables is not None:
            answers, truth = answers[:, list(variables)], truth[:, list(variables)]
        table.append({"glimpses": t, **scores(answers, truth)})
    return table


def scores(answers: Float[Tensor, "Q V C"], labels: Int[Tensor, "Q V"]) -> Row:
    """The measures of one set of answers."""
    return {
        "accuracy": (answers.argmax(-1) == labels).float().mean().item(),
        "cross_entropy": cross_entropy(answers, labels).mean().item(),
        "entropy": entropy(answers).mean().item(),
        "calibration_error": calibration_error(answers, labels),
    }


def calibration_error(answers: Float[Tensor, "Q V C"], labels: Int[Tensor, "Q V"], *, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over equal bins of confidence, all label variables pooled (ECE)."""
    confidence, predicted = answers.exp().max(-1)
    right = (predicted == labels).flatten().double()
    confidence = confidence.flatten().double()
    bin_ = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64, device=answers.device).scatter_add(0, bin_, right - confidence)
    return (gaps.abs().sum() / len(right)).item()


def text_table(tables: dict[str, list[Row]]) -> str:
    """Tables one after the other, with a line for each t."""
    lines = []
    for title, table in tables.items():
        lines += ["", title, f"{'glimpses':>10}{'accuracy':>11}{'cross-entropy':>15}{'entropy':>10}{'calibration':>13}"]
        for row in table:
            lines.append(
                f"{row['glimpses']:>10}{row['accuracy']:>11.1%}{row['cross_entropy']:>z15.4f}{row['entropy']:>z10.4f}"
                f"{row['calibration_error']:>13.4f}"
            )
    return "\n".join(lines[1:])


def figure(tables: dict[str, list[Row]], *, title: str) -> Figure:
    """The measures against the number of glimpses, a line for each table."""
    from nogs.runtime.figures import Figure

    drawn = Figure(figsize=(12, 3.2), layout="constrained")
    axes: Any = np.atleast_1d(drawn.subplots(1, len(MEASURES)))
    for axis, (name, words) in zip(axes, MEASURES.items()):
        for label, table in tables.items():
            axis.plot([row["glimpses"] for row in table], [row[name] for row in table], "o-", ms=3, label=label)
        axis.set(xlabel="glimpses", title=words)
        axis.grid(alpha=0.3)
    axes[0].legend(loc="best", fontsize="small")
    drawn.suptitle(title)
    return drawn
