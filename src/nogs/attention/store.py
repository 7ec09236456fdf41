"""Files of trained networks: one network's weights with all that is needed to use them, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nogs.attention.network import Architecture, Networks
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors

FORMAT = "nogs hard-attention network 1"


def save_network(
    path: Path, parameters: Mapping[str, Tensor], *, architecture: Architecture, about: Mapping[str, Any]
) -> None:
    """Write one network's parameters, without the leading axis, its architecture, and `about`: task, labels, scores."""
    # one entry, since safetensors writes several in an order of chance, and the same network shall be the same file
    header = {"format": FORMAT, "architecture": architecture.to_json(), "about": dict(about)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in parameters.items()}
    save_tensors(path, tensors, {"nogs": json.dumps(header)})


def load_network(path: Path, *, device: str | torch.device = "cpu") -> tuple[Networks, dict[str, Any]]:
    """The network of a file (M = 1) and what the file says about it."""
    tensors, metadata = load_tensors(path, device=str(device))
    header = json.loads(metadata.get("nogs", "{}"))
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is not a hard-attention network of this version; train it again with nogs train.")
    networks = Networks(Architecture.from_json(header["architecture"])).to(device)
    expected = networks.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors or name not in expected or tensors[name].shape != expected[name].shape[1:]:
            raise InputError(
                f"{path} does not fit its own architecture: tensor {name!r} is missing, unknown or misshapen."
            )
    networks.load_state_dict({name: value[None] for name, value in tensors.items()})
    return networks, header["about"]
