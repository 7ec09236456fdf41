"""Starting from ImageNet: its normalisation of pixels, and weights from torchvision or from a safetensors file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor, nn

from nogs.runtime.errors import InputError
from nogs.runtime.tensors import load_tensors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Normalise(nn.Module):
    """Pixels with ImageNet's mean at 0 and its standard deviation at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", 255 * torch.tensor(MEAN), persistent=False)
        self.register_buffer("scale", 1 / (255 * torch.tensor(STD)), persistent=False)
        self.mean: Tensor
        self.scale: Tensor

    def forward(self, pixels: UInt8[Tensor, "*batch 3"]) -> Float32[Tensor, "*batch 3"]:
        """Channels last, as images are stored."""
        return (pixels.float() - self.mean) * self.scale


def weights_file(network: str = "vgg16") -> str:
    """The file of a VGG's weights that is looked for in the data folder before torchvision is asked."""
    return f"{network}-imagenet-conv1-12.safetensors"


def find_weights(source: str, data: Path | None, *, network: str = "vgg16") -> str:
    """Where a VGG's weights come from: "imagenet" is the file of the data folder, where there is one."""
    if source != "imagenet" or data is None or not (data / weights_file(network)).is_file():
        return source
    return str(data / weights_file(network))


def read_weights(source: str, *, architecture: str) -> dict[str, Tensor]:
    """Weights by torchvision's names, in float32: from a file, or what torchvision has for an architecture."""
    if source != "imagenet":
        return {name: tensor.float() for name, tensor in load_tensors(Path(source))[0].items()}
    from torchvision.models import get_model_weights

    try:
        weights: Any = get_model_weights(architecture).DEFAULT
        found = weights.get_state_dict(progress=False, check_hash=True, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"torchvision could not get the ImageNet weights of {architecture} ({error}); give a safetensors file to "
            "--posterior.weights, or none."
        ) from error
    # DenseNet's files are older than torch's rule that a module's name has no dot
    return {re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2", name): t for name, t in found.items()}


def load_into(
    module: nn.Module,
    weights: dict[str, Tensor],
    *,
    source: str,
    known: Iterable[str] = (),
    adapt: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
    free: Iterable[str] = (),
    partial: bool = False,
) -> set[str]:
    """Copy weights into a module by name; returns the names that were loaded.

    Names in `known` belong to the architecture but not to this module and are passed over; those that start with one of
    `free` keep their initial values. Any other name, a wrong shape, and without `partial` a missing name, is refused.
    """
    own = module.state_dict()
    free = tuple(free)
    wanted = {name for name in own if not name.startswith(free) and not name.endswith("num_batches_tracked")}
    strange = sorted(name for name in weights if name not in own and name not in set(known))
    if strange:
        raise InputError(
            f"{source} holds {strange[0]!r}, which is no weight of this network; check --posterior.weights."
        )
    missing = sorted(wanted - weights.keys())
    if missing and not (partial and wanted & weights.keys()):
        raise InputError(
            f"{source} lacks {missing[0]!r} and {len(missing) - 1} more of the network's weights; give a whole file, "
            "or --posterior.partial to start the missing layers at random."
        )
    loaded = wanted & weights.keys()
    for name in sorted(loaded):
        tensor = adapt(name, weights[name])
        if tensor.shape != own[name].shape:
            raise InputError(
                f"{source}: {name!r} has the shape {list(weights[name].shape)}, which does not fit this network; check "
                "--posterior.weights and --posterior.backbone."
            )
        own[name].copy_(tensor)
    return loaded
