"""The training loop of a posterior's network (Eq. 7), which keeps the best network on the validation images.

A killed run resumes from its last saved state and gives the same result: batches and random numbers are functions of
the iteration, and everything else is in the state.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.cnn import MaskedCNN
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.inputs import read_start, training_fields, training_rows
from nogs.posterior.labels import label_table
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.protocol import distinct
from nogs.posterior.queries import central_pixels, observed_first, random_pixels, resident, strata, with_overlaps
from nogs.posterior.schedule import learning_rate, make_optimizer
from nogs.posterior.stems import VGGStem
from nogs.posterior.teaching import Teacher
from nogs.posterior.tokens import GlimpseTokens
from nogs.posterior.validation import Validation
from nogs.runtime import streams
from nogs.runtime.capture import captured
from nogs.runtime.device import pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.rates import adam_tensors, follow, set_rate
from nogs.runtime.training import Training

__all__ = ["Trainer"]


class Trainer(Training):
    """The network with its optimiser and the average of its weights."""

    title = "training the posterior"
    network: GlimpseTokens | MaskedCNN

    def __init__(self, task: Task, *, config: PosteriorConfig, glimpses: int, seed: int, device: torch.device) -> None:
        self.task, self.config, self.glimpses, self.seed, self.device = task, config, glimpses, seed, device
        rows = training_rows(task)
        self.batch = min(config.batch, len(rows))
        self.longest = max(glimpses, config.train_glimpses or 0)
        if self.batch <= self.longest:
            raise InputError(
                f"posterior.batch is {self.batch} (of {len(rows)} training images), but a batch needs an image for "
                f"each number of glimpses 0..{self.longest}; use at least {self.longest + 1}."
            )
        self.per_epoch = len(rows) // self.batch
        self.training = torch.from_numpy(rows).to(device)
        self.images = resident(task.images, device)
        self.labels = torch.from_numpy(label_table(task)).to(device)
        self.architecture = Architecture.of(config, task=task, glimpses=glimpses)
        head = self.architecture.head
        self.attributes = None if not head.attributes else torch.from_numpy(task.attributes).to(device)
        self.groups = strata(self.batch, self.longest)
        counts = torch.tensor([count for count, _ in self.groups], device=device)
        t = torch.arange(self.longest + 1, device=device).repeat_interleave(counts)
        self.observed = observed_first(t, self.longest)
        # every t has the same weight, although parts of the batch may differ by one image
        self.row_weights = (1 / (counts * len(counts))).repeat_interleave(counts)
        network = self.architecture.build(seed=seed)
        loaded = network.load(config.weights) if config.weights != "none" else set()
        stem = getattr(network, "stem", None)
        first = stem.first(config.frozen) if isinstance(stem, VGGStem) else set()
        frozen = loaded & {f"stem.{name}" for name in first}
        self.started_from: list[str] = []
        """Fingerprints of tasks with other data or splits, on which its weights may have been trained."""
        if config.start is not None:
            weights, self.started_from = read_start(config.start, task=task, architecture=self.architecture)
            network.load_state_dict(weights)
        super().__init__(
            network.to(device),
            iterations=config.iterations,
            validate_every=config.validate_every or self.per_epoch,
            precision=pick_precision(config.precision, device),
            limit=config.seconds,
        )
        self.parameters = dict(self.network.named_parameters())
        self.optimizer = make_optimizer(self.parameters, config=config, loaded=loaded, frozen=frozen)
        self.average = deepcopy(self.network) if config.average else None
        self.forward: Callable[..., Tensor] = self.network
        if config.compile and device.type == "cuda":
            self.forward = torch.compile(self.network, dynamic=False)
        self.teacher = None
        if config.teacher is not None:
            self.teacher = Teacher.of(config.teacher, task=task, device=device, precision=config.precision)
        self.validation = Validation(
            task, config=config, glimpses=glimpses, seed=seed, device=device, calibrated=self.average is not None
        )
        self.order, self.epoch = torch.zeros_like(self.training), -1
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        """The iteration, counted on the device."""
        self.work: Callable[[], None] | None = None
        self.rate = 0.0

    def step(self) -> None:
        """One iteration on Eq. 7, on a GPU as a captured graph."""
        epoch = self.iteration // self.per_epoch
        if epoch != self.epoch:
            key = streams.key(self.seed, "posterior order", step=epoch)
            self.order.copy_(self.training[streams.permutation(key, len(self.training), self.device)])
            self.epoch = epoch
        self.rate = learning_rate(self.config, self.iteration, self.spent)
        set_rate(self.optimizer, self.rate)
        if self.work is None:
            changes = [*self.tensors().values(), self.total, self.clock]
            self.work = captured(self._work, self.device, changes=changes)
        torch.manual_seed(streams.key(self.seed, "posterior dropout", step=self.iteration))
        self.work()
        self.iteration += 1

    def _work(self) -> None:
        """The computation of an iteration, from the clock on the device: batch, loss, gradient, step."""
        config, count = self.config, torch.arange(self.batch, device=self.device)
        drawn = self.clock * self.batch + count
        rows = self.order[self.clock % self.per_epoch * self.batch + count]
        flip = None
        if config.flip:
            flip = streams.uniform(streams.key(self.seed, "posterior flips"), drawn) < 0.5
        counter = drawn[:, None] * self.longest + torch.arange(self.longest, device=self.device)
        key = streams.key(self.seed, "posterior locations")
        if config.spread is None:
            pixels = random_pixels(key, counter, grid=self.task.grid, locations=config.locations)
        else:
            pixels = central_pixels(key, counter, grid=self.task.grid, spread=config.spread)
        if config.overlapping:
            pixels = with_overlaps(
                pixels, config.overlapping, key=key, counter=counter, grid=self.task.grid, locations=config.locations
            )
        changes = config.augment.draw(streams.key(self.seed, "posterior changes"), drawn)
        seen = self.network.read(self.images, pixels, rows, flip, changes)
        observed, taught = distinct(pixels, self.observed), None
        if self.teacher is not None:
            taught = self.teacher.answers(
                self.images, pixels, index=rows, observed=observed, groups=self.groups, flip=flip, changes=changes
            )
        losses = self.architecture.head.losses(
            self.forward(seen, pixels, observed, self.groups),
            self.labels[rows],
            None if self.attributes is None else self.attributes[rows],
            teacher=taught,
            teacher_weight=config.teacher_weight,
            smoothing=config.smoothing,
        )
        loss = (losses * self.row_weights).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), config.clip)
        self.optimizer.step()
        if self.average is not None:
            kept, now = (network.state_dict().values() for network in (self.average, self.network))
            follow(kept, now, decay=self.config.average, iteration=self.clock)
        self.total += loss.detach()
        self.clock += 1

    def validate(self) -> dict[str, Any]:
        """Cross-entropy and accuracy of the current network, averaged over the numbers of glimpses."""
        by_t, accuracy = self.validation(self.posterior(), self.images, self.labels)
        return {
            "validation_cross_entropy": by_t.mean().item(),
            "validation_accuracy": accuracy,
            "validation_cross_entropy_by_glimpses": by_t.tolist(),
            "learning_rate": self.rate,
        }

    @property
    def kept(self) -> GlimpseTokens | MaskedCNN:
        """The network that is validated and kept: the average of the weights, or the network itself."""
        return self.network if self.average is None else self.average

    def posterior(self) -> NetworkPosterior:
        """The kept network in its current state, without calibration."""
        return NetworkPosterior(self.kept, self.architecture, precision=self.config.precision)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name; not copies, so that they can be overwritten."""
        out = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        out.update({f"best.{name}": value for name, value in self.best.items()})
        if self.average is not None:
            out.update({f"average.{name}": value for name, value in self.average.state_dict().items()})
        return {**out, **adam_tensors(self.optimizer, self.parameters)}

    def fingerprint(self) -> str:
        """The fingerprint that a state must have to be resumed here."""
        return fingerprint(training_fields(self.config), self.task.fingerprint, self.architecture.to_json(), self.seed)

    def load(self, path: Path) -> None:
        """Resume from a state, including the device's clock."""
        super().load(path)
        self.clock.fill_(self.iteration)
