"""A posterior in one safetensors file: weights, calibration, architecture, and a description.

All networks of a cross-fitted posterior are in one file, with their tensors under "0.", "1." and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.posterior.crossfit import CrossFitted
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.rounding import packed_shapes, restored, rounded
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Glimpses, Header, Name, Size, check_bounds, check_shapes, described
from nogs.runtime.spelling import instead
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

FORMAT = "nogs posterior 1"
_TEMPERATURE = "calibration.inverse_temperature"
LOOKS = "looks."
"""Prefix of the tensors of a policy: a posterior with these is a network of `nogs.plus`."""
_KNOWN_IDS = ("celeba-hq", "cub")  # datasets that number their images


class _Row(Header):
    """A line of a table of scores."""

    glimpses: Glimpses | Literal[0]
    accuracy: float
    cross_entropy: float
    entropy: float
    calibration_error: float


class _About(Header):
    """How a posterior was made, and its scores; other fields are only shown to people."""

    model_config = ConfigDict(extra="allow")

    task_fingerprint: Name | None = None
    started_from: list[Name] = Field(default_factory=list)
    tables: dict[str, list[_Row]] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)


class _Head(Header):
    kind: Literal["categorical", "bernoulli"]
    names: list[Name] = Field(min_length=1)
    attributes: Size


class _Architecture(Header):
    config: dict[str, Any]
    grid: dict[str, Any]
    glimpses: Glimpses
    head: _Head


class _Header(Header):
    """The metadata of a posterior's file."""

    format: Literal["nogs posterior 1"]
    task: Name
    architecture: _Architecture
    images: Name
    folds: int | None = Field(None, ge=2, le=1000)
    looks: dict[str, Any] | None = None
    about: _About


def save_posterior(
    path: Path,
    posterior: NetworkPosterior | CrossFitted,
    *,
    task: Task,
    about: Mapping[str, Any] | None = None,
    bits: int | None = None,
    looks: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None,
) -> None:
    """Write a posterior; `about` says how it was made, and its scores.

    `bits` is the number per weight: 16 (float16), or 4 to 8; by default weights stay float32. `looks`, tensors and
    their description, make it a network of `nogs.plus`.
    """
    members = {"": posterior} if isinstance(posterior, NetworkPosterior) else _numbered(posterior)
    tensors = {
        prefix + name: value
        for prefix, one in members.items()
        for name, value in {**one.network.state_dict(), _TEMPERATURE: one.inverse_temperature}.items()
    }
    if bits is not None:
        tensors = smaller(tensors, bits)
    if looks is not None:
        tensors.update({LOOKS + name: value for name, value in looks[0].items()})
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "task": task.name,
        "architecture": posterior.architecture.to_json(),
        "images": training_mark(task),
        "about": dict(about or {}),
    }
    if isinstance(posterior, CrossFitted):
        metadata["folds"] = len(posterior.members)
    if looks is not None:
        metadata["looks"] = dict(looks[1])
    save_tensors(path, {name: value.cpu() for name, value in tensors.items()}, metadata)


def smaller(tensors: Mapping[str, Tensor], bits: int = 16) -> dict[str, Tensor]:
    """Weights in fewer bits, by default in float16; the calibration is unchanged."""
    return rounded(tensors, bits, keep="inverse_temperature")


def load_posterior(
    name_or_path: str | Path,
    *,
    task: Task | None = None,
    device: str | torch.device = "cpu",
    precision: str = "auto",
    chunk: int | None = None,
    compiled: bool = False,
) -> NetworkPosterior | CrossFitted:
    """The posterior of a file, or a published one by its name; one that does not fit `task` is refused."""
    path = find_posterior(name_or_path)
    header, shapes = read_header(path)
    with described(path, "a posterior of this version"):
        architecture = Architecture.from_json(header.architecture.model_dump())
    if task is not None:
        _check(path, header.task, architecture, task)
    _check_shapes(path, architecture, shapes, folds=header.folds)
    tensors = {name: value for name, value in load_tensors(path)[0].items() if not name.startswith(LOOKS)}
    for name, value in tensors.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(
                f"{path} holds numbers that are not finite (tensor {name!r}), so it can't be used; fetch it again or "
                "train it again with nogs posterior train."
            )

    def member(prefix: str) -> NetworkPosterior:
        found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        inverse_temperature = found.pop(_TEMPERATURE)
        network = architecture.build()
        own = network.state_dict()
        with described(path, "a posterior of this version"):
            found = restored(found, {name: value.shape for name, value in own.items()})
        network.load_state_dict({name: found[name].to(value.dtype) for name, value in own.items()})
        return NetworkPosterior(
            network.to(device).eval(),
            architecture,
            inverse_temperature=inverse_temperature.float(),
            precision=precision,
            chunk=chunk,
            compiled=compiled,
        )

    if header.folds is None:
        return member("")
    return CrossFitted([member(f"{fold}.") for fold in range(header.folds)], splits=header.about.task_fingerprint)


def about_posterior(name_or_path: str | Path) -> dict[str, Any]:
    """The description in a posterior's file: how it was trained, on what, and its scores."""
    return read_header(find_posterior(name_or_path))[0].about.model_dump(exclude_unset=True)


