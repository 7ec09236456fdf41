"""Outputs and loss of a posterior's network: one categorical label, a set of Bernoulli attributes, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.data.task import LabelSpace, Task
from nogs.posterior.protocol import cross_entropy


class Float32Linear(nn.Linear):
    """A last layer in float32 inside autocast: bfloat16 would lose the small differences that the design needs."""

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float32[Tensor, "*batch O"]:
        """Logits."""
        with torch.autocast(x.device.type, enabled=False, cache_enabled=False):
            return F.linear(x.float(), self.weight, self.bias)


@dataclass(frozen=True)
class Head:
    """Meaning of a network's outputs: first the task's labels, then `attributes` auxiliary Bernoulli attributes."""

    space: LabelSpace
    attributes: int = 0

    @classmethod
    def of(cls, task: Task, *, attributes: bool = True) -> Head:
        """The head for a task, with its auxiliary attributes if it has any and `attributes` is true."""
        return cls(task.space, task.attributes.shape[1] if attributes and task.attributes is not None else 0)

    @property
    def outputs(self) -> int:
        """Number of the network's outputs."""
        return len(self.space.names) + self.attributes

    @property
    def variables(self) -> int:
        """V, the number of label variables."""
        return 1 if self.space.kind == "categorical" else len(self.space.names)

    def log_probabilities(
        self, logits: Float[Tensor, "Q O"], inverse_temperature: Float[Tensor, "Q _"] | None = None
    ) -> Float32[Tensor, "Q V C"]:
        """Normalised in float32, whatever the network's precision; the auxiliary outputs are dropped."""
        labels = logits[:, : len(self.space.names)].float()
        if inverse_temperature is not None:
            labels = labels * inverse_temperature
        if self.space.kind == "categorical":
            return F.log_softmax(labels, -1)[:, None]
        return torch.stack([F.logsigmoid(-labels), F.logsigmoid(labels)], -1)

    def losses(
        self,
        logits: Float[Tensor, "Q O"],
        labels: Int[Tensor, "Q V"],
        attributes: Float[Tensor, "Q A"] | None,
        *,
        teacher: Float[Tensor, "Q V C"] | None = None,
        teacher_weight: float = 0.0,
        smoothing: float = 0.0,
    ) -> Float32[Tensor, " Q"]:
        """The loss of each query (Eq. 7): the mean cross-entropy of its variables, plus that of its attributes.

        `smoothing` is the share of each label that is spread evenly over its values. With a teacher, the share
        `teacher_weight` of the labels' loss is the cross-entropy to the teacher's prediction instead.
        """
        answers = self.log_probabilities(logits)
        loss = cross_entropy(answers, labels).mean(-1)
        if smoothing:
            loss = (1 - smoothing) * loss - smoothing * answers.mean((-2, -1))
        if teacher is not None:
            follow = -(teacher.exp() * answers).sum(-1).mean(-1)
            loss = (1 - teacher_weight) * loss + teacher_weight * follow
        if self.attributes:
            assert attributes is not None
            predicted = logits[:, len(self.space.names) :].float()
            auxiliary = F.binary_cross_entropy_with_logits(predicted, attributes, reduction="none").mean(-1)
            loss = loss + auxiliary
        return loss

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": self.space.kind, "names": list(self.space.names), "attributes": self.attributes}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Head:
        """Inverse of `to_json`."""
        return cls(LabelSpace(value["kind"], tuple(value["names"])), value["attributes"])


def label_table(task: Task) -> Int64[np.ndarray, "N V"]:
    """The true value of each label variable of each image."""
    return np.asarray(task.labels, dtype=np.int64).reshape(len(task.ids), -1)
