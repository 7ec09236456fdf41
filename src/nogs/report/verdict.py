"""`verdict`: the result of a run in a few sentences: the scores, whether sequences helped, and what to try if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from nogs.attention.convergence import iterations_to_reach
from nogs.report.contents import Network, Run
from nogs.report.results import PLAIN, RANDOM, WHOLE, Result, best_result, percent_of_pixels, results, title

__all__ = ["Verdict", "verdict"]

_MANY_SEQUENCES = 1_000
_PLUS = "ps-nogs+"
_MANY_TESTS = 500


@dataclass(frozen=True)
class Verdict:
    """The scores (`sentence`), what to try if the sequences did not help (`advice`), and when RAM was reached."""

    sentence: str
    advice: str
    races: tuple[dict[str, Any], ...]
    rows: tuple[Result, ...]
    best: str  # the recommended method

    @property
    def lines(self) -> list[str]:
        """The whole verdict, a sentence or two per line."""
        return [line for line in (self.sentence, self.advice, *(race["sentence"] for race in self.races)) if line]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = [row.to_json() for row in self.rows]
        said = {name: getattr(self, name) for name in ("sentence", "advice", "best")}
        return {**said, "races": list(self.races), "rows": rows}


def verdict(run: Run) -> Verdict | None:
    """The verdict on a run's networks, beside all else that has scores; None without networks."""
    rows = results(run)
    best = best_result(rows)
    if best is None:
        return None
    learned = [row for row in rows if row.networks and row.method.startswith("ps-") and row.method != _PLUS]
    taught = max(learned, key=lambda row: row.accuracy, default=None)
    rivals = [row for row in rows if row not in learned and row.method not in (WHOLE, _PLUS)]
    parts = [_plus(run, rows), "" if taught is None else _sequences(run, taught, rivals, best)]
    advice = " ".join(
        part for part in (*parts, _passed(run, best, rows), _chance(run, best, rows, taught, rivals)) if part
    )
    return Verdict(_sentence(run, best, rows), advice, tuple(_races(run)), tuple(rows), best.method)


def _sentence(run: Run, best: Result, rows: Sequence[Result]) -> str:
    attributes = list(dict.fromkeys(network.attribute for network in run.networks if network.attribute))
    what = f"is right on {_hundred(best)} of 100 test pictures"
    if attributes:
        about = attributes[0].replace("_", " ") if len(attributes) == 1 else f"{len(attributes)} attributes"
        what = f"{what} about {about}"
    others = ", ".join(f"{title(row.method)} {_hundred(row)}" for row in rows if row is not best)
    pixels = f"With {percent_of_pixels(best.pixels)} of the pixels " if best.pixels is not None else ""
    return f"{pixels}{title(best.method)} {what}{'; ' if others else ''}{others}."


def _plus(run: Run, rows: Sequence[Result]) -> str:
    """What PS-NOGS+ gains over the fixed order that it starts from, or that it keeps that order."""
    own = [network for network in run.networks if network.method == _PLUS]
    plain = [network for network in own if not network.evaluation["best"]["accuracy"]["iteration"]]
    if plain:
        of = "" if len(plain) == len(own) else f" for {len(plain)} of {len(own)} networks"
        return f"{title(_PLUS)} learned no better policy than one fixed order{of}, and keeps that order."
    by_method = {row.method: row for row in rows}
    if _PLUS not in by_method or "fixed" not in by_method:
        return ""
    plus, fixed = by_method[_PLUS], by_method["fixed"]
    gain = plus.accuracy - fixed.accuracy
    if gain <= _margin(plus, _tests(run)):
        return ""
    return f"{title(_PLUS)} is {_points(gain)} better than {title('fixed')} of locations."


