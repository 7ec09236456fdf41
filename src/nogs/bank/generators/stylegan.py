"""StyleGAN (Karras, Laine and Aila, 2019): the generator network of the public 1024 px weights, with their keys."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.bank.generators.noise import as_pictures, image_keys, normal, resized
from nogs.bank.generators.weights import fill, read_weights
from nogs.runtime.fingerprint import fingerprint

__all__ = ["StyleGAN", "StyleGANNetwork"]

LATENT = 512


def channels(resolution: int) -> int:
    """Channels of the feature maps at a resolution."""
    return min(8192 // (resolution // 2), 512)


class _Weights(nn.Module):
    """Weight and bias with equalised learning rate: multiplied at run time by gain / sqrt(fan_in) x lrmul."""

    def __init__(self, *shape: int, gain: float = math.sqrt(2), lrmul: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape))
        self.bias = nn.Parameter(torch.zeros(shape[0]))
        self.multiplier, self.lrmul = gain / math.sqrt(math.prod(shape[1:])) * lrmul, lrmul

    @property
    def scaled(self) -> tuple[Tensor, Tensor]:
        return self.weight * self.multiplier, self.bias * self.lrmul


class _Dense(_Weights):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, *self.scaled)


class _Convolution(_Weights):
    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.scaled
        return F.conv2d(x, weight, bias, padding=weight.shape[2] // 2)


class _Blur(nn.Module):
    kernel: Tensor

    def __init__(self) -> None:
        super().__init__()
        line = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("kernel", (line[:, None] * line / 16)[None, None])

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel.expand(x.shape[1], 1, 3, 3), padding=1, groups=x.shape[1])


class _UpConvolution(_Weights):
    """Convolution that doubles the map's side; narrow maps (fewer than 512 channels) use the fused form."""

    def __init__(self, out: int, inp: int) -> None:
        super().__init__(out, inp, 3, 3)
        self.intermediate = _Blur()

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.scaled
        if weight.shape[1] >= 512:
            x = F.conv2d(F.interpolate(x, scale_factor=2, mode="nearest"), weight, padding=1)
        else:
            padded = F.pad(weight.transpose(0, 1), (1, 1, 1, 1))
            shifts = padded[..., 1:, 1:], padded[..., :-1, 1:], padded[..., 1:, :-1], padded[..., :-1, :-1]
            x = F.conv_transpose2d(x, torch.stack(shifts).sum(0), stride=2, padding=1)
        return self.intermediate(x) + bias[:, None, None]


class _Noise(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return x + self.weight[:, None, None] * noise


class _Epilogue(nn.Module):
    """Noise, leaky ReLU, instance normalisation, style."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.top_epi = nn.ModuleDict({"noise": _Noise(width)})
        self.style_mod = nn.ModuleDict({"lin": _Dense(2 * width, LATENT, gain=1.0)})

    def forward(self, x: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        x = F.leaky_relu(self.top_epi["noise"](x, noise), 0.2)
        x = F.instance_norm(x, eps=1e-5)
        scale, shift = self.style_mod["lin"](w)[..., None, None].chunk(2, 1)
        return x * (scale + 1) + shift


class _FirstBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.const = nn.Parameter(torch.ones(1, channels(4), 4, 4))
        self.bias = nn.Parameter(torch.ones(channels(4)))
        self.epi1 = _Epilogue(channels(4))
        self.conv = _Convolution(channels(4), channels(4), 3, 3)
        self.epi2 = _Epilogue(channels(4))

    def forward(self, w: Tensor, noise: tuple[Tensor, Tensor]) -> Tensor:
        x = (self.const + self.bias[:, None, None]).expand(len(w), -1, -1, -1)
        return self.epi2(self.conv(self.epi1(x, w, noise[0])), w, noise[1])


class _Block(nn.Module):
    def __init__(self, resolution: int) -> None:
        super().__init__()
        width = channels(resolution)
        self.conv0_up = _UpConvolution(width, channels(resolution // 2))
        self.epi1 = _Epilogue(width)
        self.conv1 = _Convolution(width, width, 3, 3)
        self.epi2 = _Epilogue(width)

    def forward(self, x: Tensor, w: Tensor, noise: tuple[Tensor, Tensor]) -> Tensor:
        return self.epi2(self.conv1(self.epi1(self.conv0_up(x), w, noise[0])), w, noise[1])


class StyleGANNetwork(nn.Module):
    """Mapping and synthesis up to `resolution` px; the public weights are for 1024."""

    def __init__(self, resolution: int = 1024) -> None:
        super().__init__()
        self.resolutions = [2**power for power in range(2, int(math.log2(resolution)) + 1)]
        self.g_mapping = nn.ModuleDict({f"dense{n}": _Dense(LATENT, LATENT, lrmul=0.01) for n in range(8)})
        blocks = {f"{r}x{r}": _FirstBlock() if r == 4 else _Block(r) for r in self.resolutions}
        colour = _Convolution(3, channels(resolution), 1, 1, gain=1.0)
        self.g_synthesis = nn.ModuleDict({"torgb": colour, "blocks": nn.ModuleDict(blocks)})

    def forward(self, z: Float32[Tensor, "n 512"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 R R"]:
        """Images, about -1..1; the noise of each pixel comes from the image's own stream."""
        w = z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)
        for dense in self.g_mapping.values():
            w = F.leaky_relu(dense(w), 0.2)
        blocks: nn.ModuleDict = self.g_synthesis["blocks"]  # type: ignore[assignment]
        x, start = z, LATENT
        for r, block in zip(self.resolutions, blocks.values()):
            noise = normal(keys, 2 * r * r, start=start).reshape(len(z), 2, 1, r, r).unbind(1)
            start += 2 * r * r
            x = block(w, noise) if r == 4 else block(x, w, noise)
        return self.g_synthesis["torgb"](x)


class StyleGAN:
    """StyleGAN as a generator of bank images, without truncation, resized to the task's size."""

    count = None
    latent = LATENT

    def __init__(self, network: StyleGANNetwork, *, image_size: int, device: torch.device, mark: str) -> None:
        self.network = network.eval().requires_grad_(False).to(device)
        self.size, self.device, self._mark = (image_size, image_size), device, mark

    @classmethod
    def load(cls, path: Path, *, image_size: int, device: torch.device, resolution: int = 1024) -> StyleGAN:
        """Load the public weights from a file."""
        tensors = read_weights(path)
        network = StyleGANNetwork(resolution)
        fill(network, tensors, path=path)
        return cls(network, image_size=image_size, device=device, mark=fingerprint(dict(network.state_dict())))

    @property
    def fingerprint(self) -> str:
        """Of the weights and the size."""
        return fingerprint("stylegan", self._mark, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""
        keys = image_keys(numbers, seed=seed, purpose="stylegan", device=self.device)
        return as_pictures(self.decode(normal(keys, LATENT), keys))

    def decode(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 H W"]:
        """Images, about -1..1, as a differentiable function of z; `keys` determine each image's noise."""
        return resized(self.network(z, keys).float(), self.size[0])
