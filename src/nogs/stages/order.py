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
from nogs.runtime.spelling import instead
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
    conclude: Callable[[str], None] | None = None,
) -> Path:
    """Run the stages of `recipe` in `folder`; returns the report's path, or the folder of the stage `until`.

    Finished stages are skipped, stopped ones resume, and those made from other inputs are made again. `tell` gets a
    few lines per stage: its work, its estimated time and its results. `conclude` gets the verdict, in place of `tell`.
    """
    if until not in STAGES:
        meant = instead(until, STAGES, otherwise=f"choose {', '.join(STAGES)}.")
        raise InputError(f"There is no stage {until!r}; {meant}")
    settings = replace(remembered(settings or Settings(), run=Path(folder)), redo=True)
    if settings.posterior is None:
        recipe, why = posterior.trained_here(recipe)
        if why:
            tell(why)
    if until != "data":
        _check_methods(recipe, settings)
    if recipe.data.kind != "digits" and settings.estimate:
        recipe.data.check_glimpses(recipe.glimpses)
        tell(data.decoding(recipe, settings))
    experiment = Experiment(recipe, folder, settings, tell=tell, whole=True)
    if until != "data":
        _check_labels(experiment)
    with only_one(folder):
        for stage in STAGES[: STAGES.index(until) + 1]:
            if stage in _FOR_SEQUENCES and until not in _FOR_SEQUENCES and "ps-nogs" not in settings.method:
                tell(f"{experiment.head(stage)}: skipped; only ps-nogs needs it.")
            else:
                _do(stage)(experiment)
        if until in ("attention", "report"):
            (conclude or tell)("\n" + "\n".join(verdict.write(experiment.folder)))
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


def _check_methods(recipe: Recipe, settings: Settings) -> None:
    """Refuse at once what a later stage would refuse after hours."""
    config = recipe.posterior
    attention.check(recipe, settings.method, sequences=True)
    on_posterior = [method for method in settings.method if method in ON_POSTERIOR]
    if on_posterior and settings.posterior is None and (config.kind != "tokens" or config.folds > 1):
        kind = "a CNN" if config.kind != "tokens" else "cross-fitted"
        raise InputError(
            f"The methods {', '.join(on_posterior)} can't use this posterior, which is {kind}; leave them out with "
            "--method ram ps-nogs, or train one of kind tokens without folds."
        )


def _check_labels(experiment: Experiment) -> None:
    """Refuse, as `_check_methods`, what can only be checked with the labels."""
    settings = experiment.settings
    experiment.attributes  # noqa: B018 - raises if none is chosen of several
    if not experiment.task.splits["annotate"] and "ps-nogs" in settings.method:
        raise InputError(f"Task {experiment.task.title!r} has no images to annotate; raise data.annotated.")
