"""The exact world behind the design's protocols: its posterior and its completions, by enumeration."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

import worlds
from nogs.completion import Completions
from nogs.data.task import LabelSpace
from nogs.design.steps import Tools
from nogs.runtime.streams import numpy_stream


class ExactPosterior:
    """p(θ | glimpses) of a world for images of that world; counts its evaluations and remembers its calls' shapes."""

    def __init__(self, world: worlds.World, *, kind: str = "categorical") -> None:
        self.world, self.grid, self.space = world, world.grid, LabelSpace(kind, world.names)
        self.shapes: set[tuple[int, ...]] = set()
        self._rows = {image.tobytes(): n for n, image in enumerate(world.images)}
        self._codes: dict[tuple[int, int], torch.Tensor] = {}
        mass = world.counts[:, None] * np.eye(len(world.names))[world.labels]
        self._mass = torch.from_numpy(mass)

    def log_probabilities(self, images, pixels, *, index=None, observed=None, flip=None):
        assert flip is None or not flip.any()
        index = torch.arange(len(pixels)) if index is None else index
        return self._answers(self._agreeing(images, pixels, index, observed))

    def look_ahead(self, images, pixels, candidates, *, index=None, observed=None, flip=None):
        assert flip is None or not flip.any()
        index = torch.arange(len(pixels)) if index is None else index
        candidates = candidates.expand(len(pixels), -1, 2)
        self.shapes.add(tuple(candidates.shape[:2]))
        members = self._agreeing(images, pixels, index, observed)[:, None]
        rows = self._find(images, index)
        seen = torch.stack([self._code(*where) for where in candidates.reshape(-1, 2).tolist()])
        seen = seen.reshape(*candidates.shape[:2], -1)
        own = seen.gather(2, rows[:, None, None].expand(-1, seen.shape[1], 1))
        return self._answers(members & (seen == own))

    def _find(self, images, index):
        return torch.tensor([self._rows[images[i].numpy().tobytes()] for i in index.tolist()])

    def _code(self, row, column):
        if (row, column) not in self._codes:
            self._codes[row, column] = torch.from_numpy(self.world.codes(np.array([[row, column]]))[:, 0])
        return self._codes[row, column]

    def _agreeing(self, images, pixels, index, observed):
        rows = self._find(images, index)
        members = torch.ones(len(pixels), len(self.world.images), dtype=torch.bool)
        for q, where in enumerate(pixels.tolist()):
            for t, place in enumerate(where):
                if observed is None or observed[q, t]:
                    code = self._code(*place)
                    members[q] &= code == code[rows[q]]
        return members

    def _answers(self, members):
        mass = members.double() @ self._mass
        share = mass / mass.sum(-1, keepdim=True)
        if self.space.kind == "categorical":
            return share.log().float()[..., None, :]
        return torch.stack([1 - share, share], -1).clamp_min(0).log().float()


class ExactCompletion:
    """Every image of the world (or of `bank`, rows of it) that agrees with the glimpses, with its exact weight.

    With `draws`, so many draws from those instead, by the image's id.
    """

    def __init__(self, world, *, bank=None, draws=None, seed=0):
        self.world, self.draws, self.seed = world, draws, seed
        self.bank = np.arange(len(world.images)) if bank is None else np.asarray(bank)

    @property
    def fingerprint(self):
        return f"exact {self.draws} {self.seed} {self.bank.tolist()}"

    def complete(self, images, pixels, *, ids):
        side = self.world.grid.glimpse
        weights = []
        for image, places, id in zip(images.cpu().numpy(), pixels.tolist(), ids):
            glimpses = np.array([image[r : r + side, c : c + side] for r, c in places], dtype=np.uint8)
            agrees = self.world.agreeing(glimpses.reshape(-1, side, side, 3), np.array(places).reshape(-1, 2))
            agrees = agrees[self.bank]
            share = (agrees if agrees.any() else 1) * self.world.counts[self.bank]
            share = share / share.sum()
            if self.draws is not None:
                rng = numpy_stream(self.seed, "exact completion", id, len(places))
                share = rng.multinomial(self.draws, share) / self.draws
            weights.append(share)
        table = torch.from_numpy(np.stack(weights)).float()
        size = table.shape
        index = torch.from_numpy(self.bank).expand(size)
        nothing = torch.full((len(table),), torch.nan)
        return Completions(
            torch.from_numpy(self.world.images),
            index,
            torch.zeros(size, dtype=torch.bool),
            table,
            index,
            1 / table.square().sum(1),
            nothing,
            nothing,
        )


def tools(
    *,
    spacing: int = 4,
    kind: str = "categorical",
    draws: int | None = None,
    slow: float = 0.0,
    diary: str | None = None,
) -> Tools:
    """What annotates the pointer world exactly; with `slow`, each completion takes so many seconds.

    In the file `diary`, every completion leaves a line when it begins: the Ray node, if there is one, and the images.
    On the node that a file `diary`.hold names, no completion ends.
    """
    world = worlds.pointer_world(spacing=spacing)
    completion = ExactCompletion(world, draws=draws)
    if slow or diary:
        quick = completion.complete

        def complete(images, pixels, *, ids):
            if diary is not None:
                with open(diary, "a") as file:
                    file.write(f"{_node()} {','.join(ids)}\n")
                hold = Path(f"{diary}.hold")
                time.sleep(300 if ids[0] and hold.exists() and hold.read_text() == _node() else 0)
            time.sleep(slow)
            return quick(images, pixels, ids=ids)

        completion.complete = complete
    return Tools(ExactPosterior(world, kind=kind), completion, torch.device("cpu"))


def _node() -> str:
    if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
        return "-"
    return sys.modules["ray"].get_runtime_context().get_node_id()
