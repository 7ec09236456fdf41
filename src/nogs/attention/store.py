"""Files of trained networks: one network's weights with all that is needed to use them, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nogs.attention.network import Architecture, Networks
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import fingerprint

FORMAT = "nogs hard-attention network 1"
OTHER_SPLITS = (
    "was trained on other splits of this data than the run's data/splits.json has, so it may be judged on images that "
    "it was trained on; bring back the data and splits.json of its training, or give the command of the run again with "
    "another --out."
)


def save_network(
    path: Path,
    parameters: Mapping[str, Tensor],
    *,
    architecture: Architecture,
    about: Mapping[str, Any],
    trunk: str | None = None,
) -> None:
    """Write one network's parameters, without the leading axis, its architecture, and `about`: task, labels, scores.

    `trunk` is the path, seen from this file's folder, of the network whose frozen embedder, RNN and classifier serve
    here too; they are then left out of `parameters`.
    """
    # one entry, since safetensors writes several in an order of chance, and the same network shall be the same file
    header = {"format": FORMAT, "architecture": architecture.to_json(), "about": dict(about)}
    header |= {"trunk": trunk} if trunk else {}
    tensors = {name: value.detach().cpu().contiguous() for name, value in parameters.items()}
    save_tensors(path, tensors, {"nogs": json.dumps(header)})


def load_network(path: Path, *, device: str | torch.device = "cpu") -> tuple[Networks, dict[str, Any]]:
    """The network of a file (M = 1) and what the file says about it."""
    tensors, metadata = load_tensors(path, device=str(device))
    header = _header(path, metadata)
    if "trunk" in header:
        below = path.parent / header["trunk"]
        if not below.is_file():
            raise InputError(
                f"{path} stands on the pretrained network {below}, which is not there; keep both in their run's folder."
            )
        tensors = {**_frozen(load_tensors(below, device=str(device))[0]), **tensors}
    networks = Networks(Architecture.from_json(header["architecture"])).to(device)
    expected = networks.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors or name not in expected or tensors[name].shape != expected[name].shape[1:]:
            raise InputError(
                f"{path} does not fit its own architecture: tensor {name!r} is missing, unknown or misshapen."
            )
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise InputError(
                f"{path} holds numbers that are not finite (tensor {name!r}), so it can't be used; fetch it again or "
                "train it again with nogs train."
            )
    networks.load_state_dict({name: value[None] for name, value in tensors.items()})
    return networks, header["about"]


def architecture_of(path: Path) -> Architecture:
    """The architecture of a network's file; its weights are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} can't be read ({error}); train it again with nogs train.") from error
    return Architecture.from_json(_header(path, metadata)["architecture"])


def splits_mark(splits: Mapping[str, Sequence[str]]) -> str:
    """A digest of which images train, validate and test, kept with each network."""
    return fingerprint({split: list(splits[split]) for split in ("train", "validation", "test")})


def check_splits(about: Mapping[str, Any], splits: Mapping[str, Sequence[str]]) -> None:
    """Refuse a network that may have trained on images that `splits` tests on; of older files that is not known."""
    if about.get("splits", mark := splits_mark(splits)) != mark:
        name = "/".join(str(part) for part in (about["method"], about["attribute"], f"seed-{about['seed']}") if part)
        raise InputError(f"The network {name} {OTHER_SPLITS}")


def _header(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(metadata.get("nogs", "{}"))
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is not a hard-attention network of this version; train it again with nogs train.")
    return header


def _frozen(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The part of a network that pretraining fixes."""
    return {name: value for name, value in tensors.items() if name.startswith(("embed_parameters", "core_parameters"))}
