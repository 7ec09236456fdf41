"""Pretraining (appendix, CUB): embedder, RNN and classifier learn from locations of a fixed distribution.

The loss is the training's classification loss. The epoch with the best validation accuracy is kept: a trunk, which is
frozen while location networks learn on top of it, and shared by all methods that pretrain alike.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.capture import captured
from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.embedders import VGGEmbedder
from nogs.attention.frozen import CHUNK
from nogs.attention.network import Architecture, Networks
from nogs.attention.store import load_network, save_network
from nogs.data.task import Task
from nogs.runtime import progress, streams
from nogs.runtime.device import Precision
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.metrics import Metrics
from nogs.runtime.stage import Stage
from nogs.supervision.distribution import LocationDistribution

FOLDER, FILE, STATE = "pretraining", "network.safetensors", "state.safetensors"

_FIELDS = (
    "embedder", "scales", "hidden", "embedding", "location_hidden", "policy", "mixture_components", "batch",
    "learning_rate", "trajectories", "precision", "embedder_precision", "pretrain_epochs", "pretrain_patience",
    "pretrain_seconds", "pretrain_batch", "pretrain_learning_rate", "pretrain_flip", "pretrain_dropout",
    "pretrain_validate_every",
)  # fmt: skip
"""Fields of a recipe that change what pretraining finds."""


@dataclass(frozen=True)
class Trunk:
    """A pretraining: of which distribution, attribute and seed, and the folder of its network."""

    name: str
    distribution: LocationDistribution
    attribute: str | None
    seed: int


def trunk_of(member: Member) -> Trunk:
    """The pretraining that a network starts from."""
    if member.pretraining is None:
        raise ValueError(f"The network {member.name!r} has no distribution to pretrain with.")
    parts = [member.pretraining.name, *([member.attribute] if member.attribute else []), f"seed-{member.seed}"]
    return Trunk("/".join([FOLDER, *parts]), member.pretraining, member.attribute, member.seed)


def trunks_of(members: Iterable[Member]) -> tuple[list[Trunk], list[int]]:
    """The different pretrainings of some networks, and the number of each one's; one name must mean one thing."""
    found: dict[str, Trunk] = {}
    numbers = []
    for member in members:
        trunk = trunk_of(member)
        first = found.setdefault(trunk.name, trunk)
        assert (first.distribution.log_probabilities == trunk.distribution.log_probabilities).all(), trunk.name
        numbers.append(list(found).index(trunk.name))
    return list(found.values()), numbers


def pretrain(
    task: Task,
    trunks: Sequence[Trunk],
    *,
    config: AttentionConfig,
    glimpses: int,
    folder: Path,
    device: torch.device,
    precision: Precision,
    weights: str,
) -> list[Networks]:
    """Pretrain one network after the other below `folder`; what is done is loaded, what was begun goes on."""
    if config.embedder == "release":
        raise InputError("The release embedder normalises by the batch and can't be frozen; choose another embedder.")
    source = weights if weights in ("none", "imagenet") else file_digest(Path(weights))
    fields = {name: getattr(config, name) for name in _FIELDS}
    stages = []
    for trunk in trunks:
        what = (trunk.distribution.log_probabilities, trunk.attribute, trunk.seed)
        mark = fingerprint("pretraining 1", fields, task.fingerprint, glimpses, what, source)
        stages.append(Stage(folder / trunk.name, name=f"pretraining {trunk.name}", fingerprint=mark))
    for stage in stages:
        stage.check_folder()
    for trunk, stage in zip(trunks, stages):
        if stage.done:
            continue
        trainer = Pretrainer(task, trunk, config=config, glimpses=glimpses, device=device, weights=weights)
        if not stage.begun:
            stage.begin()
        with precision.active():
            ended = trainer.run(stage.folder, mark=stage.fingerprint)
        about = {"task": task.name, "attribute": trunk.attribute, "seed": trunk.seed, "method": FOLDER, **ended}
        tensors = {name: value[0] for name, value in trainer.best.items()}
        save_network(stage.folder / FILE, tensors, architecture=trainer.networks.architecture, about=about)
        stage.finish(**ended)
        (stage.folder / STATE).unlink(missing_ok=True)
        del trainer
        if device.type == "cuda":
            torch.cuda.empty_cache()
    loaded = [load_network(folder / trunk.name / FILE, device=device)[0].requires_grad_(False) for trunk in trunks]
    for network in loaded:
        set_precision(network, config, device)
    return loaded


def set_precision(networks: Networks, config: AttentionConfig, device: torch.device) -> None:
    """Let VGG's convolutions run in the type that the recipe asks for."""
    if isinstance(networks.embedder, VGGEmbedder):
        automatic = "bfloat16" if device.type == "cuda" else "float32"
        name = automatic if config.embedder_precision == "auto" else config.embedder_precision
        networks.embedder.dtype = getattr(torch, name)


