"""Posterior entropies of algorithm 1, line 5, computed where they are asked for, in calls of one fixed shape, and kept.

A call is always `batch` evaluations: so many completions (of any images) at so many candidates each, the last ones
repeated where there is nothing left to ask. So a number does not depend on how much else was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float32, Float64, Int, Int64, UInt8
from torch import Tensor

from nogs.completion.protocol import Completions
from nogs.data.task import LabelSpace
from nogs.glimpse import cut
from nogs.posterior.protocol import Posterior, entropy
from nogs.runtime import streams

__all__ = ["Entropies", "objective", "random_order"]

WIDTHS = (4, 16, 64)
"""Candidates of a completion in a call: the narrowest that holds an image's candidates, else several of the widest."""


def objective(space: LabelSpace, attribute: int | None) -> tuple[int, ...]:
    """Label variables whose entropies are added up: an attribute's own, or all there are."""
    if attribute is not None:
        return (attribute,)
    return tuple(range(1 if space.kind == "categorical" else len(space.names)))


def random_order(weights: Float32[Tensor, " N"], *, key: int) -> Int64[Tensor, " N"]:
    """Completions in a random order; one of twice the weight is twice as likely to be next, unused ones are last."""
    uniform = streams.uniform(key, torch.arange(len(weights))).double()
    return torch.argsort(-torch.log1p(-uniform) / weights.cpu().double(), stable=True)


