"""The top of the page: three numbers of a run in large type; and the commands that reproduce the run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nogs.attention.methods import METHODS
from nogs.report.cells import Link, percent
from nogs.report.contents import Run
from nogs.report.results import RANDOM, WHOLE, best_network, quoted_table, results, title
from nogs.runtime.files import read_json
from nogs.whole.evaluation import FILE as SCORES
from nogs.whole.evaluation import FOLDER as WHOLE_IMAGE

__all__ = ["Headline", "commands", "headlines"]


@dataclass(frozen=True)
class Headline:
    """A number in large type, what it is, and its file."""

    number: str
    what: str
    href: str


def headlines(run: Run, *, link: Link, comparison_file: Path) -> list[Headline]:
    """The three most important numbers: of the networks, or of the parts that exist."""
    out = _networks(run, link, comparison_file) if run.networks else []
    known = quoted_table(run.posterior or {})
    if known:
        what = f"test accuracy of the posterior after {known[-1]['glimpses']} random glimpses"
        out.append(Headline(percent(known[-1]["accuracy"]), what, link(run.folder / "posterior" / "evaluation.json")))
    for one in run.sequences[:1]:
        what = f"{one.name} sequences of {one.sequences.length} glimpses"
        if len(run.sequences) > 1:
            what += f", and {len(run.sequences) - 1} more sets"
        out.append(Headline(f"{len(one.sequences):,}", what, link(one.folder / "sequences.jsonl")))
    if run.bank is not None:
        what = f"images in the bank; its components explain {run.bank['explained_variance']:.0%} of their variance"
        out.append(Headline(f"{run.bank['images']:,}", what, link(run.folder / "bank" / "done.json")))
    return out[:3]


def _networks(run: Run, link: Link, comparison_file: Path) -> list[Headline]:
    best = best_network(run)
    rows = {row.method: row for row in results(run)}
    own = None if best is None else rows.get(best.learned.method)
    if best is None or own is None:  # their scores are not finite
        return []
    home = link(best.folder / "evaluation.json" if own.networks == 1 else comparison_file)
    several = f", mean of {own.networks} networks" if own.networks > 1 else ""
    out = [
        Headline(percent(own.accuracy), f"test accuracy of {title(own.method)}{several}", home),
        Headline(percent(own.pixels), "of a picture's pixels seen", link(best.folder / "evaluation.json")),
    ]
    other = next((rows[name] for name in (WHOLE, "ram", "ram+", RANDOM) if name in rows and name != own.method), None)
    if other is not None:
        out.append(Headline(percent(other.accuracy), f"test accuracy of {title(other.method)}, for comparison", home))
    return out


def commands(run: Run, *, report: Sequence[Path]) -> list[str]:
    """Commands that reproduce this run in the folder AGAIN, from its recipe, and then its page."""
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
    if (run.folder / WHOLE_IMAGE / SCORES).is_file():
        lines.append(f"nogs whole {recipe}{end}")
    if run.networks:
        methods = " ".join(sorted({network.method for network in run.networks}, key=_usual))
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


def _usual(method: str) -> tuple[int, str]:
    """Methods in the order in which the command line lists them."""
    return (METHODS.index(method) if method in METHODS else len(METHODS)), method


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
