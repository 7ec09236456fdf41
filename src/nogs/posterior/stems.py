"""Stems, which turn a glimpse into tokens: one matrix, a few convolutions, or the first layers of VGG-16."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import Normalise, load_into, read_weights
from nogs.runtime.errors import InputError


def token_size(config: PosteriorConfig, glimpse: int) -> int:
    """Side of a token in pixels; one that does not divide the glimpse is refused."""
    size = config.token or (glimpse // 2 if glimpse % 2 == 0 else glimpse)
    if glimpse % size:
        raise InputError(f"posterior.token must divide the glimpse of {glimpse} px, but is {size} px.")
    return size


class LinearStem(nn.Module):
    """Every token of `size` px is multiplied by one matrix."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.size = size
        self.project = nn.Linear(3 * size * size, width)

    def forward(self, glimpses: UInt8[Tensor, "M g g 3"]) -> Float[Tensor, "M n D"]:
        """Tokens in row-major order."""
        return self.project(self.normalise(patches(glimpses, self.size)).flatten(2))


class ConvStem(nn.Module):
    """3 x 3 convolutions over the glimpse, halving its side while a token's is even; tokens see their margins."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.normalise = Normalise()
        halvings = 0
        while size % 2 == 0 and halvings < 3:
            size, halvings = size // 2, halvings + 1
        channels = [max(8, width // 2 ** (halvings + 1 - n)) for n in range(halvings + 1)]
        layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, padding=1), nn.GELU()]
        for before, after in pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], width, size, stride=size))
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        _channels_last(self.layers)

    def forward(self, glimpses: UInt8[Tensor, "M g g 3"]) -> Float[Tensor, "M n D"]:
        """Tokens in row-major order."""
        return self.layers(self.normalise(glimpses).permute(0, 3, 1, 2)).flatten(2).mT


class VGGStem(nn.Module):
    """The first `layers` convolutions of VGG-16 on the glimpse, enlarged `scale` times, then one matrix to tokens."""

    def __init__(self, size: int, width: int, *, layers: int, scale: int = 1) -> None:
        super().__init__()
        self.normalise = Normalise()
        self.scale = scale
        from torchvision.models import vgg

        every = vgg.make_layers(vgg.cfgs["D"])
        ends = [n + 2 for n, layer in enumerate(every) if isinstance(layer, nn.Conv2d)]  # after the ReLU
        self.features = every[: ends[layers - 1]]
        stride = 2 ** sum(isinstance(layer, nn.MaxPool2d) for layer in self.features)
        if size * scale % stride:
            raise InputError(
                f"posterior.token is {size} px and posterior.stem_scale {scale}, but {layers} layers of VGG-16 make "
                f"features {stride} px apart; make the product a multiple of that, or lower posterior.stem_layers."
            )
        channels = next(layer.out_channels for layer in reversed(self.features) if isinstance(layer, nn.Conv2d))
        cells = size * scale // stride
        self.project = nn.Conv2d(channels, width, cells, stride=cells)
        _channels_last(self.features, self.project)
        self.known = {f"features.{name}" for name in every.state_dict()}
        self.known |= {f"classifier.{n}.{part}" for n in (0, 3, 6) for part in ("weight", "bias")}

    def first(self, layers: int) -> set[str]:
        """Names of the parameters of its first convolutions."""
        named = [name for name, layer in self.features.named_children() if isinstance(layer, nn.Conv2d)]
        return {f"features.{name}.{part}" for name in named[:layers] for part in ("weight", "bias")}

    def load(self, source: str) -> set[str]:
        """Load VGG-16's weights; those of unused layers are ignored."""
        weights = read_weights(source, architecture="vgg16")
        return load_into(self, weights, source=source, known=self.known, free=("project.",))

    def forward(self, glimpses: UInt8[Tensor, "M g g 3"]) -> Float[Tensor, "M n D"]:
        """Tokens in row-major order."""
        x = self.normalise(glimpses).permute(0, 3, 1, 2)
        if self.scale > 1:
            x = F.interpolate(x, scale_factor=self.scale, mode="bilinear")
        return self.project(self.features(x)).flatten(2).mT


def _channels_last(*modules: nn.Module) -> None:
    """Store the weights channels last, like the glimpses, which saves conversions of the layout."""
    for module in modules:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def make_stem(config: PosteriorConfig, *, glimpse: int) -> LinearStem | ConvStem | VGGStem:
    """The stem that a recipe asks for."""
    size = token_size(config, glimpse)
    if config.stem == "vgg":
        return VGGStem(size, config.width, layers=config.stem_layers, scale=config.stem_scale)
    return (ConvStem if config.stem == "conv" else LinearStem)(size, config.width)


def patches(glimpses: UInt8[Tensor, "M g g 3"], size: int) -> UInt8[Tensor, "M n p 3"]:
    """The pixels of each token, tokens and pixels in row-major order."""
    number, side = len(glimpses), glimpses.shape[1] // size
    cells = glimpses.reshape(number, side, size, side, size, 3).transpose(2, 3)
    return cells.reshape(number, side * side, size * size, 3)


def centres(glimpse: int, size: int) -> Float[Tensor, "n 2"]:
    """(row, column) in pixels of each token's centre, from the glimpse's top-left pixel."""
    steps = torch.arange(0, glimpse, size) + size / 2
    return torch.cartesian_prod(steps, steps)
