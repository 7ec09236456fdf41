"""`Training`: the loop of one network's training, which keeps the best version and a state to go on from."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from nogs.runtime import progress
from nogs.runtime.device import Precision
from nogs.runtime.headers import Header
from nogs.runtime.metrics import Metrics
from nogs.runtime.state import begun, read_state, restore, save_state

__all__ = ["Training"]

SAVE_SECONDS = 60.0
"""The state is saved at the first validation after so many seconds, which is what a killed run loses at most."""


class _Counters(Header):
    """What a state holds besides tensors."""

    iteration: int = Field(ge=0)
    spent: float = Field(ge=0)
    best_loss: float
    best_iteration: int = Field(ge=0)
    logged: str | None


class Training:
    """A network in training, its counters and its best version.

    A subclass says what a step is (which counts `iteration` up and adds its loss to `total`) and what a validation
    finds; and, if it is to go on after it was killed, which tensors a step changes, and what they must come from. Its
    steps are then functions of the iteration.
    """

    title = "training"
    state: str | None = "state.safetensors"
    """The file to go on from; None: one that was stopped starts again."""
    validates_first = False
    """Whether the network as it is before the first step counts too."""

    def __init__(
        self,
        network: nn.Module,
        *,
        iterations: int,
        validate_every: int,
        precision: Precision,
        limit: float | None = None,
    ) -> None:
        """`limit` is in seconds."""
        self.network, self.precision = network, precision
        self.iterations, self.validate_every, self.limit = iterations, validate_every, limit
        self.iteration, self.spent = 0, 0.0
        self.failed: int | None = None
        """The iteration by which a loss was not a finite number; the training ends there."""
        self.logged: str | None = None
        """Digest of the lines of metrics so far."""
        self.total = torch.zeros((), device=next(network.parameters()).device)
        self.best_loss, self.best_iteration = math.inf, 0
        self.best = {name: value.clone() for name, value in network.state_dict().items()}

    @property
    def kept(self) -> nn.Module:
        """The network that is validated, and kept if it is the best."""
        return self.network

    def step(self) -> None:
        """One iteration."""
        raise NotImplementedError

    def validate(self) -> dict[str, Any]:
        """What is found on the validation images, by the names of its metrics; the first is the loss that decides."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name; the tensors themselves, to be read or overwritten."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """What a state must come from to be continued here."""
        raise NotImplementedError

    def run(self, folder: Path) -> None:
        """From the saved state, if there is one, to the last iteration or the end of the time."""
        state = None if self.state is None else folder / self.state
        if state is not None:
            self.load(state)
        first, before, last = self.iteration, self.spent, self.iteration
        began = saved = time.monotonic()
        device = self.total.device
        with (
            Metrics(folder, resume_after=first or -1, digest=self.logged if first else None) as metrics,
            progress.track(self.title, total=self.iterations, start=first) as bar,
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            self.precision.active(),
        ):
            if self.validates_first and not first:
                self.log(metrics, since=1)
            self.network.train()
            while self.iteration < self.iterations and self.failed is None:
                self.step()
                bar.advance()
                self.spent = before + time.monotonic() - began
                late = self.limit is not None and self.spent >= self.limit
                if self.iteration % self.validate_every and self.iteration < self.iterations and not late:
                    continue
                self.log(metrics, since=self.iteration - last)
                bar.advance(0, best=self.best_loss)
                last = self.iteration
                if late:
                    progress.say(f"The {self.limit:g} s are over after {self.iteration} iterations.")
                    break
                if state is None or self.iteration == self.iterations or self.failed is not None:
                    continue
                if time.monotonic() - saved >= SAVE_SECONDS:
                    self.save(state)
                    saved = time.monotonic()

    def log(self, metrics: Metrics, *, since: int) -> None:
        """Validate, keep the network if it is the best, write a line."""
        found = self.validate()
        loss, training = next(iter(found.values())), (self.total / since).item()
        self.total.zero_()
        metrics.log(self.iteration, training_loss=training, **found)
        self.logged = metrics.digest
        if not (math.isfinite(loss) and math.isfinite(training)):
            self.failed = self.iteration
        elif loss < self.best_loss:
            self.best_loss, self.best_iteration = loss, self.iteration
            for name, value in self.kept.state_dict().items():
                self.best[name].copy_(value)

    def save(self, path: Path) -> None:
        """Write the state."""
        counters = _Counters(**{name: getattr(self, name) for name in _Counters.model_fields})
        save_state(path, self.tensors(), mark=self.fingerprint(), counters=counters)

    def load(self, path: Path) -> None:
        """Continue from a state of the same training; another one is left alone and training starts anew."""
        if not begun(path, mark=self.fingerprint()):
            return
        counters, tensors = read_state(path, _Counters)
        restore(path, self.tensors(), tensors)
        for name, value in counters:
            setattr(self, name, value)
        progress.say(f"Going on from iteration {self.iteration}.")
