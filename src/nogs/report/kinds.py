"""Kinds of completion side by side, as `nogs bank compare` measured them: a table and a figure's plate."""

from __future__ import annotations

from collections.abc import Iterator

from nogs.report.cells import Cell, Link, Table, percent, sortable
from nogs.report.contents import COMPARED, Run
from nogs.report.plates import Plate
from nogs.report.quality import kinds_figure

__all__ = ["kinds_plates", "kinds_table"]

_MEASURES = {
    "seconds_per_image": ("s an image", "{:.3g}"),
    "effective_sample_size": ("effective sample size", "{:.1f}"),
    "coverage_of_central_90_percent": ("true pixel in central 90 %", ""),
    "log_likelihood_per_number": ("log-likelihood", "{:.3f}"),
    "error_of_mean": ("error of mean", "{:.1f}"),
    "diversity": ("diversity", "{:.1f}"),
    "sharpness": ("sharpness", "{:.2f}"),
}


def kinds_table(run: Run, *, link: Link) -> list[Table]:
    """Measures after the most glimpses, a row for each kind; with a judge, the scores of their sequences."""
    if run.kinds is None:
        return []
    href = link(run.folder / "bank" / "evaluation" / COMPARED)
    judged = run.kinds.get("sequences", {}).get("ways", {})
    columns = ["kind", *(words for words, _ in _MEASURES.values())]
    if judged:
        columns += ["judge's entropy (nats)", "judge's accuracy"]
    glimpses = next(iter(run.kinds["kinds"].values()))[-1]["observed"]
    note = (
        f"{run.kinds['images']} images of the split {run.kinds['split']}, {glimpses} glimpses at random locations, "
        "measured on hidden patches. Error and diversity are in grey levels, sharpness is relative to the true images."
    )
    if judged:
        number = run.kinds["sequences"]["images"]
        note += f" The judge, another posterior, scores the sequences that each kind makes for {number} images."
    table = Table("kinds", "Kinds of completion", tuple(columns), note=note)
    for kind, rows in run.kinds["kinds"].items():
        cells = [Cell(kind, kind)]
        for name, (_, form) in _MEASURES.items():
            value = rows[-1][name]
            text = "-" if value is None else form.format(value) if form else percent(value)
            cells.append(Cell(text, sortable(value), href))
        if kind in judged:
            entropy, accuracy = (judged[kind]["measures"][name]["mean"][-1] for name in ("entropy", "accuracy"))
            cells += [Cell(f"{entropy:z.3f}", entropy, href), Cell(percent(accuracy), accuracy, href)]
        table.rows.append(cells)
    return [table]


def kinds_plates(run: Run) -> Iterator[Plate]:
    """The same measures, by number of glimpses."""
    if run.kinds is None:
        return
    yield Plate(
        "kinds",
        "Kinds of completion",
        "How well each kind predicts hidden patches (nogs bank compare). A higher log-likelihood and a lower error of "
        "the mean are better; the central 90 % should hold 90 % of the true pixels.",
        kinds_figure(run.kinds["kinds"]),
        (run.folder / "bank" / "evaluation" / COMPARED, run.folder / "bank" / "evaluation" / "compare.png"),
        kinds_figure(run.kinds["kinds"], columns=1),
    )
