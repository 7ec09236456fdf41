"""Files of networks on a posterior: the posterior's own file, with additional tensors for where to look.

`load_posterior` reads such a file too, without these tensors. A task with attributes has one file for all of them. In a
run, each attribute's folder then holds a file without tensors that names it. Networks of the paper are read here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from nogs.posterior.store import LOOKS, find_posterior, load_posterior, published, read_header, save_posterior
from nogs.posterior.tokens import GlimpseTokens
from nogs.runtime.errors import InputError
from nogs.runtime.headers import Header, Name, Size, described
from nogs.runtime.spelling import instead
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = [
    "about_network",
    "attributes_of",
    "chosen",
    "load_attributes",
    "load_network",
    "save_network",
    "save_view",
    "seen",
    "token_posterior",
]

VIEW = "nogs view of a network 1"
WHAT = "a network of this version"
_TEMPERATURE = "inverse_temperature"


class _Looks(Header):
    """The metadata of where a network looks; `about` has an entry for each attribute, "" where there is none. One
    policy is `shared` by all attributes, or each has its own."""

    glimpses: int = Field(ge=1, le=1_000)
    variables: list[Size] = Field(min_length=1)
    learned: bool
    sampled: bool
    shared: bool = False
    about: dict[Name, dict[str, Any]]


class _View(Header):
    """The metadata of a view."""

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
        "shared": looks.shared and len(about) > 1,
        "about": {name: dict(value) for name, value in about.items()},
    }
    core = NetworkPosterior(network.core, posterior.architecture, inverse_temperature=posterior.inverse_temperature)
    save_posterior(path, core, task=task, about=trained, looks=(tensors, said))


def save_view(path: Path, network: str, *, attribute: str) -> None:
    """Write a view of one attribute of the network at `network`, a path relative to this file's folder."""
    save_tensors(path, {}, {"format": VIEW, "network": network, "attribute": attribute})


def load_network(
    path: str | Path, *, attribute: str | None = None, device: str | torch.device = "cpu"
) -> tuple[Looking, dict[str, Any]]:
    """The network of a file and its description; `attribute` selects one of several."""
    path, attribute = seen(find_posterior(path), attribute)
    network, about = load_attributes(path, device=device)
    name = _one(path, list(about), attribute)
    if isinstance(network, TokenNetwork):
        network.attribute = list(about).index(name)
    return network, about[name]


def load_attributes(
    path: str | Path, *, device: str | torch.device = "cpu"
) -> tuple[Looking, dict[str, dict[str, Any]]]:
    """The network of a file, and the description of each of its attributes; "" where there is none."""
    path = find_posterior(path)
    if tensor_header(path)[0].get("format") == paper.FORMAT:
        network_of_paper, about = paper.load_network(path, device=device)
        return network_of_paper, {about.get("attribute") or "": about}
    header = _read_looks(path)
    posterior = load_posterior(path, device=device)
    core = _core(path, posterior)
    tensors = {key.removeprefix(LOOKS): value for key, value in load_tensors(path)[0].items() if key.startswith(LOOKS)}
    temperatures = tensors.pop(_TEMPERATURE, None)
    locations, number = len(posterior.grid), len(header.variables)
    table = torch.zeros(1 if header.shared else number, header.glimpses, locations)
    with described(path, WHAT):
        if len(header.about) != number or max(header.variables) >= posterior.architecture.head.variables:
            raise InputError(f"it has {number} label variables for {len(header.about)} labels")
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
    return network.eval(), {name: dict(about) for name, about in header.about.items()}


def about_network(path: str | Path, *, attribute: str | None = None) -> dict[str, Any]:
    """The description in a network's file; its weights are not read."""
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
    """The file that a view names, and its attribute; any other file is returned as it is."""
    said, _ = tensor_header(path)
    if said.get("format") != VIEW:
        return path, attribute
    with described(path, WHAT):
        view = _View.model_validate(said)
    below = path.parent / view.network
    if not below.is_file():
        raise InputError(f"{path} needs the network {below}, which is not there; keep both in their run's folder.")
    return below, _one(path, [view.attribute], attribute)


def chosen(source: object, names: Sequence[str], attribute: str | None) -> str:
    """The selected attribute of `source`, which has networks for `names`; they are [""] where it has one label."""
    if attribute in names or (attribute is None and len(names) == 1):
        return attribute or names[0]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if attribute is None:
        raise InputError(
            f"{source} has networks for {len(names)} attributes; name one with --attribute or `attribute`: {shown}."
        )
    if not any(names):
        raise InputError(f"{source} is for one label, not for attributes; leave {attribute!r} out.")
    raise InputError(
        f"{source} has no network for {attribute!r}; {instead(attribute, names, otherwise=f'choose {shown}.')}"
    )


def _one(path: Path, names: Sequence[str], attribute: str | None) -> str:
    """The selected attribute of a file, which an error names as its user does."""
    name = next((name for name, file in published().items() if file == path), None)
    return chosen(name or path, names, attribute)


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
    """A posterior that a network can use; any other is refused."""
    posterior = load_posterior(name_or_path, task=task, device=device, precision=precision)
    _core(name_or_path, posterior)
    assert isinstance(posterior, NetworkPosterior)
    return posterior
