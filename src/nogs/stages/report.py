"""The stage `report`: one page about a run."""

from __future__ import annotations

from pathlib import Path

import nogs.report
from nogs.runtime.device import versions
from nogs.runtime.files import write_text
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.progress import working
from nogs.stages import data, verdict
from nogs.stages.experiment import Experiment

__all__ = ["write"]


@working("report")
def write(experiment: Experiment) -> Path:
    """Write the page and its figures, unless they are there and nothing that they show has changed."""
    data.prepare(experiment)
    page = experiment.folder / "report.html"
    mark = page.with_suffix("") / "made-from.txt"
    if page.is_file() and mark.is_file() and mark.read_text(errors="replace") == _shown(page):
        experiment.tell(f"{experiment.head('report')}: already done.")
        return page
    nogs.report.write_report([experiment.folder], task=experiment.task, device=experiment.settings.device)
    write_text(mark, _shown(page))
    experiment.tell(f"{experiment.head('report')}: {page}")
    return page


def _shown(page: Path) -> str:
    """Digest of the page, which `nogs report` may have written since, of the version of nogs, of the run's recipe, and
    of its small files, which include the digests of all others."""
    folder = page.parent
    names = {path: path.relative_to(folder) for path in (folder / "recipe.yaml", *folder.rglob("*.json"))}
    derived = {"report", verdict.FILE}
    digests = {name.as_posix(): file_digest(path) for path, name in names.items() if not derived & {*name.parts}}
    return fingerprint(file_digest(page), versions(), digests)
