"""Your own pictures, in class folders or with a CSV of labels; and sizes chosen from the data.

`RECIPE` has the defaults of `nogs train folder` and similar commands. `nogs run folder` calls `choose` for sizes that
fit the pictures and the machine. Each has its reason, and none replaces a value that the user set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.augment import AugmentConfig
from nogs.data.config import DataConfig
from nogs.data.folder import Survey, survey
from nogs.design.config import DesignConfig
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import obtain
from nogs.recipes.choices import Choice, Choices
from nogs.recipes.machines import CPU_SIDE, SIDES, for_cpu, for_gpu, least_batch
from nogs.recipes.recipe import Recipe, changed
from nogs.recipes.times import Expected, about, clock
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.whole.config import WholeConfig

__all__ = ["CHOSEN", "RECIPE", "choose", "chosen"]

RECIPE = Recipe(
    name="folder",
    glimpses=5,
    data=DataConfig(kind="folder", image_size=128, glimpse=24, grid_spacing=8),
    posterior=PosteriorConfig(
        token=8,
        width=256,
        layers=6,
        dropout=0.1,
        augment=AugmentConfig(zoom=0.15, turn=10, move=4, colour=0.15),
        optimizer="muon",
        learning_rate=1e-3,
        weight_decay=0.05,
        clip=1,
        schedule="cosine",
        warmup=500,
        batch=256,
        iterations=20_000,
    ),
    bank=BankConfig(count=20_000),
    completion=CompletionConfig(
        proposal="tuned", temperatures=(40.0, 80.0), least_effective=30, proposal_reach=0, exact_reach=2
    ),
    design=DesignConfig(),
    whole=WholeConfig(iterations=3_000, seconds=60),  # about a tenth of a run's time
    attention=AttentionConfig(),
)

CHOSEN = frozenset(
    [
        *("glimpses", "data.image_size", "data.glimpse", "data.grid_spacing", "data.annotated"),
        *(
            f"posterior.{name}"
            for name in ("train_glimpses", "batch", "iterations", "stem", "token", "width", "layers")
        ),
        *(f"posterior.{name}" for name in ("heads", "learning_rate", "warmup", "validate_every")),
        *(f"posterior.{name}" for name in ("weights", "stem_layers", "stem_scale", "pretrained_rate", "frozen")),
        *(f"posterior.{name}" for name in ("optimizer", "dropout", "smoothing", "average")),
        *(f"bank.{name}" for name in ("generator", "count", "components", "batch")),
        *("completion.kept", "completion.drawn", "completion.exact_reach", "design.images", "design.keep_maps"),
        *("whole.iterations", "whole.seconds", "whole.width", "whole.pretrained_rate"),
        *(f"attention.{name}" for name in ("hidden", "embedding", "learning_rate", "iterations", "validate_every")),
        *(f"plus.{name}" for name in ("iterations", "batch", "candidates", "core_rate", "learning_rate")),
        *("plus.average", "plus.validate_every"),
    ]
)
"""Fields that are chosen from the pictures, on a CPU, a GPU or both, besides those of a generator."""


MINUTES = 15.0
"""Default time of a run on a CPU."""
ENLARGED = 1.1
"""The factor by which pictures may be enlarged."""
LEAST, ENOUGH, LONGEST = 0.1, 0.75, 2.0
"""Shares of the usual iterations: the least, the least that justifies larger images, and the largest."""

Forecast = Callable[[Recipe, Survey], Sequence[Expected]]
"""The time that a recipe takes on pictures like these, on this machine."""


def chosen(
    base: Recipe,
    seen: Survey,
    *,
    gpu_bytes: int | None,
    given: Mapping[str, Any],
    features: str | None = None,
    most: int | None = None,
    share: float = 1.0,
) -> tuple[Recipe, list[Choice]]:
    """`base` with sizes that fit the pictures and the machine; `gpu_bytes` is the GPU's free memory, None without one.

    `given` has the fields that the user set, by dotted name. `features` are weights of VGG-16 that the posterior starts
    from, if any. Images of up to `most` px and this `share` of the usual iterations fit into the time.
    """
    pick = Choices(given, share=share)
    glimpse, locations = _geometry(pick, seen, gpu_bytes, most)
    (for_cpu if gpu_bytes is None else for_gpu)(pick, seen, glimpse, features)
    annotated, length = min(pick["data.annotated"], seen.training // 2), pick["glimpses"]
    maps = annotated * length * locations * 8
    kept = "they take little room" if maps <= 64 << 20 else f"they would take {maps >> 20} MiB"
    pick("design.keep_maps", maps <= 64 << 20, f"maps of the expected posterior entropy, for the report; {kept}")
    fields = {choice.field: choice.value for choice in pick.made}
    found = changed(base, fields, source="Recipe 'folder' with sizes for these pictures")
    found.data.check_glimpses(length)
    images, needed = seen.training - annotated, least_batch(pick)
    if images < needed:
        raise InputError(
            f"With --glimpses {length} a batch of the posterior needs {needed} images, but {images} are left to train "
            "it; lower --glimpses, --posterior.train-glimpses or --data.annotated, or add pictures."
        )
    if pick["posterior.batch"] < needed:
        raise InputError(
            f"--posterior.batch is {pick['posterior.batch']}, but {length} glimpses need {needed} or more."
        )
    return found, pick.made


def choose(
    base: Recipe,
    data: Path,
    given: Mapping[str, Any],
    *,
    device: str,
    forecast: Forecast | None = None,
    minutes: float | None = None,
) -> tuple[Recipe, list[str]]:
    """`base` with sizes for the pictures in `data` and for this machine, and lines that say what was chosen and why.

    With a `forecast` of a recipe's time on this machine, the sizes fit into `minutes`, by default 15 on a CPU and
    unlimited on a GPU.
    """
    fields = {name.removeprefix("data."): value for name, value in given.items() if name.startswith("data.")}
    columns = ("labels", "image_column", "label_column", "split_column")
    labels: dict[str, Any] = {name: fields[name] for name in columns if name in fields}
    seen = survey(base.data.model_copy(update=labels), data=data)
    where = pick_device(device)
    room = torch.cuda.mem_get_info(where)[0] if where.type == "cuda" else None
    features, told = _features(given, data)
    pick = partial(chosen, base, seen, gpu_bytes=room, given=given, features=features)
    if forecast is None:
        found, choices = pick()
        seconds = None
    else:
        limit = minutes if minutes is not None else MINUTES if room is None else math.inf
        found, choices, seconds = _within(60 * limit, pick, seen, forecast, longer=minutes is not None)
    return found, [*_plan(data.resolve().name, seen, found, choices, seconds), *told]


def _within(
    limit: float, pick: Callable[..., tuple[Recipe, list[Choice]]], seen: Survey, forecast: Forecast, *, longer: bool
) -> tuple[Recipe, list[Choice], dict[str, float]]:
    """The largest images for which enough of the usual iterations fit into `limit` seconds, with as many as fit; and
    the seconds of each stage. `longer` allows up to twice the usual iterations. The forecasts' own time counts too."""
    began = time.monotonic()
    sizes = [size for size in SIDES if CPU_SIDE < size <= ENLARGED * seen.side]
    expected: Sequence[Expected] = ()
    for most in (*reversed(sizes), CPU_SIDE):  # smaller ones are hardly faster
        found, choices = pick(most=most)
        if found.data.image_size < most > CPU_SIDE:
            continue  # another limit is lower
        if expected and found.data.image_size > most:
            break  # set by the user
        expected = forecast(found, seen)
        training = sum(one.training for one in expected)
        left = limit - (time.monotonic() - began) - sum(one.other for one in expected)
        share = left / max(training, 1e-9)
        if share >= ENOUGH:
            break
    share = min(max(share, LEAST), LONGEST if longer else 1.0)
    usual = found
    if share != 1:
        found, choices = pick(most=most, share=share)
    return (
        found,
        choices,
        {
            one.stage: one.other + one.training * _iterations(found, one.stage) / _iterations(usual, one.stage)
            for one in expected
        },
    )


