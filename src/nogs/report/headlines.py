"""What the page says first: a few numbers of a run in large type; and the commands that make it anew."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nogs.report.contents import Run
from nogs.report.tables import Link, percent, quoted_table
from nogs.runtime.files import read_json

__all__ = ["Headline", "commands", "headlines"]


@dataclass(frozen=True)
class Headline:
    """A number in large type, what it is, and its file."""

    number: str
    what: str
    href: str


def headlines(run: Run, comparison: Mapping[str, Any] | None, *, link: Link, comparison_file: Path) -> list[Headline]:
    """What one wants to know first, of the parts that are there."""
    out = _networks(run, comparison, link, comparison_file) if run.networks else []
    known = quoted_table(run.posterior or {})
    if known:
        what = f"right answers of the posterior after {known[-1]['glimpses']} random glimpses"
        out.append(Headline(percent(known[-1]["accuracy"]), what, link(run.folder / "posterior" / "evaluation.json")))
    for one in run.sequences[:1]:
        entropy = one.sequences.entropy_before
        what = f"{one.name} sequences of {one.sequences.length} glimpses"
        if len(run.sequences) > 1:
            what += f", and {len(run.sequences) - 1} more sets"
        if entropy is not None:
            what += f"; entropy from {entropy[:, 0].mean():.2f} to {entropy[:, -1].mean():.2f} nats before the last"
        out.append(Headline(f"{len(one.sequences):,}", what, link(one.folder / "sequences.jsonl")))
    if run.bank is not None:
        what = f"images in the bank; its codes hold {run.bank['explained_variance']:.0%} of their variance"
        out.append(Headline(f"{run.bank['images']:,}", what, link(run.folder / "bank" / "done.json")))
    return out


def _networks(run: Run, comparison: Mapping[str, Any] | None, link: Link, comparison_file: Path) -> list[Headline]:
    by_method: dict[str, list[float]] = {}
    for network in run.networks:
        by_method.setdefault(network.learned.method, []).append(network.learned.test["accuracy"])
    best = max(by_method, key=lambda method: float(np.mean(by_method[method])))
    own = [network for network in run.networks if network.learned.method == best]
    home = link(own[0].folder / "evaluation.json" if len(own) == 1 or comparison is None else comparison_file)
    several = f", mean of {len(own)} networks" if len(own) > 1 else ""
    majority = percent(float(np.mean([network.learned.majority for network in own])))
    seen = percent(float(np.mean([network.test["pixels_seen"] for network in own])))
    accuracy = percent(float(np.mean(by_method[best])))
    out = [
        Headline(accuracy, f"test accuracy of {best}{several} (majority class {majority})", home),
        Headline(seen, "of an image's pixels seen", link(own[0].folder / "evaluation.json")),
    ]
    if run.verdicts:
        out += _race(_by_verdicts(run.verdicts), _horizon(run), link(run.folder / "attention" / "verdict.json"))
    elif comparison is not None:
        out += _race(_by_comparison(comparison), _horizon(run), link(comparison_file))
    return out


@dataclass(frozen=True)
class _Reached:
    """How many of a method's networks reached what the reference had reached, and when on average."""

    method: str
    goal: str
    networks: int
    reached: int
    mean: float  # iterations; NaN where not all reached it
    own: float  # iterations that the reference took itself


def _by_verdicts(verdicts: Sequence[Mapping[str, Any]]) -> list[_Reached]:
    """By the accuracy that the reference ended with, as `verdict.json` has it."""
    out = []
    for method in dict.fromkeys(one["method"] for one in verdicts):
        own = [one for one in verdicts if one["method"] == method]
        goal = f"as accurate on the validation images as {own[0]['reference']} in the end"
        when, other = (
            [np.nan if one[name] is None else one[name] for one in own]
            for name in ("iterations", "reference_iterations")
        )
        reached = int(np.isfinite(when).sum())
        out.append(_Reached(method, goal, len(own), reached, float(np.mean(when)), float(np.mean(other))))
    return out


