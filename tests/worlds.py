"""A world small enough to enumerate: its exact posterior, expected posterior entropy and best policies judge the rest.

`pointer_world` has 162 distinct images of 12 x 12 px, some likelier than others. On grey, five cells of 4 x 4 px:

    A . B      One of A and B shows the label (a colour), the other a random colour.
    . P .      P says which: vertical stripes mean A, which is twice as likely, horizontal stripes mean B.
    H . N      H is a hint: the label's colour three times in five. N is noise, and says nothing.

All of A, B and P together give the label away. The best single glimpse is A; but P, which alone says nothing about the
label, is the best first of two. So the greedy sequence (Eq. 3) starts with A and the best policy with P, and a method
that confuses the two is found out. The mirrored world is another world: train without flips.

Everything is computed in float64 by listing the images that agree with the glimpses, and holds for any top-left pixels,
on the grid or not. Of locations that are equally good (to 1e-9 nats) the first on the list is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch

from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid, cut

CELL, SIZE = 4, 12
A, B, P, H, N = (0, 0), (0, 8), (4, 4), (8, 0), (8, 8)
"""Top-left pixels of the cells that differ between images."""

_COLOURS = ((220, 60, 60), (60, 220, 60), (60, 60, 220))
_TIE = 1e-9


@dataclass(frozen=True, eq=False)
class World:
    """N different images: how many of each there are (their weight), and their label out of K."""

    images: np.ndarray  # uint8 [N, H, W, 3]
    counts: np.ndarray  # int64 [N]
    labels: np.ndarray  # int64 [N]
    names: tuple[str, ...]
    grid: Grid

    @property
    def prior(self) -> np.ndarray:
        """p(θ) [K]."""
        return self.label_distribution(np.ones(len(self.images), dtype=bool))

    def label_distribution(self, members: np.ndarray) -> np.ndarray:
        """p(θ | the image is one of `members`), a mask [N] or rows of masks [..., N]."""
        weights = members * self.counts.astype(np.float64)
        mass = weights @ np.eye(len(self.names))[self.labels]
        return mass / mass.sum(-1, keepdims=True)

    def codes(self, pixels: np.ndarray) -> np.ndarray:
        """For each of M top-left pixels [M, 2], a number for what each image shows there: int64 [N, M]."""
        out = np.empty((len(self.images), len(pixels)), dtype=np.int64)
        for m, (row, column) in enumerate(np.asarray(pixels)):
            side = self.grid.glimpse
            shown = self.images[:, row : row + side, column : column + side].reshape(len(self.images), -1)
            out[:, m] = np.unique(shown, axis=0, return_inverse=True)[1].reshape(-1)
        return out

    def agreeing(self, glimpses: np.ndarray, pixels: np.ndarray) -> np.ndarray:
        """Mask [N] of the images that show all of the glimpses uint8 [t, g, g, 3] at their pixels [t, 2]."""
        members = np.ones(len(self.images), dtype=bool)
        side = self.grid.glimpse
        for glimpse, (row, column) in zip(glimpses, np.asarray(pixels)):
            members &= (self.images[:, row : row + side, column : column + side] == glimpse).all((1, 2, 3))
        return members

    def task(self, *, kind: str = "categorical", name: str = "pointer world") -> Task:
        """The world as a task. Each of posterior, annotate, validation and test holds every image `counts` times.

        So the distribution of every split is exactly the world's. With kind "bernoulli" the attributes say, for each
        label, whether it is the one.
        """
        rows = np.repeat(np.arange(len(self.images)), self.counts)
        parts = ("posterior", "annotate", "validation", "test")
        ids = {part: tuple(f"{part}-{n}" for n in range(len(rows))) for part in parts}
        labels = np.tile(self.labels[rows], len(parts))
        return Task(
            name=name,
            images=np.tile(self.images[rows], (len(parts), 1, 1, 1)),
            ids=sum(ids.values(), ()),
            labels=labels if kind == "categorical" else np.eye(len(self.names), dtype=np.uint8)[labels],
            space=LabelSpace(kind, self.names),
            splits={**ids, "train": ids["posterior"] + ids["annotate"]},
            grid=self.grid,
            fingerprint=f"{name} {kind} {self.grid.shape}",
        )


def pointer_world(*, spacing: int = 4) -> World:
    """The world of this module's text; its grid has a location every `spacing` px (4: the nine cells)."""
    images, counts, labels = [], [], []
    for label, pointer, other, hint, noise in product(range(3), range(2), range(3), range(3), range(3)):
        image = np.full((SIZE, SIZE, 3), 128, dtype=np.uint8)
        stripes = np.where(np.arange(CELL) % 2 == 0, 20, 230)
        paint(image, A, _COLOURS[label if pointer == 0 else other])
        paint(image, B, _COLOURS[other if pointer == 0 else label])
        paint(image, P, (stripes[None, :, None] if pointer == 0 else stripes[:, None, None]))
        paint(image, H, _COLOURS[(label + hint) % 3])
        paint(image, N, 90 + 38 * noise)
        images.append(image)
        counts.append((3, 2, 1)[label] * (2, 1)[pointer] * (3, 1, 1)[hint])
        labels.append(label)
    grid = Grid.spaced(image=SIZE, glimpse=CELL, spacing=spacing)
    return World(np.stack(images), np.array(counts), np.array(labels), ("red", "green", "blue"), grid)


