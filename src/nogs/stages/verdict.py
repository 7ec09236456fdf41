"""What a run found, in a sentence or two: for the terminal, and for programs in `attention/verdict.json`."""

from __future__ import annotations

from pathlib import Path

from nogs.report.contents import read_run
from nogs.report.verdict import verdict
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_sealed

__all__ = ["FILE", "write"]

FILE = "verdict.json"


def write(run: Path) -> list[str]:
    """Write what the networks of a run are worth; the sentences. A run without networks has none."""
    try:
        found = verdict(read_run(run))
    except InputError as error:  # what is damaged elsewhere in the run takes nothing from what was trained
        return [f"There is no verdict: {error}"]
    if found is None:
        return []
    write_sealed(run / "attention" / FILE, found.to_json())
    return found.lines
