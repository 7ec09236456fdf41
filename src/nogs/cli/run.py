"""`nogs run`: all stages of a recipe, from labelled images to a report; a folder's sizes are chosen for it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nogs.cli.flags import TaskArgs, parse_with_recipe
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted

if TYPE_CHECKING:
    from nogs.recipes import Recipe
    from nogs.recipes.folder import Choice

_DESCRIPTION = (
    "Do all stages of a recipe: prepare the data, train the posterior or take a published one, build the bank, find "
    "near-optimal glimpse sequences for some training images, train hard-attention networks with and without them, and "
    "write a report. What is done is skipped, what was stopped goes on, and what was made with other settings is made "
    "again; a line says so."
)


@dataclass(frozen=True, kw_only=True)
class RunArgs(TaskArgs):
    """Arguments of `nogs run`."""

    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Folder of the run; one that was stopped goes on."""
    skip_corrupt: bool = True
    """Go on without images that can't be read, and record which."""
    attribute: tuple[str, ...] = ()
    """For tasks with attributes: one or more of them, or all."""
    method: tuple[Literal["ram", "ram+", "ps-nogs", "ps-hgs", "ps-h1", "ps-h5", "random", "centre-out"], ...] = (
        "ram",
        "ps-nogs",
    )
    """Methods to train and compare; ram is the reference."""
    seeds: tuple[int, ...] = ()
    """One or more seeds, a network each; by default the recipe's."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="NAME_OR_FILE")] = None
    """A published posterior, or a posterior's file, in place of one that is trained here."""
    source: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """File or folder of the bank's generator, if it needs one."""
    until: Literal["data", "posterior", "bank", "sequences", "attention", "report"] = "report"
    """The last stage to do."""
    workers: int | None = None
    """Processes that annotate; by default one a GPU, or one a core where there is none."""
    estimate: bool = True
    """Measure before each stage, on a little of its work, how long it will take."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""


def run(argv: list[str]) -> None:
    """Do all stages of a recipe and name the report."""
    if argv and not argv[0].startswith("-") and not {"-h", "--help"} & set(argv) and _is_folder(argv[0]):
        args, recipe = parse_for_folder(argv)
    else:
        args, recipe = parse_with_recipe(RunArgs, argv, prog="nogs run", description=_DESCRIPTION)
        recipe = _trained_here(args, recipe)
    follow(args, recipe)


def _trained_here(args: RunArgs, recipe: Recipe) -> Recipe:
    """The recipe without its published posterior, where fields say how one is to be trained."""
    from nogs.recipes import recipe as read_recipe

    usual = read_recipe(recipe.data.kind)
    if args.checkpoint is not None or recipe.published is None or recipe.published != usual.published:
        return recipe
    before, now = (dotted(one.posterior.model_dump()) for one in (usual, recipe))
    for name in before:
        if name != "precision" and before[name] != now[name]:
            tell(f"posterior.{name} is {now[name]!r}, not the published posterior's; so one is trained.")
            return recipe.model_copy(update={"published": None})
    return recipe


def follow(args: RunArgs, recipe: Recipe) -> None:
    """Load the task, do the stages, and end with the file to open."""
    from nogs.data.inspect import describe
    from nogs.pipeline import Settings, run_recipe
    from nogs.runtime.device import pick_device

    if not args.method:
        raise InputError("--method needs at least one method, such as ram or ps-nogs.")
    if any(seed < 0 for seed in args.seeds):
        raise InputError(f"--seeds must not be negative, but are {', '.join(map(str, args.seeds))}.")
    if len(set(args.seeds)) < len(args.seeds):
        raise InputError(f"--seeds must be different, but are {', '.join(map(str, args.seeds))}.")
    if args.workers is not None and args.workers < 1:
        raise InputError(f"--workers must be at least 1, not {args.workers}.")
    recipe.data.check_glimpses(recipe.glimpses)
    if not args.skip_corrupt:
        recipe = recipe.model_copy(update={"data": recipe.data.remembering(False)})
    pick_device(args.device)
    if recipe.data.kind != "digits" and args.estimate:
        tell(decoding(args, recipe))
    task = args.load(recipe)
    for line in remarks(describe(task)):
        tell(line)
    settings = Settings(
        data=args.data,
        cache=args.cache,
        skip_corrupt=args.skip_corrupt,
        source=args.source,
        posterior=args.checkpoint,
        attributes=args.attribute,
        methods=args.method,
        seeds=args.seeds,
        workers=args.workers,
        device=args.device,
        until=args.until,
        estimate=args.estimate,
    )
    end = run_recipe(recipe, task, run=args.out, settings=settings, tell=tell)
    print(f"\nopen {end}")


def tell(text: str) -> None:
    """A line of the run's story; progress goes to the other stream."""
    print(text, flush=True)


def parse_for_folder(argv: Sequence[str]) -> tuple[RunArgs, Recipe]:
    """Arguments and recipe of a run on pictures of one's own: what no flag sets is chosen from the pictures.

    A run that was begun goes on with its own recipe, so that a faster machine does not choose anew.
    """
    from nogs.recipes import recipe as read_recipe

    data, out = _value(argv, "--data"), _value(argv, "--out")
    base, given = read_recipe(argv[0]), _given(argv)
    begun = None if out is None else Path(out) / "recipe.yaml"
    choices: list[Choice] = []
    if begun is not None and begun.is_file() and read_recipe(begun).data.kind == "folder":
        tell(f"Going on with the sizes of {begun}; a flag changes them.")
        base = _with(read_recipe(begun), {} if argv[0] == "folder" else _file_fields(argv[0]))
    elif data is not None and Path(data).is_dir():
        base, choices = choose(base, Path(data), given, device=_value(argv, "--device") or "auto")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "folder.yaml"
        base.to_yaml(path)
        try:
            found: tuple[RunArgs, Recipe] = parse_with_recipe(
                RunArgs, [str(path), *argv[1:]], prog="nogs run", description=_DESCRIPTION
            )
        except InputError as error:
            raise InputError(str(error).replace(str(path), argv[0])) from None
    for line in explained(choices):
        tell(line)
    return found


