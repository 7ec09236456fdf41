"""Tables of results in README, the manual and the pages of `results/`, made from the records of `summary.json`.

A table stands in a page between `<!-- table: NAME -->` and `<!-- end of table -->`; `TABLES` has its rows and columns.

    python results/tables.py                 # list the pages whose tables differ from the records
    python results/tables.py --write         # write the tables into the pages
    python results/tables.py --add results/cub/comparison.json --task cub --seeds 0 1 2 --commit ffce69d \
        --hardware "one NVIDIA H200" --command "nogs compare cub ..."

The last command adds a record for every method and metric of a `comparison.json` of `nogs compare`. It replaces records
of the same task, method and metric in summary.json. Other records are written into the file by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SUMMARY = ROOT / "results" / "summary.json"
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*/README.md")),
)

FIELDS = ("task", "method", "metric", "value", "interval", "seeds", "commit", "hardware", "command", "source")
"""Fields of a record. `interval` is 95 %; `commit` ends with + if files differed from it; null means unknown."""
KEY = ("task", "method", "metric")
"""The fields that no two records share."""

ACCURACY = "test accuracy (%)"
BALANCED = "test balanced accuracy (%)"
NLL = "test NLL (nats)"
CONVERGED = "iterations to convergence"
REACHED = "iterations to RAM's best validation NLL, median"
MEASURES = {"accuracy": ACCURACY, "balanced_accuracy": BALANCED, "nll": NLL, "converged": CONVERGED}
"""Metrics by their names in a `comparison.json`."""
FIXED = ("random", "centre-out", "fixed")
"""Methods whose policy learns nothing, so that it has no iterations to convergence."""
FORMATS = {
    "%": "{:.1f} %",
    "nats": "{:.3f}",
    "million": "{:,.{digits}f} M",
    "MB": "{:.2f} MB",
    "ms": "{:.1f}",
}
"""How a number is written, by the unit in brackets at the end of its metric; without one it is a count."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A row or a column: its label, what it fixes of a record's key, and whether it shows intervals."""

    label: str
    task: str | None = None
    method: str | None = None
    metric: str | None = None
    paper: bool = False
    interval: bool = False


@dataclass(frozen=True)
class Table:
    """One cell for each row and column; together they fix a record's key, with the table's task if neither has one."""

    rows: Sequence[Line]
    columns: Sequence[Line]
    task: str = ""


CELEBA_HQ = (
    Line("RAM", method="ram"),
    Line("PS-NOGS, weight 1", method="ps-nogs, weight 1"),
    Line("PS-NOGS, weight 64", method="ps-nogs, weight 64"),
    Line("the paper's RAM", method="ram", paper=True),
    Line("the paper's PS-NOGS", method="ps-nogs", paper=True),
)
CUB = (
    Line("RAM+", method="ram+"),
    Line("PS-NOGS", method="ps-nogs, weight 1"),
    Line("PS-HGS", method="ps-hgs, weight 1"),
    Line("PS-H5", method="ps-h5, weight 1"),
    Line("centre-out, the paper's network", method="centre-out, the paper's network"),
    Line("whole image, same features", method="whole image"),
)
ON_POSTERIOR = (
    Line("random locations", method="random"),
    Line("centre-out", method="centre-out"),
    Line("fixed order", method="fixed"),
    Line("PS-NOGS+", method="ps-nogs+"),
)

METHODS = (Line("RAM", method="ram"), Line("PS-NOGS", method="ps-nogs"), *ON_POSTERIOR)


def _on_posterior(task: str, *more: Line) -> Table:
    """All measurements of the methods with a posterior as classifier."""
    columns = (
        Line("test accuracy", metric=ACCURACY, interval=True),
        Line("accuracy less the fixed order's", metric=f"{ACCURACY}, less fixed", interval=True),
        Line("test balanced accuracy", metric=BALANCED, interval=True),
        Line("test NLL (nats)", metric=NLL, interval=True),
        Line("NLL less the fixed order's", metric=f"{NLL}, less fixed", interval=True),
    )
    return Table(task=task, rows=(*ON_POSTERIOR, *more), columns=columns)


