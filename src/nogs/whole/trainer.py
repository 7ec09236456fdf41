"""The training loop of the whole-image reference, which keeps the best version on the validation images.

A stopped training resumes from its last saved state and gives the same result, since batches are functions of the
iteration. With frozen features it starts again: their computation takes most of the time.
"""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float32, Int, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.glimpse.changes import Changes, changed
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import find_weights
from nogs.posterior.labels import Head, label_table
from nogs.posterior.protocol import cross_entropy
from nogs.posterior.queries import resident
from nogs.runtime import progress, streams
from nogs.runtime.device import pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.rates import adam_state, adam_tensors, falling, set_rate
from nogs.runtime.training import Training
from nogs.whole.config import WholeConfig
from nogs.whole.network import WholeImage, build, pretrained

__all__ = ["Trainer"]

_DECAY = 0.05  # weight decay of matrices
_AT_ONCE = {"cpu": 64, "cuda": 256}  # images whose features are in memory together


class Trainer(Training):
    """The network with its optimiser."""

    title = "training on whole images"
    network: WholeImage

    def __init__(
        self,
        task: Task,
        *,
        config: WholeConfig,
        posterior: PosteriorConfig,
        seed: int,
        device: torch.device,
        mark: str,
        data: Path | None = None,
    ) -> None:
        """`mark` is the fingerprint of all that determines the network."""
        self.mark = mark
        self.task, self.config, self.posterior, self.seed, self.device = task, config, posterior, seed, device
        self.training = torch.from_numpy(task.rows("train")).to(device)
        self.batch = min(config.batch, len(self.training))
        if self.batch < 2:
            raise InputError(f"Task {task.name!r} has one training image; the whole-image reference needs two or more.")
        self.images, self.head = resident(task.images, device), Head(task.space)
        self.labels = torch.from_numpy(label_table(task)).to(device)
        self.pretrained = pretrained(posterior)
        self.frozen = self.pretrained and config.pretrained_rate == 0
        """Whether the features are frozen and computed once."""
        network = build(
            posterior,
            side=max(task.grid.height, task.grid.width),
            glimpse=task.grid.glimpse,
            width=config.width,
            outputs=self.head.outputs,
            weights=find_weights(posterior.weights, data),
            seed=seed,
            frozen=self.frozen,
        ).to(device)
        super().__init__(
            network,
            iterations=config.iterations,
            # a linear layer alone overfits early, and its validation takes no time
            validate_every=max(1, config.iterations // (50 if self.frozen else 10)),
            precision=pick_precision("auto", device),
            limit=None if self.frozen else config.seconds,
        )
        self.state = None if self.frozen else Training.state
        self.pooled: Float32[Tensor, "N D"] | None = None
        self.optimizer = self._optimizer()
        self.order, self.epoch = self.training, -1

    def _optimizer(self) -> torch.optim.AdamW:
        rate = self.config.pretrained_rate if self.pretrained else 1.0
        groups: dict[tuple[float, bool], list[Tensor]] = {}
        for name, parameter in self.network.named_parameters():
            factor = rate if name.startswith("features.") else 1.0
            parameter.requires_grad_(factor > 0)
            if factor > 0:
                groups.setdefault((factor, parameter.ndim > 1), []).append(parameter)
        optimizer = torch.optim.AdamW(
            [
                {"params": some, "factor": factor, "weight_decay": _DECAY if matrices else 0.0}
                for (factor, matrices), some in groups.items()
            ],
            lr=self.config.learning_rate,
            fused=True,
        )
        for learned in itertools.chain(*groups.values()):
            optimizer.state[learned] = adam_state(learned)
        return optimizer

    def run(self, folder: Path) -> None:
        """Train for all iterations or until the time limit; a loss that is not finite is an error."""
        if self.frozen:
            began = time.monotonic()
            with self.precision.active():
                self.look()
            self.spent = time.monotonic() - began
        super().run(folder)
        if self.failed is not None:
            raise InputError(
                f"The loss of the whole-image reference was not a finite number by iteration {self.failed}; lower "
                "--whole.learning-rate."
            )

    def look(self) -> None:
        """Compute the frozen features of every image once, or of as many training images as the time allows."""
        evaluated = torch.cat([torch.from_numpy(self.task.rows(split)) for split in ("validation", "test")])
        order = streams.permutation(streams.key(self.seed, "whole-image looks"), len(self.training), self.device)
        chosen, seen, began = torch.cat([evaluated.to(self.device), self.training[order]]), 0, math.inf
        with progress.track("features of whole images", total=len(chosen), unit="images") as bar:
            for rows in chosen.split(_at_once(self.device)):
                if seen >= len(evaluated):
                    began = min(began, time.monotonic())
                found = self.features(rows)
                if self.pooled is None:
                    self.pooled = found.new_zeros(len(self.images), found.shape[1])
                self.pooled[rows] = found
                seen += len(rows)
                bar.advance(len(rows))
                late = self.config.seconds is not None and time.monotonic() - began >= self.config.seconds
                if late and seen - len(evaluated) >= self.batch:
                    break
        self.training = chosen[len(evaluated) : seen]

    @torch.no_grad()
    def features(self, rows: Int[Tensor, " B"]) -> Float32[Tensor, "B D"]:
        """The pooled features of some images, unchanged."""
        return self.network.pool(self.images[rows])

    def step(self) -> None:
        """One iteration on the mean cross-entropy of the label variables."""
        config, done = self.config, self.iteration
        epoch, place = divmod(done, len(self.training) // self.batch)
        if epoch != self.epoch:
            key = streams.key(self.seed, "whole-image order", step=epoch)
            self.order, self.epoch = self.training[streams.permutation(key, len(self.training), self.device)], epoch
        rows = self.order[place * self.batch : (place + 1) * self.batch]
        rate = config.learning_rate * falling(done, config.iterations, seconds=self.spent, limit=self.limit)
        set_rate(self.optimizer, rate * min(1.0, (done + 1) / max(1, config.iterations // 20)))
        self.network.train()
        frozen = self.pooled
        logits = self.network(self.shown(rows)) if frozen is None else self.network.answer(frozen[rows])
        loss = self.head.losses(logits, self.labels[rows], None).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.total += loss.detach()
        self.iteration += 1

    def shown(self, rows: Int[Tensor, " B"]) -> UInt8[Tensor, "B H W 3"]:
        """Training images of the current iteration, mirrored and changed as for the posterior."""
        drawn = self.iteration * self.batch + torch.arange(len(rows), device=self.device)
        flip: Bool[Tensor, " B"] | None = None
        if self.posterior.flip:
            flip = streams.uniform(streams.key(self.seed, "whole-image flips"), drawn) < 0.5
        changes: Changes | None = self.posterior.augment.draw(streams.key(self.seed, "whole-image changes"), drawn)
        if changes is not None:
            return changed(self.images, changes, index=rows, flip=flip)
        chosen = self.images[rows]
        return chosen if flip is None else torch.where(flip[:, None, None, None], chosen.flip(2), chosen)

    @torch.no_grad()
    def logits(self, split: str) -> Float32[Tensor, "n O"]:
        """Logits of the images of a split, from the network in its current state."""
        rows = torch.from_numpy(self.task.rows(split)).to(self.device)
        self.network.eval()
        with self.precision.active():
            some = rows.split(_at_once(self.device))
            if self.pooled is not None:
                return torch.cat([self.network.answer(self.pooled[part]) for part in some])
            return torch.cat([self.network(self.images[part]) for part in some])

    def truth(self, split: str) -> Int[Tensor, "n V"]:
        """The labels of the images of a split."""
        return self.labels[torch.from_numpy(self.task.rows(split)).to(self.device)]

    def validate(self) -> dict[str, Any]:
        """Cross-entropy and accuracy on the validation images."""
        answers, truth = self.head.log_probabilities(self.logits("validation")), self.truth("validation")
        accuracy = (answers.argmax(-1) == truth).float().mean().item()
        return {
            "validation_cross_entropy": cross_entropy(answers, truth).mean().item(),
            "validation_accuracy": accuracy,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name."""
        out = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        out.update({f"best.{name}": value for name, value in self.best.items()})
        return {**out, **adam_tensors(self.optimizer, dict(self.network.named_parameters()))}

    def fingerprint(self) -> str:
        """The fingerprint that a state must have to be resumed here."""
        return self.mark


def _at_once(device: torch.device) -> int:
    return _AT_ONCE.get(device.type, _AT_ONCE["cpu"])
