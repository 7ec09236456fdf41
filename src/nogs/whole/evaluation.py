"""Scores of the whole-image reference: temperatures, accuracies, and their place in a run."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from nogs.data.task import LabelSpace
from nogs.posterior.calibration import fit_inverse_temperature
from nogs.posterior.labels import Head
from nogs.posterior.protocol import cross_entropy
from nogs.runtime.files import read_json
from nogs.runtime.headers import described

__all__ = ["FILE", "FOLDER", "inverse_temperatures", "scores", "whole_scores"]

FOLDER, FILE = "whole-image", "evaluation.json"


def inverse_temperatures(
    logits: Float32[Tensor, "n O"], labels: Int[Tensor, "n V"], *, space: LabelSpace
) -> Float32[Tensor, " V"]:
    """The factor on the logits of each label variable that minimises the cross-entropy on these images."""
    if space.kind == "categorical":
        return fit_inverse_temperature(logits, labels, head=Head(space))
    single = [
        fit_inverse_temperature(logits[:, [k]], labels[:, [k]], head=Head(LabelSpace("bernoulli", (name,))))
        for k, name in enumerate(space.names)
    ]
    return torch.cat(single)


def scores(
    logits: Float32[Tensor, "n O"], labels: Int[Tensor, "n V"], *, scale: Float32[Tensor, " V"], space: LabelSpace
) -> dict[str, dict[str, float]]:
    """Accuracy, balanced accuracy and NLL (nats) of each label variable; that of a categorical task is named ""."""
    answers = Head(space).log_probabilities(logits, scale.expand(len(logits), -1))
    right, nll = (answers.argmax(-1) == labels).float(), cross_entropy(answers, labels)
    names = ("",) if space.kind == "categorical" else space.names
    return {
        name: {
            "accuracy": right[:, v].mean().item(),
            "balanced_accuracy": _balanced(right[:, v], labels[:, v]),
            "nll": nll[:, v].mean().item(),
        }
        for v, name in enumerate(names)
    }


def whole_scores(run: Path, attribute: str | None) -> dict[str, float] | None:
    """Test accuracy, balanced accuracy and NLL of a run's whole-image reference, or None if it has none."""
    path = run / FOLDER / FILE
    if not path.is_file():
        return None
    found = read_json(path)
    with described(path, "the evaluation of a whole-image reference"):
        own = found["tests"][attribute or ""]
        return {name: float(own[name]) for name in ("accuracy", "balanced_accuracy", "nll")}


def _balanced(right: Float32[Tensor, " n"], labels: Int[Tensor, " n"]) -> float:
    """Mean accuracy of the classes that are present."""
    return torch.stack([right[labels == label].mean() for label in labels.unique()]).mean().item()