FOLDERS = ("folder, from scratch", "folder, ImageNet features", "folder, random places")
TASKS = (
    Line("digits, the demo", task="digits, demo", metric=ACCURACY, interval=True),
    Line("digits", task="digits", metric=ACCURACY, interval=True),
    Line("CelebA-HQ", task="celeba-hq", metric=ACCURACY),
    Line("CUB", task="cub", metric=ACCURACY, interval=True),
    Line("a folder of photographs", task=FOLDERS[1], metric=ACCURACY, interval=True),
    Line("photographs, object anywhere", task=FOLDERS[2], metric=ACCURACY, interval=True),
)
TABLES = {
    "main": Table(
        rows=(*METHODS, Line("whole image", method="whole image")),
        columns=TASKS,
    ),
    "digits-all": _on_posterior(
        "digits", Line("fixed order, PS-NOGS+'s core", method="fixed, PS-NOGS+'s core"), *METHODS[:2]
    ),
    "demo": Table(
        task="digits, demo",
        rows=METHODS,
        columns=(
            Line("test accuracy", metric=ACCURACY, interval=True),
            Line("accuracy less the fixed order's", metric=f"{ACCURACY}, less fixed", interval=True),
            Line("test NLL (nats)", metric=NLL, interval=True),
        ),
    ),
    "folder": Table(
        rows=(*METHODS, Line("whole image", method="whole image")),
        columns=tuple(
            Line(f"{title}, {label}", task=task, metric=metric, interval=True)
            for task, title in zip(FOLDERS, ("from scratch", "ImageNet features", "object anywhere"))
            for label, metric in (("accuracy", ACCURACY), ("less PS-NOGS+'s", f"{ACCURACY}, less ps-nogs+"))
        ),
    ),
    "cub-posterior": _on_posterior("cub"),
    "celeba-hq-posterior": _on_posterior(
        "celeba-hq", Line("one order for all attributes", method="fixed, one order for all attributes")
    ),
    "celeba-hq": Table(
        task="celeba-hq",
        rows=(
            Line("test accuracy", metric=ACCURACY),
            Line("accuracy less RAM's", metric=f"{ACCURACY}, less ram", interval=True),
            Line("test balanced accuracy", metric=BALANCED),
            Line("balanced accuracy less RAM's", metric=f"{BALANCED}, less ram", interval=True),
            Line("iterations to RAM's best validation NLL (median)", metric=REACHED),
            Line("iterations to convergence by the paper's rule", metric=CONVERGED),
        ),
        columns=CELEBA_HQ,
    ),
    "celeba-hq-all": Table(
        task="celeba-hq",
        rows=(
            Line("test accuracy", metric=ACCURACY, interval=True),
            Line("accuracy less RAM's", metric=f"{ACCURACY}, less ram", interval=True),
            Line("test balanced accuracy", metric=BALANCED, interval=True),
            Line("balanced accuracy less RAM's", metric=f"{BALANCED}, less ram", interval=True),
            Line("test NLL (nats)", metric=NLL, interval=True),
            Line("NLL less RAM's", metric=f"{NLL}, less ram", interval=True),
            Line("iterations to RAM's best validation NLL (median)", metric=REACHED),
            Line("iterations to convergence", metric=CONVERGED, interval=True),
            Line("iterations less RAM's", metric=f"{CONVERGED}, less ram", interval=True),
        ),
        columns=CELEBA_HQ,
    ),
    "own-sequences": Table(
        rows=tuple(
            Line(f"{attribute}, {which}", task=f"celeba-hq, {attribute}", method=f"ps-nogs, weight 64, {which}")
            for attribute, which in (
                ("Male", "our sequences"),
                ("Male", "our sequences of 2,000 completions"),
                ("Male", "released sequences"),
                ("Smiling", "our sequences"),
                ("Smiling", "released sequences"),
                ("Mouth_Slightly_Open", "our sequences"),
                ("Mouth_Slightly_Open", "released sequences"),
            )
        ),
        columns=(
            Line("test accuracy", metric=ACCURACY, interval=True),
            Line("test NLL (nats)", metric=NLL, interval=True),
        ),
    ),
    "cub": Table(
        task="cub",
        rows=CUB,
        columns=(
            Line("iterations to convergence", metric=CONVERGED),
            Line("the paper's iterations", metric=CONVERGED, paper=True),
            Line("test accuracy", metric=ACCURACY),
            Line("test accuracy, better pretraining", task="cub, better pretraining", metric=ACCURACY),
            Line("the paper's accuracy", metric=ACCURACY, paper=True),
        ),
    ),
    "cub-all": Table(
        task="cub",
        rows=(
            Line("RAM", method="ram"),
            *CUB[:4],
            Line("PS-H1", method="ps-h1, weight 1"),
            Line("random locations, the paper's network", method="random, the paper's network"),
            *CUB[4:],
        ),
        columns=(
            Line("iterations to convergence", metric=CONVERGED, interval=True),
            Line("the paper's iterations", metric=CONVERGED, paper=True),
            Line("test accuracy", metric=ACCURACY, interval=True),
            Line("test accuracy, better pretraining", task="cub, better pretraining", metric=ACCURACY, interval=True),
            Line("the paper's accuracy", metric=ACCURACY, paper=True),
        ),
    ),
    "export": Table(
        task="celeba-hq, exported",
        rows=(
            Line("five glimpses, float32", method="glimpses, float32"),
            Line("five glimpses, int8", method="glimpses, int8"),
            Line("MobileNetV2", method="mobilenet_v2"),
            Line("DenseNet-121", method="densenet121"),
        ),
        columns=(
            Line("multiply-adds", metric="multiply-adds (million)"),
            Line("parameters", metric="parameters (million)"),
            Line("bytes", metric="bytes (MB)"),
            Line("ms an image", metric="time an image (ms)"),
            Line("pixels read, at most", metric="pixels read, at most (%)"),
        ),
    ),
}


