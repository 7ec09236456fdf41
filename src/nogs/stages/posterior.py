"""The stage `posterior`: the classifier of glimpses, trained here or taken from a file that fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nogs.posterior.crossfit import uncalibrated
from nogs.posterior.evaluation import Row
from nogs.posterior.evaluation import evaluate as evaluate_posterior
from nogs.posterior.labels import label_table
from nogs.posterior.outcome import adopt, write_figure
from nogs.posterior.queries import fixed_pixels, resident
from nogs.posterior.store import find_posterior, load_posterior, misfit
from nogs.posterior.training import FILE, train_posterior
from nogs.recipes import Recipe, recipe
from nogs.runtime.device import versions
from nogs.runtime.errors import InputError
from nogs.runtime.fields import differing, dotted
from nogs.runtime.files import read_json, write_json
from nogs.runtime.fingerprint import file_digest
from nogs.runtime.progress import track, working
from nogs.sequences import load_for
from nogs.stages import data, estimates
from nogs.stages.experiment import Experiment

__all__ = ["check_glimpses", "evaluate", "find", "name_of", "needed", "train", "trained_here"]


@working("posterior")
def train(experiment: Experiment) -> Path:
    """Train the posterior, or take a given or published one; with its tables and a plot."""
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    folder, config = experiment.folder / "posterior", recipe.posterior
    ready = _ready(experiment)
    if ready is not None:
        made_from = {"file": file_digest(find_posterior(ready))}
        check_glimpses(experiment, ready)
    else:
        made_from = _fields(experiment)
    data.prepare(experiment)
    experiment.enter("posterior", made_from)
    if ready is not None:
        if not experiment.skipped("posterior", folder):
            own = "" if settings.posterior else "; --published None trains one here"
            experiment.tell(f"{experiment.head('posterior')}: {ready}, already trained{own}.")
            found = adopt(ready, folder / FILE, task=task)
            if "tables" in found:
                experiment.tell(f"  {_scores(found)}")
        return folder
    with experiment.threads("posterior"):
        if not experiment.skipped("posterior", folder):
            experiment.announce(
                "posterior",
                "training the classifier of glimpses",
                lambda: estimates.posterior(recipe, task, device=experiment.device, data=settings.data),
            )
        train_posterior(
            task,
            config=config,
            glimpses=recipe.glimpses,
            folder=folder,
            seed=recipe.seed,
            device=settings.device,
            data=settings.data,
        )
    found = read_json(folder / "evaluation.json")
    experiment.tell(f"  {_scores(found)} ({found['training_seconds']:.0f} s)")
    return folder


def find(experiment: Experiment) -> str | None:
    """The posterior for a later stage: the given one, the run's own, or the recipe's published one.

    An unfinished one, or a published one that does not fit, is refused.
    """
    recipe, task, own = experiment.recipe, experiment.task, experiment.folder / "posterior" / FILE
    if (given := experiment.settings.posterior) is not None:
        return given
    if own.is_file():
        return str(own)
    if (own.parent / "stage.json").is_file():
        raise InputError(
            f"The training of the posterior in {own.parent} is not finished; resume it with nogs posterior train, or "
            "give --posterior."
        )
    if recipe.published is None:
        return None
    why = misfit(recipe.published, task, glimpses=recipe.glimpses)
    if why is not None:
        raise InputError(
            f"The published posterior {recipe.published} can't be used: {why}; train one with nogs posterior train or "
            "give --posterior."
        )
    experiment.tell(f"Using the published posterior {recipe.published}.")
    return recipe.published


def evaluate(
    experiment: Experiment, *, split: str, sequences: Path | None = None, attribute: str | None = None
) -> tuple[Path, dict[str, list[Row]]]:
    """Evaluate a trained posterior on a split, at random locations and along sequences; the file and its tables."""
    recipe, task, device = experiment.recipe, experiment.task, experiment.device
    source = needed(experiment)
    calibrated = load_posterior(source, task=task, device=device, precision=recipe.posterior.precision)
    raw = uncalibrated(calibrated, precision=recipe.posterior.precision)
    variables = None if attribute is None else [task.attribute(attribute)]
    images, labels = resident(task.images, device), torch.from_numpy(label_table(task)).to(device)
    rows = torch.from_numpy(task.rows(split)).to(device)
    random = fixed_pixels(
        len(rows),
        glimpses=calibrated.glimpses,
        grid=task.grid,
        locations=recipe.posterior.locations,
        seed=recipe.seed,
        purpose=f"evaluation {split}",
        device=device,
    )
    looks = {f"{split}, random locations": (rows, random)}
    if sequences is not None:
        given = load_for(sequences, task=task, attribute=attribute, held_out=True)
        pixels = torch.from_numpy(given.locations[:, : calibrated.glimpses]).to(device)
        looks["along the sequences"] = (torch.from_numpy(task.rows(given.ids)).to(device), pixels)
    tables: dict[str, list[Row]] = {}
    kinds = {"before calibration": raw, "calibrated": calibrated}
    total = len(kinds) * sum(len(chosen) * (where.shape[1] + 1) for chosen, where in looks.values())
    with track("evaluating", total=total, unit="evaluations") as bar:
        for look, (chosen, where) in looks.items():
            for name, posterior in kinds.items():
                tables[f"{look}, {name}"] = evaluate_posterior(
                    posterior, images, labels, chosen, where, variables=variables, advance=bar.advance
                )
    path = experiment.folder / "posterior" / f"evaluation-{split}.json"
    write_json(path, {"posterior": source, "versions": versions(device), "tables": tables})
    write_figure(path.with_suffix(".png"), tables, title=f"posterior of {task.title}")
    return path, tables


def needed(experiment: Experiment) -> str:
    """The posterior for a stage that requires one; a missing or unfit one is refused."""
    source = find(experiment)
    if source is None:
        raise InputError(
            f"{experiment.folder} holds no posterior; train one with nogs posterior train, or give --posterior."
        )
    return source


def check_glimpses(experiment: Experiment, source: str) -> None:
    """Refuse a posterior of another task, or for fewer glimpses than the recipe asks for."""
    known, wanted = load_posterior(source, task=experiment.task).glimpses, experiment.recipe.glimpses
    if known < wanted:
        raise InputError(
            f"The posterior {source} was trained for up to {known} glimpses, not {wanted}; train one with --glimpses "
            f"{wanted}, or give another --posterior."
        )


def name_of(source: str) -> str:
    """Name of a posterior in the record of sequences: its file, or the file of which the run's own is a copy."""
    path = find_posterior(source)
    done = path.with_name("done.json")
    return str((read_json(done) if done.is_file() else {}).get("source", path.stem))


