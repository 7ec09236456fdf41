"""Glimpse embedders, from the pixels of a glimpse to the RNN's input: the paper's two, and the release's.

Their parameters carry the leading axis M of `stacked` and belong to the networks. An embedder defines their shapes and
the arithmetic.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.attention.architecture import Architecture
from nogs.attention.stacked import batch_norm, convolve, linear, max_pool
from nogs.posterior.imagenet import Normalise, read_weights, weights_file
from nogs.runtime.errors import InputError

Shapes = dict[str, tuple[int, ...]]

VGG_WIDTHS = {
    ("vgg16", 10): (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0),
    ("vgg16", 12): (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512),
    ("vgg19", 12): (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0),
}
"""For each VGG and number of convolutions, the channels of each layer; 0 is a pool."""


class PaperEmbedder(nn.Module):
    """The paper's appendix: conv 3x3 to 16, ReLU, conv 3x3 to 32 with stride 2, ReLU, 2x2 max pool, linear."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        after = ((architecture.grid.glimpse - 2 - 3) // 2 + 1) // 2
        if after < 1:
            raise InputError(
                f"A glimpse of {architecture.grid.glimpse} px is too small for the embedder; use at least 7 px."
            )
        self.features = 32 * after * after
        self.out = architecture.embedding

    def shapes(self) -> Shapes:
        """Parameter names and shapes of one network."""
        return {
            "conv1_weight": (16, 3, 3, 3),
            "conv1_bias": (16,),
            "conv2_weight": (32, 16, 3, 3),
            "conv2_bias": (32,),
            "project_weight": (self.out, self.features),
            "project_bias": (self.out,),
        }

    def initialise(self, p: nn.ParameterDict) -> None:
        """Torch's initial values are left as they are."""

    def forward(self, p: nn.ParameterDict, glimpses: UInt8[Tensor, "M B g g 3"]) -> Float[Tensor, "M B D"]:
        """Embed glimpses, scaled to [-1, 1]."""
        x = torch.relu(convolve(glimpses * (2 / 255) - 1, p["conv1_weight"], p["conv1_bias"], stride=1))
        x = convolve(x, p["conv2_weight"], p["conv2_bias"], stride=2)
        x = torch.relu(max_pool(x))  # the maximum of ReLUs is the ReLU of the maximum, on a quarter of the numbers
        return linear(x.flatten(2), p["project_weight"], p["project_bias"])


class ReleaseEmbedder(nn.Module):
    """The authors' release: padded convolutions with batch norm and ReLU6, a 128-unit layer, a normalised projection.

    Batch norm always uses the batch's own statistics, since the release never leaves training mode.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        after = ((architecture.grid.glimpse - 1) // 2 + 1) // 2
        if after < 1:
            raise InputError(
                f"A glimpse of {architecture.grid.glimpse} px is too small for the release embedder; use at least 3 px."
            )
        self.features = 32 * after * after
        self.out = architecture.embedding

    def shapes(self) -> Shapes:
        """Parameter names and shapes of one network."""
        return {
            "conv1_weight": (16, 3, 3, 3),
            "norm1_scale": (16,),
            "norm1_shift": (16,),
            "conv2_weight": (32, 16, 3, 3),
            "norm2_scale": (32,),
            "norm2_shift": (32,),
            "dense_weight": (128, self.features),
            "dense_bias": (128,),
            "project_weight": (self.out, 128),
            "project_bias": (self.out,),
            "project_norm_scale": (self.out,),
            "project_norm_shift": (self.out,),
        }

    def initialise(self, p: nn.ParameterDict) -> None:
        """Torch's initial values are left as they are."""

    def forward(self, p: nn.ParameterDict, glimpses: UInt8[Tensor, "M B g g 3"]) -> Float[Tensor, "M B D"]:
        """Embed glimpses, scaled to [-1, 1]."""
        x = glimpses * (2 / 255) - 1
        for n, stride in ((1, 1), (2, 2)):
            x = convolve(x, p[f"conv{n}_weight"], None, stride=stride, padding=1)
            x = F.relu6(batch_norm(x, p[f"norm{n}_scale"], p[f"norm{n}_shift"]))
        features = max_pool(x).movedim(-1, 2).flatten(2)  # channels first, as torch.nn.Flatten has them
        x = torch.relu(linear(features, p["dense_weight"], p["dense_bias"]))
        x = linear(x, p["project_weight"], p["project_bias"])
        return batch_norm(x, p["project_norm_scale"], p["project_norm_shift"])


