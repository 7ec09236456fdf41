"""Scores of glimpse sequences and of baselines, glimpse by glimpse, by a posterior that did not make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from nogs.attention.cohort import check_attribute
from nogs.data import Task
from nogs.design.baselines import any_of, centre_out, others, random_locations, salient_first
from nogs.design.blocks import first_map
from nogs.design.entropies import objective
from nogs.design.scoring import compare, follow
from nogs.posterior.labels import label_table
from nogs.posterior.store import find_posterior, identity, load_posterior
from nogs.recipes import Recipe
from nogs.runtime.device import pick_device, versions
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest
from nogs.runtime.progress import track
from nogs.sequences import Sequences, load_for
from nogs.stages.settings import Settings, load

__all__ = ["BASELINES", "SALIENT", "score"]

SALIENT = "most salient first"
BASELINES = ("random", "centre-out", SALIENT)
"""Always scored too; the last only if `nogs annotate` left its first map beside one of the folders."""


def score(
    recipe: Recipe,
    settings: Settings,
    folders: Mapping[str, Path],
    *,
    judge: str,
    attribute: str | None = None,
    elsewhere: str | None = None,
    draws: int = 20,
    own: bool = False,
) -> tuple[Task, dict[str, Any]]:
    """The task, and the record of the scores: `ways` holds those of each folder of sequences and of each baseline.

    `elsewhere` is a split, or `swapped` for the same images along sequences of other images. `draws` sequences per
    image are averaged over, of random locations and with `elsewhere` of each folder. Unless `own`, a judge that made
    the sequences is refused.
    """
    if draws < 1:
        raise InputError(f"--draws must be at least 1, not {draws}.")
    device = pick_device(settings.device)
    task = load(recipe, settings)
    check_attribute(task, attribute)
    column = None if attribute is None else task.attribute(attribute)
    posterior = load_posterior(judge, task=task, device=device, precision=recipe.posterior.precision)
    given = {name: load_for(path, task=task, attribute=attribute, held_out=True) for name, path in folders.items()}
    for name, sequences in given.items():
        if not own and sequences.provenance.get("posterior_identity") == identity(judge):
            raise InputError(f"The judge {judge} made the sequences {name!r} itself; give another one, or pass --own.")
    ids, seed = _images(elsewhere, list(given.values()), task), recipe.seed
    length = min(sequences.length for sequences in given.values())
    ways: dict[str, Int64[Tensor, "D n T 2"]] = {
        name: _followed(sequences, ids, elsewhere=elsewhere, draws=draws, seed=seed)[:, :, :length]
        for name, sequences in given.items()
    }
    pixels, random, centre = task.grid.pixels, *BASELINES[:2]
    ways[random] = pixels[random_locations(task.grid, ids, glimpses=length, draws=draws, seed=seed)]
    ways[centre] = pixels[centre_out(task.grid, glimpses=length)].expand(1, len(ids), -1, -1)
    maps = (first_map(folder, column) for folder in folders.values())
    if (salient := next((found for found in maps if found is not None), None)) is not None:
        ways[SALIENT] = pixels[salient_first(task.grid, salient, glimpses=length)].expand(1, len(ids), -1, -1)
    rows = task.rows(ids)
    images = torch.from_numpy(np.array(task.images[rows])).to(device)
    labels = torch.from_numpy(label_table(task)[rows]).to(device)
    variables = objective(task.space, column)
    total = sum(len(way) for way in ways.values()) * len(ids) * (length + 1)
    with track("scoring", total=total, unit="evaluations") as bar:
        followed = {
            name: follow(posterior, images, labels, way.to(device), variables=variables, advance=bar.advance)
            for name, way in ways.items()
        }
    return task, {
        "task": task.name,
        "attribute": attribute,
        "images": len(ids),
        "judge": file_digest(find_posterior(judge)),
        **({} if elsewhere is None else {"elsewhere": elsewhere, "draws": draws}),
        "versions": versions(device),
        "ways": compare(followed, seed=seed),
    }


def _images(elsewhere: str | None, given: Sequence[Sequences], task: Task) -> list[str]:
    """The images to score on."""
    if elsewhere in ("test", "validation"):
        ids = [task.ids[row] for row in task.rows(elsewhere)]
        if not ids:
            raise InputError(f"Task {task.title!r} has no {elsewhere} images; give another --elsewhere.")
        return ids
    common = [id for id in given[0].ids if all(id in sequences.position for sequences in given)]
    if not common:
        raise InputError(
            "No image has a sequence in all of the folders; score each folder alone, or all with --elsewhere test."
        )
    if elsewhere == "swapped" and len(common) == 1:
        raise InputError("Only one image has a sequence, so there is nothing to swap; leave --elsewhere out.")
    return common


def _followed(
    sequences: Sequences, ids: list[str], *, elsewhere: str | None, draws: int, seed: int
) -> Int64[Tensor, "D n T 2"]:
    """The locations that each image is scored at, one or several times."""
    if elsewhere is None:
        which = sequences.rows(ids)[None]
    elif elsewhere == "swapped":
        which = sequences.rows(ids)[others(ids, draws=draws, seed=seed)]
    else:
        which = any_of(len(sequences), ids, draws=draws, seed=seed).numpy()
    return torch.from_numpy(sequences.locations[which])
