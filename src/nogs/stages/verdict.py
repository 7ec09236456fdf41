"""The verdict of a run: sentences for the terminal, and `attention/verdict.json` for programs."""

from __future__ import annotations

from pathlib import Path

from nogs.report.contents import read_run
from nogs.report.verdict import verdict
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed

__all__ = ["FILE", "write"]

FILE = "verdict.json"


def write(run: Path) -> list[str]:
    """Write the verdict of a run, and return its sentences; none for a run without networks."""
    try:
        found = verdict(read_run(run))
    except InputError as error:  # damage elsewhere in the run must not fail a finished training
        return [f"There is no verdict: {error}"]
    if found is None:
        return []
    write_sealed(run / "attention" / FILE, found.to_json())
    return found.lines