class VGGEmbedder(nn.Module):
    """The paper's embedder for CUB: the first convolutions of a VGG with their ReLUs and 4 max pools, then linear.

    A glimpse of 32 px has 2 x 2 x 512 features. Convolutions run in `dtype`; the projection is float32.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.network = architecture.embedder_network
        self.widths = VGG_WIDTHS[architecture.embedder_network, architecture.embedder_layers]
        side = architecture.grid.glimpse // 16
        if side < 1:
            raise InputError(
                f"A glimpse of {architecture.grid.glimpse} px is too small for the vgg embedder; use at least 16 px."
            )
        self.features, self.out = side * side * 512, architecture.embedding
        self.normalise = Normalise()
        self.dtype = torch.float32

    def shapes(self) -> Shapes:
        """Parameter names and shapes of one network."""
        shapes: Shapes = {}
        before = 3
        for n, width in enumerate((width for width in self.widths if width), 1):
            shapes |= {f"conv{n}_weight": (width, before, 3, 3), f"conv{n}_bias": (width,)}
            before = width
        return {**shapes, "project_weight": (self.out, self.features), "project_bias": (self.out,)}

    @torch.no_grad()
    def initialise(self, p: nn.ParameterDict) -> None:
        """He's initial values, since torch's smaller ones would make the signal vanish in so many layers."""
        for name, value in p.items():
            if name.startswith("conv"):
                value.mul_(math.sqrt(6) if name.endswith("weight") else 0)

    def forward(self, p: nn.ParameterDict, glimpses: UInt8[Tensor, "M B g g 3"]) -> Float[Tensor, "M B D"]:
        """Embed glimpses, normalised as for ImageNet."""
        features = [self._convolutions(p, m, glimpses[m]) for m in range(len(glimpses))]
        return linear(torch.stack(features).float(), p["project_weight"], p["project_bias"])

    def _convolutions(self, p: nn.ParameterDict, m: int, glimpses: UInt8[Tensor, "B g g 3"]) -> Float[Tensor, "B F"]:
        x, n = self.normalise(glimpses).to(self.dtype).permute(0, 3, 1, 2), 0
        for width in self.widths:
            if not width:
                x = F.max_pool2d(x, 2)
                continue
            n += 1
            # explicit casts, since a captured graph would freeze autocast's cache of casts
            weight = p[f"conv{n}_weight"][m].to(self.dtype, memory_format=torch.channels_last)
            x = F.relu(F.conv2d(x, weight, p[f"conv{n}_bias"][m].to(self.dtype), padding=1), inplace=True)
        return x.flatten(1)

    def pretrained(self, source: str) -> dict[str, Tensor]:
        """ImageNet weights of the convolutions by our names: torchvision's ("imagenet"), or those of a file."""
        name = self.network.upper().replace("VGG", "VGG-")
        try:
            found = read_weights(source, architecture=self.network)
        except InputError as error:
            if source != "imagenet":
                raise
            raise InputError(
                f"torchvision could not get {name}'s ImageNet weights; give a safetensors file of them to "
                f"--attention.weights, put it into the data folder as {weights_file(self.network)}, or pass "
                "--attention.weights none."
            ) from error
        places = [place for place, width in enumerate(_with_relus(self.widths)) if width]
        out = {}
        for n, place in enumerate(places, 1):
            for kind, shape in (("weight", self.shapes()[f"conv{n}_weight"]), ("bias", self.shapes()[f"conv{n}_bias"])):
                theirs = f"features.{place}.{kind}"
                if theirs not in found or tuple(found[theirs].shape) != shape:
                    raise InputError(
                        f"{source} does not hold {name}: {theirs!r} is missing or misshapen; check "
                        "--attention.weights and --attention.embedder-network."
                    )
                out[f"conv{n}_{kind}"] = found[theirs].float()
        return out


Embedder = PaperEmbedder | ReleaseEmbedder | VGGEmbedder
EMBEDDERS: dict[str, type[Embedder]] = {"paper": PaperEmbedder, "release": ReleaseEmbedder, "vgg": VGGEmbedder}


def _with_relus(widths: tuple[int, ...]) -> list[int]:
    """The layers as torchvision numbers them: a ReLU (0) follows each convolution."""
    return [layer for width in widths for layer in ((width, 0) if width else (0,))]
