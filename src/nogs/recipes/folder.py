"""A folder of pictures of your own: class folders, or images and a CSV of labels; and its sizes chosen from the data.

`RECIPE` is what `nogs train folder` and the like start from. `nogs run folder` asks `chosen` for sizes that fit the
pictures and the machine; each one comes with its reason, and none replaces what the user has said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import TypeAdapter, ValidationError

from nogs.attention.config import AttentionConfig
from nogs.bank.config import BankConfig
from nogs.completion.config import CompletionConfig
from nogs.data.augment import AugmentConfig
from nogs.data.config import DataConfig
from nogs.data.folder import Survey, survey
from nogs.design.config import DesignConfig
from nogs.posterior.config import PosteriorConfig
from nogs.recipes.recipe import Recipe, changed
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError

__all__ = ["CHOSEN", "RECIPE", "Choice", "choose", "chosen"]

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
        *(f"bank.{name}" for name in ("generator", "count", "components", "batch")),
        *("completion.kept", "completion.drawn", "completion.exact_reach", "design.images", "design.keep_maps"),
        *(f"attention.{name}" for name in ("hidden", "embedding", "learning_rate", "iterations", "validate_every")),
    ]
)
"""Fields that are chosen from the pictures, on one kind of machine or on both; a generator's own come with it."""

_SIZES = {"cpu": (32, 48, 64), "gpu": (32, 48, 64, 96, 128, 224)}
"""Sides that pictures are prepared at, in px."""


@dataclass(frozen=True)
class Choice:
    """A field of the recipe, what was chosen for it, and why."""

    field: str
    value: Any
    why: str


