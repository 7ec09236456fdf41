"""The stage `bank`: images, their principal components, and how well they complete glimpses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nogs.bank import build_bank, load_bank
from nogs.completion import make_completion, train_completion, weights_file
from nogs.completion.config import LEARNED
from nogs.completion.picture import completion_sheet
from nogs.completion.quality import evaluate_completion, random_locations
from nogs.data.task import Task
from nogs.recipes import Recipe, changed
from nogs.runtime.device import versions
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_json
from nogs.runtime.progress import working
from nogs.stages import data, estimates
from nogs.stages.experiment import Experiment
from nogs.stages.figures import save_figure
from nogs.stages.settings import Settings

__all__ = ["build", "evaluate"]


@working("bank")
def build(experiment: Experiment) -> Path:
    """Build the bank, and measure its completions of some validation images."""
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    folder, config = experiment.folder / "bank", recipe.bank
    data.prepare(experiment)
    experiment.enter("bank", {"bank": config.model_dump(mode="json"), "from data": task.fingerprint})
    with experiment.threads("bank"):
        if not experiment.skipped("bank", folder):
            what = f"{config.count:,} images to complete glimpses with"
            if config.generator == "trained" and not settings.generator_path and config.trained.seconds is not None:
                what += f", from a generator that is trained for at most {config.trained.seconds:g} s"
            experiment.announce(
                "bank",
                what,
                lambda: estimates.bank_seconds(recipe, task, device=experiment.device, path=settings.generator_path),
            )
        about = build_bank(
            task, config=config, folder=folder, generator_path=settings.generator_path, device=settings.device
        )
        experiment.tell(
            f"  {about['images']:,} images of {config.generator}, {about['near_duplicates_left_out']} "
            f"near-duplicates of held-out images left out ({about['seconds']:.0f} s)"
        )
        if recipe.completion.kind in LEARNED:
            _train(experiment, folder)
        # completions by a flow or by HMC take minutes, so the bank is evaluated with retrieval
        slow = recipe.completion.kind in ("flow", "hmc")
        quick = changed(recipe, {"completion.kind": "retrieval"}) if slow else recipe
        found = evaluate(quick, task, settings, folder=folder, redraw=False)
    sizes = " ".join(f"{row['effective_sample_size']:.0f}" for row in found["by_glimpses"])
    experiment.tell(f"  effective number of completions after 0, 1, ... glimpses: {sizes}")
    return folder


def _train(experiment: Experiment, folder: Path) -> None:
    """Train the network of a learned completion, beside the bank."""
    recipe, kind = experiment.recipe, experiment.recipe.completion.kind
    if not (folder / kind / "done.json").is_file():
        fields = recipe.completion.network
        limit = "" if fields.seconds is None else f", for at most {fields.seconds:g} s"
        experiment.tell(f"  training the network of {kind}: {fields.iterations:,} steps{limit}")
    train_completion(
        experiment.task,
        config=recipe.completion,
        glimpses=recipe.glimpses,
        folder=folder / kind,
        rms=recipe.bank.duplicate_rms,
        device=experiment.device,
    )


def evaluate(
    recipe: Recipe,
    task: Task,
    settings: Settings,
    *,
    folder: Path,
    split: str = "validation",
    images: int = 32,
    shown: int = 6,
    redraw: bool = True,
) -> dict[str, Any]:
    """Measure a bank's completions of held-out images, if that is not done yet, and draw some; both are kept in the
    bank's folder. With `redraw` they are drawn also if nothing is measured."""
    opened = load_bank(folder, device=settings.device)
    completion = make_completion(
        opened,
        config=recipe.completion,
        glimpse=task.grid.glimpse,
        seed=recipe.seed,
        weights=weights_file(folder, recipe.completion, generator_path=settings.generator_path),
    )
    ids = task.splits[split][:images]
    if not ids:
        raise InputError(f"Task {task.title!r} has no images in the split {split!r}; choose another --split.")
    path = folder / "evaluation" / f"{split}.json"
    before: dict[str, Any] = read_json(path) if path.is_file() else {"by_glimpses": []}
    measured = [(row["observed"], row["images"]) for row in before["by_glimpses"]]
    wanted = [(observed, len(ids)) for observed in range(recipe.glimpses)]
    done = before.get("completion") == completion.fingerprint and measured == wanted
    if redraw or not done:
        pixels = random_locations(task, ids[:shown], recipe.glimpses - 1, seed=recipe.seed)
        save_figure(completion_sheet(completion, task, ids[:shown], pixels), path.with_name("completions.png"))
    if done:
        return before
    table = evaluate_completion(completion, task, ids, glimpses=recipe.glimpses, seed=recipe.seed)
    found = {"split": split, "completion": completion.fingerprint, "by_glimpses": table, "bank": opened.about}
    write_json(path, {**found, "versions": versions(opened.device)})
    return found
