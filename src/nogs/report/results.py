"""`Result`: the accuracy of each method on the test images; the list that verdict, page and figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nogs.report.contents import Network, Run

__all__ = [
    "NAMES",
    "RANDOM",
    "WHOLE",
    "Result",
    "best_network",
    "best_result",
    "percent_of_pixels",
    "quoted_table",
    "rank",
    "results",
    "title",
    "titles",
]

RANDOM, WHOLE = "random", "whole image"
NAMES = {
    "ps-nogs+": "PS-NOGS+",
    "ps-nogs": "PS-NOGS",
    "ps-hgs": "PS-HGS",
    "ps-h1": "PS-H1",
    "ps-h5": "PS-H5",
    "ram+": "RAM+",
    "ram": "RAM",
    RANDOM: "random locations",
    "centre-out": "centre-out",
    "fixed": "one fixed order",
    WHOLE: "the whole image",
}
"""Methods in the order in which they are listed, and their names in sentences."""
PLAIN = (RANDOM, "centre-out", WHOLE)
"""References, which are not recommended if there is another method."""


@dataclass(frozen=True)
class Result:
    """One method, over its networks: mean accuracy on the test images, and on the validation images, which choose it.

    `pixels` is the share of an image that it sees.
    """

    method: str
    accuracy: float
    validation: float | None = None
    pixels: float | None = None
    networks: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in ("method", "accuracy", "validation", "pixels", "networks")}


def results(run: Run) -> list[Result]:
    """Every method that the run has a score of: its networks, the posterior's random locations, whole images."""
    by_method: dict[str, list[Network]] = {}
    for network in run.networks:
        by_method.setdefault(network.learned.method, []).append(network)
    out = [_of_networks(method, own) for method, own in by_method.items()]
    wholes = [network.learned.whole for network in run.networks if network.learned.whole is not None]
    if wholes and WHOLE not in by_method:
        out.append(Result(WHOLE, float(np.mean(wholes)), pixels=1.0))
    if RANDOM not in by_method and (known := _at_random(run)) is not None:
        out.append(known)
    return sorted((one for one in out if np.isfinite(one.accuracy)), key=lambda one: rank(one.method))


def best_result(rows: Sequence[Result]) -> Result | None:
    """The recommended method: the best on the validation images, the first of equals."""
    looking = [row for row in rows if row.networks]
    choice = [row for row in looking if row.method not in PLAIN] or looking
    return max(choice, key=lambda row: row.accuracy if row.validation is None else row.validation, default=None)


def best_network(run: Run, attribute: str | None = None) -> Network | None:
    """The best network of the recommended method; of several attributes, for the first."""
    attributes = [network.attribute for network in run.networks]
    wanted = attribute if attribute is not None or not attributes else attributes[0]
    own = [n for n in run.networks if n.attribute == wanted and n.validation is not None]
    best = best_result(results(run))
    taken = [network for network in own if best is not None and network.learned.method == best.method] or own
    return max(taken, key=lambda network: network.validation or 0.0, default=None)


def title(method: str) -> str:
    """The name of a method in sentences, followed by its weight of supervision."""
    base, _, rest = method.partition(", ")
    return NAMES.get(base, base) + (f" ({rest})" if rest else "")


def titles(curves: Mapping[str, Any]) -> dict[str, str]:
    """Names of the curves to draw: of equal ones only the first, with the names of all."""
    out: dict[str, str] = {}
    for method, curve in curves.items():
        same = next((other for other in out if curves[other] == curve), method)
        out[same] = f"{out[same]} = {title(method)}" if same in out else title(method)
    return out


def rank(method: str) -> int:
    """The place of a method in lists."""
    base = method.partition(", ")[0].partition(" (")[0]
    return list(NAMES).index(base) if base in NAMES else len(NAMES)


def percent_of_pixels(share: float) -> str:
    """A share with two digits: 21 %, 2.6 %."""
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"


def quoted_table(posterior: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The posterior's table to quote: calibrated, on test images, where there is one; else its last."""
    found = posterior.get("tables", {})
    return list(found.get("test, calibrated") or (list(found.values())[-1] if found else []))


def _of_networks(method: str, own: Sequence[Network]) -> Result:
    known = [network.validation for network in own if network.validation is not None]
    return Result(
        method,
        float(np.mean([network.learned.test["accuracy"] for network in own])),
        float(np.mean(known)) if known else None,
        float(np.mean([network.test["pixels_seen"] for network in own])),
        len(own),
    )


def _at_random(run: Run) -> Result | None:
    """The posterior at random locations; None with attributes, as its accuracy is then a mean over all of them."""
    table = (run.posterior or {}).get("tables", {}).get("test, calibrated", [])
    wanted = int(run.recipe.get("glimpses", 0))
    row = next((row for row in table if row["glimpses"] == wanted), None)
    if row is None or any(network.attribute for network in run.networks):
        return None
    return Result(RANDOM, float(row["accuracy"]))