def load() -> list[Record]:
    """All records."""
    records: list[Record] = json.loads(SUMMARY.read_text())
    return records


def write(records: Sequence[Record]) -> None:
    """The file, with a record a line."""
    lines = ",\n".join(json.dumps({name: record[name] for name in FIELDS}, ensure_ascii=False) for record in records)
    SUMMARY.write_text(f"[\n{lines}\n]\n")


def of_comparison(
    comparison: Mapping[str, Any], methods: Sequence[str] | None = None, variant: str = "", **shared: Any
) -> list[Record]:
    """The records of a comparison, or of some of its methods; `shared` are the fields that all of them have.

    `variant` is added to the methods' names, where the comparison itself does not tell them from another's.
    """
    records = []
    reference = comparison["reference"]
    for method, found in comparison["methods"].items():
        for scores, less in ((found["mean"], ""), (found["difference"] or {}, f", less {reference}")):
            for name, metric in MEASURES.items():
                if name not in scores or math.isnan(scores[name][0]) or (metric == CONVERGED and method in FIXED):
                    continue  # a policy that learns nothing has no iterations to convergence
                times = 100 if metric.endswith("(%)") else 1
                value, *interval = (_rounded(times * number) for number in scores[name])
                if metric == CONVERGED and not less:  # Student's interval is unbounded
                    interval = [min(max(end, 0), comparison["horizon"]) for end in interval]
                records.append({"method": method, "metric": metric + less, "value": value, "interval": interval})
    for method in ("majority class", "whole image"):
        share = comparison.get(f"{method.replace(' ', '_')}_accuracy")
        if share is not None:
            records.append({"method": method, "metric": ACCURACY, "value": _rounded(100 * share), "interval": None})
    chosen = [record for record in records if methods is None or record["method"] in methods]
    return [record | shared | {"method": record["method"] + variant} for record in chosen]