class _Choices:
    """Fields as they are chosen, one after the other; what the user gave stays, and later choices follow from it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = {}
        self.made: list[Choice] = []
        for field, value in given.items():
            try:
                self.given[field] = _adapter(field).validate_python(value)
            except (ValidationError, KeyError, AttributeError):  # reported with all other mistakes, by who reads them
                continue

    def __call__(self, field: str, value: Any, why: str) -> Any:
        if field in self.given:
            value, why = self.given[field], "as you said"
        self.made.append(Choice(field, value, why))
        return value

    def free(self, *fields: str) -> bool:
        """Whether the user has said nothing about any of these fields, or of the parts of the recipe that they name."""
        return not any(name == field or name.startswith(f"{field}.") for name in self.given for field in fields)

    def __getitem__(self, field: str) -> Any:
        return next(choice.value for choice in self.made if choice.field == field)


def chosen(
    base: Recipe, seen: Survey, *, gpu_bytes: int | None, given: Mapping[str, Any]
) -> tuple[Recipe, list[Choice]]:
    """`base` with sizes that fit the pictures and the machine; `gpu_bytes` is the GPU's free memory, None without one.

    `given` holds the dotted names of the fields that the user set, with their values.
    """
    pick = _Choices(given)
    glimpse, locations = _geometry(pick, seen, gpu_bytes)
    (_for_cpu if gpu_bytes is None else _for_gpu)(pick, seen, glimpse)
    annotated, length = min(pick["data.annotated"], seen.training // 2), pick["glimpses"]
    maps = annotated * length * locations * 8
    kept = "they take little room" if maps <= 64 << 20 else f"they would take {maps >> 20} MiB"
    pick("design.keep_maps", maps <= 64 << 20, f"maps of the expected posterior entropy, for the report; {kept}")
    fields = {choice.field: choice.value for choice in pick.made}
    found = changed(base, fields, source="Recipe 'folder' with sizes for these pictures")
    found.data.check_glimpses(length)
    images, needed = seen.training - annotated, _least_batch(pick)
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


def choose(base: Recipe, data: Path, given: Mapping[str, Any], *, device: str) -> tuple[Recipe, list[str]]:
    """`base` with sizes for the pictures in `data` and for this machine, and lines that say what was chosen and why."""
    fields = {name.removeprefix("data."): value for name, value in given.items() if name.startswith("data.")}
    columns = ("labels", "image_column", "label_column", "split_column")
    labels: dict[str, Any] = {name: fields[name] for name in columns if name in fields}
    seen = survey(base.data.model_copy(update=labels), data=data)
    where = pick_device(device)
    room = torch.cuda.mem_get_info(where)[0] if where.type == "cuda" else None
    found, choices = chosen(base, seen, gpu_bytes=room, given=given)
    return found, _plan(data.resolve().name, seen, found, choices)


def _plan(name: str, seen: Survey, found: Recipe, choices: Sequence[Choice]) -> list[str]:
    """What a run will do with these pictures, in five lines."""
    grid, (widths, heights) = found.data.grid, zip(*seen.sizes)
    share = found.glimpses * grid.glimpse**2 / (grid.height * grid.width)
    few = seen.smaller_than(found.data.image_size)
    enlarged = f"; {few} of {len(seen.sizes)} are smaller, and enlarged" if few else ""
    why = next(choice.why for choice in choices if choice.field == "data.image_size")
    annotated = min(found.data.annotated, seen.training // 2)
    return [
        f"{name}: {seen.images:,} pictures in {len(seen.classes)} classes, {min(widths)} x {min(heights)} to "
        f"{max(widths)} x {max(heights)} px.",
        f"  pictures   {grid.height} px ({why}){enlarged}",
        f"  glimpses   {found.glimpses} of {grid.glimpse} px at {len(grid):,} locations: at most {share:.0%} of the "
        "pixels",
        f"  training   a posterior, {found.posterior.iterations:,} iterations; sequences for {annotated:,} pictures, "
        f"from a bank of {found.bank.count:,}; networks, {found.attention.iterations:,} iterations",
        "  to change  --data.image-size, --glimpses, --data.annotated, ...; --help shows them, recipe.yaml has all",
    ]


def _geometry(pick: _Choices, seen: Survey, gpu_bytes: int | None) -> tuple[int, int]:
    """Side of a glimpse in px, and the number of locations."""
    side, sizes = seen.side, _SIZES["cpu" if gpu_bytes is None else "gpu"]
    why = f"the pictures' shorter sides are {side} px at the median"
    fitting = [size for size in sizes if size <= side] or [sizes[0]]
    if side < sizes[0]:
        why += f", enlarged to the {sizes[0]} px that glimpses need"
    elif gpu_bytes is None and side > sizes[-1]:
        why += f"; a CPU manages {sizes[-1]} px"
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


def _least_batch(pick: _Choices) -> int:
    """Images that a batch of the posterior needs: one for each number of glimpses."""
    known = {choice.field: choice.value for choice in pick.made} | pick.given
    return int(max(known["glimpses"], known.get("posterior.train_glimpses") or 0)) + 1


def _batch(pick: _Choices, seen: Survey, *, most: int, why: str) -> int:
    """Images in a batch of the posterior: a quarter of the training images, but not too few or more than `most`."""
    quarter, least = seen.training // 4, _least_batch(pick)
    batch = min(most, max(16, quarter))
    if batch < least:
        batch, why = least, "one image for each number of glimpses"
    elif batch == 16 > quarter:
        why = "no fewer, though it is more than a quarter of the training images"
    elif batch < most:
        why = "a quarter of the training images"
    return int(pick("posterior.batch", batch, why))


def _iterations(pick: _Choices, seen: Survey, iterations: int) -> int:
    """Iterations of the posterior, told as rounds of the images that train one of its networks."""
    images = max(1, seen.training - min(pick["data.annotated"], seen.training // 2))
    folds = pick.given.get("posterior.folds", 1)
    images -= images // folds if folds > 1 else 0
    rounds = iterations * min(pick["posterior.batch"], images) // max(1, images)
    why = f"{_most(pick)}{rounds} rounds of the images that train the posterior"
    return int(pick("posterior.iterations", iterations, why))


def _validations(pick: _Choices, iterations: int, *, number: int) -> None:
    """About that `number` of validations; there are no more than iterations."""
    every = max(1, iterations // number)
    count = -(-iterations // every)
    why = f"{_most(pick)}{count} validations, of which the best counts" if count > 1 else "one validation, at the end"
    pick("posterior.validate_every", every, why)


def _most(pick: _Choices) -> str:
    return "" if pick.given.get("posterior.seconds") is None else "at most "


def _for_cpu(pick: _Choices, seen: Survey, glimpse: int) -> None:
    """Networks and numbers for which two cores need less than an hour."""
    pick("glimpses", 4, "each one more is one more search for every annotated image")
    pick("data.annotated", min(400, seen.training // 5), "images that get a sequence; the others train the posterior")
    pick("posterior.train_glimpses", 8, "with more glimpses than are asked for, small networks learn sooner")
    batch = _batch(pick, seen, most=128, why="as much as a core does at once")
    iterations = _iterations(pick, seen, min(max(1500, 150 * seen.training // batch), 6000))
    network = "a small network"
    pick("posterior.stem", "conv", network)
    pick("posterior.token", glimpse, "one token a glimpse")
    pick("posterior.width", 96, network)
    pick("posterior.layers", 3, network)
    pick("posterior.heads", 4, network)
    pick("posterior.learning_rate", 1e-3 if pick.given.get("posterior.kind") == "cnn" else 4e-3, network)
    pick("posterior.warmup", iterations // 20, "a twentieth of the iterations")
    _validations(pick, iterations, number=20)
    generator = pick("bank.generator", "training-images", "a generator wants a GPU; --bank.generator trained makes one")
    trained = generator == "trained"
    count = pick("bank.count", 4_000 if trained else 10_000, "a core makes so many in a few minutes")
    pick("bank.components", max(1, min(128, count // 4)), "enough for a proposal, whose pixels are compared afterwards")
    if trained:
        small = "a small generator"
        if pick.free("bank.trained") and pick["data.image_size"] <= _SIZES["cpu"][-1]:
            small += ", trained in a quarter of an hour"
        elif not pick.free("bank.trained.seconds"):
            pick("bank.trained.seconds", None, "")
        pick("bank.trained.autoencoder_width", 16, small)
        pick("bank.trained.autoencoder_iterations", 1_500, small)
        pick("bank.trained.width", 128, small)
        pick("bank.trained.depth", 4, small)
        pick("bank.trained.iterations", 3_000, small)
        pick("bank.trained.batch", 32, small)
        pick("bank.trained.steps", 16, small)
    kept = pick("completion.kept", 50, "completions of each image and step")
    pick("completion.drawn", 6 * kept, "bank images whose pixels are compared for them")
    pick("completion.exact_reach", 1, "px that a bank image may be shifted")
    pick("design.images", 8, "images annotated together, and lost by a crash")
    pick("attention.hidden", 128, "units of the network")
    pick("attention.embedding", 128, "units of the network")
    pick("attention.learning_rate", 1e-3, "Adam's step size")
    epochs = 60 * seen.training // 64
    pick("attention.iterations", min(max(1_000, epochs), 6_000), "the horizon at which both methods are compared")
    pick("attention.validate_every", 50, "iterations between validations")


def _for_gpu(pick: _Choices, seen: Survey, glimpse: int) -> None:
    """Networks and numbers that keep a GPU busy for minutes to an hour."""
    pick("glimpses", 5, "as in the paper")
    pick("data.annotated", min(1_000, seen.training // 5), "images that get a sequence; others train the posterior")
    batch = _batch(pick, seen, most=512, why="keeps the GPU busy")
    rounds = seen.training / batch  # iterations of one; few images are learned by heart after some 250
    iterations = _iterations(pick, seen, min(max(1_500, min(4_000, int(250 * rounds)), int(60 * rounds)), 40_000))
    pick("posterior.stem", "conv", "convolutions see edges sooner than one matrix")
    halved = glimpse % 2 == 0
    pick(
        "posterior.token", glimpse // 2 if halved else glimpse, f"{'four tokens' if halved else 'one token'} a glimpse"
    )
    own = not pick.free("posterior.width", "posterior.layers", "posterior.kind")
    network = f"{'as for ' if own else ''}a network of some 10 million weights"
    pick("posterior.width", 384, network)
    pick("posterior.layers", 6, network)
    pick("posterior.heads", 6, network)
    pick("posterior.warmup", min(500, iterations // 8), "iterations in which the step size rises")
    _validations(pick, iterations, number=40)
    few = seen.training < 2_000
    why = f"{seen.training:,} training images are too few to train a generator" if few else "trained on these images"
    generator = pick("bank.generator", "training-images" if few else "trained", why)
    pick("bank.count", 50_000, "more find closer completions, and cost little on a GPU")
    if generator == "trained":
        many = seen.training >= 20_000
        time = f"ten minutes for {seen.training:,} images" if many else "two to three minutes of training"
        pick("bank.trained.seconds", 600 if many else 150, f"{time}; at most a third of it is the autoencoder's")
        own = not pick.free("bank.trained.width", "bank.trained.depth")
        narrow = f"{'a narrow generator' if own else '22 million weights'}, so that many steps fit in this time"
        pick("bank.trained.width", 384, narrow)
        pick("bank.trained.depth", 8, narrow)
        pick("bank.trained.steps", 16, "from noise to an image; more cost as much time as they have steps")
        pick("bank.batch", 512, "images generated together keep the GPU busy")
    pick("design.images", 64, "images annotated together")
    pick("attention.hidden", 256, "units of the network")
    pick("attention.embedding", 256, "units of the network")
    epochs = 150 * seen.training // 64
    pick("attention.iterations", min(max(6_000, epochs), 20_000), "the horizon at which both methods are compared")


def _adapter(field: str) -> TypeAdapter[Any]:
    """Reads the values of a field, given by its dotted name."""
    model: Any = Recipe
    *parts, name = field.split(".")
    for part in parts:
        model = model.model_fields[part].annotation
    found = model.model_fields[name]
    kind: Any = Annotated[found.annotation, found]  # with its bounds
    return TypeAdapter(kind)
