"""`Pretrainer`: one network that learns from locations of a fixed distribution, and its resumable state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from pydantic import ConfigDict, Field
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.frozen import CHUNK
from nogs.attention.network import Networks
from nogs.attention.optimizer import make_adam
from nogs.attention.trunks import FOLDER, Trunk, set_precision, start_from_imagenet
from nogs.data.task import Task
from nogs.glimpse.changes import changed
from nogs.runtime import progress, streams
from nogs.runtime.capture import captured
from nogs.runtime.errors import InputError
from nogs.runtime.headers import Header
from nogs.runtime.metrics import Metrics
from nogs.runtime.rates import falling, follow, set_rate
from nogs.runtime.state import read_state, restore, save_state, state_of

STATE = "state.safetensors"


class Counters(Header):
    """The content of a state besides tensors."""

    model_config = ConfigDict(frozen=False)

    best: float = -1.0
    best_epoch: int = Field(0, ge=0)
    since: int = Field(0, ge=0)
    seconds: float = Field(0.0, ge=0)
    logged: int = Field(0, ge=0)
    metrics: str | None = None
    """Digest of the lines of metrics so far."""


class Pretrainer:
    """One network with its optimiser, counters and best version, which are all saved in a state."""

    def __init__(
        self,
        task: Task,
        trunk: Trunk,
        *,
        config: AttentionConfig,
        glimpses: int,
        device: torch.device,
        weights: str,
    ) -> None:
        self.trunk, self.config, self.device = trunk, config, device
        member = Member(FOLDER, seed=trunk.seed, attribute=trunk.attribute)
        self.cohort = Cohort(task, [member], glimpses=glimpses, batch=config.batch, flip=config.flip, device=device)
        architecture = Architecture.of(config, grid=task.grid, glimpses=glimpses, labels=self.cohort.classes)
        self.networks = Networks(architecture, seeds=[trunk.seed], initial_state=config.initial_state).to(device)
        set_precision(self.networks, config, device)
        start_from_imagenet(self.networks, weights)
        self.networks.policy_parameters.requires_grad_(False)
        self.learned = {name: p for name, p in self.networks.named_parameters() if p.requires_grad}
        self.rate = config.pretrain_learning_rate or config.learning_rate
        self.falls = config.pretrain_schedule == "cosine"
        self.optimizer = make_adam(self.learned, rate=self.rate, falls=self.falls)
        ends = torch.from_numpy(trunk.distribution.log_probabilities).exp().cumsum(0)
        self.ends = (ends / ends[-1]).float().to(device)
        self.iteration = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.best = {name: value.clone() for name, value in self.networks.state_dict().items()}
        self.average = {n: p.detach().clone() for n, p in self.learned.items()} if config.pretrain_average else {}
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" and config.pretrain_abreast > 1 else None
        self.metrics: Metrics
        self.counters = Counters()

    def draw(self, uniforms: Float[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """Locations of the distribution, by inverse CDF."""
        return torch.searchsorted(self.ends, uniforms.contiguous(), right=True).clamp(max=len(self.ends) - 1)

    def step(self) -> None:
        """One iteration of Adam on the classification loss."""
        cohort, batch = self.cohort, self.cohort.draw(self.iteration)
        assert batch.uniforms is not None
        locations = self.draw(batch.uniforms)
        keep, share = None, self.config.pretrain_dropout
        if share:
            shape = (*locations.shape, self.networks.architecture.embedding)
            counter = torch.arange(locations.numel() * shape[-1], device=self.device).view(shape)
            key = streams.key(self.trunk.seed, "dropout") + self.iteration
            keep = (streams.uniform(key, counter) >= share) / (1 - share)
        images, rows, flip = cohort.images, batch.rows, batch.flip
        place = torch.arange(rows.shape[1], device=self.device)
        drawn = self.iteration * rows.shape[1] + place
        changes = self.config.pretrain_augment.draw(streams.key(self.trunk.seed, "pretraining changes"), drawn)
        if changes is not None:
            images = changed(images, changes, index=rows[0], flip=None if flip is None else flip[0])
            rows, flip = place[None], None
        logits = self.networks.follow(images, rows, locations, flip=flip, keep=keep)
        smoothing = self.config.pretrain_smoothing
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), label_smoothing=smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if self.average:
            now = self.learned.values()
            follow(self.average.values(), now, decay=self.config.pretrain_average, iteration=self.iteration)
        self.loss += loss.detach()
        self.iteration += 1

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Accuracy and NLL on the validation images, with random locations that are the same at every call."""
        cohort, device = self.cohort, self.device
        rows = torch.from_numpy(cohort.task.rows("validation")).to(device).repeat_interleave(self.config.trajectories)
        counter = torch.arange(len(rows) * cohort.glimpses, device=device).view(len(rows), -1)
        locations = self.draw(streams.uniform(streams.key(self.trunk.seed, "pretraining validation"), counter))
        size = max(1, CHUNK.get(device.type, CHUNK["cpu"]) // cohort.glimpses)
        logits = [
            self.networks.follow(cohort.images, rows[None, n : n + size], locations[None, n : n + size])[0]
            for n in range(0, len(rows), size)
        ]
        answers, labels = torch.cat(logits), cohort.labels[0, rows]
        return (answers.argmax(-1) == labels).float().mean().item(), F.cross_entropy(answers, labels).item()

    def start(self, folder: Path, *, mark: str) -> int:
        """Prepare to resume from the saved state, if there is one; returns the number of finished epochs."""
        self.folder, self.mark = folder, mark
        with self._own_stream():
            self.cohort.start_epoch(0)
            self._ready = captured(self.step, self.device, changes=self.tensors().values())
            self.load(folder / STATE, mark=mark)
        self.epoch = int(self.iteration) // self.cohort.per_epoch
        self.validations, self.late = 0, False
        self.before, self.began = self.counters.seconds, time.monotonic()
        return self.epoch

    def enqueue(self) -> None:
        """Run one epoch, or as much as the time allows, without waiting for a GPU."""
        first, per_epoch = self.epoch * self.cohort.per_epoch, self.cohort.per_epoch
        self.epoch += 1
        with self._own_stream():
            self.cohort.start_epoch(first)
            for iteration in range(first, first + per_epoch):
                if self.falls:
                    total, limit = self.config.pretrain_epochs * per_epoch, self.config.pretrain_seconds
                    share = falling(iteration, total, seconds=self._seconds(), limit=limit)
                    set_rate(self.optimizer, self.rate * share)
                self._ready()
                if self._over_time():  # an epoch may be long on a CPU
                    self.late = True
                    break

    def settle(self, bar: progress.Tracker) -> bool:
        """Validate after the epoch, and save; returns whether it was the last one."""
        config, counters = self.config, self.counters
        last = self.late or self.epoch >= config.pretrain_epochs
        with self._own_stream():
            accuracy = self.log(self.metrics, self.epoch)
        bar.advance(accuracy=accuracy, best=counters.best)
        self.validations += 1
        counters.seconds = self._seconds()
        impatient = config.pretrain_patience is not None and counters.since >= config.pretrain_patience
        if last or impatient or self._over_time():
            return True
        if self.validations % config.save_every == 0:
            with self._own_stream():
                self.save(self.folder / STATE, mark=self.mark)
        return False

    def outcome(self) -> dict[str, Any]:
        """Wait for the last results and return a summary; a loss that was never finite is an error."""
        counters = self.counters
        if self.stream is not None:
            self.stream.synchronize()
        if counters.best < 0:
            raise InputError(
                f"The loss of {self.trunk.name} was never a finite number; lower --attention.pretrain-learning-rate."
            )
        return {
            "epochs": self.epoch,
            "best_epoch": int(counters.best_epoch),
            "validation_accuracy": counters.best,
            "pretraining_seconds": round(counters.seconds, 1),
        }

    def _seconds(self) -> float:
        """Training time so far, including that before an interruption."""
        return self.before + time.monotonic() - self.began

    def _over_time(self) -> bool:
        limit = self.config.pretrain_seconds
        return limit is not None and self._seconds() > limit

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Run on a stream that others on the same GPU don't wait for."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.default_stream(self.device))
        with torch.cuda.stream(self.stream):
            yield

    def log(self, metrics: Metrics, epoch: int) -> float:
        """Validate the weights, or their average if there is one; keep the best network; write a line of metrics."""
        self._exchange()
        accuracy, nll = self.validate()
        steps = max(1, int(self.iteration) - self.counters.logged)
        self.counters.logged = int(self.iteration)
        metrics.log(epoch, training_loss=self.loss.item() / steps, validation_accuracy=accuracy, validation_nll=nll)
        self.counters.metrics = metrics.digest
        self.loss.zero_()
        self.counters.since += 1
        if nll == nll and accuracy > self.counters.best:
            self.counters.best, self.counters.best_epoch, self.counters.since = accuracy, epoch, 0
            for name, value in self.networks.state_dict().items():
                self.best[name].copy_(value)
        self._exchange()
        return accuracy

    @torch.no_grad()
    def _exchange(self) -> None:
        """Exchange the weights and their average."""
        for name, average in self.average.items():
            weights = self.learned[name].clone()
            self.learned[name].copy_(average)
            average.copy_(weights)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that pretraining changes, by name, as the tensors themselves, to be read or overwritten."""
        out = {"iteration": self.iteration, "loss": self.loss}
        for name, parameter in self.learned.items():
            out[f"network.{name}"] = parameter.data
            if self.average:
                out[f"average.{name}"] = self.average[name]
            out.update({f"adam.{part}.{name}": value for part, value in self.optimizer.state[parameter].items()})
        return out

    def save(self, path: Path, *, mark: str) -> None:
        """Write the state."""
        save_state(path, self._state(), mark=mark, counters=self.counters)

    def load(self, path: Path, *, mark: str) -> None:
        """Continue from the state of this pretraining, if there is one."""
        if not path.exists() or state_of(path) != mark:
            return
        self.counters, tensors = read_state(path, Counters)
        restore(path, self._state(), tensors)
        progress.say(f"Going on from epoch {int(self.iteration) // self.cohort.per_epoch}.")

    def _state(self) -> dict[str, Tensor]:
        return {**self.tensors(), **{f"best.{name}": value for name, value in self.best.items()}}
