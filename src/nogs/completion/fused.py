"""The proposal's distances in one pass over a bank's codes: coordinates u = Lᵀz and their products stay on the chip.

`CodeSpace` writes its matrix products to memory and reads them back; these two Triton kernels for a GPU do not. The
module can be imported where triton can. With TRITON_INTERPRET=1 it runs on a CPU, slowly, for tests.
"""

# triton has no types, and its kernels allow no annotation but tl.constexpr
# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator, no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

from nogs.completion.windows import Factor

__all__ = ["TOGETHER", "Tile", "distances", "log_weights", "shared_bytes", "tile"]

TOGETHER = 8  # images of one program: its codes are read once for all of their glimpses and flips
_STACKED = 1 << 29  # bytes of patch maps that are gathered at a time
_PATCH = 64  # values of a patch per step of the first kernel


@dataclass(frozen=True)
class Tile:
    """How one launch is tiled: bank rows per program, warps, and loads in flight."""

    rows: int
    warps: int
    stages: int


# The codes (rows x components) stay in shared memory: 64 KiB for 128 rows of 256 in float16. `stages` maps of
# components x rank, 16 KiB each at rank 32, are loaded or in flight. With these 113 KiB, two programs share a Hopper
# multiprocessor of 228 KiB, and one computes while the other waits. With eight warps a thread holds rank / 2 values of
# u, as many of a shift's product and 8 to 16 of the shifts' distances. Compiled for sm_90 it takes 60 registers, 93
# with nine shifts, of the 128 that two programs of 256 threads may have. The smaller tiles are for GPUs with less
# shared memory, or more components.
_TILES = (Tile(128, 8, 3), Tile(128, 8, 2), Tile(64, 4, 2), Tile(64, 4, 1))


def tile(codes: Tensor, *, rank: int, shift_rank: int, shifts: int) -> Tile | None:
    """The largest tile that fits the device of these codes; None if none fits, and these kernels can't be used."""
    if codes.device.type != "cuda":
        return _TILES[0] if _interpreted() else None
    if codes.dtype != torch.float16:
        return None
    properties = torch.cuda.get_device_properties(codes.device)
    room = properties.shared_memory_per_block_optin  # type: ignore[attr-defined, unused-ignore]  # torch's types lack it
    if properties.major < 8 or rank > 128:
        return None
    sizes = {"components": codes.shape[1], "rank": rank, "shift_rank": shift_rank if shifts > 1 else 0}
    return next((one for one in _TILES if shared_bytes(one, **sizes) <= room), None)


def shared_bytes(cut: Tile, *, components: int, rank: int, shift_rank: int) -> int:
    """Upper bound of a program's shared memory: codes, the maps in flight, and a little for sums across threads."""
    columns, wide = _padded(components), _padded(rank)
    maps = columns * wide + (wide * _padded(shift_rank) if shift_rank else 0)
    return 2 * (cut.rows * columns + cut.stages * maps) + 2048


def log_weights(
    codes: Float[Tensor, "N C"],
    factors: Sequence[Sequence[Factor]],
    query: Float32[Tensor, "B T p"],
    *,
    cut: Tile,
    temperature: float,
) -> Float32[Tensor, "B F N"]:
    """log w₁ as `CodeSpace.log_likelihood` defines it; `factors` of the T locations of each image."""
    flips = len(factors[0][0].project)
    out = torch.empty(len(query), flips, len(codes), device=codes.device)
    _launch_all(codes, factors, query, out, cut=cut, temperature=temperature)
    return out


def distances(
    codes: Float[Tensor, "N C"], factors: Sequence[Sequence[Factor]], query: Float32[Tensor, "B T p"], *, cut: Tile
) -> Float32[Tensor, "B T F S N"]:
    """Every distance of each image's glimpses, as `CodeSpace.all_distances` defines them."""
    out = torch.empty(*query.shape[:2], *factors[0][0].tails.shape, len(codes), device=codes.device)
    _launch_all(codes, factors, query, out, cut=cut, temperature=None)
    return out


