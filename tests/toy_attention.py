"""A small task to train hard attention on in a second, and a plain network that does the same the obvious way."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from nogs.attention.cohort import Batch
from nogs.attention.network import Networks, Rollout
from nogs.attention.training import Trainer
from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.sequences import Sequences


def select(networks: Networks, chosen: Iterable[int]) -> Networks:
    """Some of the networks, as a module of their own."""
    chosen = list(chosen)
    out = Networks(networks.architecture, seeds=[0] * len(chosen))
    out.load_state_dict({name: value[chosen] for name, value in networks.state_dict().items()})
    return out


def toy_task(
    *,
    count: int = 40,
    size: int = 24,
    glimpse: int = 8,
    spacing: int = 8,
    classes: int = 3,
    attributes: tuple[str, ...] = (),
    seed: int = 0,
) -> Task:
    """Noise in which class k brightens channel k of the middle; 60 % of the images train, 20 % validate, 20 % test."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 120, (count, size, size, 3), dtype=np.uint8)
    quarter = size // 4
    if attributes:
        space = LabelSpace("bernoulli", attributes)
        labels = (random.random((count, len(attributes))) < 0.4).astype(np.uint8)
        bright = labels.astype(bool)
    else:
        space = LabelSpace("categorical", tuple(f"class {k}" for k in range(classes)))
        labels = random.integers(0, classes, count)
        bright = labels[:, None] == np.arange(classes)
    for k in range(min(bright.shape[1], 3)):
        images[bright[:, k], quarter:-quarter, quarter:-quarter, k] += 130
    ids = tuple(str(n) for n in range(count))
    train, validation = count * 6 // 10, count * 8 // 10
    return Task(
        name="toy",
        images=images,
        ids=ids,
        labels=labels,
        space=space,
        splits={"train": ids[:train], "validation": ids[train:validation], "test": ids[validation:]},
        grid=Grid.spaced(image=size, glimpse=glimpse, spacing=spacing),
        fingerprint=f"toy {count} {size} {glimpse} {spacing} {classes} {attributes} {seed}",
    )


def toy_sequences(
    task: Task, ids: Iterable[str], *, glimpses: int = 3, attribute: str | None = None, seed: int = 0
) -> Sequences:
    """A random sequence for each of these images."""
    ids = tuple(ids)
    chosen = np.random.default_rng(seed).integers(0, len(task.grid), (len(ids), glimpses))
    return Sequences(
        task=task.name,
        attribute=attribute,
        grid=task.grid,
        length=glimpses,
        ids=ids,
        locations=task.grid.pixels.numpy()[chosen],
    )


def advance(trainer: Trainer, iterations: int) -> None:
    """Some training iterations without validation or files."""
    for _ in range(iterations):
        if int(trainer.iteration) % trainer.cohort.per_epoch == 0:
            trainer.cohort.start_epoch(int(trainer.iteration))
        trainer.step()


def first_batch(trainer: Trainer, iteration: int = 0) -> Batch:
    """The batch that a trainer sees at an iteration."""
    trainer.cohort.start_epoch(iteration)
    return trainer.cohort.draw(torch.tensor(iteration))