def trained_here(found: Recipe) -> tuple[Recipe, str | None]:
    """The recipe without its published posterior, if its training fields were changed, and a line about that."""
    usual = recipe(found.data.kind)
    if found.published is None or found.published != usual.published:
        return found, None
    before, now = (dotted(one.posterior.model_dump(exclude={"precision"})) for one in (usual, found))
    for name in differing(before, now):
        why = f"posterior.{name} is {now[name]!r}, unlike the published posterior's, so a new one is trained."
        return found.model_copy(update={"published": None}), why
    return found, None


def _ready(experiment: Experiment) -> str | None:
    """A posterior that needs no training: given, published and fitting, or taken by this run before."""
    recipe, given = experiment.recipe, experiment.settings.posterior
    if given is not None or recipe.published is None:
        return given
    own, entry = experiment.folder / "posterior" / FILE, experiment.ledger.entries.get("posterior")
    if own.is_file() and entry == {"file": file_digest(own)}:
        return str(own)
    if own.is_file() and entry == experiment.ledger.plain(_fields(experiment)):
        return None  # trained for this run, with these fields
    why = misfit(recipe.published, experiment.task, glimpses=recipe.glimpses)
    if why is not None:
        experiment.tell(f"The published posterior {recipe.published} is not used: {why}.")
    return recipe.published if why is None else None


def _fields(experiment: Experiment) -> dict[str, Any]:
    """Record of a posterior that is trained here."""
    config = experiment.recipe.posterior.model_dump(mode="json")
    return {"posterior": config, **experiment.common()}


def _scores(about: dict[str, Any]) -> str:
    """Scores after the most glimpses, in words."""
    last = about["tables"]["test, calibrated"][-1]
    return (
        f"test accuracy {last['accuracy']:.1%} after {last['glimpses']} glimpses at random locations, cross-entropy "
        f"{last['cross_entropy']:z.2f} nats"
    )
