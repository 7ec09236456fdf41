"""Resumable training state: the tensors that training changes and its counters, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from nogs.runtime import progress
from nogs.runtime.errors import InputError
from nogs.runtime.headers import Header, described
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = ["begun", "read_counters", "read_state", "restore", "save_state", "state_of"]

FORMAT = "nogs training state 1"
Counters = TypeVar("Counters", bound=Header)


def save_state(path: Path, tensors: Mapping[str, Tensor], *, mark: str, counters: Header) -> None:
    """Write the state of the training that `mark` names."""
    metadata = {"format": FORMAT, "fingerprint": mark, "counters": counters.model_dump()}
    save_tensors(path, tensors, metadata)


def state_of(path: Path) -> str:
    """The mark of the training that a state belongs to."""
    return str(_checked(path, tensor_header(path)[0])["fingerprint"])


def begun(path: Path, *, mark: str) -> bool:
    """Whether `path` holds a state of the training `mark`; another training's state is ignored with a message."""
    if not path.exists():
        return False
    if state_of(path) != mark:
        progress.say(f"{path} is the state of another training; this one starts at iteration 0.")
        return False
    return True


def read_counters(path: Path, model: type[Counters]) -> Counters:
    """The counters of a state."""
    return _counters(path, tensor_header(path)[0], model)


def read_state(path: Path, model: type[Counters]) -> tuple[Counters, dict[str, Tensor]]:
    """The counters of a state, and its tensors."""
    tensors, said = load_tensors(path)
    return _counters(path, said, model), tensors


def restore(path: Path, into: Mapping[str, Tensor], tensors: Mapping[str, Tensor], *, name: str = "") -> None:
    """Overwrite tensors with those of the state in `path`, whose names there begin with `name`; all must match."""
    for key in sorted(into.keys() | tensors.keys()):
        if key not in into or key not in tensors or into[key].shape != tensors[key].shape:
            raise InputError(
                f"{path} does not fit its own training: tensor {name + key!r} is missing, unknown or misshapen; delete "
                "it, and the training starts again."
            )
    for key, value in into.items():
        value.copy_(tensors[key])


def _checked(path: Path, said: Mapping[str, Any]) -> Mapping[str, Any]:
    if said.get("format") != FORMAT or not isinstance(said.get("fingerprint"), str):
        raise InputError(
            f"{path} is not the state of a training of this version; delete it, and training starts again."
        )
    return said


def _counters(path: Path, said: Mapping[str, Any], model: type[Counters]) -> Counters:
    with described(path, "the state of a training of this version"):
        return model.model_validate(_checked(path, said).get("counters"))
