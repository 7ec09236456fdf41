"""`nogs data prepare` and `nogs data inspect`: decode a dataset once, and see what is in it."""

from __future__ import annotations

from typing import Any

from nogs.cli.args import StageArgs
from nogs.cli.flags import parse_with_recipe, show
from nogs.runtime.files import read_json


class PrepareArgs(StageArgs):
    """Arguments of `nogs data prepare`."""

    fields_shown = ("data.image_size", "data.glimpse", "data.annotated")


class InspectArgs(PrepareArgs):
    """Arguments of `nogs data inspect`."""

    as_json: bool = False
    """Print inspect.json instead of a table."""


def prepare(argv: list[str]) -> None:
    """Decode the images of a recipe into the cache and write its splits into a run's folder."""
    args, recipe = parse_with_recipe(
        PrepareArgs,
        argv,
        prog="nogs data prepare",
        description="Decode the images into the cache once, or verify the checksums of cached ones. Writes "
        "RUN/recipe.yaml, and splits.json, inspect.json and contact-sheet.png in RUN/data.",
    )
    from nogs.stages import data

    experiment = args.experiment(recipe, verify=True)
    folder = data.prepare(experiment)
    print(f"{experiment.task.title}: {len(experiment.task.ids):,} images ready; splits in {folder / 'splits.json'}")


def inspect(argv: list[str]) -> None:
    """Prepare a dataset and print what is in it."""
    args, recipe = parse_with_recipe(
        InspectArgs,
        argv,
        prog="nogs data inspect",
        description="Prepare a dataset as nogs data prepare does, and print counts, label balance and splits.",
    )
    from nogs.stages import data

    folder = data.prepare(args.experiment(recipe))
    found = read_json(folder / "inspect.json")
    show(found, f"{_summary(found)}\n\ncontact sheet: {folder / 'contact-sheet.png'}", as_json=args.as_json)


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
        f"of train: {splits.get('annotate', 0):,} for sequences, {splits.get('posterior', 0):,} for the posterior"
    )
    lines += ["", f"label balance ({'images of each class' if kind == 'classes' else 'images with each attribute'})"]
    lines += _balance(labels["all"], found["images"])
    lines += [f"note: {note}" for note in found["notes"]]
    return "\n".join(lines)


def _balance(counts: dict[str, int], images: int, *, most: int = 40) -> list[str]:
    """A bar per label; of many labels only the largest and the smallest. All are in `inspect.json`."""
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    width = min(32, max(map(len, counts)))

    def bar(name: str, count: int) -> str:
        return f"  {name[:width]:<{width}}{count:>8,}{count / images:>8.1%}  {'█' * round(30 * count / ranked[0][1])}"

    if len(ranked) <= most:
        return [bar(name, count) for name, count in counts.items()]
    few = 5
    left_out = f"  ... {len(ranked) - 2 * few} between, all in inspect.json ..."
    return [*(bar(*item) for item in ranked[:few]), left_out, *(bar(*item) for item in ranked[-few:])]