def identity(name_or_path: str | Path) -> str:
    """Identifies a posterior by its calibration and its weights in float16, so that a float16 copy is the same."""
    tensors, _ = load_tensors(find_posterior(name_or_path))
    return fingerprint("posterior", smaller({n: v for n, v in tensors.items() if not n.startswith(LOOKS)}))


def training_mark(task: Task) -> str:
    """Identifies the images that train a posterior, by their ids if all copies of the dataset share those."""
    return fingerprint("images", task.splits["posterior"]) if task.name in _KNOWN_IDS else task.fingerprint


def trained_elsewhere(name_or_path: str | Path, task: Task) -> list[str]:
    """Fingerprints of other tasks that a posterior, or the one it started from, was trained on.

    Another copy of a dataset with the same training images does not count as another task.
    """
    header, _ = read_header(find_posterior(name_or_path))
    own = header.about.task_fingerprint
    here = {None, task.fingerprint} | ({own} if header.images == training_mark(task) else set())
    return [mark for mark in (own, *header.about.started_from) if mark is not None and mark not in here]


def misfit(name: str, task: Task, *, glimpses: int) -> str | None:
    """Why a published posterior can't be used for a task, in a few words; None if it can."""
    known = load_posterior(name)
    if known.space != task.space:
        return f"it predicts {_labels(known.space)}, but the task {task.title!r} has {_labels(task.space)}"
    if known.grid != task.grid:
        return f"it is for {_describe(known.grid)}, but the task {task.title!r} has {_describe(task.grid)}"
    if known.glimpses < glimpses:
        return f"it was trained for up to {known.glimpses} glimpses, not {glimpses}"
    return "it was trained on other images" if trained_elsewhere(name, task) else None


def find_posterior(name_or_path: str | Path) -> Path:
    """The file that a path, or the name of a published posterior, stands for."""
    path = Path(name_or_path)
    if path.suffix == ".safetensors":
        return path
    files = published()
    if str(name_or_path) not in files:
        listed = f"published are {', '.join(files)}" if files else "none is published with this version"
        meant = instead(str(name_or_path), files, otherwise=f"{listed}; or give a .safetensors file.")
        raise InputError(f"There is no posterior {str(name_or_path)!r}; {meant}")
    return files[str(name_or_path)]


def published() -> dict[str, Path]:
    """The files that come with the package, by name."""
    folder = Path(__file__).parents[1] / "pretrained"
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def _numbered(posterior: CrossFitted) -> dict[str, NetworkPosterior]:
    return {f"{fold}.": one for fold, one in enumerate(posterior.members)}


def read_header(path: Path) -> tuple[_Header, dict[str, tuple[int, ...]]]:
    """The metadata of a posterior's file and the shapes of its tensors; no network is built."""
    said, shapes = tensor_header(path)
    if said.get("format") != FORMAT:
        raise InputError(f"{path} is not a posterior of this version; train it again with nogs posterior train.")
    with described(path, "a posterior of this version"):
        check_bounds(said.get("architecture"), tensors=len(shapes))
        return _Header.model_validate(said), shapes


def _check_shapes(
    path: Path, architecture: Architecture, shapes: Mapping[str, tuple[int, ...]], *, folds: int | None
) -> None:
    """Refuse a file whose tensors don't match the posterior that it describes."""
    shapes = {name: shape for name, shape in shapes.items() if not name.startswith(LOOKS)}
    prefixes = [""] if folds is None else [f"{fold}." for fold in range(folds)]
    stranger = next((name for name in shapes if not name.startswith(tuple(prefixes))), None)
    allowed = {(architecture.glimpses + 1, columns) for columns in (1, len(architecture.head.space.names))}
    for prefix in prefixes:
        found = {name.removeprefix(prefix): shape for name, shape in shapes.items() if name.startswith(prefix)}
        if found.pop(_TEMPERATURE, None) not in allowed:
            stranger = prefix + _TEMPERATURE
        # a copy of the grid, since its cached tensors would be without memory too
        blank = replace(architecture, grid=replace(architecture.grid))
        with described(path, "a posterior of this version"):
            check_shapes(path, blank.build, packed_shapes(found, blank.build), name=prefix)
    if stranger is not None:
        raise InputError(
            f"{path} does not fit its own architecture: tensor {stranger!r} is missing, unknown or misshapen."
        )


def _check(path: Path, task_name: str, architecture: Architecture, task: Task) -> None:
    if task_name != task.name or architecture.head.space != task.space:
        raise InputError(
            f"{path} is a posterior of the task {task_name!r} with {_labels(architecture.head.space)}, not of "
            f"{task.title!r} with {_labels(task.space)}; give one that was trained on it."
        )
    if architecture.grid != task.grid:
        raise InputError(
            f"{path} was trained for {_describe(architecture.grid)}, but the task {task.title!r} has "
            f"{_describe(task.grid)}; train one for it with nogs posterior train."
        )


def _labels(space: Any) -> str:
    return f"{len(space.names)} {'classes' if space.kind == 'categorical' else 'attributes'}"


def _describe(grid: Grid) -> str:
    rows, columns = grid.shape
    return f"{rows} x {columns} locations of {grid.glimpse} px glimpses on {grid.height} x {grid.width} px"
