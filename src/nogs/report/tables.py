"""Tables of the page, each number with the file it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nogs.attention.comparison_tables import possible
from nogs.report.cells import Cell, Link, Table, percent, sortable
from nogs.report.contents import Run
from nogs.report.results import WHOLE, Result, best_network, quoted_table, rank, results, title
from nogs.whole.evaluation import whole_scores

__all__ = ["methods_table", "runs_table", "tables"]


def tables(run: Run, comparison: Mapping[str, Any] | None, *, link: Link, comparison_file: Path) -> list[Table]:
    """Every table that this run has."""
    out = []
    if run.networks:
        out.append(results_table(run, comparison, link=link, comparison_file=comparison_file))
    for make in (_networks, _sequences, _posterior, _completions, _data, _stages):
        table = make(run, link)
        if table.rows:
            out.append(table)
    return out


def results_table(run: Run, comparison: Mapping[str, Any] | None, *, link: Link, comparison_file: Path) -> Table:
    """Every method of one run; if they were trained equally long, also how fast they learned."""
    learned = dict(comparison["methods"]) if comparison is not None else {}
    measures = {"balanced_accuracy": "balanced accuracy", "nll": "NLL (nats)", "converged": "converged at"}
    columns = ["method", "networks", "test accuracy", "pixels seen", *(measures.values() if learned else ())]
    found = results(run)
    rows = [_result(run, row, comparison, list(measures) if learned else [], link, comparison_file) for row in found]
    intro = (
        "Each test score is of the checkpoint that was best by that measure on the validation pictures. "
        "Balanced accuracy is the mean over classes. NLL is the negative log-likelihood, the mean of -log p(true "
        "class), in nats, the natural unit of information: lower is better. Converged at: the first iteration whose "
        "validation score is within 0.01 of the best."
    )
    majority = f"Always answering the most common class gives {percent(float(run.networks[0].learned.majority))}."
    several = " In brackets 95 % intervals over tasks and seeds." if any(row.networks > 1 for row in found) else ""
    weights = any("weight" in network.learned.method for network in run.networks)
    weight = " The weight is that of the sequences in the loss." if weights else ""
    return Table("methods", "Methods", tuple(columns), rows, f"{majority}{several}{weight}", intro)


def _result(
    run: Run,
    row: Result,
    comparison: Mapping[str, Any] | None,
    measures: Sequence[str],
    link: Link,
    comparison_file: Path,
) -> list[Cell]:
    own = [network for network in run.networks if network.learned.method == row.method]
    href = link(own[0].folder / "evaluation.json") if len(own) == 1 else link(comparison_file) if own else ""
    mean = None if comparison is None else comparison["methods"].get(row.method, {}).get("mean")
    whole = _whole_image(run) if row.method == WHOLE else {}
    accuracy = percent(row.accuracy) + _interval("accuracy", mean, comparison)
    cells = [
        Cell(title(row.method), title(row.method)),
        Cell(str(row.networks) if row.networks else "-", row.networks),
        Cell(accuracy, row.accuracy, href),
        Cell(percent(row.pixels), sortable(row.pixels), href),
    ]
    for name in measures:
        value = whole.get(name) if mean is None else mean[name][0]
        text = _measure(name, value) + _interval(name, mean, comparison)
        cells.append(Cell(text, sortable(value), link(comparison_file) if mean else ""))
    return cells


def _whole_image(run: Run) -> dict[str, float]:
    """Scores of the whole-image reference, the mean over attributes; none if the run has no reference."""
    attributes = dict.fromkeys(network.attribute for network in run.networks)
    found = [scores for attribute in attributes if (scores := whole_scores(run.folder, attribute))]
    return {name: float(np.mean([scores[name] for scores in found])) for name in found[0]} if found else {}


def _interval(name: str, mean: Mapping[str, Any] | None, comparison: Mapping[str, Any] | None) -> str:
    """An interval in brackets, if there is one."""
    if mean is None or comparison is None:
        return ""
    _, low, high = possible(name, mean[name], horizon=comparison["horizon"])
    return f" [{_measure(name, low)}, {_measure(name, high)}]" if math.isfinite(low) and low != high else ""


def methods_table(comparison: Mapping[str, Any], href: str) -> Table:
    """The methods side by side, with 95 % intervals."""
    names = {
        "accuracy": "test accuracy",
        "balanced_accuracy": "balanced accuracy",
        "nll": "NLL at best NLL (nats)",
        "converged": "converged at",
        "reached": f"reached {comparison['reference']}'s best validation NLL at",
    }
    rows = []
    for method, found in comparison["methods"].items():
        cells = [Cell(method, method), Cell(str(found["networks"]), found["networks"], href)]
        for name in names:
            mean, low, high = possible(name, found["mean"][name], horizon=comparison["horizon"])
            text = _measure(name, mean)
            if math.isfinite(mean) and low != high:
                text += f" [{_measure(name, low)}, {_measure(name, high)}]"
            if name == "reached" and (never := found["never_reached"]):
                text = f"> {_measure(name, mean)} ({never} of {found['networks']} never)"
                if never == found["networks"]:
                    text = f"never within {comparison['horizon']:,}"
            cells.append(Cell(text, sortable(mean), href))
        rows.append(cells)
    note = (
        f"Means over tasks and seeds at one horizon of {comparison['horizon']:,} iterations; in brackets 95 % "
        "intervals. Scores are on the test images, each of the checkpoint that was best by the same measure on the "
        "validation images. A network that never reached the reference's best validation NLL counts with the horizon, "
        "so the true mean is larger. Always answering the most common class gives "
        f"{percent(comparison['majority_class_accuracy'])}."
    )
    return Table("methods", "Methods", ("method", "networks", *names.values()), rows, note)


def runs_table(runs: Sequence[Run], anchors: Sequence[str], *, link: Link) -> Table:
    """Runs side by side: the best network of each, its posterior and its sequences."""
    columns = ("run", "task", "networks", "best network", "accuracy", "pixels seen", "posterior", "sequences")
    note = "Accuracy on the test images; the posterior's is after its last random glimpse."
    table = Table("runs", "Runs side by side", columns, note=note)
    for run, anchor in zip(runs, anchors):
        best = best_network(run)
        evaluation = "" if best is None else link(best.folder / "evaluation.json")
        accuracy = None if best is None else best.learned.test["accuracy"]
        seen = None if best is None else best.test["pixels_seen"]
        method = "-" if best is None else best.learned.method
        known = quoted_table(run.posterior or {})
        told = known[-1]["accuracy"] if known else None
        home = link(run.folder / "posterior" / "evaluation.json") if known else ""
        number = sum(len(one.sequences) for one in run.sequences)
        lines = link(run.sequences[0].folder / "sequences.jsonl") if run.sequences else ""
        table.rows.append(
            [
                Cell(run.name, run.name, anchor),
                Cell(run.task, run.task),
                Cell(str(len(run.networks)), len(run.networks)),
                Cell(method, method, evaluation),
                Cell(percent(accuracy), sortable(accuracy), evaluation),
                Cell(percent(seen), sortable(seen), evaluation),
                Cell(percent(told), sortable(told), home),
                Cell(f"{number:,}" if number else "-", number, lines),
            ]
        )
    return table


def _networks(run: Run, link: Link) -> Table:
    scored = ("accuracy", "balanced", "greedy", "NLL at best accuracy (nats)")
    columns = ("network", *scored, "converged at", "pixels seen", "majority")
    notes = [
        "All test scores, including the NLL, are of the checkpoint with the best validation accuracy. Greedy takes the "
        "most likely location at each glimpse instead of sampling one."
    ]
    rows = []
    for network in sorted(run.networks, key=lambda network: rank(network.learned.method)):
        home, test, learned = link(network.folder / "evaluation.json"), network.test, network.learned
        attribute = f", {learned.attribute}" if learned.attribute else ""
        name = f"{learned.method}{attribute}, seed {learned.seed}"
        converged = (network.evaluation["convergence"] or {}).get("iterations")
        scores = [test[key] for key in ("accuracy", "balanced_accuracy", "greedy_accuracy")]
        rows.append(
            [
                Cell(name, name, home),
                *(Cell(percent(score), sortable(score), home) for score in scores),
                Cell(_measure("nll", test["nll"]), sortable(test["nll"]), home),
                Cell("-" if converged is None else f"{converged:,}", sortable(converged), home),
                Cell(percent(test["pixels_seen"]), test["pixels_seen"], home),
                Cell(percent(learned.majority), learned.majority, home),
            ]
        )
        if test.get("warning"):
            notes.append(f"{name}: {test['warning']}.")
    if len(notes) > 6:
        notes[6:] = [f"{len(notes) - 6} more have a warning in their files."]
    return Table("networks", "Networks", columns, rows, " ".join(notes))


def _sequences(run: Run, link: Link) -> Table:
    columns = ("sequences", "attribute", "images", "glimpses", "entropy at first", "before last", "evaluations", "s")
    note = "Mean entropy of the posterior (nats) before the first and before the last glimpse; evaluations of the "
    table = Table("sequences", "Sequences", columns, note=note + "posterior and seconds that they took.")
    for one in run.sequences:
        lines, done = link(one.folder / "sequences.jsonl"), link(one.folder / "done.json")
        entropy = one.sequences.entropy_before
        first, last = (None, None) if entropy is None else (entropy[:, 0].mean(), entropy[:, -1].mean())
        spent, seconds = one.done.get("evaluations"), one.done.get("seconds")
        attribute = one.sequences.attribute or "-"
        table.rows.append(
            [
                Cell(one.name, one.name, link(one.folder / "manifest.json")),
                Cell(attribute, attribute),
                Cell(f"{len(one.sequences):,}", len(one.sequences), lines),
                Cell(str(one.sequences.length), one.sequences.length, lines),
                Cell("-" if first is None else f"{first:z.3f}", sortable(first), lines),
                Cell("-" if last is None else f"{last:z.3f}", sortable(last), lines),
                Cell("-" if spent is None else f"{spent:,}", sortable(spent), done if spent else ""),
                Cell("-" if seconds is None else f"{seconds:,.0f}", sortable(seconds), done if seconds else ""),
            ]
        )
    return table


def _posterior(run: Run, link: Link) -> Table:
    columns = ("glimpses", "accuracy", "cross-entropy (nats)", "entropy (nats)", "calibration error")
    found = run.posterior or {}
    note = f"Trained on {found.get('trained_on', 'unknown images')}; evaluated at random locations, calibrated."
    table = Table("posterior", "Posterior", columns, note=note)
    href = link(run.folder / "posterior" / "evaluation.json")
    for row in quoted_table(found):
        numbers = [row[name] for name in ("cross_entropy", "entropy", "calibration_error")]
        cells = [Cell(str(row["glimpses"]), row["glimpses"]), Cell(percent(row["accuracy"]), row["accuracy"], href)]
        table.rows.append([*cells, *(Cell(f"{number:.4f}", number, href) for number in numbers)])
    return table


def _completions(run: Run, link: Link) -> Table:
    names = {
        "effective_sample_size": "effective sample size",
        "unique_completions": "distinct",
        "coverage_of_range": "true pixel in range",
        "log_likelihood_per_number": "log-likelihood",
        "diversity": "diversity",
        "error_of_mean": "error of mean",
    }
    note = "Glimpses at random locations; measured on hidden patches. Diversity and error are in grey levels."
    table = Table("completions", "Completions", ("images", "glimpses", *names.values()), note=note)
    for path, found in run.completions.items():
        for row in found["by_glimpses"]:
            cells = [Cell(found["split"], found["split"]), Cell(str(row["observed"]), row["observed"])]
            for name in names:
                text = "-" if row[name] is None else f"{row[name]:,.2f}"
                text = percent(row[name]) if name.startswith("coverage") else text
                cells.append(Cell(text, sortable(row[name]), link(path)))
            table.rows.append(cells)
    return table


def _data(run: Run, link: Link) -> Table:
    found = run.inspection or {}
    note = " ".join(found.get("notes", ()))
    table = Table("data", "Data", ("split", "images"), note=note)
    home = next((path for path in (run.folder / "data", run.folder) if (path / "inspect.json").is_file()), run.folder)
    for split, number in found.get("splits", {}).items():
        table.rows.append([Cell(split, split), Cell(f"{number:,}", number, link(home / "inspect.json"))])
    return table


def _stages(run: Run, link: Link) -> Table:
    columns = ("stage", "seconds", "finished", "nogs", "python", "torch", "device")
    table = Table("stages", "Stages and versions", columns)
    for path, found in run.stages.items():
        made = found.get("versions", {})
        stage, seconds = str(found.get("stage", path.parent.name)), float(found.get("seconds", 0))
        time = str(found.get("time", "")).replace("T", " ").replace("+00:00", " UTC")
        cells = [Cell(stage, stage, link(path)), Cell(f"{seconds:,.1f}", seconds, link(path)), Cell(time, time)]
        cells += [Cell(str(made.get(n) or "-"), str(made.get(n) or "")) for n in ("nogs", "python", "torch", "device")]
        table.rows.append(cells)
    return table


def _measure(name: str, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    if "accuracy" in name:
        return percent(value)
    return f"{value:z.3f}" if name == "nll" else f"{value:,.0f}"
