"""`nogs whole`: a small classifier of whole images, the reference for glimpses."""

from __future__ import annotations

from typing import Any

from nogs.cli.args import StageArgs
from nogs.cli.flags import parse_with_recipe, show
from nogs.runtime.files import read_json


class WholeArgs(StageArgs):
    """Arguments of `nogs whole`."""

    fields_shown = ("data.image_size", *(f"whole.{name}" for name in ("iterations", "seconds", "batch", "width")))
    as_json: bool = False
    """Print the table as JSON."""


def whole(argv: list[str]) -> None:
    """Train the whole-image reference and print its scores."""
    args, recipe = parse_with_recipe(
        WholeArgs,
        argv,
        prog="nogs whole",
        description="Train a small classifier of whole images: a residual CNN from scratch, or the VGG layers of the "
        "recipe's posterior if it starts from ImageNet. It is the reference for glimpses: nogs compare and nogs report "
        "show its test accuracy beside the networks'.",
    )
    from nogs.stages import whole as stage

    folder = stage.train(args.experiment(recipe))
    found = read_json(folder / "evaluation.json")
    text = (
        f"{_table(found['tests'])}\n\n{found['network']}: {found['parameters']:,} weights, best after "
        f"{found['best_iteration']:,} of {found['iterations']:,} iterations, {found['seconds']:.0f} s\n"
        f"network, scores and curves: {folder}"
    )
    show(found["tests"], text, as_json=args.as_json)


def _table(tests: dict[str, dict[str, Any]]) -> str:
    """One line per label variable."""
    width = max(12, *(len(name) + 2 for name in tests))
    lines = [f"{'test images':<{width}}{'accuracy':>10}{'balanced':>10}{'NLL':>8}"]
    for name, row in tests.items():
        lines.append(f"{name:<{width}}{row['accuracy']:>10.1%}{row['balanced_accuracy']:>10.1%}{row['nll']:>z8.3f}")
    return "\n".join(lines)