def paint(image: np.ndarray, cell: tuple[int, int], value: object) -> None:
    """Fill a cell of an image."""
    image[cell[0] : cell[0] + CELL, cell[1] : cell[1] + CELL] = value


def exact_posterior(world: World, glimpses: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """p(θ | glimpses) [K] for glimpses uint8 [t, g, g, 3] at top-left pixels [t, 2]; t may be 0."""
    return world.label_distribution(world.agreeing(glimpses, pixels))


def exact_posteriors(
    world: World, images: np.ndarray, pixels: np.ndarray, observed: np.ndarray | None = None
) -> np.ndarray:
    """p(θ | glimpses) [B, K] of images uint8 [B, H, W, 3] seen at [B, T, 2], where `observed` [B, T] is true."""
    seen = cut(torch.from_numpy(images), torch.from_numpy(pixels), glimpse=world.grid.glimpse).numpy()
    if observed is None:
        observed = np.ones(pixels.shape[:2], dtype=bool)
    return np.stack([exact_posterior(world, s[o], p[o]) for s, p, o in zip(seen, pixels, observed)])


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Shannon entropy in nats along the last axis."""
    return -np.sum(probabilities * np.log(np.where(probabilities > 0, probabilities, 1)), -1)


def exact_epe(
    world: World, glimpses: np.ndarray, pixels: np.ndarray, candidates: np.ndarray | None = None
) -> np.ndarray:
    """Expected posterior entropy (Eq. 3) in nats [L] of looking next at each candidate [L, 2] (by default the grid)."""
    candidates = world.grid.pixels.numpy() if candidates is None else candidates
    return _expected_entropies(world, world.agreeing(glimpses, pixels), world.codes(candidates))


def greedy_sequence(world: World, image: np.ndarray, length: int) -> np.ndarray:
    """Locations [T, 2] that minimise Eq. 3 one after the other, on the grid, for an image uint8 [H, W, 3]."""
    grid, side = world.grid.pixels.numpy(), world.grid.glimpse
    codes = world.codes(grid)
    members, chosen = np.ones(len(world.images), dtype=bool), []
    for _ in range(length):
        best = _first_minimum(_expected_entropies(world, members, codes))
        row, column = grid[best]
        chosen.append(grid[best])
        shown = image[row : row + side, column : column + side]
        members = members & (world.images[:, row : row + side, column : column + side] == shown).all((1, 2, 3))
    return np.array(chosen)


def expected_entropy_of(world: World, sequences: Sequence[np.ndarray]) -> float:
    """Mean entropy left, over the world, when image n of `world.images` is looked at in `sequences[n]` [t, 2]."""
    pixels = np.stack(sequences)
    left = entropy(exact_posteriors(world, world.images, pixels))
    return float(left @ world.counts / world.counts.sum())


def best_policy(world: World, length: int) -> tuple[float, list[np.ndarray]]:
    """The policy that leaves least entropy after `length` glimpses on the grid, by dynamic programming.

    Returns the mean entropy that it leaves in nats, and the sequence [T, 2] that it takes on each of `world.images`.
    """
    grid = world.grid.pixels.numpy()
    codes = world.codes(grid)

    @cache
    def solve(members: bytes, left: int) -> tuple[float, int]:
        """Mass-weighted entropy left by the best continuation, and its first location."""
        rows = np.frombuffer(members, dtype=bool)
        if left == 0:
            return float(entropy(world.label_distribution(rows)) * (world.counts @ rows)), -1
        values = [
            sum(solve((rows & (seen == code)).tobytes(), left - 1)[0] for code in np.unique(seen[rows]))
            for seen in codes.T
        ]
        best = _first_minimum(np.array(values))
        return values[best], best

    everything = np.ones(len(world.images), dtype=bool)
    sequences = []
    for n in range(len(world.images)):
        members, taken = everything, []
        for left in range(length, 0, -1):
            location = solve(members.tobytes(), left)[1]
            taken.append(grid[location])
            members = members & (codes[:, location] == codes[n, location])
        sequences.append(np.array(taken))
    return solve(everything.tobytes(), length)[0] / world.counts.sum(), sequences


def _expected_entropies(world: World, members: np.ndarray, codes: np.ndarray) -> np.ndarray:
    mass = world.counts * members
    out = np.zeros(codes.shape[1])
    for m in range(codes.shape[1]):
        for code in np.unique(codes[members, m]):
            group = members & (codes[:, m] == code)
            out[m] += entropy(world.label_distribution(group)) * (mass @ group) / mass.sum()
    return out


def _first_minimum(values: np.ndarray) -> int:
    return int(np.flatnonzero(values <= values.min() + _TIE)[0])
