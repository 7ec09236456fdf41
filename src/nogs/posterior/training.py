"""Training of a posterior (Eq. 7): one loop, resumable, with the best network on the validation images kept.

A killed run goes on from its last saved state to the same result: batches and random numbers are functions of the
iteration, and everything else is in the state.
"""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, fold_task
from nogs.posterior.imagenet import find_weights
from nogs.posterior.inputs import read_start, telling_fields, training_rows
from nogs.posterior.labels import label_table
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.outcome import write_combined, write_outcome
from nogs.posterior.pretraining import Painter
from nogs.posterior.protocol import distinct
from nogs.posterior.queries import observed_first, random_pixels, resident, strata, with_overlaps
from nogs.posterior.schedule import learning_rate, make_optimizer
from nogs.posterior.stems import token_size
from nogs.posterior.store import load_posterior
from nogs.posterior.teaching import Teacher, check_teacher
from nogs.posterior.tokens import GlimpseTokens
from nogs.posterior.validation import Validation
from nogs.runtime import progress, streams
from nogs.runtime.capture import captured
from nogs.runtime.device import pick_device, pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.metrics import Metrics
from nogs.runtime.rates import set_rate
from nogs.runtime.stage import Stage

FILE = "posterior.safetensors"


def train_posterior(
    task: Task,
    *,
    config: PosteriorConfig,
    glimpses: int,
    folder: Path,
    seed: int = 0,
    device: str = "auto",
    data: Path | None = None,
    above: Stage | None = None,
) -> NetworkPosterior | CrossFitted:
    """Train, calibrate and judge a posterior; what is done is loaded, what was begun goes on.

    `folder` gets posterior.safetensors, evaluation.json, posterior.png and metrics.jsonl; with `config.folds` > 1 each
    network has a folder of its own in it, fold-0 and so on, and begins the stage `above` it with its own. VGG-16's
    ImageNet weights are looked for in the folder `data` first.
    """
    if config.backbone == "vgg16" if config.kind == "cnn" else config.stem == "vgg":
        config = config.model_copy(update={"weights": find_weights(config.weights, data)})
    fields = telling_fields(config)
    mark = fingerprint(fields, task.fingerprint, glimpses, seed)
    every = {**config.model_dump(exclude={"save_every"}), **fields}
    named = dotted({"posterior": every, "glimpses": glimpses, "seed": seed, "data": task.fingerprint})
    stage = Stage(folder, name="posterior", fingerprint=mark, fields=named)
    stage.check_folder()
    chosen = pick_device(device)
    if above is None and not stage.done:
        check_teacher(config, task=task, glimpses=glimpses)
    if stage.done:
        progress.say("The posterior is trained already.")
    elif config.folds > 1:
        images = len(training_rows(task))
        if config.folds > images:
            raise InputError(
                f"--posterior.folds is {config.folds}, but only {images} images train the posterior, and each network "
                f"must leave one out; use at most {images}."
            )
        single, parts = config.model_copy(update={"folds": 1}), []
        for fold in range(config.folds):
            progress.say(f"Network {fold + 1} of {config.folds} of the posterior.")
            part, own = fold_task(task, fold=fold, folds=config.folds), folder / f"fold-{fold}"
            parts.append(
                train_posterior(
                    part, config=single, glimpses=glimpses, folder=own, seed=seed, device=device, above=stage
                )
            )
            gc.collect()  # the trainer refers to itself, and its images may fill a GPU
        about = write_combined(parts, folder / FILE, task=task, config=config, seed=seed)
        stage.finish(iterations=about["iterations"], training_seconds=about["training_seconds"])
    else:
        trainer = Trainer(task, config=config, glimpses=glimpses, seed=seed, device=chosen)
        if above is not None and not above.begun:  # not before the first network could be made
            above.begin()
        stage.begin()
        trainer.run(folder)
        write_outcome(trainer, folder / FILE)
        stage.finish(iterations=trainer.iteration, training_seconds=round(trainer.spent, 1))
        (folder / "state.safetensors").unlink(missing_ok=True)
    return load_posterior(folder / FILE, task=task, device=chosen, precision=config.precision)


