"""Hand-crafted glimpse sequences (HGS, section 6): beak, eye, forehead, belly, feet of a bird, by CUB's part labels.

The paper's text in full: these parts in that order; an obscured one is replaced by a randomly selected visible part.
This module decides what the paper leaves open. Of two eyes or legs it takes the left one if visible, else the right
one. A replacement is a part that is not in the sequence yet, if there is one. An image without any visible part gets
glimpses of its centre. Each glimpse is centred on its part and moved to the nearest location of the grid.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool

from nogs.data.task import Task
from nogs.runtime.errors import InputError
from nogs.runtime.streams import numpy_stream
from nogs.sequences import Sequences

__all__ = ["ORDER", "handcrafted"]

ORDER: dict[str, tuple[str, ...]] = {
    "beak": ("beak",),
    "eye": ("left eye", "right eye"),
    "forehead": ("forehead",),
    "belly": ("belly",),
    "feet": ("left leg", "right leg"),
}
"""The parts in the order of looking, each with CUB's names for it, the preferred one first."""


def handcrafted(task: Task, ids: Iterable[str], *, glimpses: int, seed: int) -> Sequences:
    """A hand-crafted sequence for each image; with T > 5 glimpses, the later ones show other parts at random."""
    parts, ids, grid = task.parts, tuple(ids), task.grid
    needed = [name for names in ORDER.values() for name in names]
    missing = [name for name in needed if parts is None or name not in parts.names]
    if parts is None or missing:
        raise InputError(
            f"Hand-crafted sequences (ps-hgs) need the position of each image's {missing[0]}, which task "
            f"{task.title!r} does not have: they are for cub with parts/parts.txt and parts/part_locs.txt in its data "
            "folder."
        )
    wanted = [[parts.names.index(name) for name in names] for names in ORDER.values()][:glimpses]
    points = []
    for id, row in zip(ids, task.rows(ids)):
        rng = numpy_stream(seed, "supervision/handcrafted", id)
        chosen = _parts(wanted, parts.visible[row], glimpses=glimpses, rng=rng)
        centre = np.array([grid.height / 2, grid.width / 2])
        points.append([centre if part is None else parts.positions[row, part] for part in chosen])
    corners = torch.from_numpy(np.array(points, dtype=np.float64).reshape(-1, glimpses, 2) - grid.glimpse / 2)
    return Sequences(
        task=task.name,
        attribute=None,
        grid=grid,
        length=glimpses,
        ids=ids,
        locations=grid.snap(corners).numpy(),
        provenance={"method": "hand-crafted glimpse sequences", "parts": list(ORDER), "seed": seed},
    )


def _parts(
    wanted: list[list[int]], visible: Bool[np.ndarray, " P"], *, glimpses: int, rng: np.random.Generator
) -> list[int | None]:
    """The part that each glimpse shows; None where the image has no visible part."""
    seen = [next((part for part in names if visible[part]), None) for names in wanted]
    seen += [None] * (glimpses - len(seen))
    everything = np.flatnonzero(visible)
    for t, part in enumerate(seen):
        if part is None and len(everything):
            others = [p for p in everything if p not in seen]
            seen[t] = int(rng.choice(others or everything))
    return seen
