"""Pretraining (appendix, CUB): embedder, RNN and classifier learn from locations of a fixed distribution.

The loss is the training's classification loss. The epoch with the best validation accuracy is kept: a trunk, which is
frozen while location networks learn on top of it, and shared by all methods that pretrain alike.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.frozen import CHUNK
from nogs.attention.network import Architecture, Networks
from nogs.attention.store import load_network, save_network
from nogs.attention.trunks import (
    FILE,
    FOLDER,
    Frozen,
    Trunk,
    set_precision,
    source_of,
    start_from_imagenet,
    trunks_of,
    tuned_convolutions,
)
from nogs.data.task import Task
from nogs.runtime import progress, streams
from nogs.runtime.capture import captured
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.metrics import Metrics
from nogs.runtime.stage import Stage

STATE = "state.safetensors"

_FIELDS = (
    "embedder", "scales", "hidden", "embedding", "location_hidden", "policy", "mixture_components", "batch",
    "learning_rate", "trajectories", "precision", "embedder_precision", "pretrain_epochs", "pretrain_patience",
    "pretrain_seconds", "pretrain_batch", "pretrain_learning_rate", "pretrain_flip", "pretrain_dropout",
    "pretrain_validate_every",
)  # fmt: skip
"""Fields of a recipe that change what pretraining finds."""


def pretrain(
    task: Task,
    members: Sequence[Member],
    *,
    config: AttentionConfig,
    glimpses: int,
    folder: Path,
    device: torch.device,
    weights: str,
) -> Frozen:
    """Pretrain what `members` stand on, one after the other, below `folder`; what is done is loaded."""
    trunks, numbers = trunks_of(members)
    fields = {name: getattr(config, name) for name in _FIELDS}
    if config.class_weights != "none":
        fields["class_weights"] = config.class_weights
    stages = []
    for trunk in trunks:
        what = (trunk.distribution.log_probabilities, trunk.attribute, trunk.seed)
        mark = fingerprint("pretraining 1", fields, task.fingerprint, glimpses, what, source_of(config, weights))
        stages.append(Stage(folder / trunk.name, name=f"pretraining {trunk.name}", fingerprint=mark))
    for stage in stages:
        stage.check_folder()
    for trunk, stage in zip(trunks, stages):
        if stage.done:
            continue
        trainer = Pretrainer(task, trunk, config=config, glimpses=glimpses, device=device, weights=weights)
        if not stage.begun:
            stage.begin()
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
    return Frozen(trunks, numbers, loaded)


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
        start_from_imagenet(self.networks, weights)
        self.networks.policy_parameters.requires_grad_(False)
        self.learned = {name: p for name, p in self.networks.named_parameters() if p.requires_grad}
        rate = config.pretrain_learning_rate or config.learning_rate
        self.optimizer = torch.optim.Adam(self.learned.values(), lr=rate, fused=True, capturable=device.type == "cuda")
        for parameter in self.learned.values():
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        ends = torch.from_numpy(trunk.distribution.log_probabilities).exp().cumsum(0)
        self.class_weights = self.cohort.balanced_weights()[0] if config.class_weights == "balanced" else None
        self.ends = (ends / ends[-1]).float().to(device)
        self.iteration = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros((), device=device)
        self.best = {name: value.clone() for name, value in self.networks.state_dict().items()}
        self.counters: dict[str, float] = {"best": -1.0, "best_epoch": 0, "since": 0, "seconds": 0.0, "logged": 0}

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
        answers, labels = logits.flatten(0, 1), batch.labels.flatten()
        if self.class_weights is None:
            loss = F.cross_entropy(answers, labels)
        else:  # torch's own mean would divide by the weights of the batch
            loss = F.cross_entropy(answers, labels, weight=self.class_weights, reduction="sum") / len(labels)
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
        with tuned_convolutions():
            step = self._captured()
            self.load(state, mark=mark)
            first, counters = int(self.iteration) // cohort.per_epoch, self.counters
            before, began = counters["seconds"], time.monotonic()
            limit = math.inf if config.pretrain_seconds is None else config.pretrain_seconds - before
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
                        if late := time.monotonic() - began > limit:  # an epoch may be long on a CPU
                            break
                    last = late or epoch == config.pretrain_epochs
                    if epoch % config.pretrain_validate_every and not last:
                        bar.advance()
                        continue
                    accuracy = self.log(metrics, epoch)
                    bar.advance(accuracy=accuracy, best=counters["best"])
                    validations += 1
                    counters["seconds"] = before + time.monotonic() - began
                    impatient = config.pretrain_patience is not None and counters["since"] >= config.pretrain_patience
                    if last or impatient or time.monotonic() - began > limit:
                        break
                    if validations % config.save_every == 0:
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
        steps = max(1, int(self.iteration) - self.counters["logged"])
        self.counters["logged"] = int(self.iteration)
        metrics.log(epoch, training_loss=self.loss.item() / steps, validation_accuracy=accuracy, validation_nll=nll)
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

    def _captured(self) -> Callable[[], None]:
        """The step as a graph, where there are graphs; capturing runs some iterations, which are undone."""
        before = {name: value.clone() for name, value in self.tensors().items()}
        step = captured(self.step, self.device)
        for name, value in self.tensors().items():
            value.copy_(before[name])
        return step
