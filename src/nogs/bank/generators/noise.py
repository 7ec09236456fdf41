"""For all generative networks: keyed Gaussian noise, and conversion between uint8 pictures and a network's values."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor

from nogs.runtime.streams import bits, key, uniform

__all__ = ["as_pictures", "image_keys", "normal", "resized", "to_pictures", "to_values"]


def image_keys(
    numbers: Int64[np.ndarray, " n"], *, seed: int, purpose: str, device: torch.device
) -> Int64[Tensor, " n"]:
    """The key of a random stream for each image number."""
    return bits(key(seed, purpose), torch.from_numpy(np.asarray(numbers, np.int64)).to(device))


def normal(keys: Int64[Tensor, " n"], count: int, *, start: int = 0) -> Float32[Tensor, "n count"]:
    """Numbers `start` .. `start + count` of each stream's N(0, 1) sequence (Box and Muller, 1958)."""
    counter = torch.arange(start, start + count, device=keys.device)
    first, second = uniform(keys[:, None], 2 * counter), uniform(keys[:, None], 2 * counter + 1)
    # 1 - u lies in (0, 1], where the logarithm is finite
    return (-2 * torch.log1p(-first)).sqrt() * torch.cos(2 * math.pi * second)


def to_pictures(values: Float[Tensor, "n 3 H W"], size: int) -> UInt8[Tensor, "n size size 3"]:
    """Values in -1..1, clamped, as pictures of `size` px."""
    return as_pictures(resized(values.float(), size))


def resized(values: Float32[Tensor, "n 3 H W"], size: int) -> Float32[Tensor, "n 3 size size"]:
    """Values resized to pictures of `size` px."""
    if values.shape[-2:] == (size, size):
        return values
    return torch.nn.functional.interpolate(
        values, size=(size, size), mode="bilinear", antialias=True, align_corners=False
    )


def as_pictures(values: Float[Tensor, "n 3 H W"]) -> UInt8[Tensor, "n H W 3"]:
    """Values in -1..1, clamped, as pictures."""
    return ((values.float().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def to_values(images: UInt8[Tensor, "n H W 3"]) -> Float32[Tensor, "n 3 H W"]:
    """Pictures as values in -1..1."""
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1
