"""Methods side by side in reports: their order, their networks over several runs, and which of many are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from nogs.attention.comparison import Learned, compare
from nogs.report.contents import Network, Run
from nogs.report.results import rank
from nogs.runtime.errors import InputError

__all__ = ["chosen_networks", "compared", "learned_in", "ordered", "reference_of"]

Value = TypeVar("Value")


def learned_in(runs: Sequence[Run]) -> list[Learned]:
    """The networks of some runs, in order; equal ones of two runs get the run's name."""
    places: dict[tuple[str, str | None, int], int] = {}
    for run in runs:
        for network in run.networks:
            key = (network.learned.method, network.attribute, network.learned.seed)
            places[key] = places.get(key, 0) + 1
    twice = {key[0] for key, count in places.items() if count > 1}
    out = [
        replace(n.learned, method=f"{n.learned.method} ({run.name})") if n.learned.method in twice else n.learned
        for run in runs
        for n in run.networks
    ]
    return sorted(out, key=lambda network: rank(network.method))


def compared(networks: Sequence[Learned], *, alike: bool = False) -> Mapping[str, Any] | None:
    """The methods side by side, or None if they were trained for different numbers of iterations.

    With `alike`, networks that were trained longer or shorter than the reference are left out. Those with a posterior
    as classifier stay: they have scores, and their iterations are not compared.
    """
    if alike:
        reference = next(n for n in networks if n.method == reference_of(networks))
        networks = [n for n in networks if n.rule is None or n.iterations[-1] == reference.iterations[-1]]
    try:
        return compare(networks, reference=reference_of(networks))
    except InputError:
        return None


def reference_of(networks: Sequence[Learned]) -> str:
    """RAM (or RAM+), else the first method, if possible one without a posterior as classifier."""
    methods = [network.method for network in sorted(networks, key=lambda network: network.rule is None)]
    return next((method for method in methods if method.startswith("ram")), methods[0])


def chosen_networks(run: Run, *, most: int) -> list[Network]:
    """One network, of the least seed, for each method and task: as many whole tasks as `most` allows, at least one."""
    by_task: dict[str | None, dict[str, Network]] = {}
    for network in sorted(run.networks, key=lambda network: network.learned.seed):
        by_task.setdefault(network.attribute, {}).setdefault(network.learned.method, network)
    out: list[Network] = []
    for methods in by_task.values():
        if out and len(out) + len(methods) > most:
            break
        out += sorted(methods.values(), key=lambda network: rank(network.method))
    return out


def ordered(by_method: Mapping[str, Value]) -> dict[str, Value]:
    """The same, in the order of `NAMES`."""
    return dict(sorted(by_method.items(), key=lambda item: rank(item[0])))
