"""Files of trained networks: one network's weights, and all that is needed to use them, in one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import ConfigDict, Field, TypeAdapter, model_validator
from torch import Tensor

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Glimpses, Header, Name, check_bounds, check_shapes, described
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

FORMAT = "nogs hard-attention network 1"
WHAT = "a hard-attention network of this version"
OTHER_SPLITS = (
    "was trained on other splits of this data than the run's data/splits.json has, so it may be tested on images that "
    "it was trained on; restore the data and splits.json of its training, or repeat the command of the run with "
    "another --out."
)


class _About(Header):
    """The description of a network; fields not listed here are only displayed."""

    model_config = ConfigDict(extra="allow")

    task: Name | None = None
    labels: list[Name] = Field(default_factory=list)
    method: Name | None = None
    attribute: Name | None = None
    seed: int | None = None
    splits: Name | None = None
    best: Name | None = None
    iteration: int | None = None
    validation: float | None = None
    test: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Check the fields that every use of a network needs; a pretrained trunk has no labels of its own."""
        missing = {"task", "method", "attribute", "seed"} - self.model_fields_set
        if self.labels and missing:
            raise ValueError(f"it does not name its {min(missing)}")
        return self


class _Header(Header):
    """The metadata of a network's file."""

    format: Literal["nogs hard-attention network 1"]
    architecture: dict[str, Any]
    about: _About
    trunk: Name | None = None


def save_network(
    path: Path,
    parameters: Mapping[str, Tensor],
    *,
    architecture: Architecture,
    about: Mapping[str, Any],
    trunk: str | None = None,
) -> None:
    """Write one network's parameters, without the leading axis, its architecture, and `about`: task, labels, scores.

    `trunk` is the path, relative to this file's folder, of the network whose frozen embedder, RNN and classifier are
    used here too; they are then left out of `parameters`.
    """
    header = {"format": FORMAT, "architecture": architecture.to_json(), "about": dict(about)}
    save_tensors(path, parameters, {**header, "trunk": trunk} if trunk else header)


def load_network(path: Path, *, device: str | torch.device = "cpu") -> tuple[Networks, dict[str, Any]]:
    """The network of a file (M = 1) and its description."""
    header, architecture, shapes = _read_header(path)
    below = None
    if header.trunk is not None:
        below = path.parent / header.trunk
        if not below.is_file():
            raise InputError(
                f"{path} needs the pretrained network {below}, which is not there; keep both in their run's folder."
            )
        shapes = {**_frozen(_read_header(below)[2]), **shapes}
    with described(path, WHAT):
        # a grid of its own, since tensors that a grid caches would be on the meta device too
        blank = replace(architecture, grid=replace(architecture.grid))
        check_shapes(path, lambda: Networks(blank), shapes, leading=1)
    tensors = load_tensors(path)[0]
    if below is not None:
        tensors = {**_frozen(load_tensors(below)[0]), **tensors}
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise InputError(
                f"{path} holds numbers that are not finite (tensor {name!r}), so it can't be used; fetch it again or "
                "train it again with nogs train."
            )
    networks = Networks(architecture).to(device)
    networks.load_state_dict({name: value[None] for name, value in tensors.items()})
    return networks, header.about.model_dump(exclude_unset=True)


def about_network(path: Path) -> dict[str, Any]:
    """The description in a network's file; its weights are not read."""
    return _read_header(path)[0].about.model_dump(exclude_unset=True)


def splits_mark(splits: Mapping[str, Sequence[str]]) -> str:
    """A digest of which images train, validate and test, kept with each network."""
    return fingerprint({split: list(splits[split]) for split in ("train", "validation", "test")})


def check_splits(about: Mapping[str, Any], splits: Mapping[str, Sequence[str]]) -> None:
    """Refuse a network that may have trained on images that `splits` tests on; older files don't record this."""
    if about.get("splits", mark := splits_mark(splits)) != mark:
        name = "/".join(str(part) for part in (about["method"], about["attribute"], f"seed-{about['seed']}") if part)
        raise InputError(f"The network {name} {OTHER_SPLITS}")


def _read_header(path: Path) -> tuple[_Header, Architecture, dict[str, tuple[int, ...]]]:
    """The header of a network's file, its architecture and its tensors' shapes; nothing is built from them."""
    said, shapes = tensor_header(path)
    if said.get("format") != FORMAT:
        raise InputError(f"{path} is not a hard-attention network of this version; train it again with nogs train.")
    with described(path, WHAT):
        header = _Header.model_validate(said)
        values = header.architecture
        check_bounds(values, tensors=len(shapes))
        unknown = values.keys() - {field.name for field in fields(Architecture)}
        if unknown:
            raise InputError(f"its architecture has the unknown field {min(unknown)!r}")
        TypeAdapter(Glimpses).validate_python(values["glimpses"])
        grid = Grid.from_json(values["grid"])
        architecture = TypeAdapter(Architecture).validate_python({**values, "grid": grid})
        if header.about.labels and len(header.about.labels) != architecture.labels:
            raise InputError(f"it names {len(header.about.labels)} labels of {architecture.labels}")
    return header, architecture, shapes


def _frozen(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a network that pretraining fixes."""
    return {name: value for name, value in tensors.items() if name.startswith(("embed_parameters", "core_parameters"))}
