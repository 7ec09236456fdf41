"""Posterior entropies of algorithm 1, line 5, computed on demand in calls of one fixed shape, and kept.

A call always has `batch` evaluations, whatever images, completions and candidates they belong to; the last call is
padded with repetitions. So a number does not depend on the other requests. Images with the same earlier locations share
the evaluations of common completions. The K networks of a cross-fitted posterior have calls of their own, a K-th as
large. Each evaluates the completions whose source it was not trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Bool, Float32, Float64, Int, Int64
from torch import Tensor

from nogs.completion.protocol import Completions
from nogs.data.task import LabelSpace
from nogs.design.looking import Answers, looking_apart
from nogs.posterior.protocol import Posterior, entropy, members
from nogs.runtime import streams
from nogs.runtime.errors import InputError

__all__ = ["Entropies", "objective", "random_order"]

_LISTED = 1 << 23  # evaluations that are listed at once, three numbers each
_WRITTEN = 1 << 20  # and of these written to the table at once


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

    `values` has NaN where nothing was computed yet; completions are in `order`. Earlier glimpses are read from the
    completion (Eq. 5). Each of the `objectives` is a sum of label variables' entropies; searches use the first.
    """

    def __init__(
        self,
        posterior: Posterior,
        completions: Completions,
        pixels: Int[Tensor, "B P 2"],
        *,
        objectives: Sequence[Sequence[int]],
        order: Int64[Tensor, "B N"] | None = None,
        batch: int = 512,
        advance: Callable[[int], object] | None = None,
    ) -> None:
        self.posterior, self._advance = posterior, advance
        device = completions.pool.device
        if order is None:
            order = torch.argsort((completions.weights == 0).to(torch.uint8), dim=1, stable=True)
        order, pixels = order.to(device), pixels.to(device)
        self.candidates = posterior.grid.pixels.to(device)
        self.objectives = [torch.tensor(list(variables), device=device) for variables in objectives]
        number, self._kept = order.shape
        networks = len(members(posterior))
        self.batch = max(1, batch // networks)
        columns = (completions.index, completions.rows, completions.flipped, completions.folds(networks))
        index, rows, flip, fold = (part.gather(1, order).flatten() for part in columns)
        used = completions.weights.gather(1, order).flatten() > 0  # other entries are no completions
        shown = torch.where(rows >= 0, rows, rows.amax() + 1 + index)
        own = torch.arange(number, device=device)
        history = _alike(pixels.flatten(1))
        image = own.repeat_interleave(self._kept)
        self._query = _alike(torch.stack([history[image], used, fold, shown, flip], 1).long())
        self._grouped = history.argsort(stable=True)
        asked = _firsts(self._query)
        self._asked = looking_apart(
            posterior,
            completions.pool,
            pixels[image[asked]],
            fold=fold[asked],
            index=index[asked],
            flip=flip[asked],
        )
        # the statistics need float64, which not every device has
        home = torch.device("cpu") if device.type == "mps" else device
        self.weights: Float64[Tensor, "B N"] = completions.weights.to(home).double().gather(1, order.to(home))
        count = (self.weights > 0).sum(1)
        self._used, self.used = count[:, None], count.tolist()
        shape = (*self.weights.shape, len(self.candidates), len(self.objectives))
        self._table = torch.full(shape, torch.nan, device=home)
        self.tried: Int64[Tensor, "B L"] = torch.zeros(number, len(self.candidates), dtype=torch.int64, device=home)
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
        """Try the wanted candidates of each image on its first `last` completions (by default all), unless known."""
        end = self._used if last is None else self._used.clamp(max=last)
        wanted = wanted.to(end.device) & (self.tried < end)
        number = torch.where(wanted, end - self.tried, 0)
        order = self._grouped.to(number.device)
        for some in self._portions(number.sum(1)[order].tolist()):
            self._ask(*_listed(number, self.tried, order[some]))
        self.tried = torch.where(wanted, end, self.tried)

    def _portions(self, evaluations: list[int]) -> Iterator[slice]:
        """Images in order, so many at once that their evaluations can be listed."""
        start, listed = 0, 0
        for b, number in enumerate(evaluations):
            if listed and listed + number > _LISTED:
                yield slice(start, b)
                start, listed = b, 0
            listed += number
        if listed:
            yield slice(start, len(evaluations))

    def _ask(self, image: Int64[Tensor, " M"], completion: Int64[Tensor, " M"], where: Int64[Tensor, " M"]) -> None:
        """Evaluate M triples (image, completion, candidate), each different query once."""
        device, length = self.candidates.device, len(self.candidates)
        query = self._query[(image * self._kept + completion).to(device)]
        pair, back = torch.unique(query * length + where.to(device), return_inverse=True)
        query, last = pair // length, self.candidates[pair % length]
        found = torch.empty(len(pair), len(self.objectives), device=device)
        for answers, among in self._asked:
            if among is None:
                self._call(answers, query, last, torch.arange(len(pair), device=device), found)
                continue
            mine = (among[query] >= 0).nonzero()[:, 0]
            self._call(answers, among[query[mine]], last[mine], mine, found)
        if found.isnan().any():
            raise InputError("The posterior answers with NaN: its weights are damaged; train it or give another.")
        for some in torch.arange(len(image), device=image.device).split(_WRITTEN):
            known = found[back[some.to(device)]].to(self._table.device)
            self._table[image[some], completion[some], where[some]] = known
        self.evaluations += len(pair)

    def _call(self, answers: Answers, query: Tensor, last: Tensor, to: Tensor, found: Tensor) -> None:
        """Evaluate some queries of one network, `batch` at a time, and write the entropies to the rows `to` of
        `found`."""
        step = torch.arange(self.batch, device=last.device)
        for start in range(0, len(query), self.batch):
            rows = (start + step).clamp(max=len(query) - 1)
            asked = rows[: len(query) - start]
            each = entropy(answers(query[rows], last[rows])[: len(asked)])
            found[to[asked]] = torch.stack([each[..., variables].sum(-1) for variables in self.objectives], -1)
            if self._advance is not None:
                self._advance(len(asked))


def _alike(rows: Int64[Tensor, "Q W"]) -> Int64[Tensor, " Q"]:
    """A number for each row, the same for equal rows."""
    out = rows.new_zeros(len(rows))
    for column in rows.unbind(1):
        out = torch.unique(out * (column.amax() + 1) + column, return_inverse=True)[1]
    return out


def _firsts(numbers: Int64[Tensor, " Q"]) -> Int64[Tensor, " U"]:
    """The index of each number's first occurrence."""
    order = numbers.argsort(stable=True)
    return order[numbers[order].diff(prepend=numbers.new_full((1,), -1)) > 0]


def _listed(
    number: Int64[Tensor, "B L"], tried: Int64[Tensor, "B L"], images: Int64[Tensor, " b"]
) -> tuple[Int64[Tensor, " M"], Int64[Tensor, " M"], Int64[Tensor, " M"]]:
    """For each candidate of some images its next `number` completions, one after the other: images, completions, ..."""
    row, where = number[images].nonzero(as_tuple=True)
    image = images[row]
    each = number[image, where]
    ends = each.cumsum(0)
    entry = torch.repeat_interleave(each)
    completion = torch.arange(len(entry), device=entry.device) - (ends - each)[entry] + tried[image, where][entry]
    return image[entry], completion, where[entry]