def _iterations(recipe: Recipe, stage: str) -> int:
    """Training iterations of a stage, by the name of its estimate."""
    of = {"posterior": recipe.posterior.iterations, "whole image": recipe.whole.iterations}
    return {**of, "networks": recipe.attention.iterations}.get(stage, 1)


def _plan(
    name: str, seen: Survey, found: Recipe, choices: Sequence[Choice], seconds: Mapping[str, float] | None
) -> list[str]:
    """The plan of a run on these pictures, in five lines."""
    grid, (least, most) = found.data.grid, (by(seen.sizes, key=math.prod) for by in (min, max))
    share = found.glimpses * grid.glimpse**2 / (grid.height * grid.width)
    few = seen.smaller_than(found.data.image_size) / len(seen.sizes)
    enlarged = f"; {'under 1%' if few < 0.01 else f'{few:.0%}'} are smaller, and enlarged" if few else ""
    why = next(choice.why for choice in choices if choice.field == "data.image_size")
    return [
        f"{name}: {seen.images:,} pictures in {len(seen.classes)} classes, from {least[0]} x {least[1]} to "
        f"{most[0]} x {most[1]} px.",
        f"  pictures   {grid.height} px ({why}){enlarged}",
        f"  glimpses   {found.glimpses} of {grid.glimpse} px at {len(grid):,} locations: at most {share:.0%} of the "
        "pixels",
        f"  training   a posterior, {found.posterior.iterations:,} iterations; PS-NOGS+, {found.plus.iterations:,}; "
        f"RAM, {found.attention.iterations:,}",
        _time(seconds) if seconds is not None else "  sizes      change them with --data.image-size, --glimpses, ...",
    ]