def merged(records: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """`records` with the new ones in place of those with their keys, and the others at the end."""
    found = {tuple(record[name] for name in KEY): record for record in records}
    return list((found | {tuple(record[name] for name in KEY): record for record in new}).values())


def rendered(table: Table, records: Sequence[Record]) -> str:
    """The table in Markdown; a cell without a record is a dash."""
    found = {tuple(record[name] for name in KEY): record for record in records}
    rows = [["", *(column.label for column in table.columns)]]
    for row in table.rows:
        cells = [_cell(found, row, column, table.task) for column in table.columns]
        if set(cells) == {"-"}:
            raise KeyError(f"summary.json has no record for the row {row.label!r}: {row}")
        rows.append([row.label, *cells])
    for place, column in enumerate(table.columns, start=1):
        if {cells[place] for cells in rows[1:]} == {"-"}:
            raise KeyError(f"summary.json has no record for the column {column.label!r}: {column}")
    lines = [f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in rows]
    return "\n".join([lines[0], "|---" * (len(table.columns) + 1) + "|", *lines[1:]])


def _cell(found: Mapping[tuple[Any, ...], Record], row: Line, column: Line, task: str) -> str:
    method = row.method or column.method or ""
    if row.paper or column.paper:  # the paper has no weights
        method = f"the paper's {method.partition(',')[0]}"
    task, metric = row.task or column.task or task, row.metric or column.metric
    record = found.get((task, method, metric))
    if record is None and method:  # supervised with an unnamed weight: take the least
        own = [one for one in found.values() if (one["task"], one["metric"]) == (task, metric)]
        weights = [one for one in own if re.fullmatch(rf"{re.escape(method)}, weight \d+", one["method"])]
        record = min(weights, key=lambda one: int(one["method"].split()[-1]), default=None)
    return written(record, interval=row.interval or column.interval) if record else "-"


def written(record: Record, *, interval: bool = False) -> str:
    """A record's value as tables show it, with its interval if that is wanted and known."""
    metric, _, less = record["metric"].partition(", less ")
    unit = re.search(r"\((\S+)\)$", metric)
    form = FORMATS[unit[1]] if unit else "{:,.0f}"
    if less:
        form = form.replace("{:", "{:+").replace("%", "points")
    text = form.format(record["value"], digits=sum(record["value"] < bound for bound in (1, 10)))
    if interval and record["interval"]:
        number = re.sub(r"\}.*", "}", form)
        text += " [{}]".format(", ".join(number.format(end) for end in record["interval"]))
    return text


def filled(page: str, records: Sequence[Record]) -> str:
    """The text of a page with its tables made from the records."""
    begin, *rest = re.split(r"(?<=<!-- table: )(\S+) -->\n", page)
    for name, text in zip(rest[::2], rest[1::2]):
        old, end, after = text.partition("<!-- end of table -->")
        if not end or "<!--" in old:
            raise ValueError(f"the table {name} has no <!-- end of table -->")
        begin += f"{name} -->\n\n{rendered(TABLES[name], records)}\n\n{end}{after}"
    return begin


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def main() -> int:
    """Write the tables, add records, or list pages that differ; the exit code is 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument("--add", type=Path, metavar="FILE", help="a comparison.json whose numbers become records")
    parser.add_argument("--task", help="task of the records, such as cub")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="only these of its methods")
    parser.add_argument("--variant", help="added to the methods' names, such as 'ten layers'")
    parser.add_argument("--seeds", nargs="+", type=int, help="the seeds of the networks")
    parser.add_argument("--commit", help="commit of the code, with + if files differed from it")
    parser.add_argument("--hardware", help="such as 'one NVIDIA H200'")
    parser.add_argument("--command", help="the command that made the file")
    args = parser.parse_args()
    if args.add:
        if not args.task:
            parser.error("--add needs --task")
        names = ("task", "seeds", "commit", "hardware", "command")
        shared = {name: getattr(args, name) for name in names} | {"source": _source(args.add)}
        variant = f", {args.variant}" if args.variant else ""
        new = of_comparison(json.loads(args.add.read_text()), args.methods, variant, **shared)
        write(merged(load(), new))
        print(f"{SUMMARY.relative_to(ROOT)}: {len(new)} records of {args.task}")
        return 0
    records = load()
    differ = False
    for page in PAGES:
        text = page.read_text()
        new_text = filled(text, records)
        if new_text != text:
            differ = True
            print(f"{page.relative_to(ROOT)}: {'written' if args.write else 'differs from results/summary.json'}")
            if args.write:
                page.write_text(new_text)
    return int(differ and not args.write)


def _source(file: Path) -> str:
    file = file.resolve()
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name


if __name__ == "__main__":
    raise SystemExit(main())
