"""Quantised weights: integers with a scale for each group of 64, packed into bytes and restored on loading.

Activations and arithmetic are unchanged; a file is 2 to 4 times smaller than in float16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.runtime.errors import InputError

__all__ = ["BITS", "pack", "packed_shapes", "restored", "rounded", "unpack"]

BITS = range(4, 9)
"""Allowed numbers of bits per weight, besides 16, which is float16."""
GROUP = 64
"""Weights of one output that share a scale; one scale for all of them would lose 1.5 times as much."""

_CODES, _SCALES = ".codes", ".scales"  # suffixes of the tensors that replace a matrix
_CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # range of the codes, in shares of a group's largest weight


def rounded(tensors: Mapping[str, Tensor], bits: int, *, keep: str) -> dict[str, Tensor]:
    """Matrices with `bits` per weight, other numbers in float16.

    Tensors whose names end with `keep` and packed tensors are unchanged.
    """
    out: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if not value.is_floating_point() or name.endswith((keep, _SCALES)):
            out[name] = value
        elif bits in BITS and value.ndim > 1 and value[0].numel() >= GROUP:
            out[name + _CODES], out[name + _SCALES] = pack(value, bits)
        else:
            out[name] = value.half()
    return out


def restored(tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The inverse of `rounded`, up to rounding errors; `shapes` are those of the original weights."""
    out = {name: value for name, value in tensors.items() if not name.endswith((_CODES, _SCALES))}
    for name, codes in tensors.items():
        if name.endswith(_CODES):
            whole, scales = name.removesuffix(_CODES), tensors[name.removesuffix(_CODES) + _SCALES]
            if (codes.dtype, scales.dtype) != (torch.uint8, torch.float16):
                raise InputError(f"tensor {name!r} or its scales are of another type than packed weights")
            out[whole] = unpack(codes, scales, shapes[whole])
    return out


def packed_shapes(found: Mapping[str, tuple[int, ...]], build: Callable[[], nn.Module]) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors after `restored`.

    Where a pair of tensors packs a weight, it is that weight's shape in the network that `build` makes without memory.
    """
    out = dict(found)
    if not any(name.endswith(_CODES) for name in found):
        return out
    with torch.device("meta"):
        expected = {name: value.shape for name, value in build().state_dict().items()}
    for name, shape in expected.items():
        pair = tuple(found.get(name + ending) for ending in (_CODES, _SCALES))
        if len(shape) > 1 and pair in [_pair_shapes(shape, bits) for bits in BITS]:
            del out[name + _CODES], out[name + _SCALES]
            out[name] = tuple(shape)
    return out


def _pair_shapes(shape: torch.Size, bits: int) -> tuple[tuple[int, int], tuple[int, int]]:
    each = shape[1:].numel()
    return (shape[0], -(-each * bits // 8)), (shape[0], -(-each // GROUP))


def pack(
    weights: Float[Tensor, rows * shape], bits: int
) -> tuple[UInt8[Tensor, "rows bytes"], Float16[Tensor, "rows groups"]]:
    """Codes of `bits` bits and the scale of each group, chosen from a few candidates for the least squared error."""
    flat = weights.detach().float().flatten(1).cpu()
    groups = F.pad(flat, (0, -flat.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    top, largest = 2 ** (bits - 1), groups.abs().amax(-1)
    codes, scales = torch.zeros_like(groups), torch.zeros_like(largest, dtype=torch.float16)
    least = torch.full_like(largest, torch.inf)
    for clip in _CLIPS:
        scale = (clip * largest / (top - 1)).half()
        step = scale.float()[..., None]
        code = torch.where(step > 0, groups / step, 0).round().clamp(-top, top - 1)
        error = (code * step - groups).square().sum(-1)
        better = error < least
        codes = torch.where(better[..., None], code, codes)
        scales, least = torch.where(better, scale, scales), torch.where(better, error, least)
    whole = (codes.flatten(1)[:, : flat.shape[1]] + top).to(torch.uint8).numpy()
    stream = (whole[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    return torch.from_numpy(np.packbits(stream.reshape(len(whole), -1), axis=1, bitorder="little")), scales


def unpack(
    codes: UInt8[Tensor, "rows bytes"], scales: Float16[Tensor, "rows groups"], shape: torch.Size
) -> Float32[Tensor, ...]:
    """The weights of a shape; the number of bits per weight follows from the number of bytes."""
    rows, each = shape[0], shape[1:].numel()
    bits = codes.shape[1] * 8 // each
    stream = np.unpackbits(codes.numpy(), axis=1, count=each * bits, bitorder="little").reshape(rows, each, bits)
    whole = (stream << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.int16) - 2 ** (bits - 1)
    steps = scales.float().repeat_interleave(GROUP, 1)[:, :each]
    return (torch.from_numpy(whole).float() * steps).reshape(shape)
