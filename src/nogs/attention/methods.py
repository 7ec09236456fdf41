"""The methods of the paper with their inputs: from names to the networks of a cohort. And the names of other methods.

| method | where to look is learned from | pretrained with |
|---|---|---|
| ram | rewards | uniform locations |
| ram+ | rewards | the heuristic |
| ps-nogs | rewards and near-optimal sequences | the heuristic |
| ps-hgs | rewards and hand-crafted sequences | the heuristic |
| ps-h1, ps-h5 | rewards and sequences of the heuristic, 1/gamma = 1 or 5 | the heuristic |

`ON_POSTERIOR` are the methods of `nogs.plus`, whose networks use a trained posterior as classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from nogs.attention.cohort import Member, check_attribute
from nogs.attention.config import AttentionConfig
from nogs.data.task import Task
from nogs.runtime.errors import InputError
from nogs.sequences import Sequences, load_for
from nogs.supervision import Heuristic, LocationDistribution, handcrafted, load_heuristic

__all__ = [
    "GIVEN",
    "METHODS",
    "ON_POSTERIOR",
    "Inputs",
    "Method",
    "check_methods",
    "make_members",
    "needs_heuristic",
    "of_heuristic",
]

Method = Literal["ram", "ram+", "ps-nogs", "ps-hgs", "ps-h1", "ps-h5", "ps-nogs+", "fixed", "centre-out", "random"]
METHODS: tuple[Method, ...] = get_args(Method)
GIVEN = ("fixed", "centre-out", "random")
"""Methods whose locations do not depend on the glimpses."""
ON_POSTERIOR = ("ps-nogs+", *GIVEN)
"""Methods whose classifier is the posterior."""

_TEMPERATURES = {"ps-h1": 1.0, "ps-h5": 5.0}


@dataclass(frozen=True)
class Inputs:
    """Paths of a method's inputs: near-optimal sequences, and the heuristic's map."""

    sequences: Path | None = None
    heuristic: Path | None = None


def needs_heuristic(method: str, config: AttentionConfig) -> bool:
    """Whether a method reads the heuristic's map, for supervision or for pretraining."""
    if method in ON_POSTERIOR:
        return False
    return method in _TEMPERATURES or (config.pretrain_epochs > 0 and method != "ram")


def make_members(
    task: Task,
    methods: Sequence[str],
    *,
    seeds: Sequence[int],
    attributes: Sequence[str | None] = (None,),
    config: AttentionConfig,
    glimpses: int,
    inputs: Inputs,
    weights: Sequence[float] = (),
    seed: int = 0,
) -> list[Member]:
    """A network for each attribute, method and seed; if an input is missing, the error says how to make it.

    A supervised method has one for each of the `weights` of supervision too, by default only the recipe's.
    All methods supervise the same images: those of the near-optimal sequences if these are given, else the task's
    images to annotate. `seed` is that of random sequences.
    """
    check_methods(methods, config=config, sequences=inputs.sequences is not None)
    heuristic = None
    if any(needs_heuristic(method, config) for method in methods):
        if inputs.heuristic is None:
            raise InputError(_without_heuristic(methods, config))
        heuristic = load_heuristic(inputs.heuristic, task=task)
    members = []
    for attribute in attributes:
        check_attribute(task, attribute)
        given = None
        if "ps-nogs" in methods:
            assert inputs.sequences is not None
            given = load_for(inputs.sequences, task=task, attribute=attribute, glimpses=glimpses)
        ids = task.splits.get("annotate", ()) if given is None else given.ids
        for method in methods:
            sequences = _sequences(method, task, attribute, ids, given, heuristic, glimpses=glimpses, seed=seed)
            pretraining = None
            if config.pretrain_epochs:
                pretraining = LocationDistribution.uniform(task.grid)
                if method != "ram":
                    assert heuristic is not None
                    pretraining = heuristic.distribution(task, attribute, inverse_temperature=1.0)
            own = config.supervision_weight
            members += [
                Member(
                    method,
                    seed=number,
                    attribute=attribute,
                    sequences=sequences,
                    weight=weight,
                    pretraining=pretraining,
                    variant="" if weight == own else f"weight-{weight:g}",
                )
                for weight in (weights if weights and sequences is not None else (own,))
                for number in seeds
            ]
    return members


def of_heuristic(
    kind: str,
    heuristic: Heuristic,
    task: Task,
    ids: Sequence[str],
    *,
    attribute: str | None,
    glimpses: int,
    seed: int,
) -> Sequences:
    """Supervision sequences of ps-h1 or ps-h5: T independent draws of Eq. 17 for each image."""
    temperature = _TEMPERATURES[kind]
    return heuristic.distribution(task, attribute, inverse_temperature=temperature).sequences(
        task,
        ids,
        glimpses=glimpses,
        seed=seed,
        attribute=attribute,
        provenance={
            "method": "heuristic glimpse sequences",
            "inverse_temperature": temperature,
            "seed": seed,
            "map": dict(heuristic.provenance),
        },
    )


def check_methods(methods: Sequence[str], *, config: AttentionConfig, sequences: bool) -> None:
    """Refuse methods that would not differ from others, or that lack their near-optimal `sequences`."""
    if "ram+" in methods and not config.pretrain_epochs:
        raise InputError(
            "The method ram+ differs from ram in its pretraining alone, and this recipe has none; choose ram, or set "
            "--attention.pretrain-epochs."
        )
    if "ps-nogs" in methods and not sequences:
        raise InputError(
            "The method ps-nogs needs glimpse sequences: give --sequences DIR, made by nogs annotate or nogs sequences "
            "import."
        )


def _without_heuristic(methods: Sequence[str], config: AttentionConfig) -> str:
    need = [method for method in methods if needs_heuristic(method, config)]
    rest = [method for method in methods if method not in need]
    who = f"The method {need[0]} needs" if len(need) == 1 else f"The methods {', '.join(need)} need"
    others = f" ({', '.join(rest)} can do without)" if rest else ""
    return (
        f"{who} the heuristic's map{others}: train a posterior with nogs posterior train, make the map with nogs "
        "sequences heuristic, and give --heuristic DIR."
    )


def _sequences(
    method: str,
    task: Task,
    attribute: str | None,
    ids: Sequence[str],
    given: Sequences | None,
    heuristic: Heuristic | None,
    *,
    glimpses: int,
    seed: int,
) -> Sequences | None:
    if not method.startswith("ps-"):
        return None
    if method == "ps-nogs":
        return given
    if not ids:
        raise InputError(f"Task {task.title!r} has no images to supervise for {method}; raise data.annotated.")
    if method == "ps-hgs":
        return handcrafted(task, ids, glimpses=glimpses, seed=seed)
    assert heuristic is not None
    return of_heuristic(method, heuristic, task, ids, attribute=attribute, glimpses=glimpses, seed=seed)
