"""ImageNet's normalisation of pixels, and its weights from torchvision or from a safetensors file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor, nn

from nogs.runtime import progress
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
    """The file of a VGG's weights in the data folder, which is used before torchvision's weights."""
    return f"{network}-imagenet-conv1-12.safetensors"


def find_weights(source: str, data: Path | None, *, network: str = "vgg16") -> str:
    """The source of a VGG's weights: "imagenet" becomes the file in the data folder if there is one."""
    if source != "imagenet" or data is None or not (data / weights_file(network)).is_file():
        return source
    return str(data / weights_file(network))


def obtain(data: Path | None, *, network: str = "vgg16") -> tuple[bool, str]:
    """Whether a VGG's weights are available, and a line about it.

    They are the file in the data folder, torchvision's stored file, or its download, which is tried once.
    """
    import torch.hub
    from torchvision.models import get_model_weights

    known: Any = get_model_weights(network).DEFAULT
    stored = Path(torch.hub.get_dir()) / "checkpoints" / Path(known.url).name
    file = find_weights("imagenet", data, network=network)
    if file == "imagenet" and not stored.is_file():
        if not reachable(known.url):
            return False, (
                "The posterior is trained from scratch: torchvision has no ImageNet weights stored and can't download "
                "them; --posterior.weights FILE gives them."
            )
        progress.say(f"Downloading {network}'s ImageNet weights to {stored}, once.")
        try:
            known.get_state_dict(progress=True, check_hash=True, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError) as error:
            return False, f"The posterior is trained from scratch: ImageNet weights can't be downloaded ({error})."
    name = f"{network} of torchvision" if file == "imagenet" else file
    return (
        True,
        f"The posterior starts from ImageNet's features ({name}); --posterior.weights none trains from scratch.",
    )


def reachable(address: str, *, seconds: float = 3.0) -> bool:
    """Whether a server answers within `seconds`; in a thread, since a failing name lookup may take minutes."""
    answers: list[bool] = []

    def ask() -> None:
        with (
            contextlib.suppress(OSError, HTTPException, ValueError),
            urlopen(Request(address, method="HEAD"), timeout=seconds),
        ):
            answers.append(True)

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return bool(answers)


def read_weights(source: str, *, architecture: str) -> dict[str, Tensor]:
    """Weights by torchvision's names, in float32: from a file, or torchvision's for an architecture."""
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
    # DenseNet's files predate torch's rule that a module's name has no dot
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

    Names in `known` belong to the architecture but not to this module and are ignored. Names that start with one of
    `free` keep their initial values. Other names and wrong shapes are refused, as are missing names without `partial`.
    """
    own = module.state_dict()
    free = tuple(free)
    wanted = {name for name in own if not name.startswith(free) and not name.endswith("num_batches_tracked")}
    strange = sorted(name for name in weights if name not in own and name not in set(known))
    if strange:
        raise InputError(
            f"{source} holds {strange[0]!r}, which is not a weight of this network; check --posterior.weights."
        )
    missing = sorted(wanted - weights.keys())
    if missing and not (partial and wanted & weights.keys()):
        raise InputError(
            f"{source} lacks {missing[0]!r} and {len(missing) - 1} more of the network's weights; give a complete "
            "file, or --posterior.partial to start the missing layers at random."
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