def _by_comparison(comparison: Mapping[str, Any]) -> list[_Reached]:
    """By the reference's best NLL; there, networks that never reached it count with the horizon."""
    reference, out = comparison["reference"], []
    took = comparison["methods"][reference]["mean"]["reached"][0]
    for method, found in comparison["methods"].items():
        mean, never = found["mean"]["reached"][0], found["never_reached"]
        if method != reference and math.isfinite(mean):  # NaN: it has no partner, or failed
            number = found["networks"]
            goal = f"as low in validation NLL as {reference} at its best"
            out.append(_Reached(method, goal, number, number - never, math.nan if never else mean, took))
    return out


def _race(methods: Sequence[_Reached], horizon: int, href: str) -> list[Headline]:
    """When the fastest method reached the reference; where it never or not always did, that."""
    if not methods:
        return []
    first = min(methods, key=lambda one: (-one.reached / one.networks, one.mean))
    if not first.reached:
        return [Headline("never", f"within {horizon:,} iterations was {first.method} {first.goal}", href)]
    if first.reached < first.networks:
        what = f"networks of {first.method} were {first.goal} within {horizon:,} iterations"
        return [Headline(f"{first.reached} of {first.networks}", what, href)]
    took = f" ({first.own:,.0f})" if math.isfinite(first.own) else ""
    return [Headline(f"{first.mean:,.0f}", f"iterations until {first.method} is {first.goal}{took}", href)]


def _horizon(run: Run) -> int:
    return max(network.learned.iterations[-1] for network in run.networks)


def commands(run: Run, *, report: Sequence[Path]) -> list[str]:
    """Commands that make a run like this one anew in the folder AGAIN, from its recipe, and then its page."""
    recipe = shlex.quote((run.folder / "recipe.yaml").as_posix())
    data = "" if run.data is None or run.data.kind == "digits" else " --data DATA"
    end = f"{data} --out AGAIN"
    lines = []
    if run.posterior is not None:
        lines.append(f"nogs posterior train {recipe}{end}")
    if run.bank is not None:
        lines.append(f"nogs bank build {recipe}{end}")
    annotated = [one for one in run.sequences if "evaluations" in one.done]
    if annotated and run.posterior is not None and run.bank is not None:
        attribute = _flag("attribute", {one.sequences.attribute for one in annotated})
        lines.append(f"nogs annotate {recipe}{attribute}{_images(run, annotated[0].sequences.ids)}{end}")
    if run.networks:
        methods = " ".join(dict.fromkeys(network.method for network in run.networks))
        seeds = " ".join(map(str, sorted({network.learned.seed for network in run.networks})))
        supervised = any(
            n.evaluation["member"]["weight"] is not None and n.method.startswith("ps-") for n in run.networks
        )
        home = f" --sequences {'AGAIN/sequences' if annotated else 'SEQUENCES'}" if supervised else ""
        attribute = _flag("attribute", {network.attribute for network in run.networks})
        command = f"nogs train {recipe} --method {methods}"
        weights = {n.evaluation["member"]["weight"] for n in run.networks if n.method.startswith("ps-")} - {None}
        if weights - {run.recipe.get("attention", {}).get("supervision_weight")}:  # only nogs compare has that flag
            given = " ".join(f"{weight:g}" for weight in sorted(weights))
            command = f"nogs compare {recipe} --method {methods} --weights {given}"
        lines.append(f"{command} --seeds {seeds}{attribute}{home}{end}")
    runs = shlex.join("AGAIN" if lines and path == run.folder else path.as_posix() for path in report)
    return [*lines, f"nogs report {runs}{data} --out AGAIN/report.html"]


def _images(run: Run, ids: Sequence[str]) -> str:
    """Which of the images to annotate were annotated, if not all of them."""
    path = run.folder / "data" / "splits.json"
    every = read_json(path)["splits"]["annotate"] if path.is_file() else list(ids)
    if list(ids) == every or ids[0] not in every:
        return ""
    first = every.index(ids[0])
    span = list(ids) == every[first : first + len(ids)]
    return f" --subset {f'{first}:{first + len(ids)}' if span else shlex.quote(','.join(ids))}"


def _flag(name: str, values: set[str | None]) -> str:
    given = sorted(value for value in values if value)
    return f" --{name} {shlex.join(given)}" if given else ""
