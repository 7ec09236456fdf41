"""Accuracy of the frozen features on the whole image: an upper reference for a few glimpses.

It is that of a linear classifier on the mean and the maximum of the pretrained glimpse embedding over all locations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.cohort import Cohort
from nogs.attention.frozen import Table, shown
from nogs.runtime.files import read_json, write_sealed

if TYPE_CHECKING:
    from nogs.attention.trainer import Trainer

FILE = "whole-image.json"
_DECAYS = (1e-3, 1e-2, 1e-1, 1.0)
_STEPS, _EVERY, _RATE = 400, 10, 2e-3


def whole_images(trainer: Trainer, folder: Path) -> list[float | None]:
    """Each network's bound: that of its trunk, computed if it is not known and there is a table of embeddings."""
    table, frozen = trainer.networks.embed, trainer.frozen
    assert frozen is not None
    bounds: list[float | None] = []
    for r, trunk in enumerate(frozen.trunks):
        path = folder / trunk.name / FILE
        if not path.exists() and isinstance(table, Table):
            write_sealed(
                path, whole_image(table, trainer.cohort, r, labels=trainer.cohort.labels[frozen.numbers.index(r)])
            )
        bounds.append(read_json(path)["test_accuracy"] if path.exists() else None)
    return [bounds[r] for r in frozen.numbers]


def whole_image(table: Table, cohort: Cohort, r: int, *, labels: Int[Tensor, " N"]) -> dict[str, float]:
    """Train the classifier on trunk r's embeddings; test accuracy at the best validation accuracy."""
    rows, mirrored, slots = shown(cohort, flip=cohort.flip)
    pooled = _pooled(table.table[r])
    places = {
        split: slots[0][torch.from_numpy(cohort.task.rows(split)).to(rows.device)] for split in cohort.task.splits
    }
    training = torch.cat([places["train"], mirrored.nonzero()[:, 0]])
    spread, mean = torch.var_mean(pooled[training], 0, correction=0)
    pooled = (pooled - mean) * torch.rsqrt(spread + 1e-6)
    answers, seen = labels[rows], pooled[training]
    best = {"validation_accuracy": -1.0, "test_accuracy": 0.0, "weight_decay": 0.0}
    for decay in _DECAYS:
        weight = torch.zeros(cohort.classes, pooled.shape[1], device=rows.device, requires_grad=True)
        bias = torch.zeros(cohort.classes, device=rows.device, requires_grad=True)
        optimizer = torch.optim.AdamW([weight, bias], lr=_RATE, weight_decay=decay)
        for step in range(1, _STEPS + 1):
            optimizer.zero_grad()
            F.cross_entropy(F.linear(seen, weight, bias), answers[training]).backward()
            optimizer.step()
            if step % _EVERY:
                continue
            with torch.no_grad():
                right = F.linear(pooled, weight, bias).argmax(1) == answers
            found = {split: right[places[split]].float().mean().item() for split in ("validation", "test")}
            if found["validation"] > best["validation_accuracy"]:
                scores = {f"{split}_accuracy": value for split, value in found.items()}
                best = {**scores, "weight_decay": decay, "steps": step}
    return best


def _pooled(table: Float[Tensor, "S L D"]) -> Float[Tensor, "S D2"]:
    """Mean and maximum over the locations."""
    parts = []
    for some in table.split(256):
        values = some.float()
        parts.append(torch.cat([values.mean(1), values.amax(1)], 1))
    return torch.cat(parts)
