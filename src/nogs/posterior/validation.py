"""The judge of a training: the same glimpses of the validation images, every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from nogs.posterior.protocol import cross_entropy
from nogs.posterior.queries import fixed_pixels, observed_first

if TYPE_CHECKING:
    from nogs.posterior.training import Trainer


class Validation:
    """Cross-entropy by number of glimpses and accuracy, on the same glimpses of the validation images every time."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.steps = trainer, trainer.glimpses + 1
        rows = torch.from_numpy(trainer.task.rows("validation")).to(trainer.device)
        where = fixed_pixels(
            len(rows),
            glimpses=trainer.glimpses,
            grid=trainer.task.grid,
            locations=trainer.config.locations,
            seed=trainer.seed,
            purpose="validation",
            device=trainer.device,
        )
        t = torch.arange(self.steps, device=trainer.device).repeat_interleave(len(rows))
        self.rows, self.pixels = rows.repeat(self.steps), where.repeat(self.steps, 1, 1)
        self.observed = observed_first(t, trainer.glimpses)

    def __call__(self) -> tuple[Float[Tensor, " T1"], float]:
        """Judge the network as it is now."""
        posterior = self.trainer.posterior()
        answers = posterior.log_probabilities(self.trainer.images, self.pixels, index=self.rows, observed=self.observed)
        labels = self.trainer.labels[self.rows]
        right = (answers.argmax(-1) == labels).float().mean().item()
        return cross_entropy(answers, labels).reshape(self.steps, -1).mean(1), right
