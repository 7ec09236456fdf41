"""All stages of a run, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nogs.attention.methods import ON_POSTERIOR
from nogs.recipes import Recipe
from nogs.runtime import progress
from nogs.runtime.errors import InputError
from nogs.runtime.lock import only_one
from nogs.stages import attention, bank, data, posterior, report, sequences, verdict, whole
from nogs.stages.experiment import STAGES, Experiment
from nogs.stages.settings import Settings, remembered

__all__ = ["run"]

_FOR_SEQUENCES = ("bank", "sequences")


def run(
    recipe: Recipe,
    folder: Path,
    settings: Settings | None = None,
    *,
    until: str = "report",
    tell: Callable[[str], None] = progress.say,
) -> Path:
    """Do the stages of `recipe` in `folder`; returns the report's page, or the folder of the stage `until`.

    What is done is skipped, what was begun goes on, and what was made from something else is made again. `tell` gets a
    line or a few for each stage: what is to come, how long it will take, and the numbers that came out.
    """
    if until not in STAGES:
        raise InputError(f"There is no stage {until!r}; choose {', '.join(STAGES)}.")
    settings = replace(remembered(settings or Settings(), run=Path(folder)), redo=True)
    settings.check()
    if settings.posterior is None:
        recipe, why = posterior.trained_here(recipe)
        if why:
            tell(why)
    if recipe.data.kind != "digits" and settings.estimate:
        recipe.data.check_glimpses(recipe.glimpses)
        tell(data.decoding(recipe, settings))
    experiment = Experiment(recipe, folder, settings, tell=tell, whole=True)
    if until != "data":
        _check(experiment)
    with only_one(folder):
        for stage in STAGES[: STAGES.index(until) + 1]:
            if stage in _FOR_SEQUENCES and until not in _FOR_SEQUENCES and "ps-nogs" not in settings.method:
                tell(f"{experiment.head(stage)}: left out, only ps-nogs needs it.")
            else:
                _do(stage)(experiment)
        if until in ("attention", "report"):
            tell("\n" + "\n".join(verdict.write(experiment.folder)))
    return experiment.folder / ("report.html" if until == "report" else until)


def _do(stage: str) -> Callable[[Experiment], object]:
    return {
        "data": data.prepare,
        "posterior": posterior.train,
        "bank": bank.build,
        "sequences": sequences.annotate,
        "whole-image": whole.train,
        "attention": attention.train,
        "report": report.write,
    }[stage]


def _check(experiment: Experiment) -> None:
    """Refuse at once what a later stage would refuse after hours."""
    task = experiment.task
    experiment.attributes  # noqa: B018 - refused, if a task with attributes has none
    if not task.splits["annotate"] and "ps-nogs" in experiment.settings.method:
        raise InputError(f"Task {task.title!r} has no images to annotate; raise data.annotated.")
    config, settings = experiment.recipe.posterior, experiment.settings
    standing = [method for method in settings.method if method in ON_POSTERIOR]
    if standing and settings.posterior is None and (config.kind != "tokens" or config.folds > 1):
        kind = "a CNN" if config.kind != "tokens" else "cross-fitted"
        raise InputError(
            f"The methods {', '.join(standing)} stand on the posterior, which is {kind} here and can't look glimpse by "
            "glimpse; leave them out with --method ram ps-nogs, or train one of kind tokens without folds."
        )
