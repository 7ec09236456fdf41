"""A cohort: hard-attention networks of one recipe that train side by side, and the tensors that feed them.

Each network is one (method, attribute, seed). Networks of one seed see the same images in the same order with the same
random numbers. So methods are compared on equal terms, and a network does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from nogs.data.task import Task
from nogs.posterior.queries import resident
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.sequences import Sequences
from nogs.supervision.distribution import LocationDistribution


@dataclass(frozen=True)
class Member:
    """One network to train. `sequences` supervise some of its training images; RAM has none.

    Where a recipe pretrains, `pretraining` is the distribution of the locations in that stage. `variant` distinguishes
    networks of one method that differ in the weight of supervision.
    """

    method: str
    seed: int = 0
    attribute: str | None = None
    sequences: Sequences | None = None
    weight: float = 1.0
    pretraining: LocationDistribution | None = None
    variant: str = ""

    @property
    def name(self) -> str:
        """The folder of its files, below the stage's folder."""
        method = f"{self.method}-{self.variant}" if self.variant else self.method
        return "/".join([method, *([self.attribute] if self.attribute else []), f"seed-{self.seed}"])

    @property
    def label(self) -> str:
        """Its method in tables, with the weight of supervision if it has one."""
        return self.method if self.sequences is None else f"{self.method}, weight {self.weight:g}"

    def fingerprint(self) -> str:
        """Digest of its inputs, besides the recipe and the task."""
        supervision = None if self.sequences is None else (self.sequences.ids, self.sequences.indices())
        stage = None if self.pretraining is None else (self.pretraining.name, self.pretraining.log_probabilities)
        return fingerprint(self.method, self.seed, self.attribute, self.weight, supervision, stage)


@dataclass
class Batch:
    """One iteration's input for M networks; `forced` holds the supervised rows' locations and -1 elsewhere."""

    rows: Int[Tensor, "M B"]
    labels: Int[Tensor, "M B"]
    uniforms: Float[Tensor, "M B T"] | None
    flip: Bool[Tensor, "M B"] | None
    forced: Int[Tensor, "M B T"] | None
    supervised: Bool[Tensor, "M B"] | None


class Cohort:
    """Images, labels and sequences on the device, and batches as a function of the iteration alone."""

    def __init__(
        self, task: Task, members: Sequence[Member], *, glimpses: int, batch: int, flip: bool, device: torch.device
    ) -> None:
        self.task, self.members, self.glimpses, self.flip, self.device = task, list(members), glimpses, flip, device
        self.images: UInt8[Tensor, "N H W 3"] = resident(task.images, device)
        self.labels: Int[Tensor, "M N"] = torch.from_numpy(
            np.stack([member_labels(task, member) for member in members])
        ).to(device)
        self.classes = len(task.space.names) if task.space.kind == "categorical" else 2
        self.training = torch.from_numpy(task.rows("train")).to(device)
        self.batch = min(batch, len(self.training))
        self.per_epoch = len(self.training) // self.batch
        self.sequence_of, self.sequences = _sequence_tables(task, members, glimpses, device)
        self.all_supervised = bool((self.sequence_of[:, self.training] >= 0).all())
        seeds = sorted({member.seed for member in members})
        self.seeds = seeds
        self.seed_of = torch.tensor([seeds.index(member.seed) for member in members], device=device)
        self.keys = {
            purpose: torch.tensor([streams.key(seed, purpose) for seed in seeds], device=device)[:, None]
            for purpose in ("flips", "locations")
        }
        self.order = torch.zeros(len(seeds), len(self.training), dtype=torch.int64, device=device)

    def start_epoch(self, iteration: int) -> None:
        """Set the order of the training images for the epoch of this iteration."""
        epoch = iteration // self.per_epoch
        for n, seed in enumerate(self.seeds):
            key = streams.key(seed, "order", step=epoch)
            self.order[n] = self.training[streams.permutation(key, len(self.training), self.device)]

    def draw(self, iteration: Int[Tensor, ""]) -> Batch:
        """The batch of an iteration; this is a tensor, so that a captured graph can advance it."""
        steps = torch.arange(self.batch, device=self.device)
        rows = self.order[:, (iteration % self.per_epoch) * self.batch + steps]  # one for each seed
        drawn = iteration * self.batch + steps
        uniforms = None
        if not self.all_supervised:
            counter = drawn[:, None] * self.glimpses + torch.arange(self.glimpses, device=self.device)
            uniforms = streams.uniform(self.keys["locations"][..., None], counter)[self.seed_of]
        flip = (streams.uniform(self.keys["flips"], drawn) < 0.5)[self.seed_of] if self.flip else None
        rows = rows[self.seed_of]
        labels = self.labels.gather(1, rows)
        if self.sequences is None:
            return Batch(rows, labels, uniforms, flip, None, None)
        sequence = self.sequence_of.gather(1, rows)
        supervised = sequence >= 0
        forced = torch.where(supervised[..., None], self.sequences[sequence.clamp(min=0)], -1)
        if flip is not None:  # a sequence belongs to the unmirrored image
            flip = flip & ~supervised
        return Batch(rows, labels, uniforms, flip, forced, supervised)


def label_names(task: Task, attribute: str | None) -> list[str]:
    """Names of a network's classes: those of the task, or the two values of one attribute."""
    return list(task.space.names) if attribute is None else [f"not {attribute}", attribute]


def member_labels(task: Task, member: Member) -> np.ndarray:
    """The labels that a network learns: the task's classes, or 0/1 of its attribute."""
    check_attribute(task, member.attribute)
    if member.attribute is None:
        return np.asarray(task.labels, dtype=np.int64)
    return task.labels[:, task.attribute(member.attribute)].astype(np.int64)


def check_attribute(task: Task, attribute: str | None) -> None:
    """Refuse a task with attributes unless one of them is named, and an attribute of a task that has none."""
    if attribute is not None:
        task.attribute(attribute)
    elif task.space.kind == "bernoulli":
        raise InputError(f"Task {task.title!r} has {len(task.space.names)} attributes; choose some with --attribute.")


def _sequence_tables(
    task: Task, members: Sequence[Member], glimpses: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """For each network the row of its sequence for each image (-1: none), and all sequences stacked."""
    sequence_of = np.full((len(members), len(task.ids)), -1, dtype=np.int64)
    tables: dict[int, int] = {}
    stacked: list[np.ndarray] = []
    training = set(task.splits["train"])
    count = 0
    for m, member in enumerate(members):
        sequences = member.sequences
        if sequences is None:
            continue
        if sequences.grid != task.grid:
            raise InputError(f"The sequences for {member.name!r} are for another grid than task {task.title!r} has.")
        if sequences.locations.shape[1] != glimpses:
            raise InputError(
                f"The sequences for {member.name!r} have {sequences.locations.shape[1]} glimpses, but the recipe asks "
                f"for {glimpses}; set --glimpses {sequences.locations.shape[1]}."
            )
        outside = [id for id in sequences.ids if id not in training]
        if outside:
            raise InputError(
                f"The sequences for {member.name!r} supervise image {outside[0]!r}, which is not a training image of "
                f"task {task.title!r}."
            )
        if id(sequences) not in tables:
            tables[id(sequences)] = count
            stacked.append(sequences.indices())
            count += len(sequences)
        rows = task.rows(sequences.ids)
        sequence_of[m, rows] = tables[id(sequences)] + np.arange(len(rows))
    if not stacked:
        return torch.from_numpy(sequence_of).to(device), None
    return torch.from_numpy(sequence_of).to(device), torch.from_numpy(np.concatenate(stacked)).to(device)