class PlainNetwork(nn.Module):
    """Network m of `networks`, made of torch's own layers; it cuts glimpses one by one out of the whole image."""

    def __init__(self, networks: Networks, m: int = 0) -> None:
        super().__init__()
        a = self.architecture = networks.architecture
        release = a.embedder == "release"
        layer = {"padding": 1, "bias": False} if release else {}
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, **layer), nn.Conv2d(16, 32, 3, stride=2, **layer)
        empty = torch.zeros(1, 3, a.grid.glimpse, a.grid.glimpse)
        features = nn.functional.max_pool2d(self.conv2(self.conv1(empty)), 2).numel()
        if release:
            self.norm1, self.norm2 = nn.BatchNorm2d(16), nn.BatchNorm2d(32)
            self.dense = nn.Linear(features, 128)
            self.project_norm, self.place_norm = nn.BatchNorm1d(a.embedding), nn.BatchNorm1d(a.embedding)
        self.project = nn.Linear(128 if release else features, a.embedding)
        self.place1, self.place2 = nn.Linear(2, a.location_hidden), nn.Linear(a.location_hidden, a.embedding)
        self.cell = nn.GRUCell(a.embedding, a.hidden)
        self.initial = nn.Parameter(torch.empty(a.hidden))
        self.classify = nn.Linear(a.hidden, a.labels)
        self.locate1, self.locate2 = nn.Linear(a.hidden, a.location_hidden), nn.Linear(a.location_hidden, len(a.grid))
        self.baseline = nn.Linear(a.hidden, 1)
        with torch.no_grad():
            for ours, plain in self.pairs(networks):
                plain.copy_(ours[m])

    def pairs(self, networks: Networks) -> list[tuple[Tensor, Tensor]]:
        """Each parameter of `networks` with its counterpart here."""
        torch_names = {"scale": "weight", "shift": "bias", "weight": "weight", "bias": "bias"}
        out = []
        for part in (networks.embed_parameters, networks.core_parameters, networks.policy_parameters):
            for name, ours in part.items():
                layer, kind = name.rsplit("_", 1)
                if name == "initial_state":
                    plain = self.initial
                elif layer in ("input", "state"):
                    plain = getattr(self.cell, f"{kind}_{'ih' if layer == 'input' else 'hh'}")
                else:
                    plain = getattr(getattr(self, layer), torch_names[kind])
                out.append((ours, plain))
        assert len(out) == len(list(self.parameters()))
        return out

    def embed(self, x: Tensor) -> Tensor:
        """Glimpses `[B, C, g, g]` in [-1, 1]."""
        if self.architecture.embedder == "release":
            x = nn.functional.relu6(self.norm1(self.conv1(x)))
            x = nn.functional.relu6(self.norm2(self.conv2(x)))
            x = nn.functional.max_pool2d(x, 2).flatten(1)
            return self.project_norm(self.project(self.dense(x).relu()))
        x = nn.functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        return self.project(x.permute(0, 2, 3, 1).flatten(1))

    def logits(self, state: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the locations."""
        return self.locate2(self.locate1(state.detach()).relu())

    def forward(
        self, images: np.ndarray, *, uniforms: Tensor | None, forced: Tensor | None = None, flip: Tensor | None = None
    ) -> Rollout:
        """The rollout on one batch of images, with the leading axis M = 1."""
        a = self.architecture
        state = self.initial.expand(len(images), -1)
        steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for t in range(a.glimpses):
            log_probabilities = torch.log_softmax(self.logits(state), -1)
            probabilities = log_probabilities.detach().exp()
            location = probabilities.argmax(-1)
            if uniforms is not None:
                cumulative = probabilities.double().cumsum(-1)
                below = (cumulative <= uniforms[:, t, None] * cumulative[:, -1:]).sum(-1)
                location = below.clamp(max=len(a.grid) - 1)
            if forced is not None:
                location = torch.where(forced[:, t] >= 0, forced[:, t], location)
            entropy = -(probabilities * log_probabilities).sum(-1)
            log_probability = log_probabilities[torch.arange(len(images)), location]
            steps.append((location, log_probability, self.baseline(state.detach())[:, 0], entropy))
            patches = []
            for n, image in enumerate(images):
                mirrored = image[:, ::-1] if flip is not None and flip[n] else image
                row, column = a.grid.pixels[location[n]].tolist()
                patches.append(mirrored[row : row + a.grid.glimpse, column : column + a.grid.glimpse])
            x = torch.from_numpy(np.stack(patches)).float() / 127.5 - 1
            place = self.place2(self.place1(a.grid.coordinates[location]).relu())
            if a.embedder == "release":
                place = self.place_norm(place)
            state = self.cell((self.embed(x.permute(0, 3, 1, 2)) + place).relu(), state)
        locations, chosen, baselines, entropies = (torch.stack(x, -1)[None] for x in zip(*steps))
        return Rollout(locations, chosen, baselines, self.classify(state)[None], entropies)
