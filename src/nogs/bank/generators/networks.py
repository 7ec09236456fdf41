"""The networks of the generator trained here: an autoencoder, and a transformer for the flow in its latent space."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Autoencoder", "Flow", "group_norm", "heun"]

FACTOR = 8


def group_norm(width: int) -> nn.GroupNorm:
    """Normalisation in eight groups of channels, or in as many as divide them."""
    return nn.GroupNorm(math.gcd(width, 8), width)


def heun(velocity: Callable[[Tensor, float], Tensor], x: Tensor, *, steps: int) -> Tensor:
    """Heun's method along a flow, from the noise `x` at time 0 to time 1."""
    # small steps near both ends, where the velocity changes fastest
    times = (0.5 - 0.5 * torch.cos(torch.linspace(0, math.pi, steps + 1))).tolist()
    now_at = velocity(x, times[0])
    for now, then in pairwise(times):
        after = velocity(x + (then - now) * now_at, then)
        x = x + (then - now) / 2 * (now_at + after)
        now_at = velocity(x, then) if then < times[-1] else after
    return x


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            group_norm(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
            group_norm(width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Autoencoder(nn.Module):
    """Images [n, 3, H, W] in -1..1 to latent maps [n, c, H/8, W/8] and back; H and W are padded to multiples of 8."""

    def __init__(self, *, width: int, latent: int) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        # pixels are first gathered 2 x 2, so that no layer works at the full size
        down: list[nn.Module] = [nn.PixelUnshuffle(2), nn.Conv2d(12, widths[0], 3, padding=1), _Residual(widths[0])]
        up: list[nn.Module] = [nn.Conv2d(latent, widths[2], 3, padding=1), _Residual(widths[2]), _Residual(widths[2])]
        for narrow, wide in pairwise(widths):
            down += [nn.Conv2d(narrow, wide, 3, stride=2, padding=1), _Residual(wide)]
        for wide, narrow in pairwise(widths[::-1]):
            up += [
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Conv2d(wide, narrow, 3, padding=1),
                _Residual(narrow),
            ]
        # no norm at either end: it would remove the picture's overall brightness
        down += [nn.SiLU(), nn.Conv2d(widths[2], latent, 3, padding=1)]
        up += [nn.SiLU(), nn.Conv2d(widths[0], 12, 3, padding=1), nn.PixelShuffle(2)]
        self.down, self.up = nn.Sequential(*down), nn.Sequential(*up)

    def encode(self, images: Float[Tensor, "n 3 H W"]) -> Float[Tensor, "n c h w"]:
        """Latent maps, with a soft bound of a few units."""
        high, wide = (-side % FACTOR for side in images.shape[-2:])
        return 4 * torch.tanh(self.down(F.pad(images, (0, wide, 0, high), mode="replicate")) / 4)

    def decode(self, latents: Float[Tensor, "n c h w"], size: tuple[int, int]) -> Float[Tensor, "n 3 H W"]:
        """Images of height and width `size`."""
        return self.up(latents)[..., : size[0], : size[1]]


class _Layer(nn.Module):
    """Transformer layer whose norms are scaled and shifted by the time (Peebles and Xie, 2023)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.time = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.time.weight)
        nn.init.zeros_(self.time.bias)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale_1, shift_1, gate_1, scale_2, shift_2, gate_2 = self.time(time)[:, None].chunk(6, -1)
        joint = self.joint(self.first(x) * (1 + scale_1) + shift_1)
        query, keys, values = joint.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2)
        x = x + gate_1 * self.out(seen)
        return x + gate_2 * self.body(self.second(x) * (1 + scale_2) + shift_2)


class Flow(nn.Module):
    """Velocity of latent maps at a time in 0..1 (0 is noise): a transformer over patches of 1 or 2 latent px."""

    def __init__(self, *, channels: int, side: tuple[int, int], width: int, depth: int) -> None:
        super().__init__()
        self.patch = 2 if min(side) >= 16 and not (side[0] % 2 or side[1] % 2) else 1
        self.channels, self.side = channels, side
        rows, columns = side[0] // self.patch, side[1] // self.patch
        numbers = channels * self.patch**2
        self.inp, self.out = nn.Linear(numbers, width), nn.Linear(width, numbers)
        self.place = nn.Parameter(torch.randn(rows * columns, width) * 0.02)
        self.clock = nn.Sequential(nn.Linear(128, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.layers = nn.ModuleList([_Layer(width, max(1, width // 64)) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "n c h w"], time: Float[Tensor, " n"]) -> Float[Tensor, "n c h w"]:
        """The velocity at each latent pixel."""
        tokens = F.pixel_unshuffle(x, self.patch).flatten(2).mT
        tokens = self.inp(tokens) + self.place
        frequency = torch.exp(torch.linspace(0, math.log(1000), 64, device=x.device))
        angle = time[:, None] * frequency
        clock = self.clock(torch.cat([angle.cos(), angle.sin()], 1))
        for layer in self.layers:
            tokens = layer(tokens, clock)
        shape = (self.side[0] // self.patch, self.side[1] // self.patch)
        return F.pixel_shuffle(self.out(self.norm(tokens)).mT.unflatten(2, shape), self.patch)
