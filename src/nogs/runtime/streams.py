"""Random numbers named by (seed, purpose, id, step): the same name gives the same numbers, whatever was drawn before.

`bits`, `uniform` and `permutation` are counter-based: number i of a stream is a function of only its key and i. It is
computed with 64-bit integer operations, so that batches, orders and devices don't change it. The generators of numpy
and torch are for streams that are read in order on one device.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

__all__ = ["bits", "key", "numpy_stream", "permutation", "torch_stream", "uniform"]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# the constants of splitmix64 (Steele, Lea and Flood, 2014)
_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def key(seed: int, purpose: str, id: str = "", step: int = 0) -> int:
    """The key of a stream: a signed 64-bit hash of its name."""
    name = json.dumps([seed, purpose, id, step]).encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little", signed=True)


def bits(key: int | Int64[Tensor, "*#batch"], counter: Int64[Tensor, "*#batch"]) -> Int64[Tensor, "*batch"]:
    """64 random bits for each counter: output number `counter` (from 0) of splitmix64 with the state `key`."""
    mixed = counter * _GAMMA + _GAMMA + key
    mixed = (mixed ^ _shift(mixed, 30)) * _MIX_1
    mixed = (mixed ^ _shift(mixed, 27)) * _MIX_2
    return mixed ^ _shift(mixed, 31)


def uniform(key: int | Int64[Tensor, "*#batch"], counter: Int64[Tensor, "*#batch"]) -> Float32[Tensor, "*batch"]:
    """Uniform numbers in [0, 1): the upper 24 of the 64 bits, which float32 holds exactly."""
    return _shift(bits(key, counter), 40).to(torch.float32) * 2.0**-24


def permutation(key: int, n: int, device: str | torch.device = "cpu") -> Int64[Tensor, " n"]:
    """A random order of 0..n-1: the order of `bits`, which never tie since splitmix64 is a bijection of the counter."""
    return torch.argsort(bits(key, torch.arange(n, device=device)), stable=True)


def numpy_stream(seed: int, purpose: str, id: str = "", step: int = 0) -> np.random.Generator:
    """A numpy generator (Philox) with a key of its own."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, id, step) % 2**64))


def torch_stream(
    seed: int, purpose: str, id: str = "", step: int = 0, *, device: str | torch.device = "cpu"
) -> torch.Generator:
    """A torch generator with a seed of its own; its numbers differ between kinds of device."""
    return torch.Generator(device=device).manual_seed(key(seed, purpose, id, step))


def _shift(value: Tensor, by: int) -> Tensor:
    """Logical shift to the right; torch's own copies the sign bit."""
    return (value >> by) & ((1 << (64 - by)) - 1)