def _time(seconds: Mapping[str, float]) -> str:
    """The line on the time of a run, in total and by stage."""
    parts = ", ".join(f"{stage} {clock(of)}" for stage, of in seconds.items() if of >= 10)
    total = f"{about(sum(seconds.values()))}{f' ({parts})' if parts else ''}"
    return f"  time       {total}; change it with --minutes, --data.image-size, --glimpses, ..."


def _features(given: Mapping[str, Any], data: Path) -> tuple[str | None, list[str]]:
    """Weights of VGG-16 that the posterior can start from, unless the user wants others, and a line about them."""
    if given.get("posterior.kind", "tokens") != "tokens" or given.get("posterior.stem", "vgg") != "vgg":
        return None, []
    if given.get("posterior.start") is not None:  # the posterior must have its sizes
        return None, []
    wanted = given.get("posterior.weights", "imagenet")
    if wanted != "imagenet":
        return (None if wanted == "none" else wanted), []
    if "posterior.weights" in given:
        return "imagenet", []  # if it is unavailable, reading it is refused
    there, line = obtain(data)
    return ("imagenet" if there else None), [line]


def _geometry(pick: Choices, seen: Survey, gpu_bytes: int | None, most: int | None) -> tuple[int, int]:
    """Side of a glimpse in px, and the number of locations."""
    limit = most or (CPU_SIDE if gpu_bytes is None else SIDES[-1])
    side, sizes = seen.side, [size for size in SIDES if size <= limit]
    why = f"the pictures' shorter sides are {side} px at the median"
    fitting = [size for size in sizes if size <= ENLARGED * side] or [sizes[0]]
    if side < sizes[0]:
        why += f", enlarged to the {sizes[0]} px that glimpses need"
    elif limit < SIDES[-1] and any(limit < size <= ENLARGED * side for size in SIDES):
        why += f"; {'a CPU manages' if most is None else 'there is time for'} {limit} px"
    elif gpu_bytes is not None:
        enough = 128 if seen.images < 20_000 else 224
        room = [size for size in fitting if seen.images * size**2 * 3 <= gpu_bytes // 2] or [fitting[0]]
        fitting = [size for size in room if size <= enough]
        if room[-1] > enough:
            why += f"; {seen.images:,} pictures are too few to learn from more than {enough} px"
        elif room[-1] < min(side, sizes[-1]):
            why += "; all images are kept in the GPU's memory"
    size = pick("data.image_size", fitting[-1], why)
    quarter = max(2, size // 4)
    share = f"{'about ' if 4 * quarter != size else ''}a quarter of the side, {quarter**2 / size**2:.0%} of the area"
    glimpse = pick("data.glimpse", quarter, share)
    if count := pick.given.get("data.grid_count"):
        pick("data.grid_count", count, "")
        pick("data.grid_spacing", None, "the locations are placed evenly")
    else:
        part = 2 if gpu_bytes is None else 4
        spacing = max(1, glimpse // part)
        count = (size - glimpse) // spacing + 1
        about = "about " if part * spacing != glimpse else ""
        why = f"{about}{'half' if part == 2 else 'a quarter of'} a glimpse: {count} x {count} locations"
        spacing = pick("data.grid_spacing", spacing, why)
        count = (size - glimpse) // max(1, spacing) + 1
    return glimpse, count**2
