"""The networks of learned completions: a U-Net, shared by the conditional GAN and the flow, and a discriminator."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.bank.generators.networks import group_norm

__all__ = ["Discriminator", "UNet"]

_LEVELS = 3
_CLOCK = 128


class UNet(nn.Module):
    """Ronneberger et al. (2015): maps [n, inputs, H, W] to [n, 3, H, W], given a time in 0..1 if it is `timed`.

    Large images are first folded 2 x 2 or 4 x 4 into channels, so that no layer works at their full size.
    """

    def __init__(self, inputs: int, *, width: int, size: tuple[int, int], timed: bool) -> None:
        super().__init__()
        self.patch = 4 if min(size) >= 192 else 2 if min(size) >= 24 else 1
        widths = [width * 2**level for level in range(_LEVELS)]
        numbers, clock = self.patch**2, 2 * width if timed else 0
        self.clock = nn.Sequential(nn.Linear(_CLOCK, clock), nn.SiLU(), nn.Linear(clock, clock)) if timed else None
        self.first = nn.Conv2d(inputs * numbers, widths[0], 3, padding=1)
        self.down = nn.ModuleList([_Block(w, w, clock) for w in widths])
        self.smaller = nn.ModuleList([nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths)])
        self.middle = nn.ModuleList([_Attention(widths[-1]), _Block(widths[-1], widths[-1], clock)])
        self.larger = nn.ModuleList([nn.Conv2d(b, a, 3, padding=1) for a, b in pairwise(widths)])
        self.up = nn.ModuleList([_Block(2 * w, w, clock) for w in widths])
        out = nn.Conv2d(width, 3 * numbers, 3, padding=1)
        nn.init.zeros_(out.weight)
        self.last = nn.Sequential(group_norm(width), nn.SiLU(), out)

    def forward(self, x: Float[Tensor, "n c H W"], time: Float[Tensor, " n"] | None = None) -> Float[Tensor, "n 3 H W"]:
        """One number per pixel and channel."""
        height, width = x.shape[-2:]
        multiple = self.patch * 2 ** (_LEVELS - 1)
        x = F.pad(x, (0, -width % multiple, 0, -height % multiple), mode="replicate")
        clock = None if self.clock is None or time is None else self.clock(_angles(time))
        x = self.first(F.pixel_unshuffle(x, self.patch))
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.smaller[level - 1](x), clock)
            kept.append(x)
        x = self.middle[1](self.middle[0](x), clock)
        for level in reversed(range(_LEVELS)):
            x = self.up[level](torch.cat([x, kept[level]], 1), clock)
            if level:
                x = self.larger[level - 1](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return F.pixel_shuffle(self.last(x), self.patch)[..., :height, :width]


class _Block(nn.Module):
    """A residual block of two convolutions; the time scales and shifts the values in between."""

    def __init__(self, inputs: int, width: int, clock: int) -> None:
        super().__init__()
        self.first = nn.Sequential(group_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, width, 3, padding=1))
        self.norm, self.second = group_norm(width), nn.Conv2d(width, width, 3, padding=1)
        self.around = nn.Identity() if inputs == width else nn.Conv2d(inputs, width, 1)
        self.time = nn.Linear(clock, 2 * width) if clock else None

    def forward(self, x: Tensor, clock: Tensor | None) -> Tensor:
        inner = self.norm(self.first(x))
        if self.time is not None and clock is not None:
            scale, shift = self.time(F.silu(clock))[..., None, None].chunk(2, 1)
            inner = inner * (1 + scale) + shift
        return self.around(x) + self.second(F.silu(inner))


class _Attention(nn.Module):
    """Self-attention on the smallest map, since a glimpse is informative about the far side of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.joint, self.out = group_norm(width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)
        self.heads = math.gcd(width, max(1, width // 64))

    def forward(self, x: Tensor) -> Tensor:
        joint = self.joint(self.norm(x)).flatten(2).unflatten(1, (3, self.heads, -1))
        query, keys, values = joint.transpose(-1, -2).unbind(1)
        found = F.scaled_dot_product_attention(query, keys, values)
        return x + self.out(found.transpose(-1, -2).flatten(1, 2).unflatten(2, x.shape[-2:]))


class Discriminator(nn.Module):
    """Logits of whether each patch of an image is real, given the glimpses (Isola et al., 2017)."""

    def __init__(self, inputs: int, *, width: int, size: tuple[int, int]) -> None:
        super().__init__()
        halvings = 3 if min(size) >= 96 else 2 if min(size) >= 24 else 1
        layers: list[nn.Module] = [nn.Conv2d(inputs, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for level in range(1, halvings + 1):
            wide, stride = width * 2 ** min(level, 3), 2 if level < halvings else 1
            inner = width * 2 ** min(level - 1, 3)
            layers += [nn.Conv2d(inner, wide, 4, stride=stride, padding=1), group_norm(wide), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(wide, 1, 4, padding=1))

    def forward(self, x: Float[Tensor, "n c H W"]) -> Float[Tensor, "n 1 h w"]:
        """Logits, above 0 where a patch looks real."""
        return self.layers(x)


def _angles(time: Tensor) -> Tensor:
    frequency = torch.exp(torch.linspace(0, math.log(1000), _CLOCK // 2, device=time.device))
    angle = time[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], 1)