class Pretrainer:
    """One network with its optimiser, counters and best version: all that a state holds."""

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
        batch = config.pretrain_batch or config.batch
        self.cohort = Cohort(task, [member], glimpses=glimpses, batch=batch, flip=config.pretrain_flip, device=device)
        architecture = Architecture.of(config, grid=task.grid, glimpses=glimpses, labels=self.cohort.classes)
        self.networks = Networks(architecture, seeds=[trunk.seed]).to(device)
        set_precision(self.networks, config, device)
        if isinstance(self.networks.embedder, VGGEmbedder) and weights != "none":
            for name, value in self.networks.embedder.pretrained(weights).items():
                self.networks.embed_parameters[name].data[0] = value.to(device)
        self.networks.policy_parameters.requires_grad_(False)
        self.learned = {name: p for name, p in self.networks.named_parameters() if p.requires_grad}
        rate = config.pretrain_learning_rate or config.learning_rate
        self.optimizer = torch.optim.Adam(
            self.learned.values(), lr=rate, fused=True, capturable=device.type == "cuda"
        )
        for parameter in self.learned.values():
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        ends = torch.from_numpy(trunk.distribution.log_probabilities).exp().cumsum(0)
        self.ends = (ends / ends[-1]).float().to(device)
        self.iteration = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.best = {name: value.clone() for name, value in self.networks.state_dict().items()}
        self.counters: dict[str, float] = {"best": -1.0, "best_epoch": 0, "since": 0, "seconds": 0.0}

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
        logits = self.networks.follow(cohort.images, batch.rows, locations, flip=batch.flip, keep=keep)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss += loss.detach()
        self.iteration += 1

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Accuracy and NLL on the validation images, the locations drawn anew but the same at every call."""
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

    def run(self, folder: Path, *, mark: str) -> dict[str, Any]:
        """From the saved state, if there is one, to the last epoch, the end of the time or of the patience."""
        config, cohort, state = self.config, self.cohort, folder / STATE
        cohort.start_epoch(0)
        with _tuned_convolutions():
            step = self._captured()
            self.load(state, mark=mark)
            first, counters = int(self.iteration) // cohort.per_epoch, self.counters
            before, began = counters["seconds"], time.monotonic()
            title = f"pretraining, {self.trunk.name.partition('/')[2]}"
            with (
                Metrics(folder, resume_after=first or -1, tensorboard=False) as metrics,
                progress.track(title, total=config.pretrain_epochs, unit="epochs", start=first) as bar,
            ):
                validations, epoch = 0, first
                for epoch in range(first + 1, config.pretrain_epochs + 1):
                    cohort.start_epoch((epoch - 1) * cohort.per_epoch)
                    for _ in range(cohort.per_epoch):
                        step()
                    last = epoch == config.pretrain_epochs
                    if epoch % config.pretrain_validate_every and not last:
                        bar.advance()
                        continue
                    accuracy = self.log(metrics, epoch)
                    bar.advance(accuracy=accuracy, best=counters["best"])
                    validations += 1
                    counters["seconds"] = before + time.monotonic() - began
                    if config.pretrain_seconds is not None and counters["seconds"] >= config.pretrain_seconds:
                        break
                    if config.pretrain_patience is not None and counters["since"] >= config.pretrain_patience:
                        break
                    if validations % config.save_every == 0 and not last:
                        self.save(state, mark=mark)
        if counters["best"] < 0:
            raise InputError(
                f"The loss of {self.trunk.name} was never a finite number; lower --attention.pretrain-learning-rate."
            )
        return {
            "epochs": epoch,
            "best_epoch": int(counters["best_epoch"]),
            "validation_accuracy": counters["best"],
            "pretraining_seconds": round(counters["seconds"], 1),
        }

    def log(self, metrics: Metrics, epoch: int) -> float:
        """Validate, keep the network if it is the best, write a line."""
        accuracy, nll = self.validate()
        steps = self.cohort.per_epoch * self.config.pretrain_validate_every
        metrics.log(
            epoch, training_loss=self.loss.item() / steps, validation_accuracy=accuracy, validation_nll=nll
        )
        self.loss.zero_()
        self.counters["since"] += 1
        if nll == nll and accuracy > self.counters["best"]:
            self.counters |= {"best": accuracy, "best_epoch": epoch, "since": 0}
            for name, value in self.networks.state_dict().items():
                self.best[name].copy_(value)
        return accuracy

    def tensors(self) -> dict[str, Tensor]:
        """Everything that pretraining changes, by name; the tensors themselves, to be read or overwritten."""
        out = {"iteration": self.iteration, "loss": self.loss}
        for name, parameter in self.learned.items():
            out[f"network.{name}"] = parameter.data
            out.update({f"adam.{part}.{name}": value for part, value in self.optimizer.state[parameter].items()})
        return out

    def save(self, path: Path, *, mark: str) -> None:
        """Write the state."""
        tensors = {**self.tensors(), **{f"best.{name}": value for name, value in self.best.items()}}
        about = {"fingerprint": mark, "counters": json.dumps(self.counters)}
        save_tensors(path, {name: value.cpu() for name, value in tensors.items()}, about)

    def load(self, path: Path, *, mark: str) -> None:
        """Continue from the state of this pretraining, if there is one."""
        if not path.exists():
            return
        tensors, about = load_tensors(path)
        if about.get("fingerprint") != mark:
            return
        for name, value in {**self.tensors(), **{f"best.{name}": value for name, value in self.best.items()}}.items():
            value.copy_(tensors[name])
        self.counters = json.loads(about["counters"])
        progress.say(f"Going on from epoch {int(self.iteration) // self.cohort.per_epoch}.")

    def _captured(self) -> Any:
        """The step as a graph, where there are graphs; capturing runs some iterations, which are undone."""
        before = {name: value.clone() for name, value in self.tensors().items()}
        step = captured(self.step, self.device)
        for name, value in self.tensors().items():
            value.copy_(before[name])
        return step


@contextmanager
def _tuned_convolutions() -> Any:
    """Let cuDNN time its algorithms at the first call of each shape, and choose."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def relative(trunk: Trunk, member: Member) -> str:
    """Where a trunk's file lies, seen from the folder of a network that stands on it."""
    return Path(os.path.relpath(Path(trunk.name) / FILE, member.name)).as_posix()


def of_member(architecture: Architecture, member: Member) -> Architecture:
    """The architecture of one network, cut out of a stack in which some may have fixed routes."""
    return replace(architecture, fixed=member.route is not None)
