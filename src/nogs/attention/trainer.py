"""`Trainer`: the loop that trains a cohort of hard-attention networks, and its resumable state.

A killed run resumes from its last saved state, with the same result: batches and random numbers are functions of the
iteration, and everything else is in the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.evaluation import Evaluator
from nogs.attention.frozen import stand_on
from nogs.attention.network import Networks
from nogs.attention.objective import objective
from nogs.attention.optimizer import make_adam
from nogs.attention.trunks import Frozen, set_precision, start_from_imagenet
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.capture import captured
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Header
from nogs.runtime.interruption import Interruption
from nogs.runtime.memory import keep_freed_memory
from nogs.runtime.metrics import Metrics
from nogs.runtime.rates import adam_tensors
from nogs.runtime.state import read_state, restore, save_state

BEST = {"accuracy": 1, "balanced_accuracy": 1, "nll": -1}
"""Validation measures by which networks are kept, with the sign that makes larger values better."""

STATE = "state.safetensors"
"""The file to resume from, until all networks are trained."""

ELSEWHERE = {"save_every", "weights", "cache", "pretrain_abreast"}
"""Fields that change no result, or of which the content of a file counts and not its path."""

LOSSES = ("classification", "reinforce", "baseline", "supervision", "reward")


class Counters(Header):
    """A state's content besides tensors: names, the iteration at which networks failed, digests of their metrics."""

    networks: str
    failed: dict[str, int]
    logged: list[str | None]


