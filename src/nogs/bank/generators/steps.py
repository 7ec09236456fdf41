"""Training steps of a generative network, captured as a graph on a GPU, and the state to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

from nogs.runtime import progress, streams
from nogs.runtime.capture import captured
from nogs.runtime.headers import Header, Name
from nogs.runtime.interruption import Interruption
from nogs.runtime.rates import adam_state, adam_tensors, falling, set_rate
from nogs.runtime.state import begun, read_state, restore, save_state

__all__ = ["Done", "Work"]

_TOLD = 20  # iterations between two reads of the loss, each of which waits for the GPU
_FEW = 100  # steps below which a network has hardly learned anything
_SAVED = 60.0  # seconds between two saved states, or more where saving is slow


class _Counters(Header):
    """What a state holds besides tensors."""

    stage: Name
    iteration: int = Field(ge=0)
    seconds: float = Field(ge=0)
    error: float
    before: float = Field(ge=0)


class Done:
    """Progress of a training, saved in a file to resume from: stage, iterations, time, and tensors by name."""

    def __init__(self, path: Path | None, *, first: str, mark: str) -> None:
        self.path, self.mark = path, mark
        self.stage = first
        self.iteration = 0
        self.error, self.before = 0.0, 0.0
        """The autoencoder's error and training seconds, once it is trained."""
        self.kept: dict[str, dict[str, Tensor]] = {}
        self._read: dict[str, Tensor] = {}
        self._spent = 0.0
        self._since: float | None = None
        self._next = time.monotonic() + _SAVED
        if path is None or not begun(path, mark=mark):
            return
        counters, self._read = read_state(path, _Counters)
        self.stage, self.iteration = counters.stage, counters.iteration
        self.error, self.before = counters.error, counters.before
        self._spent = counters.seconds
        progress.say(f"Going on from iteration {self.iteration} of the {self.stage}.")

    @property
    def seconds(self) -> float:
        """The time of all steps so far, including those before an interruption."""
        return self._spent + (0.0 if self._since is None else time.monotonic() - self._since)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """The block counts as training time: steps do, but encoding all images between the stages does not."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._spent, self._since = self.seconds, None

    def restore(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Overwrite tensors with their saved values, if there are any; they are saved from now on."""
        self.kept[name] = tensors
        prefix = f"{name}."
        read = {key.removeprefix(prefix): value for key, value in self._read.items() if key.startswith(prefix)}
        if read and self.path is not None:
            with torch.no_grad():
                restore(self.path, tensors, read, name=prefix)

    def next_stage(self, name: str, *, error: float) -> None:
        """Finish the current stage and begin stage `name`."""
        self.stage, self.iteration, self.error, self.before = name, 0, error, self.seconds
        self.kept, self._read = {}, {}

    def save(self, *, now: bool = False) -> None:
        """Write the state, `now` or if it is due."""
        if self.path is None or not (now or time.monotonic() >= self._next):
            return
        asked = time.monotonic()
        counters = _Counters(**{name: getattr(self, name) for name in _Counters.model_fields})
        tensors = {f"{name}.{part}": value for name, of in self.kept.items() for part, value in of.items()}
        save_state(self.path, tensors, mark=self.mark, counters=counters)
        # a large state on a slow disk must not cost more than a twentieth of the time
        self._next = time.monotonic() + max(_SAVED, 20 * (time.monotonic() - asked))


class Work:
    """AdamW steps on a loss of random rows, captured as a graph on a GPU, with an optional average of the weights."""

    def __init__(
        self,
        network: nn.Module,
        loss: Callable[[Tensor], Tensor],
        *,
        title: str,
        of: int,
        batch: int,
        seed: int,
        averaged: bool,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        self.network, self.loss, self.title, self.of, self.batch, self.seed = network, loss, title, of, batch, seed
        self.key = streams.key(seed, f"{title} batches")
        self.device = next(network.parameters()).device
        # on a GPU a step is a captured graph, which reads these from memory
        self.rate, self.new, self.sums = (torch.zeros((), device=self.device) for _ in range(3))
        self.clock = torch.zeros((), dtype=torch.int64, device=self.device)
        """The iteration, counted on the device."""
        self.optimizer = torch.optim.AdamW(
            network.parameters(),
            lr=self.rate,
            betas=betas,
            weight_decay=0.01,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        for parameter in network.parameters():
            self.optimizer.state[parameter] = adam_state(parameter)
        self.weights = network.state_dict()
        self.average = {name: value.clone() for name, value in self.weights.items()} if averaged else {}

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that training changes, by name; not copies, so that they can be overwritten."""
        out = {f"network.{name}": value for name, value in self.weights.items()}
        out.update({f"average.{name}": value for name, value in self.average.items()})
        out.update(adam_tensors(self.optimizer, dict(self.network.named_parameters())))
        return {**out, "sums": self.sums, "clock": self.clock}

    def run(self, done: Done, *, iterations: int, learning_rate: float, limit: float | None) -> None:
        """Train from the current iteration to the last one, or until `limit` seconds have passed."""
        with done.timed():
            self._run(done, iterations, learning_rate, limit)

    def _run(self, done: Done, iterations: int, learning_rate: float, limit: float | None) -> None:
        warm = max(1, min(500, iterations // 10))
        step = captured(self._step, self.device, changes=self.tensors().values())
        done.restore("work", self.tensors())
        told, sums = done.iteration, float(self.sums)
        with (
            progress.track(self.title, total=iterations if limit is None else None, start=told) as bar,
            Interruption() as interruption,
        ):
            while done.iteration < iterations:
                n, seconds = done.iteration, done.seconds - done.before
                # the warm-up also ends after a tenth of the time, however few iterations that is
                risen = max((n + 1) / warm, 0.0 if limit is None else 10 * seconds / limit)
                fallen = falling(n, iterations, seconds=seconds, limit=limit)
                set_rate(self.optimizer, learning_rate * min(risen, fallen))
                self.new.fill_(1 - min(0.9995, (n + 1) / (n + 10)))
                torch.manual_seed(streams.key(self.seed, f"{self.title} noise", step=n))
                step()
                done.iteration += 1
                late = limit is not None and done.seconds - done.before >= limit
                if interruption.asked:
                    done.save(now=True)
                    interruption.deliver()
                if done.iteration - told < _TOLD and done.iteration < iterations and not late:
                    continue
                total = float(self.sums)  # waits for the GPU, so that the clock includes its time
                left = {} if limit is None else {"left": f"{max(0.0, limit + done.before - done.seconds):.0f} s"}
                bar.advance(done.iteration - told, loss=(total - sums) / (done.iteration - told), **left)
                told, sums = done.iteration, total
                if late:
                    few = "" if told >= _FEW else ": hardly any training; give it more time, or make it smaller"
                    progress.say(f"The time limit of {limit:.4g} s ends the {self.title} after {told:,} steps{few}.")
                    break
                if told < iterations:
                    done.save()

    def _step(self) -> None:
        count = torch.arange(self.batch, device=self.device)
        loss = self.loss(streams.bits(self.key, self.clock * self.batch + count) % self.of)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.sums += loss.detach()
        self.clock += 1
        with torch.no_grad():
            for name, value in self.average.items():
                value.lerp_(self.weights[name], self.new)
