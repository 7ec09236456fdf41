"""`Training`: the training loop of one network, which keeps the best version and a state to resume from."""

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
from nogs.runtime.interruption import Interruption
from nogs.runtime.metrics import Metrics
from nogs.runtime.state import begun, read_state, restore, save_state

__all__ = ["Training"]

SAVE_SECONDS = 60.0
"""The state is saved at the first validation after this many seconds, which limits what a killed run loses. Ctrl-C and
SIGTERM save it after the current step."""


class _Counters(Header):
    """What a state holds besides tensors."""

    iteration: int = Field(ge=0)
    spent: float = Field(ge=0)
    best_loss: float
    best_iteration: int = Field(ge=0)
    logged: str | None


class Training:
    """A network in training, its counters and its best version.

    A subclass defines `step`, which increments `iteration` and adds its loss to `total`, and `validate`. To be
    resumable it also defines `tensors` and `fingerprint`, and each step is a function of the iteration.
    """

    title = "training"
    state: str | None = "state.safetensors"
    """The file to resume from; None: an interrupted training starts again."""
    validates_first = False
    """Whether the initial network is validated too."""

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
        """The iteration at which a loss was found not to be finite; the training ends there."""
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
        """Metrics on the validation images by name; the first is the loss that selects the best network."""
        raise NotImplementedError

    def better(self, loss: float) -> bool:
        """Whether the network that was just validated becomes the best."""
        return loss < self.best_loss

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name; not copies, so that they can be overwritten."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """The fingerprint that a state must have to be resumed here."""
        raise NotImplementedError

    def run(self, folder: Path) -> None:
        """Train from the saved state, if there is one, to the last iteration or the time limit."""
        state = None if self.state is None else folder / self.state
        if state is not None:
            self.load(state)
        first, before = self.iteration, self.spent
        last = first - first % self.validate_every
        began = saved = time.monotonic()
        device = self.total.device
        with (
            Metrics(folder, resume_after=first or -1, digest=self.logged if first else None) as metrics,
            progress.track(self.title, total=self.iterations, start=first) as bar,
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            self.precision.active(),
            Interruption() as interruption,
        ):
            if self.validates_first and not first:
                self.log(metrics, since=1)
            self.network.train()
            while self.iteration < self.iterations and self.failed is None:
                self.step()
                bar.advance()
                self.spent = before + time.monotonic() - began
                late = self.limit is not None and self.spent >= self.limit
                validated = not self.iteration % self.validate_every or self.iteration == self.iterations or late
                if validated:
                    self.log(metrics, since=self.iteration - last)
                    bar.advance(0, **{"best NLL": self.best_loss})
                    last = self.iteration
                if late:
                    progress.say(
                        f"The time limit of {self.limit:g} s ends the training after {self.iteration} iterations."
                    )
                    break
                due = validated and time.monotonic() - saved >= SAVE_SECONDS
                if state is not None and (due or interruption.asked) and self.failed is None:
                    self.save(state)
                    saved = time.monotonic()
                if interruption.asked:
                    interruption.deliver()

    def log(self, metrics: Metrics, *, since: int) -> None:
        """Validate, keep the network if it is the best, and log the metrics."""
        found = self.validate()
        loss, training = next(iter(found.values())), (self.total / since).item()
        self.total.zero_()
        metrics.log(self.iteration, training_loss=training, **found)
        self.logged = metrics.digest
        if not (math.isfinite(loss) and math.isfinite(training)):
            self.failed = self.iteration
        elif self.better(loss):
            self.best_loss, self.best_iteration = loss, self.iteration
            for name, value in self.kept.state_dict().items():
                self.best[name].copy_(value)

    def save(self, path: Path) -> None:
        """Write the state."""
        counters = _Counters(**{name: getattr(self, name) for name in _Counters.model_fields})
        save_state(path, self._state(), mark=self.fingerprint(), counters=counters)

    def load(self, path: Path) -> None:
        """Resume from a state of the same training; any other state is ignored, and training starts anew."""
        if not begun(path, mark=self.fingerprint()):
            return
        counters, tensors = read_state(path, _Counters)
        restore(path, self._state(), tensors)
        for name, value in counters:
            setattr(self, name, value)
        progress.say(f"Going on from iteration {self.iteration}.")

    def _state(self) -> dict[str, Tensor]:
        return {**self.tensors(), "total": self.total}