def _launch_all(
    codes: Tensor,
    factors: Sequence[Sequence[Factor]],
    query: Float32[Tensor, "B T p"],
    out: Tensor,
    *,
    cut: Tile,
    temperature: float | None,
) -> None:
    """Launch for as many images at a time as fit in memory. The grouping changes no number, since a program computes
    each image separately."""
    glimpses = query.shape[1]
    group = max(1, _STACKED // (glimpses * factors[0][0].patches.nbytes))
    for first in range(0, len(query), group):
        few = slice(first, first + group)
        own = [factor for image in factors[few] for factor in image]
        _launch(codes, own, query[few].flatten(0, 1), out[few], cut=cut, glimpses=glimpses, temperature=temperature)


def _launch(
    codes: Tensor,
    factors: Sequence[Factor],
    query: Float32[Tensor, "M p"],
    out: Tensor,
    *,
    cut: Tile,
    glimpses: int,
    temperature: float | None,
) -> None:
    """Run both kernels for M glimpses of whole images: with a temperature they compute log w₁, without it distances."""
    flips, shifts, _, rank = factors[0].patches.shape
    shift_rank = factors[0].forms.shape[1] // shifts if factors[0].forms is not None else rank
    images = len(factors) // glimpses
    project, gate = _stacked(factors, "project"), _stacked(factors, "open")
    forms = _stacked(factors, "forms") if shifts > 1 else project  # a pointer that is not read
    gate = gate - gate.isfinite().sum(1, keepdim=True).log()
    assert codes.is_contiguous()
    with torch.cuda.device(codes.device) if codes.is_cuda else nullcontext():
        linear, constant = _linear(factors, query.contiguous())
        _weigh[triton.cdiv(len(codes), cut.rows), triton.cdiv(images, TOGETHER)](
            codes,
            project,
            forms,
            linear,
            constant,
            gate,
            out,
            len(codes),
            images,
            glimpses,
            0.0 if temperature is None else -1 / temperature,
            FLIPS=flips,
            SHIFTS=shifts,
            COMPONENTS=codes.shape[1],
            RANK=rank,
            SHIFT_RANK=shift_rank,
            JOINED=temperature is not None,
            TOGETHER=TOGETHER,
            N=cut.rows,
            C=_padded(codes.shape[1]),
            R=_padded(rank),
            Q=_padded(shift_rank),
            S=_padded(shifts),
            num_warps=cut.warps,
            num_stages=cut.stages,
        )


def _linear(factors: Sequence[Factor], query: Float32[Tensor, "M p"]) -> tuple[Tensor, Tensor]:
    """2 (y - μ)ᵀ times the patch as a function of u, [M, F, S, r], and ‖y - μ‖² + tail, [M, F, S]."""
    patches, means, tails = (_stacked(factors, name) for name in ("patches", "means", "tails"))
    number, flips, shifts, patch, rank = patches.shape
    linear = query.new_empty(number, flips, shifts, rank)
    constant = query.new_empty(number, flips, shifts)
    _ask[number, flips * shifts](
        query, patches, means, tails, linear, constant, PATCH=patch, RANK=rank, P=_PATCH, R=_padded(rank), num_warps=4
    )
    return linear, constant


def _stacked(factors: Sequence[Factor], name: str) -> Tensor:
    """One matrix of every factor, copied for each glimpse, so that a kernel's next load waits for no index."""
    return torch.stack([getattr(factor, name) for factor in factors]).contiguous()


# The compiler does not specialise on arguments that differ between calls. Every call then runs the same instructions,
# and an image's numbers do not depend on its batch. The first kernel replaces a library's batched product for the same
# reason: its rounding may depend on the batch.
@triton.jit(do_not_specialize_on_alignment=["query"])
def _ask(
    query,
    patches,
    means,
    tails,
    linear,
    constant,
    PATCH: tl.constexpr,
    RANK: tl.constexpr,
    P: tl.constexpr,
    R: tl.constexpr,
) -> None:
    """One glimpse, flip and shift: the query's part of its distance."""
    glimpse = tl.program_id(0).to(tl.int64)
    place = glimpse * tl.num_programs(1) + tl.program_id(1)
    r = tl.arange(0, R)
    crossed = tl.zeros([R], tl.float32)
    length = tl.zeros([P], tl.float32)
    for first in range(0, PATCH, P):
        p = first + tl.arange(0, P)
        inside = p < PATCH
        seen = tl.load(query + glimpse * PATCH + p, mask=inside, other=0.0)
        away = seen - tl.load(means + place * PATCH + p, mask=inside, other=0.0)
        maps = patches + place * PATCH * RANK + p[:, None] * RANK + r[None, :]
        part = tl.load(maps, mask=inside[:, None] & (r < RANK)[None, :], other=0.0)
        crossed += tl.sum(away[:, None] * part, 0)
        length += away * away
    tl.store(linear + place * RANK + r, 2 * crossed, mask=r < RANK)
    tl.store(constant + place, tl.sum(length, 0) + tl.load(tails + place))


@triton.jit(do_not_specialize=["images", "glimpses"], do_not_specialize_on_alignment=["out"])
def _weigh(
    codes,  # [rows, COMPONENTS]
    project,  # [images, glimpses, FLIPS, RANK, COMPONENTS]
    forms,  # [images, glimpses, FLIPS, SHIFTS, SHIFT_RANK, RANK]
    linear,  # [images, glimpses, FLIPS, SHIFTS, RANK]
    constant,  # [images, glimpses, FLIPS, SHIFTS]
    gate,  # [images, glimpses, SHIFTS]: minus the log of the number of open ones, or -inf
    out,  # JOINED: [images, FLIPS, rows]; else [images, glimpses, FLIPS, SHIFTS, rows]
    rows,
    images,
    glimpses,
    scale,
    FLIPS: tl.constexpr,
    SHIFTS: tl.constexpr,
    COMPONENTS: tl.constexpr,
    RANK: tl.constexpr,
    SHIFT_RANK: tl.constexpr,
    JOINED: tl.constexpr,
    TOGETHER: tl.constexpr,
    N: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    Q: tl.constexpr,
    S: tl.constexpr,
) -> None:
    """A tile of bank rows and a few images: for each of their glimpses u in registers, then every shift's length.

    No other program writes these entries of `out`. Sizes C, R, Q, S are powers of two, 16 or more; the padding is read
    as zero.
    """
    n = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    c, r, q, s = tl.arange(0, C), tl.arange(0, R), tl.arange(0, Q), tl.arange(0, S)
    inside = n < rows
    code = tl.load(
        codes + n[:, None] * COMPONENTS + c[None, :], mask=inside[:, None] & (c < COMPONENTS)[None, :], other=0.0
    )
    first = tl.program_id(1) * TOGETHER
    last = tl.minimum(first + TOGETHER, images)
    total = tl.zeros([N], tl.float32)
    # one flat loop over images, flips and glimpses, so that the next maps are loaded while these are multiplied
    for step in range(first * FLIPS * glimpses, last * FLIPS * glimpses):
        t = step % glimpses
        flipped = step // glimpses  # image and flip
        seen = flipped // FLIPS * glimpses + t  # image and glimpse
        place = (seen * FLIPS + flipped % FLIPS).to(tl.int64)
        maps = project + place * RANK * COMPONENTS + r[None, :] * COMPONENTS + c[:, None]
        lead = tl.load(maps, mask=(c < COMPONENTS)[:, None] & (r < RANK)[None, :], other=0.0)
        u = tl.dot(code, lead, input_precision="ieee")  # [N, R], float32
        if SHIFTS == 1:
            crossed = tl.load(linear + place * RANK + r, mask=r < RANK, other=0.0)
            found = tl.sum(u * (u - crossed[None, :]), 1) + tl.load(constant + place)
            if JOINED:
                term = found * scale
            else:
                tl.store(out + place * rows + n, found, mask=inside)
        else:
            narrow = u.to(code.dtype)
            lines = linear + (place * SHIFTS + s[None, :]) * RANK + r[:, None]
            slopes = tl.load(lines, mask=(r < RANK)[:, None] & (s < SHIFTS)[None, :], other=0.0)
            offset = tl.load(constant + place * SHIFTS + s, mask=s < SHIFTS, other=0.0)
            found = offset[None, :] - tl.dot(narrow, slopes.to(code.dtype), input_precision="ieee")  # [N, S]
            for shift in range(SHIFTS):
                turns = forms + (place * SHIFTS + shift) * SHIFT_RANK * RANK + q[None, :] * RANK + r[:, None]
                form = tl.load(turns, mask=(r < RANK)[:, None] & (q < SHIFT_RANK)[None, :], other=0.0)
                parts = tl.dot(narrow, form, input_precision="ieee")  # [N, Q]
                found += tl.where((s == shift)[None, :], tl.sum(parts * parts, 1)[:, None], 0.0)
            if JOINED:
                weights = tl.load(gate + seen * SHIFTS + s, mask=s < SHIFTS, other=float("-inf"))
                logits = found * scale + weights[None, :]
                most = tl.max(logits, 1)
                term = most + tl.log(tl.sum(tl.exp(logits - most[:, None]), 1))
            else:
                ends = out + (place * SHIFTS + s[None, :]) * rows + n[:, None]
                tl.store(ends, found, mask=inside[:, None] & (s < SHIFTS)[None, :])
        if JOINED:
            total = tl.where(t == 0, term, total + term)
            tl.store(out + flipped.to(tl.int64) * rows + n, total, mask=inside & (t == glimpses - 1))


def _padded(size: int) -> int:
    """A size that `tl.dot` takes: a power of two, 16 or more."""
    return max(16, triton.next_power_of_2(size))


def _interpreted() -> bool:
    return not isinstance(_weigh, triton.JITFunction)