def _passed(run: Run, best: Result, rows: Sequence[Result]) -> str:
    """The methods that are at least a point better on the test pictures, and why they are not recommended."""
    others = [row for row in rows if row.method not in (WHOLE, RANDOM)]
    above = [row for row in others if round(row.accuracy - best.accuracy, 9) >= 0.01]  # 0.82 - 0.81 is less than 0.01
    if not above:
        return ""
    number = (run.inspection or {}).get("splits", {}).get("validation")
    pictures = f"{number:,} validation pictures" if number else "the validation pictures"
    verb = "was" if len(above) == 1 else "were"
    who = _listed(above)
    said = f"{who[0].upper()}{who[1:]} {verb} right on more test pictures; the choice was made on {pictures}"
    plain = [row for row in above if row.method in PLAIN and (row.validation or 0) > (best.validation or 0)]
    return f"{said}, and {_listed(plain)} is for comparison only." if plain else f"{said}."


def _chance(run: Run, best: Result, rows: Sequence[Result], taught: Result | None, rivals: Sequence[Result]) -> str:
    """The differences that may be chance: said for few test pictures with close scores, and of unclear sequences."""
    tests = _tests(run)
    if tests is None:
        return ""
    margin = _margin(best, tests)
    near = tests < _MANY_TESTS and any(abs(row.accuracy - best.accuracy) < margin for row in rows if row is not best)
    if not near and (taught is None or not _close(taught, rivals, tests)):
        return ""
    margin = max(margin, 0.0 if taught is None else _margin(taught, tests))
    return f"With {tests:,} test pictures, differences of less than {_points(margin)} may be chance."


def _margin(row: Result, tests: int | None) -> float:
    """The difference of two accuracies that may be chance (two standard errors) on this number of test images."""
    return 2 * sqrt(2 * row.accuracy * (1 - row.accuracy) / tests / max(1, row.networks)) if tests else 0.0


def _close(taught: Result, rivals: Sequence[Result], tests: int | None) -> list[Result]:
    """The rivals that are worse by no more than chance."""
    return [row for row in rivals if taught.accuracy > row.accuracy > taught.accuracy - _margin(taught, tests)]


def _sequences(run: Run, taught: Result, rivals: Sequence[Result], best: Result) -> str:
    """Whether the sequences helped by more than chance; and if not, what to try, unless PS-NOGS+ is better anyway."""
    tests = _tests(run)
    below = [row for row in rivals if row.accuracy >= taught.accuracy]
    near = below or _close(taught, rivals, tests)
    if not near:
        return ""
    who, than = title(taught.method), f"{'no' if below else 'not clearly'} better than {_listed(near)}"
    gain = next((taught.accuracy - row.accuracy for row in rivals if row.method == "ram"), 0.0)
    if gain > _margin(taught, tests):
        said = f"{who} is {_points(gain)} better than {title('ram')}, but {than}."
    elif below:
        said = f"The sequences did not help: {who} is {than}."
    else:
        said = f"It is not clear that the sequences helped {who}, which is close to {_listed(near)}."
    if best.method == _PLUS and best.accuracy - taught.accuracy > _margin(taught, tests):
        return said
    return f"{said} Try {_remedies(run, tests)}."


def _remedies(run: Run, tests: int | None) -> str:
    number = sum(len(one.sequences) for one in run.sequences)
    seeds = {network.learned.seed for network in run.networks}
    out = []
    if number < _MANY_SEQUENCES:
        out.append("more sequences (--data.annotated)")
    out.append("longer training of the posterior (--posterior.iterations)")
    if len(seeds) == 1:
        out.append("several seeds (--seeds 0 1 2)")
    few = bool(tests and tests < _MANY_TESTS)
    out.append(f"{'more or ' if few else ''}larger pictures (--data.image-size)")
    return f"{', '.join(out[:-1])}, or {out[-1]}"


def _races(run: Run, reference: str = "ram") -> list[dict[str, Any]]:
    """When each supervised network reached RAM's final validation accuracy, if its test score is better."""
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


def _points(share: float) -> str:
    """A difference of accuracies in whole points, or in tenths where it is less than one."""
    number = f"{100 * share:.0f}" if share >= 0.0095 else f"{100 * share:.1f}"
    return f"{number} point{'' if number == '1' else 's'}"


def _hundred(row: Result) -> str:
    return f"{100 * row.accuracy:.0f}"


def _listed(rows: Sequence[Result]) -> str:
    names = [title(row.method) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
