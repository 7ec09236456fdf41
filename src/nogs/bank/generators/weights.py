"""Weights of public networks, by name: safetensors or a plain state dict, never a pickled object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from nogs.runtime import progress
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import load_tensors

__all__ = ["fill", "read_weights"]


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name, without a leading `module.`."""
    path = Path(path)
    if path.suffix == ".safetensors":
        tensors, _ = load_tensors(path)
    else:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{path} is not a complete state dict of plain tensors; download it again, or save it as safetensors."
            ) from error
        if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
            raise InputError(f"{path} does not hold tensors by name; give the state dict itself.")
        tensors = dict(found)
    return {name.removeprefix("module."): value for name, value in tensors.items()}


def fill(network: nn.Module, tensors: Mapping[str, Tensor], *, path: Path, optional: str = "") -> None:
    """Load `tensors`; an error names one that is missing or misshapen, and unknown ones are listed and ignored.

    Names that end with `optional` may be missing.
    """
    own = network.state_dict()
    for name, value in own.items():
        if name not in tensors:
            if optional and name.endswith(optional):
                continue
            raise InputError(
                f"{path} has no tensor {name!r} of shape {tuple(value.shape)}; it is not for this network."
            )
        if tensors[name].shape != value.shape:
            raise InputError(
                f"{path}: tensor {name!r} has the shape {tuple(tensors[name].shape)}, not {tuple(value.shape)}."
            )
    unknown = [name for name in tensors if name not in own]
    if unknown:
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        progress.say(f"{path}: {len(unknown)} tensors are not of this network and are ignored: {shown}")
    network.load_state_dict({name: tensors.get(name, value) for name, value in own.items()})