class Trainer:
    """The network with its optimiser, counters and best version: all that a state holds."""

    def __init__(self, task: Task, *, config: PosteriorConfig, glimpses: int, seed: int, device: torch.device) -> None:
        self.task, self.config, self.glimpses, self.seed, self.device = task, config, glimpses, seed, device
        self.precision = pick_precision(config.precision, device)
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
        # every t weighs the same, though its part of the batch may have an image more than another
        self.row_weights = (1 / (counts * len(counts))).repeat_interleave(counts)
        self.network = self.architecture.build(seed=seed)
        loaded = self.network.load(config.weights) if config.weights != "none" else set()
        self.started_from: list[str] = []
        """Fingerprints of tasks with other data or splits, whose images its weights may have seen."""
        if config.start is not None:
            weights, self.started_from = read_start(config.start, task=task, architecture=self.architecture)
            self.network.load_state_dict(weights)
        self.network.to(device)
        self.painter = None
        if config.pretrain:
            assert isinstance(self.network, GlimpseTokens)
            self.painter = Painter(self.network, size=token_size(config, task.grid.glimpse)).to(device)
        self.optimizer = make_optimizer(self.parameters(), config=config, loaded=loaded)
        self.optimised = list(self.parameters().values())
        self.forward: Callable[..., Tensor] = self.network
        if config.compile and device.type == "cuda":
            self.forward = torch.compile(self.network, dynamic=False)
        self.teacher = None
        if config.teacher is not None:
            self.teacher = Teacher.of(config.teacher, task=task, device=device, precision=config.precision)
        self.validate = Validation(self)
        self.order, self.epoch = torch.zeros_like(self.training), -1
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        """The iteration, as the device counts it."""
        self.works: dict[bool, Callable[[], None]] = {}
        self.iteration, self.spent, self.rate = 0, 0.0, 0.0
        self.failed: int | None = None
        self.total = torch.zeros((), device=device)
        self.best_loss, self.best_iteration = math.inf, 0
        self.best = {name: value.clone() for name, value in self.network.state_dict().items()}

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """All that is optimised, by name."""
        painter = {} if self.painter is None else dict(self.painter.named_parameters(prefix="painter"))
        return {**dict(self.network.named_parameters()), **painter}

    def step(self) -> None:
        """One iteration on Eq. 7, on a GPU as a captured graph."""
        epoch, painting = self.iteration // self.per_epoch, self.iteration < self.config.pretrain
        if epoch != self.epoch:
            key = streams.key(self.seed, "posterior order", step=epoch)
            self.order.copy_(self.training[streams.permutation(key, len(self.training), self.device)])
            self.epoch = epoch
        self.rate = learning_rate(self.config, self.iteration, self.spent)
        set_rate(self.optimizer, self.rate)
        if painting not in self.works:
            changes = [*self.tensors().values(), self.total, self.clock]
            self.works[painting] = captured(partial(self._work, painting), self.device, changes=changes)
        torch.manual_seed(streams.key(self.seed, "posterior dropout", step=self.iteration))
        self.works[painting]()
        self.iteration += 1

    def _work(self, painting: bool) -> None:
        """What an iteration computes, from the clock on the device: batch, loss, gradient, step."""
        config, count = self.config, torch.arange(self.batch, device=self.device)
        drawn = self.clock * self.batch + count
        rows = self.order[self.clock % self.per_epoch * self.batch + count]
        flip = None
        if config.flip:
            flip = streams.uniform(streams.key(self.seed, "posterior flips"), drawn) < 0.5
        glimpses = config.pretrain_glimpses if painting else self.longest
        counter = drawn[:, None] * glimpses + torch.arange(glimpses, device=self.device)
        key = streams.key(self.seed, "posterior painting" if painting else "posterior locations")
        pixels = random_pixels(key, counter, grid=self.task.grid, locations=config.locations)
        if config.overlapping and not painting:
            pixels = with_overlaps(
                pixels, config.overlapping, key=key, counter=counter, grid=self.task.grid, locations=config.locations
            )
        changes = config.augment.draw(streams.key(self.seed, "posterior changes"), drawn)
        seen = self.network.read(self.images, pixels, rows, flip, changes)
        if painting:
            assert self.painter is not None
            assert isinstance(self.network, GlimpseTokens)
            loss = self.painter.loss(self.network, seen, pixels)
        else:
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
                attribute_weight=config.attribute_weight,
                teacher_weight=config.teacher_weight,
            )
            loss = (losses * self.row_weights).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.optimised, config.clip)
        self.optimizer.step()
        self.total += loss.detach()
        self.clock += 1

    def run(self, folder: Path) -> None:
        """From the saved state, if there is one, to the last iteration or the end of the time."""
        config, state = self.config, folder / "state.safetensors"
        self.load(state)
        every, first, before = config.validate_every or self.per_epoch, self.iteration, self.spent
        began, last_log, validations = time.monotonic(), self.iteration, 0
        devices = [self.device] if self.device.type == "cuda" else []
        with (
            Metrics(folder, resume_after=first or -1) as metrics,
            progress.track("training the posterior", total=config.iterations, start=first) as bar,
            torch.random.fork_rng(devices=devices),
            self.precision.active(),
        ):
            self.network.train()
            while self.iteration < config.iterations and self.failed is None:
                self.step()
                self.spent = before + time.monotonic() - began
                late = config.seconds is not None and self.spent >= config.seconds
                if self.iteration % every and self.iteration < config.iterations and not late:
                    continue
                self.log(metrics, since=self.iteration - last_log)
                bar.advance(self.iteration - last_log, best=self.best_loss)
                last_log, validations = self.iteration, validations + 1
                if late:
                    progress.say(f"The {config.seconds:g} s are over after {self.iteration} iterations.")
                    break
                if validations % config.save_every == 0 and self.iteration < config.iterations and self.failed is None:
                    self.save(state)

    def log(self, metrics: Metrics, *, since: int) -> None:
        """Validate, keep the network if it is the best, write a line."""
        by_t, accuracy = self.validate()
        loss, training = by_t.mean().item(), (self.total / since).item()
        self.total.zero_()
        metrics.log(
            self.iteration,
            training_loss=training,
            validation_cross_entropy=loss,
            validation_accuracy=accuracy,
            validation_cross_entropy_by_glimpses=by_t.tolist(),
            learning_rate=self.rate,
        )
        if not (math.isfinite(loss) and math.isfinite(training)):
            self.failed = self.iteration
        elif loss < self.best_loss and self.iteration > self.config.pretrain:
            self.best_loss, self.best_iteration = loss, self.iteration
            for name, value in self.network.state_dict().items():
                self.best[name].copy_(value)

    def posterior(self) -> NetworkPosterior:
        """The network as it is now, without calibration."""
        return NetworkPosterior(self.network, self.architecture, precision=self.config.precision)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name; the tensors themselves, to be read or overwritten."""
        out = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        out.update({f"best.{name}": value for name, value in self.best.items()})
        for name, parameter in self.parameters().items():
            if name.startswith("painter."):
                out[name] = parameter.data
            for part, value in self.optimizer.state.get(parameter, {}).items():
                out[f"adam.{part}.{name}"] = value
        return out

    def fingerprint(self) -> str:
        """What a state must come from to be continued here."""
        return fingerprint(telling_fields(self.config), self.task.fingerprint, self.architecture.to_json(), self.seed)

    def save(self, path: Path) -> None:
        """Write the state."""
        counters = {name: getattr(self, name) for name in ("iteration", "spent", "best_loss", "best_iteration")}
        about = {"fingerprint": self.fingerprint(), "counters": json.dumps(counters)}
        save_tensors(path, {name: value.cpu() for name, value in self.tensors().items()}, about)

    def load(self, path: Path) -> None:
        """Continue from a state of the same training; another one is left alone and training starts anew."""
        if not path.exists():
            return
        tensors, about = load_tensors(path)
        if about.get("fingerprint") != self.fingerprint():
            progress.say(f"{path} is the state of another training; this one starts at iteration 0.")
            return
        for name, value in self.tensors().items():
            value.copy_(tensors[name])
        for name, value in json.loads(about["counters"]).items():
            setattr(self, name, value)
        self.clock.fill_(self.iteration)
        progress.say(f"Going on from iteration {self.iteration}.")
