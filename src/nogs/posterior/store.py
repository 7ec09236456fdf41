"""A posterior in one safetensors file: weights, calibration, architecture, and what is known about it.

Of a cross-fitted posterior all networks lie in one file, their tensors under "0.", "1." and so on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.posterior.crossfit import CrossFitted
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import fingerprint

FORMAT = "nogs posterior 1"
_TEMPERATURE = "calibration.inverse_temperature"
_KNOWN_IDS = ("celeba-hq", "cub")  # datasets that number their images


def save_posterior(
    path: Path,
    posterior: NetworkPosterior | CrossFitted,
    *,
    task: Task,
    about: Mapping[str, Any] | None = None,
    half: bool = False,
) -> None:
    """Write a posterior; `about` says how it was made and what it scores. `half` stores weights as float16."""
    members = {"": posterior} if isinstance(posterior, NetworkPosterior) else _numbered(posterior)
    tensors = {
        prefix + name: value
        for prefix, one in members.items()
        for name, value in {**one.network.state_dict(), _TEMPERATURE: one.inverse_temperature}.items()
    }
    if half:
        tensors = halved(tensors)
    metadata = {
        "format": FORMAT,
        "task": task.name,
        "architecture": json.dumps(posterior.architecture.to_json()),
        "images": training_mark(task),
        "about": json.dumps(dict(about or {})),
    }
    if isinstance(posterior, CrossFitted):
        metadata["folds"] = str(len(posterior.members))
    save_tensors(path, {name: value.cpu() for name, value in tensors.items()}, metadata)


def halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in float16; the calibration, a few numbers, stays as it is."""
    return {
        name: value.half() if value.is_floating_point() and not name.endswith(_TEMPERATURE) else value
        for name, value in tensors.items()
    }


def load_posterior(
    name_or_path: str | Path,
    *,
    task: Task | None = None,
    device: str | torch.device = "cpu",
    precision: str = "auto",
    chunk: int | None = None,
    compiled: bool = False,
) -> NetworkPosterior | CrossFitted:
    """The posterior of a file, or a published one by its name; one of another task or grid than `task` is refused."""
    path = find_posterior(name_or_path)
    tensors, metadata = load_tensors(path)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not a posterior of this version; train it again with nogs posterior train.")
    architecture = Architecture.from_json(json.loads(metadata["architecture"]))
    if task is not None:
        _check(path, metadata["task"], architecture, task)

    def member(prefix: str) -> NetworkPosterior:
        found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        inverse_temperature = found.pop(_TEMPERATURE, None)
        network = architecture.build()
        _fill(network, found, path=path, prefix=prefix)
        return NetworkPosterior(
            network.to(device).eval(),
            architecture,
            inverse_temperature=inverse_temperature,
            precision=precision,
            chunk=chunk,
            compiled=compiled,
        )

    if "folds" not in metadata:
        return member("")
    members = [member(f"{fold}.") for fold in range(int(metadata["folds"]))]
    return CrossFitted(members, splits=json.loads(metadata["about"]).get("task_fingerprint"))


def about_posterior(name_or_path: str | Path) -> dict[str, Any]:
    """What a posterior's file says about itself: how it was trained, on what, and its scores."""
    _, metadata = load_tensors(find_posterior(name_or_path))
    found: dict[str, Any] = json.loads(metadata.get("about", "{}"))
    return found


def identity(name_or_path: str | Path) -> str:
    """Names a posterior by its calibration and its weights as float16: the same for a published copy of it."""
    tensors, _ = load_tensors(find_posterior(name_or_path))
    return fingerprint("posterior", halved(tensors))


def training_mark(task: Task) -> str:
    """Names the images that train a posterior: by their ids, where all copies of a dataset share those."""
    return fingerprint("images", task.splits["posterior"]) if task.name in _KNOWN_IDS else task.fingerprint


def trained_elsewhere(name_or_path: str | Path, task: Task) -> list[str]:
    """Fingerprints of other tasks that a posterior, or the one it started from, was trained on.

    Another copy of a dataset, of which it learned from the same images, is no other task.
    """
    _, metadata = load_tensors(find_posterior(name_or_path))
    about = json.loads(metadata.get("about", "{}"))
    own = about.get("task_fingerprint")
    here = {None, task.fingerprint} | ({own} if metadata.get("images") == training_mark(task) else set())
    return [mark for mark in (own, *about.get("started_from", ())) if mark not in here]


def misfit(name: str, task: Task, *, glimpses: int) -> str | None:
    """Why a published posterior can't be used for a task, in a few words; None if it can. No such name is refused."""
    known = load_posterior(name)
    if known.space != task.space:
        return f"it knows {_labels(known.space)}, but the task {task.name!r} has {_labels(task.space)}"
    if known.grid != task.grid:
        return f"it is for {_describe(known.grid)}, but the task {task.name!r} has {_describe(task.grid)}"
    if known.glimpses < glimpses:
        return f"it was trained for up to {known.glimpses} glimpses, not {glimpses}"
    return "it was trained on other images" if trained_elsewhere(name, task) else None


def find_posterior(name_or_path: str | Path) -> Path:
    """The file that a path, or the name of a published posterior, stands for."""
    path = Path(name_or_path)
    if path.suffix == ".safetensors":
        return path
    published = Path(__file__).parents[1] / "pretrained"
    file = published / f"{name_or_path}.safetensors"
    if not file.is_file():
        names = sorted(found.stem for found in published.glob("*.safetensors"))
        listed = f"published are {', '.join(names)}" if names else "none is published with this version"
        raise InputError(f"There is no posterior {str(name_or_path)!r}: {listed}; or give a .safetensors file.")
    return file


def _numbered(posterior: CrossFitted) -> dict[str, NetworkPosterior]:
    return {f"{fold}.": one for fold, one in enumerate(posterior.members)}


def _fill(network: torch.nn.Module, tensors: Mapping[str, Tensor], *, path: Path, prefix: str) -> None:
    expected = network.state_dict()
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors or name not in expected or tensors[name].shape != expected[name].shape:
            raise InputError(
                f"{path} does not fit its own architecture: tensor {prefix + name!r} is missing, unknown or misshapen."
            )
    network.load_state_dict({name: value.to(expected[name].dtype) for name, value in tensors.items()})


def _check(path: Path, task_name: str, architecture: Architecture, task: Task) -> None:
    if task_name != task.name or architecture.head.space != task.space:
        raise InputError(
            f"{path} is a posterior of the task {task_name!r} with {_labels(architecture.head.space)}, not of "
            f"{task.name!r} with {_labels(task.space)}; give one that was trained on it."
        )
    if architecture.grid != task.grid:
        raise InputError(
            f"{path} was trained for {_describe(architecture.grid)}, but the task {task.name!r} has "
            f"{_describe(task.grid)}; train one for it with nogs posterior train."
        )


def _labels(space: Any) -> str:
    return f"{len(space.names)} {'classes' if space.kind == 'categorical' else 'attributes'}"


def _describe(grid: Grid) -> str:
    rows, columns = grid.shape
    return f"{rows} x {columns} locations of {grid.glimpse} px glimpses on {grid.height} x {grid.width} px"
