"""`NetworkPosterior`: a trained network of either type, with its calibration, as a `Posterior`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float32, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.glimpse.changes import Changes
from nogs.posterior.cnn import MaskedCNN
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.labels import Head
from nogs.posterior.protocol import distinct
from nogs.posterior.tokens import GlimpseTokens
from nogs.runtime import streams
from nogs.runtime.device import Precision, pick_precision

CHUNK = {"tokens": {"cuda": 3 << 12, "cpu": 512}, "cnn": {"cuda": 1 << 11, "cpu": 64}}
"""Queries in one batch of a network: enough to use the device fully, few enough for its memory."""

_SHAPE_FIELDS = (
    "kind",
    "backbone",
    "pooled",
    "token",
    "stem",
    "stem_scale",
    "stem_layers",
    "width",
    "layers",
    "heads",
)


@dataclass(frozen=True)
class Architecture:
    """Everything that determines the shapes and the arithmetic of a posterior's network; stored with its weights."""

    config: PosteriorConfig
    grid: Grid
    glimpses: int
    head: Head

    @classmethod
    def of(cls, config: PosteriorConfig, *, task: Task, glimpses: int) -> Architecture:
        """The architecture that a recipe asks for."""
        return cls(config, task.grid, glimpses, Head.of(task, attributes=config.attributes))

    def build(self, *, seed: int = 0) -> GlimpseTokens | MaskedCNN:
        """A network with initial weights from a seed."""
        kind = GlimpseTokens if self.config.kind == "tokens" else MaskedCNN
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(streams.key(seed, "posterior weights"))
            return kind(self.config, grid=self.grid, outputs=self.head.outputs)

    def to_json(self) -> dict[str, Any]:
        """Plain values; of the configuration, only the fields that shape the network."""
        config = {name: getattr(self.config, name) for name in _SHAPE_FIELDS}
        return {
            "config": config,
            "grid": self.grid.to_json(),
            "glimpses": self.glimpses,
            "head": self.head.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Architecture:
        """Inverse of `to_json`."""
        head, grid = Head.from_json(value["head"]), Grid.from_json(value["grid"])
        return cls(PosteriorConfig(**value["config"]), grid, value["glimpses"], head)


@dataclass(frozen=True)
class Prepared:
    """Q queries, prepared for one more glimpse; see `NetworkPosterior.prepare`."""

    images: UInt8[Tensor, "N H W 3"]
    pixels: Int[Tensor, "Q P 2"]
    index: Int[Tensor, " Q"]
    observed: Bool[Tensor, "Q P"]
    flip: Bool[Tensor, " Q"] | None
    shared: Tensor  # what the network computed, a row for each query


class NetworkPosterior:
    """Answers queries in chunks, without gradients, in evaluation mode; implements `Posterior`.

    The logits are multiplied by the `inverse_temperature` of the number of distinct glimpses, its last row for all
    larger numbers. `compiled` is for long work on a GPU: chunks are padded to one size and the network is compiled
    for it.
    """

    def __init__(
        self,
        network: GlimpseTokens | MaskedCNN,
        architecture: Architecture,
        *,
        inverse_temperature: Float32[Tensor, "T1 1"] | None = None,
        precision: str = "auto",
        chunk: int | None = None,
        compiled: bool = False,
    ) -> None:
        self.network, self.architecture = network, architecture
        self.device = next(network.parameters()).device
        self.precision: Precision = pick_precision(precision, self.device)
        if inverse_temperature is None:
            inverse_temperature = torch.ones(architecture.glimpses + 1, 1)
        self.inverse_temperature = inverse_temperature.to(self.device)
        sizes = CHUNK[architecture.config.kind]
        self.chunk = chunk or sizes.get(self.device.type, sizes["cpu"])
        self.compiled = compiled
        self._forward: Callable[..., Tensor] = network
        self._extend: Callable[..., Tensor] = network.extend
        if compiled:
            self._forward, self._extend = self._compiled(network)

    @property
    def grid(self) -> Grid:
        """Image size, glimpse size and allowed locations."""
        return self.architecture.grid

    @property
    def space(self) -> LabelSpace:
        """What is predicted."""
        return self.architecture.head.space

    @property
    def glimpses(self) -> int:
        """T: the largest number of glimpses that it was trained for."""
        return self.architecture.glimpses

    def logits(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q T"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> Float32[Tensor, "Q O"]:
        """The network's outputs, before calibration."""
        index, observed = self._defaults(images, pixels, index, observed)
        # for a few queries neither a compilation for their number of glimpses nor a full chunk is worthwhile
        many, parts = self.compiled and len(pixels) >= self.chunk, []
        forward = self._forward if many else self.network
        with self._ready():
            for rows, keep in self._chunks(len(pixels), padded=many):
                mirrored = None if flip is None else flip[rows]
                part = None if changes is None else changes[rows]
                seen = self.network.read(images, pixels[rows], index[rows], mirrored, part)
                parts.append(forward(seen, pixels[rows], observed[rows])[:keep].float())
        return torch.cat(parts) if parts else torch.empty(0, self.architecture.head.outputs, device=self.device)

    def log_probabilities(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q T"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> Float32[Tensor, "Q V C"]:
        """See `Posterior`; with `changes` the images are changed first."""
        index, observed = self._defaults(images, pixels, index, observed)
        logits = self.logits(images, pixels, index=index, observed=observed, flip=flip, changes=changes)
        return self.architecture.head.log_probabilities(logits, self._scale(observed))

    def look_ahead(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        candidates: Int[Tensor, "*#Q L 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q P"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Float32[Tensor, "Q L V C"]:
        """See `Posterior`; the transformer encodes the P glimpses once instead of L times."""
        candidates = candidates.expand(len(pixels), -1, 2)
        queries, locations = candidates.shape[:2]
        prepared = self.prepare(images, pixels, index=index, observed=observed, flip=flip)
        rows = torch.arange(queries, device=pixels.device).repeat_interleave(locations)
        return self.extend(prepared, rows, candidates.reshape(-1, 2)).unflatten(0, (queries, locations))

    def prepare(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        *,
        index: Int[Tensor, " Q"] | None = None,
        observed: Bool[Tensor, "Q P"] | None = None,
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Prepared:
        """The first half of `look_ahead`: the computation that all candidates of a query share."""
        index, observed = self._defaults(images, pixels, index, observed)
        parts = []
        with self._ready():
            # a fixed batch size, so that an encoding does not depend on the other queries; a multiple of 32, since the
            # last rows of a matrix product may be rounded differently
            most = max(1, self.chunk // max(1, pixels.shape[1]))
            for rows, keep in self._chunks(len(pixels), size=most - most % 32 or most):
                turned = None if flip is None else flip[rows]
                parts.append(self.network.prepare(images, pixels[rows], index[rows], turned)[:keep])
        return Prepared(images, pixels, index, observed, flip, torch.cat(parts))

    def extend(
        self, prepared: Prepared, rows: Int[Tensor, " M"], candidates: Int[Tensor, "M 2"]
    ) -> Float32[Tensor, "M V C"]:
        """The second half: predictions for M of the prepared queries, each after one more glimpse at its candidate."""
        head, parts = self.architecture.head, []
        with self._ready():
            for pairs, keep in self._chunks(len(rows), padded=self.compiled):
                query, last = rows[pairs], candidates[pairs][:, None]
                pixels, observed = prepared.pixels[query], prepared.observed[query]
                where = torch.cat([pixels, last], 1)
                known = distinct(where, torch.cat([observed, observed.new_ones(len(pairs), 1)], 1))
                turned = None if prepared.flip is None else prepared.flip[query]
                seen = self.network.read(prepared.images, last, prepared.index[query], turned)
                logits = self._extend(prepared.shared[query], seen, where, known).float()
                parts.append(head.log_probabilities(logits, self._scale(known))[:keep])
        return torch.cat(parts)

    def among(
        self, prepared: Prepared, rows: Int[Tensor, " M"], glimpses: Int[Tensor, "M k"]
    ) -> Float32[Tensor, "M V C"]:
        """Predictions for M of the prepared queries, each after k of its glimpses; for tokens only, which are encoded
        one by one."""
        assert isinstance(self.network, GlimpseTokens)
        parts = []
        with self._ready():
            for some, keep in self._chunks(len(rows), padded=False):
                of = rows[some][:, None], glimpses[some]
                known = distinct(prepared.pixels[of], prepared.observed[of])
                logits = self.network.join(prepared.shared[of], known).float()
                parts.append(self.architecture.head.log_probabilities(logits, self._scale(known))[:keep])
        return torch.cat(parts)

    def _compiled(self, network: GlimpseTokens | MaskedCNN) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        forward = torch.compile(network, dynamic=False)
        if isinstance(network, GlimpseTokens):
            return forward, torch.compile(network.extend, dynamic=False)

        def filled(images: Tensor, pixels: Tensor, observed: Tensor) -> Tensor:
            # fewer glimpses cost a CNN no less, and with a fixed number it is compiled only once, which takes a minute
            more = max(0, self.glimpses - pixels.shape[1])
            return forward(images, F.pad(pixels, (0, 0, 0, more)), F.pad(observed, (0, more)))

        return filled, lambda prepared, *seen: filled(*seen)

    def _defaults(
        self, images: Tensor, pixels: Tensor, index: Tensor | None, observed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if index is None:
            if len(images) != len(pixels):
                raise ValueError(f"Without `index`, {len(pixels)} queries need as many images, not {len(images)}.")
            index = torch.arange(len(pixels), device=pixels.device)
        if observed is None:
            observed = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
        return index, distinct(pixels, observed)

    def _scale(self, observed: Bool[Tensor, "Q T"]) -> Float32[Tensor, "Q 1"]:
        return self.inverse_temperature[observed.sum(-1).clamp(max=len(self.inverse_temperature) - 1)]

    def _chunks(
        self, number: int, *, size: int | None = None, padded: bool = True
    ) -> Iterator[tuple[Int[Tensor, " B"], int]]:
        """Rows of each chunk and how many of them count; if `padded`, as for a compiled network, all chunks are full.

        On a GPU the number of rows has many divisors, so that attention can put several rows into a tile.
        """
        size, unit = size or self.chunk, 96 if self.device.type == "cuda" else 1
        for start in range(0, number, size):
            keep = min(size, number - start)
            rows = torch.arange(size if padded else min(size, -(-keep // unit) * unit), device=self.device)
            yield (start + rows).clamp(max=number - 1), keep

    @contextmanager
    def _ready(self) -> Iterator[None]:
        training = self.network.training
        self.network.eval()
        try:
            with torch.no_grad(), self.precision.active():
                yield
        finally:
            self.network.train(training)
