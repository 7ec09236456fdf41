"""`nogs data prepare` and `nogs data inspect`: decode a dataset once, and see what is in it."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.cli.flags import Folder, TaskArgs, parse_with_recipe
from nogs.runtime.files import write_bytes, write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.recipes import Recipe


@dataclass(frozen=True)
class DataArgs(TaskArgs):
    """Arguments of both commands."""

    out: Folder
    """Folder for what is written; made where it does not exist."""


def prepare(argv: list[str]) -> None:
    """Decode the images of a recipe into the cache and write its splits into a run's folder."""
    args, recipe = parse_with_recipe(
        DataArgs,
        argv,
        prog="nogs data prepare",
        description="Decode the images once into the cache, and write DIR/recipe.yaml and DIR/data/splits.json.",
    )
    task = args.load(recipe)
    begin_run(task, recipe=recipe, run=args.out)
    print(f"{task.name}: {len(task.ids):,} images ready; splits in {args.out / 'data' / 'splits.json'}")
    for note in task.notes:
        print(f"note: {note}")


def inspect(argv: list[str]) -> None:
    """Print what is in a dataset and write a contact sheet of it."""
    args, recipe = parse_with_recipe(
        DataArgs,
        argv,
        prog="nogs data inspect",
        description="Print counts, label balance and splits; write DIR/contact-sheet.png and DIR/inspect.json.",
    )
    task = args.load(recipe)
    print(write_inspection(task, recipe=recipe, folder=args.out))
    print(f"\ncontact sheet: {args.out / 'contact-sheet.png'}")


def begin_run(task: Task, *, recipe: Recipe, run: Path) -> None:
    """The first stage of a run: its recipe and the ids of its splits, marked done."""
    from nogs.data import write_splits
    from nogs.runtime.fingerprint import fingerprint
    from nogs.runtime.stage import Stage

    stage = Stage(run / "data", name="data", fingerprint=fingerprint(recipe.data.remembering(False), task.fingerprint))
    stage.check_folder()
    if not stage.done:
        stage.begin()
        write_splits(task, run / "data")
        stage.finish(images=len(task.ids), notes=list(task.notes))
    recipe.model_copy(update={"data": recipe.data.remembering(bool(task.skipped))}).to_yaml(run / "recipe.yaml")


def write_inspection(task: Task, *, recipe: Recipe, folder: Path) -> str:
    """Write `inspect.json` and `contact-sheet.png` into `folder`, and return the summary as text."""
    from nogs.data.inspect import contact_sheet, describe

    description = describe(task)
    write_json(folder / "inspect.json", description)
    picture = io.BytesIO()
    sheet = contact_sheet(task, seed=recipe.seed, glimpses=recipe.glimpses)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # it draws a box instead
        sheet.savefig(picture, format="png")
    write_bytes(folder / "contact-sheet.png", picture.getvalue())
    return _summary(description)


def _summary(found: dict[str, Any]) -> str:
    labels, grid, splits = found["labels"], found["grid"], found["splits"]
    height, width = found["image_size"]
    kind = "classes" if labels["kind"] == "categorical" else "attributes"
    lines = [
        f"{found['task']}: {found['images']:,} images of {height} x {width} px, {labels['number']} {kind}",
        f"locations: {grid['rows']} x {grid['columns']} of {grid['glimpse']} px glimpses, "
        f"each {grid['share_of_image']:.1%} of the image",
    ]
    if found["auxiliary_attributes"]:
        lines.append(f"auxiliary attributes: {found['auxiliary_attributes']}")
    if found["parts"]:
        lines.append(f"parts: {len(found['parts'])} ({', '.join(found['parts'])})")
    lines += ["", "splits"]
    for name in ("train", "validation", "test"):
        lines.append(f"  {name:<12}{splits[name]:>8,}")
    lines.append(
        f"of train, for sequences {splits.get('annotate', 0):,}, for the posterior {splits.get('posterior', 0):,}"
    )
    lines += ["", f"label balance ({'images of each class' if kind == 'classes' else 'images with each attribute'})"]
    lines += _balance(labels["all"], found["images"])
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(lines)


def _balance(counts: dict[str, int], images: int, *, most: int = 40) -> list[str]:
    """A bar for each label; of many labels only the smallest and the largest, the rest are in `inspect.json`."""
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    width = min(32, max(map(len, counts)))

    def bar(name: str, count: int) -> str:
        return f"  {name[:width]:<{width}}{count:>8,}{count / images:>8.1%}  {'█' * round(30 * count / ranked[0][1])}"

    if len(ranked) <= most:
        return [bar(name, count) for name, count in counts.items()]
    few = 5
    left_out = f"  ... {len(ranked) - 2 * few} between, all in inspect.json ..."
    return [*(bar(*item) for item in ranked[:few]), left_out, *(bar(*item) for item in ranked[-few:])]
