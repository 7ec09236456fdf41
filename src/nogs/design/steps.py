"""The steps of a sequence: the first, which a whole task shares, and the others, for a block of images at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8
from torch import Tensor

from nogs.completion.protocol import Completion
from nogs.design.bayesopt import BayesOpt
from nogs.design.coarse import CoarseToFine
from nogs.design.config import DesignConfig
from nogs.design.entropies import Entropies, objective, random_order
from nogs.design.epe import EPEMap, estimate, first_minimum
from nogs.design.race import Race
from nogs.design.search import GridSearch, LocationSearch
from nogs.glimpse import Grid
from nogs.posterior.protocol import Posterior, entropy
from nogs.runtime.progress import track
from nogs.runtime.streams import key

__all__ = ["Annotated", "First", "Tools", "allowed_next", "annotate_images", "first_step", "make_search"]


@dataclass(frozen=True)
class Tools:
    """What a worker annotates with; images are moved to the `device` of posterior and completion."""

    posterior: Posterior
    completion: Completion
    device: torch.device


@dataclass(frozen=True)
class First:
    """The first step, the same for every image of a task, for each of A objectives (the label, or each attribute)."""

    location: Int64[Tensor, " A"]
    map: EPEMap  # of A rather than B
    evaluations: int


@dataclass(frozen=True)
class Annotated:
    """T steps of each of B images: indices of locations on the grid, and what was known when each was chosen."""

    locations: Int64[np.ndarray, "B T"]
    entropy: Float64[np.ndarray, "B T"]  # of the posterior before the glimpse
    epe: Float64[np.ndarray, "B T"]
    error: Float64[np.ndarray, "B T"]
    sure: Float64[np.ndarray, "B T"]  # chance that the runner-up is not better; NaN in the first step
    effective: Float64[np.ndarray, "B T"]  # effective number of completions
    evaluations: int  # none for the first step, which was done before
    maps: Float32[np.ndarray, "B T 2 L"] | None  # estimates and errors


def first_step(tools: Tools, image: UInt8[np.ndarray, "H W 3"], *, config: DesignConfig, shown: bool = False) -> First:
    """Algorithm 1 before any glimpse, for every label variable at once, since the evaluations are the same for all.

    `image` may be any image of the task, since its pixels don't matter. `shown` displays progress.
    """
    posterior = tools.posterior
    nothing = torch.zeros(1, 0, 2, dtype=torch.int64)
    completions = tools.completion.complete(torch.from_numpy(image)[None].to(tools.device), nothing, ids=[""])
    variables = objective(posterior.space, None)
    total = int((completions.weights > 0).sum()) * len(posterior.grid)
    with track("the first location", total=total, unit="evaluations") if shown else nullcontext() as bar:
        entropies = Entropies(
            posterior,
            completions,
            nothing,
            objectives=[(variable,) for variable in variables],
            batch=config.batch_on(tools.device.type),
            advance=None if bar is None else bar.advance,
        )
        entropies.fill(torch.ones(1, len(posterior.grid), dtype=torch.bool))
    found = []
    for number in range(len(variables)):
        values, weights = entropies.of(number)[0, : entropies.used[0]], entropies.weights[0, : entropies.used[0]]
        found.append(estimate(values, weights, leader=0, most=entropies.most(number)))
    estimates, errors = (torch.stack(part).cpu() for part in zip(*found))
    tried = torch.full_like(estimates, entropies.used[0], dtype=torch.int64)
    return First(first_minimum(estimates), EPEMap(estimates, errors, tried), entropies.evaluations)


def annotate_images(
    tools: Tools,
    images: UInt8[np.ndarray, "B H W 3"],
    ids: Sequence[str],
    *,
    first: First,
    config: DesignConfig,
    glimpses: int,
    attribute: int | None = None,
    seed: int = 0,
    search: LocationSearch | None = None,
    advance: Callable[[int], object] | None = None,
) -> Annotated:
    """T = `glimpses` greedy steps (Eq. 3) for some images at once; `attribute` names one of several label variables.

    Random numbers are keyed by (seed, image id, step), and every call of the posterior has a fixed shape. So an image's
    sequence does not depend on the other images. `advance` is called with the numbers of evaluations done.
    """
    posterior, grid = tools.posterior, tools.posterior.grid
    search = search or make_search(config)
    variables = objective(posterior.space, attribute)
    pictures = torch.from_numpy(images).to(tools.device)
    pixels = grid.pixels.to(tools.device)
    number = len(ids)
    start = _first_of(first, variables)
    chosen = torch.full((number, 1), start[0], dtype=torch.int64, device=tools.device)
    numbers = {"epe": [start[1]] * number, "error": [start[2]] * number}
    steps = [{**numbers, "sure": [torch.nan] * number, "effective": [float(first.map.tried.max())] * number}]
    maps = [torch.stack(start[3:]).expand(number, 2, len(grid))]
    spent = 0
    for t in range(2, glimpses + 1):
        completions = tools.completion.complete(pictures, pixels[chosen].cpu(), ids=ids)
        known = completions.weights.cpu()  # once, and not image by image
        order = [random_order(w, key=key(seed, "design/order", id, t)) for w, id in zip(known, ids)]
        entropies = Entropies(
            posterior,
            completions,
            pixels[chosen],
            objectives=[variables],
            order=torch.stack(order),
            batch=config.batch_on(tools.device.type),
            advance=advance,
        )
        choice = search.search(entropies, allowed_next(grid, chosen, overlap=config.overlap))
        chosen = torch.cat([chosen, choice.location.to(tools.device)[:, None]], 1)
        steps.append(
            {
                "epe": choice.epe.tolist(),
                "error": choice.error.tolist(),
                "sure": choice.sure.tolist(),
                "effective": completions.effective.double().tolist(),
            }
        )
        if config.keep_maps:
            maps.append(torch.stack([choice.map.estimate, choice.map.error], 1).cpu())
        spent += entropies.evaluations
    columns = {name: np.array([step[name] for step in steps], dtype=np.float64).T for name in steps[0]}
    return Annotated(
        locations=chosen.cpu().numpy(),
        entropy=_entropies(posterior, pictures, pixels[chosen], variables, padded=config.images),
        evaluations=spent,
        maps=torch.stack(maps, 1).float().numpy() if config.keep_maps else None,
        **columns,
    )


def make_search(config: DesignConfig) -> LocationSearch:
    """The search that a recipe names."""
    if config.search == "grid":
        return GridSearch()
    if config.search == "race":
        return Race(
            growth=config.growth,
            stride=config.stride or 1,
            slack=config.slack,
            share=config.share,
            refine=config.refine,
        )
    return CoarseToFine(stride=config.stride or 4) if config.search == "coarse-to-fine" else BayesOpt()


def allowed_next(grid: Grid, chosen: Int64[Tensor, "B T"], *, overlap: float) -> Bool[Tensor, "B L"]:
    """Locations of which no earlier glimpse shows more than the share `overlap`; if there is none, those of which least
    was shown."""
    pixels = grid.pixels.to(chosen.device)
    shown = grid.in_common(pixels[None, None], pixels[chosen][:, :, None]).amax(1)
    return shown <= shown.amin(1, keepdim=True).clamp(min=overlap)


def _first_of(first: First, variables: Sequence[int]) -> tuple[int, float, float, Tensor, Tensor]:
    """Location, estimate and error of the first step, and the map; for several variables, of their sum."""
    chosen = first.map.estimate[list(variables)].sum(0)
    # for a sum only a bound is known: errors of the same sign
    error = first.map.error[list(variables)].sum(0)
    index = int(first_minimum(chosen))
    return index, float(chosen[index]), float(error[index]), chosen, error


def _entropies(
    posterior: Posterior, images: Tensor, pixels: Tensor, variables: Sequence[int], *, padded: int
) -> Float64[np.ndarray, "B T"]:
    """Entropy of the posterior before each glimpse of the true images; a block that is not full is padded."""
    number, glimpses = pixels.shape[:2]
    rows = torch.arange(max(padded, number), device=pixels.device).clamp(max=number - 1)
    out = []
    for t in range(glimpses):
        answers = posterior.log_probabilities(images, pixels[rows, :t], index=rows)
        out.append(entropy(answers)[:number, list(variables)].sum(-1).double().cpu().numpy())
    return np.stack(out, 1)
