"""Methods side by side: tables, raw curves and figures of the networks of some runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nogs.attention.comparison import compare, curves_json, read_run
from nogs.attention.comparison_tables import legend, table, tasks_table
from nogs.report.learning import convergence_figure, curves_figure
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_json, write_text
from nogs.runtime.spelling import instead
from nogs.stages.figures import save_figure

__all__ = ["check_reference", "write"]


def write(
    runs: Sequence[Path], *, folder: Path, reference: str, only: Sequence[Path] | None = None
) -> tuple[dict[str, Any], str]:
    """Write a comparison of the runs' networks, or of `only` those in these folders, into `folder`; the numbers, and
    the table with its columns in words."""
    networks = [network for run in runs for network in read_run(run, only=only)]
    if only is not None:
        reference = next((n.method for n in networks if n.method.partition(",")[0] == reference), reference)
    methods = sorted({network.method for network in networks})
    check_reference(reference, methods)
    networks.sort(key=lambda network: network.method != reference)
    found = compare(networks, reference=reference)
    write_text(folder / "curves.json", curves_json(networks))
    write_json(folder / "comparison.json", found)
    write_text(folder / "table.md", table(found) + "\n")
    several = len(found["tasks"]) > 1
    if several:
        write_text(folder / "attributes.md", tasks_table(found) + "\n")
    else:  # left by an earlier comparison of several attributes
        for name in ("attributes.md", "convergence.png", "convergence.svg"):
            (folder / name).unlink(missing_ok=True)
    figures = {"curves": curves_figure(networks)}
    if several:
        figures["convergence"] = convergence_figure(found, networks)
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            save_figure(figure, folder / f"{name}.{kind}", kind=kind)
    return found, f"{table(found)}\n\n{legend(found)}"


def check_reference(reference: str, methods: Sequence[str]) -> None:
    """Refuse a reference that is not among the methods."""
    if reference not in methods:
        meant = instead(reference, methods, otherwise=f"--reference may be {', or '.join(methods)}.")
        raise InputError(f"There is no method {reference!r} among these; {meant}")
