"""The stage `data`: a run's recipe, its splits, their contents, and the path of its pictures."""

from __future__ import annotations

import os
from pathlib import Path

from nogs.data import Task, cache_folder, read_catalogue, write_splits
from nogs.data.cache import shortage
from nogs.data.inspect import contact_sheet, describe
from nogs.recipes import Recipe
from nogs.recipes.times import about
from nogs.report.contents import LOCAL
from nogs.runtime.files import read_sealed, write_json, write_sealed
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.progress import working
from nogs.runtime.stage import Stage
from nogs.stages.estimates import decoding_seconds
from nogs.stages.experiment import Experiment
from nogs.stages.figures import save_figure
from nogs.stages.settings import Settings

__all__ = ["decoding", "prepare", "remarks"]


@working("data")
def prepare(experiment: Experiment) -> Path:
    """Write a run's recipe, the ids of its splits, counts of its labels and a contact sheet; once per experiment."""
    recipe, task, folder = experiment.recipe, experiment.task, experiment.folder / "data"
    if experiment.prepared:
        return folder
    config = recipe.data.remembering(False)
    experiment.enter("data", {"data": config.model_dump(mode="json"), "from data": task.fingerprint})
    stage = Stage(folder, name="data", fingerprint=fingerprint(config, task.fingerprint))
    stage.check_folder()
    new = not stage.done
    if new:
        stage.begin()
        write_splits(task, folder)
        write_json(folder / "inspect.json", describe(task))
        save_figure(contact_sheet(task, seed=recipe.seed, glimpses=recipe.glimpses), folder / "contact-sheet.png")
        stage.finish(images=len(task.ids), notes=list(task.notes))
    kept = recipe.model_copy(update={"data": config.remembering(bool(task.skipped))})
    kept.to_yaml(experiment.folder / "recipe.yaml")
    _remember(experiment)
    splits = ", ".join(f"{len(task.splits[name]):,} {name}" for name in ("train", "validation", "test"))
    labels = f"{len(task.space.names)} {'classes' if task.space.kind == 'categorical' else 'attributes'}"
    if new or experiment.whole:
        experiment.tell(
            f"{experiment.head('data')}: {len(task.ids):,} images of {task.grid.height} px, {labels} ({splits}); "
            f"{len(task.splits['annotate']):,} are for sequences or the fixed order, and do not train the posterior."
        )
    if new:
        for line in remarks(task):
            experiment.tell(line)
    experiment.prepared = True
    return folder


def _remember(experiment: Experiment) -> None:
    """Record the path of the data on this machine, and the first command of the run."""
    path = experiment.folder / LOCAL
    places = {name: getattr(experiment.settings, name) for name in ("data", "cache")}
    found = {name: str(place.resolve()) for name, place in places.items() if place}
    before = read_sealed(path).get("command") if path.is_file() else None
    if command := before or experiment.settings.command:
        found["command"] = str(command)
    if found:
        write_sealed(path, found)


def decoding(recipe: Recipe, settings: Settings) -> str:
    """A line about the decoding of the pictures, with its estimated time."""
    found = read_catalogue(recipe.data, data=settings.data, cache=settings.cache)
    told = f"Decoding {len(found.ids):,} pictures, unless they are in the cache"
    if shortage(settings.cache or cache_folder(), images=len(found.ids), size=found.how.size):
        return f"{told}."  # refused in a moment, unless they are in the cache
    return f"{told}; {about(decoding_seconds(found, workers=os.cpu_count() or 1))}."


def remarks(task: Task, *, uneven: float = 3) -> list[str]:
    """Notes from loading, and a note if the classes are imbalanced."""
    found = describe(task)
    out = [f"note: {note}" for note in found["notes"]]
    if found["labels"]["kind"] != "categorical":
        return out
    counts = {name: count for name, count in found["labels"]["train"].items() if count}
    least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[most] > uneven * counts[least]:
        out.append(
            f"note: The classes are imbalanced: {counts[most]:,} training images are {most!r} and {counts[least]:,} "
            f"are {least!r}; look at the balanced accuracies too."
        )
    return out
