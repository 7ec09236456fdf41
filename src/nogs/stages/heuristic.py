"""The stage `heuristic`: the saliency of each location before any glimpse (Eq. 17), which some methods need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from nogs.attention.methods import needs_heuristic
from nogs.data.task import Task
from nogs.design.blocks import FIRST
from nogs.design.steps import Tools, first_step
from nogs.design.tools import bank_folder
from nogs.posterior.store import find_posterior, load_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_json
from nogs.runtime.fingerprint import file_digest
from nogs.stages.experiment import Experiment
from nogs.stages.figures import save_figure
from nogs.stages.posterior import find
from nogs.supervision import Heuristic, load_heuristic, save_heuristic
from nogs.supervision.heuristic import FILE, ImagePrior
from nogs.supervision.picture import heuristic_figure

__all__ = ["draw", "find_map", "made_from", "make_map"]


def find_map(experiment: Experiment, methods: Sequence[str]) -> Path | None:
    """The path of the map that some methods need: given, from the run's annotation, made before, or made now.

    A map made before with another posterior or bank than now is refused. Without a posterior there is no map, and the
    method reports what is missing.
    """
    recipe, task, settings = experiment.recipe, experiment.task, experiment.settings
    if settings.heuristic is not None or not any(needs_heuristic(method, recipe.attention) for method in methods):
        return settings.heuristic
    if (experiment.folder / "sequences" / FIRST).is_file():
        return experiment.folder / "sequences"
    kept = experiment.folder / "heuristic"
    there = (kept / FILE).is_file()
    try:
        posterior = find(experiment)
    except InputError:
        if not there or settings.posterior is not None:
            raise
        posterior = None
    if posterior is None:
        return kept if there else None
    own = experiment.folder / "bank"
    bank = settings.bank or (own if (own / "done.json").is_file() else None)
    if there:
        before, now = load_heuristic(kept, task=task).provenance, made_from(posterior, bank)
        others = {"posterior_digest": "another posterior", "over": "other images", "bank": "another bank"}
        # a map from elsewhere may have no record of what it was made from
        for other in (others[name] for name in others if name in before and before[name] != now.get(name)):
            raise InputError(
                f"{kept} holds a map that was made with {other} than this command would use; delete that folder, "
                f"choose another --out, or take the map as it is with --heuristic {kept}."
            )
        return kept
    found = make_map(experiment, posterior=posterior, bank=bank)
    save_heuristic(found, kept, task=task)
    if task.space.kind == "categorical":
        draw(found, task, None, folder=kept)
    return kept


def make_map(experiment: Experiment, *, posterior: str | None, bank: Path | None) -> Heuristic:
    """The expected posterior entropy of every location with nothing seen, over a bank or the validation images."""
    recipe, task = experiment.recipe, experiment.task
    if posterior is None:
        raise InputError(
            f"The heuristic needs a posterior: train one with nogs posterior train {recipe.name} --out RUN, and give "
            "--posterior RUN/posterior/posterior.safetensors; or give a map that was made before."
        )
    load_posterior(posterior, task=task)  # one of another task is refused
    provenance = {**made_from(posterior, bank), "seed": recipe.seed}
    if bank is not None:
        tools = experiment.files(posterior, bank_folder(bank))()
    else:
        rows, device = task.rows("validation"), experiment.device
        provenance["images"] = len(rows)
        prior = ImagePrior(torch.from_numpy(np.array(task.images[rows])).to(device), fingerprint=task.fingerprint)
        batch = recipe.design.batch_on(device.type)
        opened = load_posterior(posterior, device=device, precision=recipe.posterior.precision, chunk=batch)
        tools = Tools(opened, prior, device)
    experiment.tell(
        f"Computing the expected posterior entropy of {len(task.grid):,} locations over {provenance['over']}."
    )
    first = first_step(tools, np.array(task.images[0]), config=recipe.design, shown=True)
    return Heuristic(first.map.estimate.double().numpy(), first.map.error.double().numpy(), provenance)


def made_from(posterior: str, bank: Path | None) -> dict[str, str]:
    """The posterior and the bank of a map, for its provenance."""
    digest = {"posterior_digest": file_digest(find_posterior(posterior))}
    if bank is None:
        return {**digest, "over": "validation images"}
    return {**digest, "over": "bank", "bank": read_json(bank_folder(bank) / "done.json")["fingerprint"]}


def draw(found: Heuristic, task: Task, attribute: str | None, *, folder: Path) -> None:
    """Write heuristic[-ATTRIBUTE].png, and .json with the map and its provenance."""
    epe = found.of(task, attribute)
    name = "heuristic" + (f"-{attribute}" if attribute else "")
    title = task.title + (f", {attribute}" if attribute else "")
    save_figure(heuristic_figure(epe, task.grid, title=title), folder / f"{name}.png")
    write_json(
        folder / f"{name}.json",
        {
            "task": task.name,
            "attribute": attribute,
            "most_salient": task.grid.pixels[int(epe.argmin())].tolist(),
            "epe": epe.reshape(task.grid.shape).round(6).tolist(),
            "largest_error": float(np.nan_to_num(found.error).max()),
            "provenance": dict(found.provenance),
        },
    )
