"""`verdict`: what a run found, in a sentence or two; did the sequences help, and if not, what to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from nogs.attention.convergence import iterations_to_reach
from nogs.report.contents import Network, Run
from nogs.report.results import PLAIN, WHOLE, Result, percent_of_pixels, results, title

__all__ = ["Verdict", "verdict"]

_MANY_SEQUENCES = 1_000
_PLUS = "ps-nogs+"
_MANY_TESTS = 500


@dataclass(frozen=True)
class Verdict:
    """What was found (`sentence`), what to try where the sequences did not help (`advice`), when RAM was reached."""

    sentence: str
    advice: str
    races: tuple[dict[str, Any], ...]
    rows: tuple[Result, ...]
    best: str  # the method that a user should take

    @property
    def lines(self) -> list[str]:
        """All of it, a sentence or two a line."""
        return [line for line in (self.sentence, self.advice, *(race["sentence"] for race in self.races)) if line]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [row.to_json() for row in self.rows]
        said = {name: getattr(self, name) for name in ("sentence", "advice", "best")}
        return {**said, "races": list(self.races), "rows": rows}


def verdict(run: Run) -> Verdict | None:
    """What the networks of a run are worth, beside whatever else it has scores of; None without networks."""
    rows = results(run)
    looking = [row for row in rows if row.networks]
    if not looking:
        return None
    choice = [row for row in looking if row.method not in PLAIN] or looking
    best = max(choice, key=lambda row: row.accuracy if row.validation is None else row.validation)
    taught = [row for row in choice if row.method.startswith("ps-") and row.method != _PLUS]
    leader = max(taught, key=lambda row: row.accuracy, default=None)
    rivals = [row for row in rows if leader is not None and row not in taught and row.method != WHOLE]
    rivals = [row for row in rivals if row.method != _PLUS]
    others = [row for row in rows if row is not best]
    parts = [_kept(run), _chance(run, best, others) if leader is None else _advice(run, leader, rivals)]
    advice = " ".join(part for part in parts if part)
    return Verdict(_sentence(run, best, rows), advice, tuple(_races(run)), tuple(rows), best.method)


def _sentence(run: Run, best: Result, rows: Sequence[Result]) -> str:
    attributes = list(dict.fromkeys(network.attribute for network in run.networks if network.attribute))
    what = f"names {_hundred(best)} of 100 test pictures"
    if attributes:
        about = attributes[0].replace("_", " ") if len(attributes) == 1 else f"{len(attributes)} attributes"
        what = f"is right on {_hundred(best)} of 100 test pictures about {about}"
    others = ", ".join(f"{title(row.method)} {_hundred(row)}" for row in rows if row is not best)
    pixels = f"With {percent_of_pixels(best.pixels)} of the pixels " if best.pixels is not None else ""
    return f"{pixels}{title(best.method)} {what}{'; ' if others else ''}{others}."


def _kept(run: Run) -> str:
    """Whether PS-NOGS+ found no better way to look than the fixed order that it starts from, and keeps."""
    own = [network for network in run.networks if network.method == _PLUS]
    plain = [network for network in own if not network.evaluation["best"]["accuracy"]["iteration"]]
    if not plain:
        return ""
    of = "" if len(plain) == len(own) else f" for {len(plain)} of {len(own)} networks"
    return f"{title(_PLUS)} found no better way to look than one fixed order{of}, and keeps that order."


def _chance(run: Run, best: Result, others: Sequence[Result]) -> str:
    """How much chance may do on few test pictures, where something scores nearly the same as the best network."""
    tests = _tests(run)
    margin = _margin(best, tests)
    if tests is None or tests >= _MANY_TESTS or not any(abs(row.accuracy - best.accuracy) < margin for row in others):
        return ""
    return f"With {tests:,} test pictures, differences of less than {100 * margin:.0f} points may be chance."


def _margin(row: Result, tests: int | None) -> float:
    """By how much two accuracies may differ by chance (two standard errors), on so many test images."""
    return 2 * sqrt(2 * row.accuracy * (1 - row.accuracy) / tests / max(1, row.networks)) if tests else 0.0


def _advice(run: Run, taught: Result, rivals: Sequence[Result]) -> str:
    """Whether the sequences helped beyond what chance may do on so many test images; and if not, what to try."""
    tests = _tests(run)
    margin = _margin(taught, tests)
    below = [row for row in rivals if row.accuracy >= taught.accuracy]
    close = [row for row in rivals if taught.accuracy > row.accuracy > taught.accuracy - margin]
    who = title(taught.method)
    if below:
        said = f"The sequences did not help: {who} is no better than {_listed(below)}."
    elif close:
        least = f"{100 * margin:.0f} points or more are needed to tell with {tests:,} test pictures"
        said = f"It is not clear that the sequences helped: {who} is close to {_listed(close)}; {least}."
    else:
        return ""
    return f"{said} Try {_remedies(run, tests)}."


def _remedies(run: Run, tests: int | None) -> str:
    number = sum(len(one.sequences) for one in run.sequences)
    seeds = {network.learned.seed for network in run.networks}
    out = []
    if number < _MANY_SEQUENCES:
        out.append("more sequences (--data.annotated)")
    out.append("a longer training of the posterior (--posterior.iterations)")
    if len(seeds) == 1:
        out.append("several seeds (--seeds 0 1 2)")
    few = bool(tests and tests < _MANY_TESTS)
    out.append(f"{'more or ' if few else ''}larger pictures (--data.image-size)")
    return f"{', '.join(out[:-1])}, or {out[-1]}"


def _races(run: Run, reference: str = "ram") -> list[dict[str, Any]]:
    """When each supervised network reached RAM's final validation accuracy, where its test score is the better one."""
    others = {(n.attribute, n.learned.seed): n for n in run.networks if n.method == reference}
    out = []
    for network in run.networks:
        other = others.get((network.attribute, network.learned.seed))
        if other is None or network.learned.rule is None or not network.method.startswith("ps-"):
            continue
        if network.learned.test["accuracy"] <= other.learned.test["accuracy"]:
            continue
        target, own, when = _reached(network, other)
        if when is None or own is None or when >= own:
            continue
        of = f" of {network.attribute}" if network.attribute else ""
        out.append(
            {
                **{name: network.evaluation["member"][name] for name in ("method", "attribute", "seed")},
                "reference": reference,
                "reference_final_validation_accuracy": target,
                "reference_iterations": own,
                "iterations": when,
                "sentence": f"{title(network.learned.method)} reached {title(reference)}'s final validation "
                f"accuracy{of} ({target:.1%}) after {when:,} iterations; {title(reference)} took {own:,}.",
            }
        )
    return out


def _reached(network: Network, other: Network) -> tuple[float, int | None, int | None]:
    """The other's final validation accuracy, and after how many iterations it and the network had it."""
    mine, theirs = (np.nan_to_num(n.learned.curve("accuracy"), nan=-1.0) for n in (network, other))
    target = float(theirs[-1])
    own = iterations_to_reach(other.learned.iterations, theirs, target, rule="accuracy")
    return target, own, iterations_to_reach(network.learned.iterations, mine, target, rule="accuracy")


def _tests(run: Run) -> int | None:
    if run.inspection is not None and "test" in run.inspection.get("splits", {}):
        return int(run.inspection["splits"]["test"])
    found = run.networks[0].locations()
    return None if found is None else len(found)


def _hundred(row: Result) -> str:
    return f"{100 * row.accuracy:.0f}"


def _listed(rows: Sequence[Result]) -> str:
    names = [title(row.method) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
