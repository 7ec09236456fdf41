"""The network of the whole-image reference: features of the image, pooled over it, and one linear layer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import Normalise
from nogs.posterior.labels import Float32Linear
from nogs.posterior.stems import VGGStem, make_stem
from nogs.runtime import streams

__all__ = ["Residual", "WholeImage", "build", "pretrained"]

_SMALLEST = 8  # px: a feature map of this side is not halved again
_CELLS = 4  # a side: frozen features are also pooled over each cell, since they can't learn where things are


class Block(nn.Module):
    """Two 3 x 3 convolutions with batch norm beside a shortcut; the side is halved and the channels grow."""

    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, wider, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(wider)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(wider)
        self.shortcut = nn.Conv2d(channels, wider, 1, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(wider)

    def forward(self, x: Float[Tensor, "B C h w"]) -> Float[Tensor, "B D h2 w2"]:
        """The sum of both branches."""
        deep = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        # the mean of the pixels that a cell covers; at the border of an odd side, of the existing ones
        mean = F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)
        return F.relu(deep + self.shortcut_norm(self.shortcut(mean)))


class Residual(nn.Module):
    """A residual CNN from scratch: a convolution at half the side, then blocks down to a side of 8 px or less."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        side, blocks = (side + 1) // 2, list[nn.Module]()
        while side > _SMALLEST or not blocks:
            blocks.append(Block(width, 2 * width))
            side, width = (side + 1) // 2, 2 * width
        self.blocks = nn.Sequential(*blocks)
        self.channels = width

    def forward(self, images: UInt8[Tensor, "B H W 3"]) -> Float[Tensor, "B C h w"]:
        """Feature maps."""
        x = self.normalise(images).permute(0, 3, 1, 2)
        return self.blocks(F.relu(self.stem_norm(self.stem(x))))


class VGG(nn.Module):
    """The VGG-16 layers of the posterior's stem on the whole image, enlarged like the glimpses."""

    def __init__(self, stem: VGGStem) -> None:
        super().__init__()
        self.normalise, self.layers, self.scale = stem.normalise, stem.features, stem.scale
        self.channels = stem.project.in_channels

    def forward(self, images: UInt8[Tensor, "B H W 3"]) -> Float[Tensor, "B C h w"]:
        """Feature maps."""
        x = self.normalise(images).permute(0, 3, 1, 2)
        if self.scale > 1:
            x = F.interpolate(x, scale_factor=self.scale, mode="bilinear")
        return self.layers(x)


class WholeImage(nn.Module):
    """Mean and maximum of each feature over the image, with `cells` a side also the mean over each cell; normalised to
    mean 0 and variance 1; and one linear layer."""

    def __init__(self, features: Residual | VGG, outputs: int, *, cells: int = 0) -> None:
        super().__init__()
        self.features, self.cells = features, cells
        inputs = (2 + cells**2) * features.channels
        self.norm = nn.BatchNorm1d(inputs, affine=False)
        self.classify = Float32Linear(inputs, outputs)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def pool(self, images: UInt8[Tensor, "B H W 3"]) -> Float32[Tensor, "B D"]:
        """Pooled features, the input of the linear layer."""
        maps = self.features(images).float()
        cells = [F.adaptive_avg_pool2d(maps, self.cells).flatten(1)] if self.cells else []
        return torch.cat([maps.mean((2, 3)), maps.amax((2, 3)), *cells], 1)

    def answer(self, pooled: Float32[Tensor, "B D"]) -> Float32[Tensor, "B O"]:
        """Logits from the output of `pool`."""
        return self.classify(self.norm(pooled))

    def forward(self, images: UInt8[Tensor, "B H W 3"]) -> Float32[Tensor, "B O"]:
        """Logits."""
        return self.answer(self.pool(images))


def pretrained(posterior: PosteriorConfig) -> bool:
    """Whether the posterior, and so the reference, starts from ImageNet weights."""
    return posterior.kind == "tokens" and posterior.stem == "vgg" and posterior.weights != "none"


def build(
    posterior: PosteriorConfig,
    *,
    side: int,
    glimpse: int,
    width: int,
    outputs: int,
    weights: str,
    seed: int,
    frozen: bool = False,
) -> WholeImage:
    """A network with initial weights from a seed, or with VGG-16's from `weights`, whose features may be frozen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(streams.key(seed, "whole-image weights"))
        if not pretrained(posterior):
            return WholeImage(Residual(side, width), outputs)
        stem = make_stem(posterior, glimpse=glimpse)
        assert isinstance(stem, VGGStem)
        if weights != "none":
            stem.load(weights)
        return WholeImage(VGG(stem), outputs, cells=_CELLS if frozen else 0)