class Trainer:
    """The networks of a cohort with their optimiser, counters and best versions, which are all saved in a state."""

    def __init__(
        self,
        task: Task,
        members: Sequence[Member],
        *,
        config: AttentionConfig,
        glimpses: int,
        device: torch.device,
        frozen: Frozen | None = None,
        weights: str = "none",
        fuse: bool = True,
    ) -> None:
        """`fuse` compiles the step on a GPU (15 s) unless features are frozen; training is then a third faster."""
        self.config, self.device, self.members, self.frozen = config, device, list(members), frozen
        if device.type == "cpu":
            keep_freed_memory()  # a third less time per iteration
        self.cohort = Cohort(task, members, glimpses=glimpses, batch=config.batch, flip=config.flip, device=device)
        architecture = Architecture.of(config, grid=task.grid, glimpses=glimpses, labels=self.cohort.classes)
        seeds = [member.seed for member in members]
        self.networks = Networks(
            architecture, seeds=seeds, embedding=frozen is None, initial_state=config.initial_state
        ).to(device)
        set_precision(self.networks, config, device)
        if frozen is None:
            start_from_imagenet(self.networks, weights)
        else:
            stand_on(self.networks, frozen, self.cohort, config)
        if device.type == "cuda" and fuse and frozen is None:
            self.networks.fuse()
        self.learned = {name: p for name, p in self.networks.named_parameters() if p.requires_grad}
        self.optimizer = make_adam(self.learned, rate=config.learning_rate, location_rate=config.location_rate)
        self.iteration = torch.zeros((), dtype=torch.int64, device=device)
        self.weight = torch.tensor([member.weight for member in members], device=device)
        self.sums = torch.zeros(len(LOSSES), len(members), device=device)
        self.best = {kind: torch.full((len(members),), -torch.inf, device=device) for kind in BEST}
        self.best_iteration = {kind: torch.zeros(len(members), dtype=torch.int64, device=device) for kind in BEST}
        self.best_networks = {kind: {name: p.data.clone() for name, p in self.learned.items()} for kind in BEST}
        self.failed: dict[int, int] = {}
        self.logged: list[str | None] = [None] * len(members)
        """Digest of each network's lines of metrics so far."""
        self.whole_image: list[float | None] = [None] * len(members)
        self.validate = Evaluator(self.networks, self.cohort, "validation", trajectories=config.trajectories)

    def step(self) -> None:
        """One iteration of Adam on Eq. 8 for every network."""
        batch = self.cohort.draw(self.iteration)
        rollout = self.networks(
            self.cohort.images,
            batch.rows,
            uniforms=batch.uniforms,
            forced=batch.forced,
            flip=batch.flip,
        )
        losses = objective(
            rollout,
            batch.labels,
            supervised=batch.supervised,
            weight=self.weight,
        )
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.sum().backward()
        self.optimizer.step()
        self.sums += torch.stack([getattr(losses, name).detach() for name in LOSSES])
        self.iteration += 1

    def run(self, folder: Path) -> None:
        """Train from the saved state, if there is one, to the last iteration."""
        config, state = self.config, folder / STATE
        self.cohort.start_epoch(0)
        step = captured(self.step, self.device, changes=self.tensors().values())
        self.load(state)
        first = int(self.iteration)
        with (
            ExitStack() as opened,
            progress.track("training", total=config.iterations, start=first) as bar,
            Interruption() as interruption,
        ):
            metrics = [
                opened.enter_context(
                    Metrics(
                        folder / member.name,
                        resume_after=first or -1,
                        digest=self.logged[m] if first else None,
                        tensorboard=len(self.members) <= 16,
                    )
                )
                for m, member in enumerate(self.members)
            ]
            for iteration in range(first, config.iterations):
                if iteration % self.cohort.per_epoch == 0 or iteration == first:
                    self.cohort.start_epoch(iteration)
                step()
                bar.advance()
                done = iteration + 1
                if done % config.validate_every == 0 or done == config.iterations:
                    bar.advance(0, accuracy=self.log(metrics, done))
                    if len(self.failed) == len(self.members):
                        break
                due = done % (config.validate_every * config.save_every) == 0 and done < config.iterations
                if due or interruption.asked:
                    self.save(state)
                if interruption.asked:
                    interruption.deliver()

    def log(self, metrics: Sequence[Metrics], iteration: int) -> float:
        """Validate, keep the best networks, write one line per network; returns the mean accuracy."""
        evaluation = self.validate()
        scores = evaluation.scores()
        usage = evaluation.usage(len(self.cohort.task.grid))
        since = iteration - (iteration - 1) // self.config.validate_every * self.config.validate_every
        losses = dict(zip(LOSSES, (self.sums / since)))
        self.sums.zero_()
        for m in torch.nonzero(~torch.isfinite(sum(losses.values()) + scores["nll"]))[:, 0].tolist():
            self.failed.setdefault(m, iteration)
        for kind, sign in BEST.items():
            value = sign * scores[kind]
            better = value > self.best[kind]  # never true of NaN
            self.best[kind] = torch.where(better, value, self.best[kind])
            self.best_iteration[kind] = torch.where(better, iteration, self.best_iteration[kind])
            for name, parameter in self.learned.items():
                chosen = better.view(-1, *(1,) * (parameter.ndim - 1))
                self.best_networks[kind][name] = torch.where(chosen, parameter.data, self.best_networks[kind][name])
        columns = {
            **{f"training_{name}": value for name, value in losses.items()},
            **{f"validation_{name}": value for name, value in scores.items()},
            "policy_entropy": evaluation.entropies,
            "most_common_share": usage.max(-1).values,
        }
        lists = {name: value.tolist() for name, value in columns.items()}
        for m, writer in enumerate(metrics):
            if self.failed.get(m, iteration) == iteration:
                writer.log(iteration, **{name: values[m] for name, values in lists.items()})
                self.logged[m] = writer.digest
        return float(scores["accuracy"].nanmean())

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name, as the tensors themselves, to be read or overwritten."""
        out = {"iteration": self.iteration, "sums": self.sums}
        out.update({f"network.{name}": parameter.data for name, parameter in self.learned.items()})
        out.update(adam_tensors(self.optimizer, self.learned))
        for kind in BEST:
            out[f"best.{kind}"], out[f"best_iteration.{kind}"] = self.best[kind], self.best_iteration[kind]
            out.update({f"best.{kind}.{name}": value for name, value in self.best_networks[kind].items()})
        return out

    def fingerprint(self) -> str:
        """Digest of what a state must come from to be continued here."""
        return state_mark(self.cohort.task, self.members, self.config, self.cohort.glimpses)

    def save(self, path: Path) -> None:
        """Write the state."""
        names = ", ".join(member.name for member in self.members)
        failed = {str(m): iteration for m, iteration in self.failed.items()}
        counters = Counters(networks=names, failed=failed, logged=self.logged)
        save_state(path, self.tensors(), mark=self.fingerprint(), counters=counters)

    def load(self, path: Path) -> None:
        """Continue from a state of these networks, if there is one."""
        if not path.exists():
            return
        counters, tensors = read_state(path, Counters)
        restore(path, self.tensors(), tensors)
        numbers = set(map(str, range(len(self.members))))
        if len(counters.logged) != len(numbers) or not counters.failed.keys() <= numbers:
            raise InputError(f"{path} has counters of other networks; delete it, and the training starts again.")
        self.failed = {int(m): iteration for m, iteration in counters.failed.items()}
        self.logged = list(counters.logged)
        progress.say(f"Going on from iteration {int(self.iteration)}.")

    def complain(self) -> None:
        """Raise an error if any loss became NaN."""
        if self.failed:
            m, iteration = next(iter(self.failed.items()))
            others = len(self.failed) - 1
            more = f" (and {others} other network{'s' * (others > 1)})" if others else ""
            raise InputError(
                f"The loss of {self.members[m].name!r}{more} was not a finite number by iteration {iteration}; the "
                "best networks before that are kept in its folder; lower --attention.learning-rate: nogs run then goes "
                "on here, other commands need another --out."
            )


def training_fields(config: AttentionConfig) -> dict[str, Any]:
    """The fields on which a result depends."""
    return config.model_dump(mode="json", exclude=ELSEWHERE)


def state_mark(task: Task, members: Sequence[Member], config: AttentionConfig, glimpses: int) -> str:
    """Digest of what a state must come from to be continued."""
    names = [(member.name, member.fingerprint()) for member in members]
    return fingerprint(training_fields(config), task.fingerprint, glimpses, names)
