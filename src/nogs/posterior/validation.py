"""Validation during training, always on the same glimpses of the validation images."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.calibration import fit_inverse_temperature
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.protocol import cross_entropy
from nogs.posterior.queries import fixed_pixels


class Validation:
    """Cross-entropy by number of glimpses t = 0..T and accuracy, on the same glimpses of the validation images.

    With `calibrated`, the cross-entropy is at the best temperature for each number of glimpses. Smoothed labels make a
    network underconfident and long training makes it overconfident, which calibration corrects.
    """

    def __init__(
        self,
        task: Task,
        *,
        config: PosteriorConfig,
        glimpses: int,
        seed: int,
        device: torch.device,
        calibrated: bool = False,
    ) -> None:
        self.steps, self.calibrated = glimpses + 1, calibrated
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
        self.rows, self.pixels = rows, where

    def __call__(
        self, posterior: NetworkPosterior, images: UInt8[Tensor, "N H W 3"], labels: Int[Tensor, "N V"]
    ) -> tuple[Float[Tensor, " T1"], float]:
        """Evaluate a posterior without temperatures on the images of the task."""
        truth, head, found = labels[self.rows], posterior.architecture.head, []
        for t in range(self.steps):
            logits = posterior.logits(images, self.pixels[:, :t], index=self.rows)
            scale = None
            if self.calibrated:
                scale = fit_inverse_temperature(logits, truth, head=head).expand(len(logits), -1)
            found.append(head.log_probabilities(logits, scale))
        answers = torch.stack(found)
        right = (answers.argmax(-1) == truth).float().mean().item()
        return cross_entropy(answers, truth.expand(self.steps, *truth.shape)).mean((1, 2)), right
