"""The proposal of algorithm 2: squared distances of every bank image's patches to the query's, in code space.

A patch of bank image i is μ_b + W_bᵀzᵢ, so its squared distance to the query's patch y is c - 2 bᵀzᵢ + zᵢᵀG_b zᵢ with
G_b = W_b W_bᵀ. The region of all shifts of a glimpse is projected on its leading directions over the bank, u = Lᵀz.
Each shift's quadratic form is a low-rank one of u. Both depend on the location alone, so they are computed once for all
images with a glimpse there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.completion.windows import Factor, Window, window

if TYPE_CHECKING:
    from nogs.completion.fused import Tile

__all__ = ["CodeSpace"]

Item = TypeVar("Item")

_CACHED = 2048  # locations whose factors are kept


class CodeSpace:
    """Distances in code space for one bank, glimpse size and set of shifts; `fused` kernels take one pass on a GPU."""

    def __init__(
        self,
        bank: Bank,
        *,
        glimpse: int,
        shifts: Sequence[tuple[int, int]] = ((0, 0),),
        flips: bool = True,
        mirrored: bool = True,
        variance_kept: float = 0.996,
        block: int | None = None,
        fused: bool = True,
    ) -> None:
        self.bank, self.glimpse, self.shifts = bank, glimpse, tuple(shifts)
        self.flips, self.mirrored = (False, True) if flips else (False,), mirrored
        height, width = bank.pca.size
        self._basis = bank.pca.basis.reshape(-1, height, width, 3)
        self._mean = bank.pca.mean.reshape(1, height, width, 3)
        # dead components (a bank of fewer directions than components) must not divide by zero
        self._deviation = bank.pca.variance.clamp_min(1e-12).sqrt()
        self._factors: dict[tuple[int, int], Factor] = {}
        self.rank, self.shift_rank = self._ranks(variance_kept)
        # blocks that fit a CPU's cache, few large ones on a GPU; their sizes depend on the kind of device alone
        self.together, self.block = 1, block or 1 << 12
        if bank.device.type == "cuda":
            self.together = 8
            row = len(self.flips) * max(self.together * self.rank, len(self.shifts) * self.shift_rank) * 2
            room = torch.cuda.get_device_properties(bank.device).total_memory // 48
            self.block = block or max(1 << 12, room // row)
        self.tile = self._fused_tile() if fused else None

    @property
    def fused(self) -> bool:
        """Whether `nogs.completion.fused` is used: allowed, triton is installed and a tile fits the GPU."""
        return self.tile is not None

    def distances(
        self,
        query: Float32[Tensor, "B T p"],
        pixels: Int64[Tensor, "B T 2"],
        consume: Callable[[int, int, slice, Float32[Tensor, "F S n"]], None],
    ) -> None:
        """Squared distances of all bank images, handed to `consume(b, t, rows, distances)` block by block.

        `query` holds normalised patches. An image's numbers don't depend on other images at the same locations: these
        add products of their own, of one fixed shape.
        """
        corners = pixels.tolist()
        for t in range(pixels.shape[1]):  # glimpse by glimpse, so that sums over glimpses have one order
            looking: dict[tuple[int, int], list[int]] = {}
            for b, glimpses in enumerate(corners):
                looking.setdefault((glimpses[t][0], glimpses[t][1]), []).append(b)
            for group in _batched(looking.items(), self.together):
                factors = [self.factor(*corner) for corner, _ in group]
                asked = [
                    [(b, *self._linear(factor, query[b, t])) for b in members]
                    for factor, (_, members) in zip(factors, group)
                ]
                # always as many, so that a product's shape does not depend on the batch
                padded = factors + factors[-1:] * (self.together - len(factors))
                project = torch.cat([factor.project for factor in padded]).flatten(0, 1)
                for first in range(0, len(self.bank), self.block):
                    rows = slice(first, min(first + self.block, len(self.bank)))
                    coordinates = (project @ self.bank.codes[rows].T).unflatten(0, (-1, len(self.flips), self.rank))
                    for factor, own, queries in zip(factors, coordinates, asked):
                        lengths = self._lengths(factor, own)
                        for b, linear, constant in queries:
                            crossed = _product(linear, own)
                            consume(b, t, rows, (lengths + constant[..., None]).sub_(crossed))

    def log_likelihood(
        self, query: Float32[Tensor, "B T p"], pixels: Int64[Tensor, "B T 2"], *, temperature: float
    ) -> Float32[Tensor, "B F N"]:
        """log w₁ of algorithm 2, up to a constant: a sum over glimpses of log-sum-exp over shifts of -d / v."""
        factors = [[self.factor(row, column) for row, column in glimpses] for glimpses in pixels.tolist()]
        if self.tile is not None and pixels.numel():
            from nogs.completion.fused import log_weights

            return log_weights(self.bank.codes, factors, query, cut=self.tile, temperature=temperature)
        out = torch.zeros(len(query), len(self.flips), len(self.bank), device=self.bank.device)

        def add(b: int, t: int, rows: slice, distances: Tensor) -> None:
            out[b, :, rows] += joined(distances, factors[b][t].open, temperature)

        self.distances(query, pixels, add)
        return out

    def all_distances(
        self, query: Float32[Tensor, "B T p"], pixels: Int64[Tensor, "B T 2"]
    ) -> tuple[Float32[Tensor, "B T F S N"], Float32[Tensor, "B T S"]]:
        """Every distance for a search over v, and 0 for a shift inside the image or -inf outside."""
        factors = [[self.factor(row, column) for row, column in glimpses] for glimpses in pixels.tolist()]
        gates = torch.stack([factor.open for image in factors for factor in image]).unflatten(0, pixels.shape[:2])
        if self.tile is not None:
            from nogs.completion.fused import distances

            return distances(self.bank.codes, factors, query, cut=self.tile), gates
        shape = (*query.shape[:2], len(self.flips), len(self.shifts), len(self.bank))
        out = torch.empty(shape, device=self.bank.device)

        def keep(b: int, t: int, rows: slice, distances: Tensor) -> None:
            out[b, t, :, :, rows] = distances

        self.distances(query, pixels, keep)
        return out, gates

    def factor(self, row: int, column: int) -> Factor:
        """The matrices of a location, for its flips and shifts; the most recent ones are cached."""
        if (row, column) not in self._factors:
            if len(self._factors) >= _CACHED:
                self._factors.pop(next(iter(self._factors)))
            self._factors[row, column] = self._make_factor(row, column)
        return self._factors[row, column]

    def _fused_tile(self) -> Tile | None:
        try:
            from nogs.completion.fused import tile
        except ImportError:  # no triton on this system
            return None
        return tile(self.bank.codes, rank=self.rank, shift_rank=self.shift_rank, shifts=len(self.shifts))

    def _linear(self, factor: Factor, query: Tensor) -> tuple[Tensor, Tensor]:
        """2 (y - μ)ᵀ times the patch as a function of u, and ‖y - μ‖² + tail."""
        away = query - factor.means
        linear = 2 * torch.einsum("fsp,fspr->fsr", away, factor.patches)
        return linear.to(self.bank.codes.dtype), away.square().sum(-1) + factor.tails

    def _lengths(self, factor: Factor, coordinates: Tensor) -> Tensor:
        """Squared lengths [F, S, n] of the patches that u [F, r, n] represents."""
        if factor.forms is None:
            return _squares(coordinates[:, None])
        return _squares(torch.bmm(factor.forms, coordinates).unflatten(1, (len(self.shifts), self.shift_rank)))

    def _make_factor(self, row: int, column: int) -> Factor:
        region = window((row, column), self.shifts, glimpse=self.glimpse, size=self.bank.pca.size)
        chosen = self._select(region)
        flips = []
        for flip in self.flips:
            basis, mean = self._cut(self._basis, region, flip), self._cut(self._mean, region, flip)[0]
            directions, lengths = self._directions(basis)
            directions, lengths = directions[:, : self.rank], lengths[: self.rank]
            project = directions.T @ basis.T
            patches = directions[chosen]  # S p r
            spread = (basis * self._deviation[:, None]).square().sum(0)[chosen].sum(-1)
            forms = None
            if len(self.shifts) > 1:
                forms, held = self._forms(patches, lengths)
                tails = spread - held
            else:
                tails = spread - lengths.square().sum()
            flips.append((project, forms, patches, mean[chosen], tails))
        projects, forms_of, patches_of, means, tails_of = zip(*flips)
        dtype = self.bank.codes.dtype
        closed = torch.tensor([0.0 if offset else -torch.inf for offset in region.offsets])
        return Factor(
            torch.stack(projects).to(dtype),
            torch.stack(forms_of).flatten(1, 2).to(dtype) if len(self.shifts) > 1 else None,
            torch.stack(patches_of),
            torch.stack(means),
            torch.stack(tails_of).clamp_min(0),
            closed.to(self.bank.device),
        )

    def _directions(self, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Leading directions [p, ...] of a region over the bank, orthonormal, and their standard deviations."""
        weighted = basis * self._deviation[:, None]
        if len(weighted) <= weighted.shape[1]:
            values, vectors = _leading(weighted @ weighted.T)
            return weighted.T @ (vectors * _inverse_root(values)), values.sqrt()
        values, vectors = _leading(weighted.T @ weighted)
        return vectors, values.sqrt()

    def _forms(self, patches: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """For each shift a matrix [r', r] whose product with u is as long as the patch, and the variance kept."""
        weighted = patches * lengths  # S p r: columns scaled by the deviation of u
        values, vectors = _leading(weighted.mT @ weighted)
        values, vectors = values[:, : self.shift_rank], vectors[..., : self.shift_rank]
        # directions of the patch are `patches lengths vectors / root`; their product with `patches` needs no pixels
        turn = vectors * _inverse_root(values)[:, None]
        return turn.mT @ (lengths[:, None] * (patches.mT @ patches)), values.sum(-1)

    def _ranks(self, kept: float) -> tuple[int, int]:
        """Ranks that keep this share of the variance at 16 spread-out locations, as multiples of 8 for the GPU."""
        height, width = self.bank.pca.size
        rank = shift_rank = 1
        for row in torch.linspace(0, height - self.glimpse, 4).int().tolist():
            for column in torch.linspace(0, width - self.glimpse, 4).int().tolist():
                region = window((row, column), self.shifts, glimpse=self.glimpse, size=(height, width))
                directions, lengths = self._directions(self._cut(self._basis, region, False))
                rank = max(rank, _rank(lengths.square(), kept))
                if len(self.shifts) > 1:
                    weighted = directions[self._select(region)[:1]][0] * lengths
                    values = torch.linalg.eigvalsh(weighted.mT @ weighted).flip(0).clamp_min(0)
                    shift_rank = max(shift_rank, _rank(values, kept))
        patch = 3 * self.glimpse**2
        rank = min(-(-rank // 8) * 8, patch, self.bank.pca.components)
        return rank, min(-(-shift_rank // 8) * 8, rank)

    def _cut(self, maps: Tensor, region: Window, flip: bool) -> Tensor:
        """The region of [n, H, W, 3] maps, or of their mirror images, flat."""
        left = maps.shape[2] - region.column - region.width if flip else region.column
        part = maps[:, region.row : region.row + region.height, left : left + region.width]
        return (part.flip(2) if flip and self.mirrored else part).flatten(1)

    def _select(self, region: Window) -> Tensor:
        """Positions [S, p] of each shift's patch within the flat region; a shift outside reads from the first one."""
        steps = torch.arange(self.glimpse, device=self.bank.device)
        channels = torch.arange(3, device=self.bank.device)
        inside = (steps[:, None, None] * region.width + steps[:, None]) * 3 + channels
        starts = [(offset[0] * region.width + offset[1]) * 3 if offset else 0 for offset in region.offsets]
        return torch.tensor(starts, device=self.bank.device)[:, None] + inside.flatten()


def joined(
    distances: Float32[Tensor, "*batch F S n"],
    gate: Float32[Tensor, "*batch S"],
    temperature: float | Float64[Tensor, "*#batch"],
) -> Float32[Tensor, "*batch F n"]:
    """log of the mean likelihood over the shifts that stay inside: one glimpse's part of log w₁."""
    rate = -1 / temperature
    if isinstance(rate, Tensor):
        rate = rate.float()[..., None, None, None]
    if distances.shape[-2] == 1:
        return (distances * rate)[..., 0, :]
    logits = distances * rate + gate[..., None, :, None]
    return torch.logsumexp(logits, -2) - gate.isfinite().sum(-1).log()[..., None, None]


def _leading(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first, and eigenvectors; what float32 can't tell from zero is zero."""
    values, vectors = torch.linalg.eigh(gram)
    values = torch.where(values > 1e-6 * values[..., -1:], values, 0)
    return values.flip(-1), vectors.flip(-1)


def _inverse_root(values: Tensor) -> Tensor:
    return torch.where(values > 0, values.clamp_min(1e-30).rsqrt(), 0)


def _rank(variances: Tensor, kept: float) -> int:
    return int((variances.cumsum(0) < kept * variances.sum()).sum()) + 1


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A batched matrix product in float32, whatever the factors' type."""
    if left.dtype == torch.float32:
        return torch.bmm(left, right)
    return torch.bmm(left, right, out_dtype=torch.float32)


def _squares(parts: Tensor) -> Tensor:
    """Sums of squares over the axis before the last, in float32."""
    if parts.dtype == torch.float32:
        return parts.square().sum(-2)
    return torch.linalg.vector_norm(parts, dim=-2, dtype=torch.float32).square_()


def _batched(items: Iterable[Item], size: int) -> Iterator[tuple[Item, ...]]:
    """`size` items at a time."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group
