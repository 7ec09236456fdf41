"""Files of networks that stand on a posterior: the posterior's own file with tensors that say where to look.

`load_posterior` reads such a file too, without these. A task with attributes has one file for all of them; in a run,
each attribute's folder then holds a file without tensors that names it. Networks of the paper are read here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from nogs.attention import store as paper
from nogs.attention.looking import Looking
from nogs.data.task import Task
from nogs.plus.looks import Looks
from nogs.plus.network import TokenNetwork
from nogs.plus.packing import unpacked
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.store import LOOKS, find_posterior, load_posterior, read_header, save_posterior
from nogs.posterior.tokens import GlimpseTokens
from nogs.runtime.errors import InputError
from nogs.runtime.headers import Header, Name, Size, described
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = ["about_network", "attributes_of", "load_network", "save_network", "save_view", "seen", "token_posterior"]

VIEW = "nogs view of a network 1"
WHAT = "a network of this version"
_TEMPERATURE = "inverse_temperature"


class _Looks(Header):
    """What a file says about where its network looks; `about` has a line for each attribute, "" where there is none."""

    glimpses: int = Field(ge=1, le=1_000)
    variables: list[Size] = Field(min_length=1)
    learned: bool
    sampled: bool
    about: dict[Name, dict[str, Any]]


class _View(Header):
    """What a view says."""

    format: Literal["nogs view of a network 1"]
    network: Name
    attribute: Name


def save_network(
    path: Path,
    network: TokenNetwork,
    posterior: NetworkPosterior,
    *,
    task: Task,
    about: Mapping[str, Mapping[str, Any]],
    trained: Mapping[str, Any],
) -> None:
    """Write a network; `about` has its task, labels and scores for each attribute ("": none), `trained` is the
    posterior's own."""
    looks = network.looks
    tensors: dict[str, Tensor] = {**looks.state_dict(), _TEMPERATURE: network.inverse_temperature.data}
    said = {
        "glimpses": network.architecture.glimpses,
        "variables": list(network.variables),
        "learned": looks.head is not None,
        "sampled": looks.sampled,
        "about": {name: dict(value) for name, value in about.items()},
    }
    core = NetworkPosterior(network.core, posterior.architecture, inverse_temperature=posterior.inverse_temperature)
    save_posterior(path, core, task=task, about=trained, looks=(tensors, said))


def save_view(path: Path, network: str, *, attribute: str) -> None:
    """Write which attribute of the network at `network`, a path seen from this file's folder, is meant."""
    save_tensors(path, {}, {"format": VIEW, "network": network, "attribute": attribute})


def load_network(
    path: str | Path, *, attribute: str | None = None, device: str | torch.device = "cpu"
) -> tuple[Looking, dict[str, Any]]:
    """The network of a file, and what the file says about it; `attribute` chooses where it has several."""
    path = find_posterior(path)
    kind = tensor_header(path)[0].get("format")
    if kind == paper.FORMAT:
        return paper.load_network(path, device=device)
    path, attribute = seen(path, attribute)
    header = _read_looks(path)
    names = list(header.about)
    name = _one(path, names, attribute)
    posterior = load_posterior(path, device=device)
    core = _core(path, posterior)
    tensors = {key.removeprefix(LOOKS): value for key, value in load_tensors(path)[0].items() if key.startswith(LOOKS)}
    temperatures = tensors.pop(_TEMPERATURE, None)
    locations, number = len(posterior.grid), len(header.variables)
    table = torch.zeros(number, header.glimpses, locations)
    with described(path, WHAT):
        if len(names) != number or max(header.variables) >= posterior.architecture.head.variables:
            raise InputError(f"it has {number} ways to look for {len(names)} labels")
        with torch.device("meta"):
            blank = Looks(core, table.to("meta"), learned=header.learned)
        tensors = unpacked(tensors, blank)
        if temperatures is None or temperatures.shape != (header.glimpses + 1, number):
            raise InputError("its temperatures are missing or misshapen")
        if not all(torch.isfinite(value).all() for value in (*tensors.values(), temperatures)):
            raise InputError("it holds numbers that are not finite")
    looks = Looks(core, table.to(device), learned=header.learned, sampled=header.sampled).to(device)
    looks.load_state_dict(tensors)
    network = TokenNetwork(
        core, posterior.architecture, looks, variables=header.variables, inverse_temperature=temperatures.to(device)
    ).to(device)
    network.attribute = names.index(name)
    return network.eval(), dict(header.about[name])


def about_network(path: str | Path, *, attribute: str | None = None) -> dict[str, Any]:
    """What a network's file says about it; its weights are not read."""
    path = find_posterior(path)
    if tensor_header(path)[0].get("format") == paper.FORMAT:
        return paper.about_network(path)
    path, attribute = seen(path, attribute)
    about = _read_looks(path).about
    return dict(about[_one(path, list(about), attribute)])


def attributes_of(path: str | Path) -> tuple[str, ...]:
    """The attributes of a file with several; none where it has one label."""
    path = find_posterior(path)
    said = tensor_header(path)[0]
    if said.get("format") in (paper.FORMAT, VIEW):
        return ()
    return tuple(name for name in _read_looks(path).about if name)


def seen(path: Path, attribute: str | None) -> tuple[Path, str | None]:
    """The file that a view names, and its attribute; any other file is seen as it is."""
    said, _ = tensor_header(path)
    if said.get("format") != VIEW:
        return path, attribute
    with described(path, WHAT):
        view = _View.model_validate(said)
    below = path.parent / view.network
    if not below.is_file():
        raise InputError(f"{path} stands on the network {below}, which is not there; keep both in their run's folder.")
    return below, view.attribute


def _one(path: Path, names: list[str], attribute: str | None) -> str:
    """The entry that is meant."""
    if len(names) == 1 and attribute in (None, names[0]):
        return names[0]
    if attribute is None:
        shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        raise InputError(f"{path} has networks for {len(names)} attributes; name one with --attribute: {shown}.")
    if attribute not in names:
        raise InputError(f"{path} has no network for {attribute!r}; choose {', '.join(filter(None, names))}.")
    return attribute


def _read_looks(path: Path) -> _Looks:
    header, _ = read_header(path)
    if header.looks is None:
        raise InputError(
            f"{path} is a posterior, which does not say where to look; make a network of it with nogs train --method "
            "fixed, or ps-nogs+."
        )
    with described(path, WHAT):
        return _Looks.model_validate(header.looks)


def _core(path: str | Path, posterior: Any) -> GlimpseTokens:
    """The network of a posterior that reads glimpses one by one."""
    core = getattr(posterior, "network", None)
    if not isinstance(core, GlimpseTokens):
        raise InputError(
            f"The posterior {path} is {'cross-fitted' if core is None else 'a CNN'}, which can't look glimpse by "
            "glimpse; give one of kind tokens without folds."
        )
    return core


def token_posterior(name_or_path: str, *, task: Task, device: torch.device, precision: str) -> NetworkPosterior:
    """A posterior that a network can stand on; any other is refused."""
    posterior = load_posterior(name_or_path, task=task, device=device, precision=precision)
    _core(name_or_path, posterior)
    assert isinstance(posterior, NetworkPosterior)
    return posterior