class Entropies:
    """Entropies H[g(θ | f(x_n, l_1:t))] of B images, N completions and L candidates for the next location, on demand.

    `values` has NaN where nothing was asked yet; completions lie in `order`. Earlier glimpses are read from the
    completion (Eq. 5), or, where `images` is given, from the images themselves. Each of the `objectives` is a sum of
    label variables' entropies; searches look at the first.
    """

    def __init__(
        self,
        posterior: Posterior,
        completions: Completions,
        pixels: Int[Tensor, "B P 2"],
        *,
        objectives: Sequence[Sequence[int]],
        order: Int64[Tensor, "B N"] | None = None,
        candidates: Int[Tensor, "L 2"] | None = None,
        images: UInt8[Tensor, "B H W 3"] | None = None,
        batch: int = 512,
    ) -> None:
        self.posterior, self.completions, self.images, self.batch = posterior, completions, images, batch
        device = completions.pool.device
        if order is None:
            order = torch.argsort((completions.weights == 0).to(torch.uint8), dim=1, stable=True)
        self._order, self._pixels = order.to(device), pixels.to(device)
        self.candidates = (posterior.grid.pixels if candidates is None else candidates).to(device)
        self.objectives = [torch.tensor(list(variables), device=device) for variables in objectives]
        # the statistics are of float64, which not every device has
        home = torch.device("cpu") if device.type == "mps" else device
        self.weights: Float64[Tensor, "B N"] = completions.weights.to(home).double().gather(1, order.to(home))
        self.used = (self.weights > 0).sum(1).tolist()
        shape = (*self.weights.shape, len(self.candidates), len(self.objectives))
        self._table = torch.full(shape, torch.nan, device=home)
        self.tried: Int64[Tensor, "B L"] = torch.zeros(len(order), len(self.candidates), dtype=torch.int64)
        self.evaluations = 0

    @property
    def values(self) -> Float32[Tensor, "B N L"]:
        """The entropies of the first objective."""
        return self._table[..., 0]

    def of(self, objective: int) -> Float32[Tensor, "B N L"]:
        """The entropies of one objective."""
        return self._table[..., objective]

    def most(self, objective: int = 0) -> float:
        """The largest entropy that an objective can have."""
        space = self.posterior.space
        outcomes = len(space.names) if space.kind == "categorical" else 2
        return len(self.objectives[objective]) * math.log(outcomes)

    def fill(self, wanted: Bool[Tensor, "B L"], last: int | None = None) -> None:
        """Try the wanted candidates of each image on its first `last` completions (all), where they were not yet."""
        by_width: dict[int, list[tuple[Tensor, ...]]] = {}
        for b, row in enumerate(wanted.cpu()):
            end = self.used[b] if last is None else min(last, self.used[b])
            for first in self.tried[b, row].unique().tolist():
                places = (row & (self.tried[b] == first)).nonzero()[:, 0]
                if first < end:
                    width, rows = _rows(b, places, first, end)
                    by_width.setdefault(width, []).append(rows)
                    self.tried[b, places] = end
                    self.evaluations += (end - first) * len(places)
        for width, parts in by_width.items():
            self._ask(width, *(torch.cat(column) for column in zip(*parts)))

    def _ask(self, width: int, image: Tensor, place: Tensor, where: Tensor, new: Tensor) -> None:
        """Ask about rows (image, completion, candidates), `batch` evaluations at a time; store what is new."""
        device, rows = self._pixels.device, self.batch // width
        for start in range(0, len(image), rows):
            number = min(rows, len(image) - start)
            take = torch.arange(start, start + rows).clamp(max=len(image) - 1)
            b, n, candidates = image[take].to(device), place[take].to(device), where[take].to(device)
            found = self._answers(b, self._order[b, n], self.candidates[candidates]).to(self._table.device)
            fresh = new[take] & (torch.arange(rows) < number)[:, None]
            row, column = (part.to(self._table.device) for part in fresh.nonzero(as_tuple=True))
            image_of, place_of = b.to(row.device)[row], n.to(row.device)[row]
            self._table[image_of, place_of, candidates.to(row.device)[row, column]] = found[row, column]

    def _answers(self, b: Tensor, n: Tensor, candidates: Tensor) -> Float32[Tensor, "Q W A"]:
        chosen = self.completions
        index, flip, pixels = chosen.index[b, n], chosen.flipped[b, n], self._pixels[b]
        if self.images is None:
            answers = self.posterior.look_ahead(chosen.pool, pixels, candidates, index=index, flip=flip)
        else:
            shown = paste(self._pictures(index, flip), self.images[b], pixels, glimpse=self.posterior.grid.glimpse)
            answers = self.posterior.look_ahead(shown, pixels, candidates)
        each = entropy(answers)
        return torch.stack([each[..., variables].sum(-1) for variables in self.objectives], -1)

    def _pictures(self, index: Tensor, flip: Tensor) -> UInt8[Tensor, "Q H W 3"]:
        pictures = self.completions.pool[index]
        return torch.where(flip[:, None, None, None], pictures.flip(2), pictures)


def _rows(b: int, places: Tensor, first: int, end: int) -> tuple[int, tuple[Tensor, ...]]:
    """Rows (image, completion, candidates, which of them count) of one width, for some completions at some places."""
    width = next((width for width in WIDTHS if width >= len(places)), WIDTHS[-1])
    groups, number = -(-len(places) // width), end - first
    inside = torch.arange(groups * width).reshape(groups, width)
    return width, (
        torch.full((number * groups,), b),
        torch.arange(first, end).repeat_interleave(groups),
        places[inside.clamp(max=len(places) - 1)].repeat(number, 1),
        (inside < len(places)).repeat(number, 1),
    )


def paste(
    pictures: UInt8[Tensor, "Q H W 3"], images: UInt8[Tensor, "Q H W 3"], pixels: Int[Tensor, "Q P 2"], *, glimpse: int
) -> UInt8[Tensor, "Q H W 3"]:
    """Copies of `pictures` that show `images` in their glimpses."""
    out = pictures.clone()
    steps = torch.arange(glimpse, device=pixels.device)
    rows, columns = pixels[..., 0, None] + steps, pixels[..., 1, None] + steps
    picture = torch.arange(len(out), device=pixels.device)[:, None, None, None]
    seen = cut(images, pixels, glimpse=glimpse)
    out[picture, rows[..., :, None], columns[..., None, :]] = seen
    return out
