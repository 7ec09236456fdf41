"""The stage `report`: one page about a run."""

from __future__ import annotations

from pathlib import Path

import nogs.report
from nogs.runtime.progress import working
from nogs.stages import data
from nogs.stages.experiment import Experiment

__all__ = ["write"]


@working("report")
def write(experiment: Experiment) -> Path:
    """Write the page and its figures."""
    data.prepare(experiment)
    page = nogs.report.write_report([experiment.folder], task=experiment.task, device=experiment.settings.device)
    experiment.tell(f"{experiment.head('report')}: {page}")
    return page
