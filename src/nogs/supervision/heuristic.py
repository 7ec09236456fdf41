"""The heuristic's map: expected posterior entropy of every location before any glimpse, stored with its provenance.

It is the first step of the design, which is the same for every image of a task. So `first.safetensors` of `nogs
annotate` can be used as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64, UInt8
from pydantic import ConfigDict, Field
from torch import Tensor

from nogs.completion.protocol import Completions
from nogs.data.task import Task
from nogs.design.blocks import FIRST_FORMAT
from nogs.design.entropies import objective
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_array
from nogs.runtime.headers import Header, Name, described
from nogs.runtime.tensors import load_tensors, save_tensors
from nogs.supervision.distribution import LocationDistribution

__all__ = ["FILE", "Heuristic", "ImagePrior", "load_heuristic", "save_heuristic"]

FILE = "heuristic.safetensors"
_FORMAT = "nogs heuristic 1"
_FILES = (FILE, "first.safetensors", f"heuristic/{FILE}", "sequences/first.safetensors")


class _About(Header):
    """The metadata of a map's file; the files of `nogs annotate` have others."""

    model_config = ConfigDict(extra="ignore")

    task: Name | None = None
    grid: dict[str, Any] | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Heuristic:
    """EPE in nats and its standard error for each of A label variables (the label, or each attribute) and location."""

    epe: Float64[np.ndarray, "A L"]
    error: Float64[np.ndarray, "A L"]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def of(self, task: Task, attribute: str | None) -> Float64[np.ndarray, " L"]:
        """The map for an attribute; for the whole label the sum over its variables."""
        variables = objective(task.space, None if attribute is None else task.attribute(attribute))
        return self.epe[list(variables)].sum(0)

    def distribution(self, task: Task, attribute: str | None, *, inverse_temperature: float) -> LocationDistribution:
        """Eq. 17 for an attribute, or for the whole label."""
        return LocationDistribution.heuristic(self.of(task, attribute), inverse_temperature=inverse_temperature)


def save_heuristic(heuristic: Heuristic, folder: Path, *, task: Task) -> Path:
    """Write the map into `folder`."""
    about = {"format": _FORMAT, "task": task.name, "grid": task.grid.to_json()}
    about["provenance"] = dict(heuristic.provenance)
    tensors = {"estimate": torch.from_numpy(heuristic.epe), "error": torch.from_numpy(heuristic.error)}
    save_tensors(folder / FILE, tensors, about)
    return folder / FILE


def load_heuristic(path: Path, *, task: Task) -> Heuristic:
    """The map of a file, or of a folder that holds one; also of `nogs annotate`, or an .npy of L or rows x columns."""
    file, about = path, _About()
    if path.is_dir():
        found = next((path / name for name in _FILES if (path / name).is_file()), None)
        if found is None:
            raise InputError(
                f"{path} holds no map of the heuristic ({FILE}); make one with nogs sequences heuristic --out {path}."
            )
        file = found
    if file.suffix == ".npy":
        epe = _numbers(load_array(file), file).reshape(1, -1)
        error = np.zeros_like(epe)
    else:
        tensors, said = load_tensors(file)
        if said.get("format") not in (_FORMAT, FIRST_FORMAT) or not {"estimate", "error"} <= tensors.keys():
            raise InputError(f"{file} is not a map of the heuristic; make one with nogs sequences heuristic.")
        with described(file, "a map of the heuristic"):
            about = _About.model_validate(said)
        epe, error = (tensors[name].double().numpy() for name in ("estimate", "error"))
    variables = len(objective(task.space, None))
    shape = (variables, len(task.grid))
    if (about.task or task.name) != task.name or epe.shape != shape or error.shape != shape:
        found_shape = " x ".join(map(str, epe.shape))
        raise InputError(
            f"{file} is a map of {found_shape} labels and locations of the task {about.task or 'of another recipe'!r}, "
            f"but {task.title!r} has {variables} x {len(task.grid)}; make one for it with nogs sequences heuristic."
        )
    if about.grid is not None and about.grid != task.grid.to_json():
        raise InputError(f"{file} is a map for another grid than task {task.title!r} has; make one for it.")
    if not np.isfinite(epe).all():
        raise InputError(f"{file} has no value for some locations; make a whole map with nogs sequences heuristic.")
    return Heuristic(epe, error, about.provenance)


def _numbers(array: np.ndarray, path: Path) -> Float64[np.ndarray, ...]:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{path} holds {array.dtype}, not numbers; make a map with nogs sequences heuristic.")
    return np.asarray(array, dtype=np.float64)


class ImagePrior:
    """Draws from p(image) without a bank: some of the task's own images, each as likely as any other.

    Before any glimpse, completions are draws from the prior, and so are held-out images.
    """

    def __init__(self, images: UInt8[Tensor, "N H W 3"], *, fingerprint: str) -> None:
        self.images, self._fingerprint = images, fingerprint

    @property
    def fingerprint(self) -> str:
        """Changes with the images."""
        return self._fingerprint

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """All of the prior's images; after a glimpse they would not be completions, so this is refused."""
        if pixels.shape[1]:
            raise ValueError("Draws from the prior can't complete glimpses.")
        number, device = len(self.images), self.images.device
        shape, unknown = (len(images), number), torch.full((len(images),), torch.nan, device=device)
        return Completions(
            pool=self.images,
            index=torch.arange(number, device=device).expand(shape),
            flipped=torch.zeros(shape, dtype=torch.bool, device=device),
            weights=torch.full(shape, 1 / number, device=device),
            rows=torch.full(shape, -1, device=device),
            effective=torch.full((len(images),), float(number), device=device),
            proposed=unknown,
            temperature=unknown,
        )
