"""FineGAN (Singh, Ojha and Lee, 2019): the generator network of the public 128 px bird weights, with their keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.bank.generators.noise import as_pictures, image_keys, normal, resized
from nogs.bank.generators.weights import fill, read_weights
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import bits

__all__ = ["FineGAN", "FineGANNetwork"]

LATENT, CLASSES, PARENTS = 100, 200, 20


class _GLU(nn.Module):
    """First half of the channels times the sigmoid of the second half."""

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, dim=1)


def _convolution(inp: int, out: int) -> nn.Conv2d:
    return nn.Conv2d(inp, out, 3, padding=1, bias=False)


def _gated(inp: int, out: int) -> nn.Sequential:
    """3x3 convolution to twice `out`, batch norm, GLU."""
    return nn.Sequential(_convolution(inp, 2 * out), nn.BatchNorm2d(2 * out), _GLU())


def _up(inp: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), *_gated(inp, out))


class _Start(nn.Module):
    """Code and z to a map of 64 channels at 32 times 4 px; `width` is 1024 in the public weights."""

    def __init__(self, code: int, width: int) -> None:
        super().__init__()
        self.width = width
        flat = width * 16
        self.fc = nn.Sequential(nn.Linear(code + LATENT, 2 * flat, bias=False), nn.BatchNorm1d(2 * flat), _GLU())
        self.upsample1, self.upsample2 = _up(width, width // 2), _up(width // 2, width // 4)
        self.upsample3, self.upsample4 = _up(width // 4, width // 8), _up(width // 8, width // 16)
        self.upsample5 = _up(width // 16, width // 16)

    def forward(self, code: Tensor, z: Tensor) -> Tensor:
        x = self.fc(torch.cat([code, z], 1)).reshape(len(z), self.width, 4, 4)
        for up in (self.upsample1, self.upsample2, self.upsample3, self.upsample4, self.upsample5):
            x = up(x)
        return x


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(*_gated(width, width), _convolution(width, width), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


class _Next(nn.Module):
    """Code and map to a map of half the channels."""

    def __init__(self, code: int, width: int) -> None:
        super().__init__()
        self.jointConv = _gated(code + width, width)
        self.residual = nn.Sequential(_Residual(width), _Residual(width))
        self.samesample = _gated(width, width // 2)

    def forward(self, x: Tensor, code: Tensor) -> Tensor:
        spread = code[..., None, None].expand(-1, -1, *x.shape[2:])
        return self.samesample(self.residual(self.jointConv(torch.cat([spread, x], 1))))


class _Picture(nn.Module):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.img = nn.Sequential(_convolution(width, out), nn.Tanh() if out == 3 else nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return self.img(x)


class FineGANNetwork(nn.Module):
    """Background, parent and child stages; the public weights have `width` 1024."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        narrow = width // 16
        self.h_net1_bg, self.img_net1_bg = _Start(CLASSES, width), _Picture(narrow, 3)
        self.h_net1, self.h_net2 = _Start(PARENTS, width), _Next(PARENTS, narrow)
        self.img_net2, self.img_net2_mask = _Picture(narrow // 2, 3), _Picture(narrow // 2, 1)
        self.h_net3 = _Next(CLASSES, narrow // 2)
        self.img_net3, self.img_net3_mask = _Picture(narrow // 4, 3), _Picture(narrow // 4, 1)

    def forward(self, z: Float32[Tensor, "n 100"], fine: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 128 128"]:
        """Images in -1..1 of the fine classes; a class's parent is its number // 10."""
        child = F.one_hot(fine, CLASSES).to(z)
        parent = F.one_hot(fine // (CLASSES // PARENTS), PARENTS).to(z)
        image = self.img_net1_bg(self.h_net1_bg(child, z))
        parent_map = self.h_net2(self.h_net1(parent, z), parent)
        child_map = self.h_net3(parent_map, child)
        for picture, mask, x in (
            (self.img_net2, self.img_net2_mask, parent_map),
            (self.img_net3, self.img_net3_mask, child_map),
        ):
            shown = mask(x)
            image = shown * picture(x) + (1 - shown) * image
        return image


class FineGAN:
    """FineGAN as a generator of bank images: a random z and one of 200 fine classes for each."""

    count = None
    latent = LATENT

    def __init__(self, network: FineGANNetwork, *, image_size: int, device: torch.device, mark: str) -> None:
        self.network = network.eval().requires_grad_(False).to(device)
        self.size, self.device, self._mark = (image_size, image_size), device, mark

    @classmethod
    def load(cls, path: Path, *, image_size: int, device: torch.device, width: int = 1024) -> FineGAN:
        """Load the public weights from a file; counters of batch norm may be missing."""
        tensors = read_weights(path)
        network = FineGANNetwork(width)
        fill(network, tensors, path=path, optional="num_batches_tracked")
        return cls(network, image_size=image_size, device=device, mark=fingerprint(dict(network.state_dict())))

    @property
    def fingerprint(self) -> str:
        """Of the weights and the size."""
        return fingerprint("finegan", self._mark, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""
        keys = image_keys(numbers, seed=seed, purpose="finegan", device=self.device)
        return as_pictures(self.decode(normal(keys, LATENT), keys))

    def decode(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 H W"]:
        """Images in -1..1, as a differentiable function of z; `keys` determine each image's fine class."""
        fine = (bits(keys, torch.full_like(keys, 1 << 40)) & (2**40 - 1)) % CLASSES
        return resized(self.network(z, fine).float(), self.size[0])
