"""The judge of a training: the same glimpses of the validation images, every time."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.protocol import Posterior, cross_entropy
from nogs.posterior.queries import fixed_pixels, observed_first


class Validation:
    """Cross-entropy by number of glimpses t = 0..T and accuracy, on the same glimpses of the validation images."""

    def __init__(self, task: Task, *, config: PosteriorConfig, glimpses: int, seed: int, device: torch.device) -> None:
        self.steps = glimpses + 1
        rows = torch.from_numpy(task.rows("validation")).to(device)
        where = fixed_pixels(
            len(rows),
            glimpses=glimpses,
            grid=task.grid,
            locations=config.locations,
            seed=seed,
            purpose="validation",
            device=device,
        )
        t = torch.arange(self.steps, device=device).repeat_interleave(len(rows))
        self.rows, self.pixels = rows.repeat(self.steps), where.repeat(self.steps, 1, 1)
        self.observed = observed_first(t, glimpses)

    def __call__(
        self, posterior: Posterior, images: UInt8[Tensor, "N H W 3"], labels: Int[Tensor, "N V"]
    ) -> tuple[Float[Tensor, " T1"], float]:
        """Judge a posterior on the images of the task."""
        answers = posterior.log_probabilities(images, self.pixels, index=self.rows, observed=self.observed)
        truth = labels[self.rows]
        right = (answers.argmax(-1) == truth).float().mean().item()
        return cross_entropy(answers, truth).reshape(self.steps, -1).mean(1), right