def choose(base: Recipe, data: Path, given: dict[str, Any], *, device: str) -> tuple[Recipe, list[Choice]]:
    """Sizes for the pictures in `data` and for this machine."""
    import torch

    from nogs.data.folder import survey
    from nogs.recipes.folder import chosen
    from nogs.recipes.recipe import validated
    from nogs.runtime.device import pick_device

    fields = {name.removeprefix("data."): value for name, value in given.items() if name.startswith("data.")}
    columns = ("labels", "image_column", "label_column", "split_column")
    labels: dict[str, Any] = {name: fields[name] for name in columns if name in fields}
    seen = survey(base.data.model_copy(update=labels), data=data)
    where = pick_device(device)
    room = torch.cuda.mem_get_info(where)[0] if where.type == "cuda" else None
    found, choices = chosen(base, seen, gpu_bytes=room, given=given)
    widths, heights = zip(*seen.sizes)
    tell(
        f"{seen.images:,} pictures in {len(seen.classes)} classes; of {len(seen.sizes)} looked at, widths are "
        f"{min(widths)} to {max(widths)} px and heights {min(heights)} to {max(heights)} px."
    )
    few = seen.smaller_than(found.data.image_size)
    if few:
        tell(f"{few} of them are smaller than the {found.data.image_size} px that they are prepared at: enlarged.")
    return validated(found.model_dump(mode="json"), source="Recipe 'folder'"), choices


def explained(choices: Sequence[Choice]) -> list[str]:
    """The choices as flags that would say the same, with their reasons; those of one reason share a line."""
    if not choices:
        return []
    lines: dict[str, list[str]] = {}
    for choice in choices:
        lines.setdefault(choice.why, []).append(choice.flag)
    return ["Chosen for these pictures and this machine; a flag changes it:"] + [
        f"  {' '.join(flags)}{f'   ({why})' if why else ''}" for why, flags in lines.items()
    ]


def decoding(args: RunArgs, recipe: Recipe) -> str:
    """How long the pictures take to be decoded, if that was not done before."""
    import os

    from nogs.data import cache_folder, read_catalogue
    from nogs.data.cache import shortage
    from nogs.pipeline.estimates import clock, decoding_seconds

    found = read_catalogue(recipe.data, data=args.data, cache=args.cache)
    about = f"Decoding {len(found.ids):,} pictures, where that was not done before"
    if shortage(args.cache or cache_folder(), images=len(found.ids), size=found.how.size):
        return f"{about}."  # refused in a moment, unless they are in the cache
    return f"{about}; about {clock(decoding_seconds(found, workers=os.cpu_count() or 1))}."


def remarks(found: dict[str, Any], *, uneven: float = 3) -> list[str]:
    """What loading had to say, and whether the classes are of very different size."""
    out = [f"note: {note}" for note in found["notes"]]
    if found["labels"]["kind"] != "categorical":
        return out
    counts = {name: count for name, count in found["labels"]["train"].items() if count}
    least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[most] > uneven * counts[least]:
        out.append(
            f"note: The classes are uneven: of the training images {counts[most]:,} are {most!r} and {counts[least]:,} "
            f"are {least!r}; compare accuracies with the balanced ones."
        )
    return out


def _is_folder(name: str) -> bool:
    from nogs.recipes import recipe as read_recipe

    return read_recipe(name).data.kind == "folder"


def _given(argv: Sequence[str]) -> dict[str, Any]:
    """Fields that the user set, by dotted name: in a recipe file, or as flags, which win."""
    out = {} if argv[0] == "folder" else _file_fields(argv[0])
    words = list(argv[1:])
    for place, word in enumerate(words):
        flag = re.fullmatch(r"--([a-z][\w.-]*)(?:=(.*))?", word)
        if flag is None:
            continue
        name = flag[1].replace("-", "_")
        value = flag[2] if flag[2] is not None else (words[place + 1] if place + 1 < len(words) else None)
        head, dot, tail = name.rpartition(".")
        if tail.startswith("no_"):
            out[f"{head}{dot}{tail.removeprefix('no_')}"] = False
        elif "." in name or name in ("glimpses", "seed"):
            out[name] = True if value is None or value.startswith("--") else value
    return out


def _file_fields(path: str) -> dict[str, Any]:
    """The fields that a recipe's file states itself, by dotted name."""
    from nogs.runtime.files import read_yaml

    return dotted({key: value for key, value in read_yaml(Path(path)).items() if key != "base"})


def _with(recipe: Recipe, fields: dict[str, Any]) -> Recipe:
    from nogs.recipes import validated

    values = recipe.model_dump(mode="json")
    for field, value in fields.items():
        *parts, name = field.split(".")
        place = values
        for part in parts:
            place = place[part]
        place[name] = value
    return validated(values, source=f"Recipe {recipe.name!r} with these fields")


def _value(argv: Sequence[str], flag: str) -> str | None:
    """The value of a flag, before the arguments are parsed in earnest."""
    for word, after in zip(argv, [*argv[1:], None]):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
