"""`nogs export`: one step of a network as a file for programs without torch, with its cost and accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nogs.cli.args import NetworkArgs, OptionalFolder, TaskArgs
from nogs.cli.flags import parse, show
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes, write_json

if TYPE_CHECKING:
    from nogs.data import Task
    from nogs.model.classifier import Model


class ExportArgs(TaskArgs, NetworkArgs):
    """Arguments of `nogs export`."""

    out: OptionalFolder = None
    """Folder of the files; by default RUN/export."""
    precision: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")
    """Files to write: float32, int8 or both."""
    accuracy: bool = True
    """Measure each file's accuracy on the test images, if they are available."""
    as_json: bool = False
    """Print export.json instead of a table."""


def export(argv: list[str]) -> None:
    """Write the files and export.json, and print their cost."""
    args = parse(
        ExportArgs,
        argv,
        prog="nogs export",
        description="Write one step of a network (state, patch, location -> state, labels, next location) as "
        "PRECISION.onnx, which onnxruntime runs without torch. Also writes export.json with its cost and accuracy.",
    )
    from nogs.model.cost import cost
    from nogs.model.exporting import TOLERANCE, agreement, export_onnx
    from nogs.model.finding import find
    from nogs.model.loading import load_found
    from nogs.posterior.store import published
    from nogs.runtime.progress import working

    if not args.precision:
        raise InputError("--precision needs at least one of float32 and int8.")
    if args.out is not None and args.out.suffix == ".onnx":
        raise InputError(
            f"--out is a folder for float32.onnx and int8.onnx; name one, such as {args.out.with_suffix('')}."
        )
    model = load_found(find(args.run, network=args.network, attribute=args.attribute, best=args.best))
    local = Path(args.run).is_dir() and args.run not in published()
    if args.out is None and not local:
        raise InputError(f"nogs export needs --out, a folder for the files of {args.run}.")
    out = args.out or Path(args.run) / "export"
    write_bytes(out / ".writable", b"")  # refuse an unwritable folder before the work
    (out / ".writable").unlink()
    task = _task(args, model) if args.accuracy else None
    found: dict[str, Any] = {"network": model.name, "why": model.why, **cost(model.networks), "files": {}}
    policies = _policies(model)
    head = "".join(f"{name:>10}" for name in policies)
    lines = [f"{model.why}\n\n{'file':<16}{'bytes':>10}{head}{'largest difference':>20}"]
    for precision in args.precision:
        with working(f"exporting {precision}.onnx"):
            path = export_onnx(model, out / f"{precision}.onnx", precision=precision)
            difference = agreement(model, path)
        if precision == "float32" and difference > TOLERANCE:
            raise ValueError(f"{path} differs from torch by {difference:.2g}, more than {TOLERANCE:.0e}.")
        scores = None if task is None else _accuracies(path, model, task)
        found["files"][path.name] = {"bytes": path.stat().st_size, "difference": difference, "accuracy": scores}
        shown = "".join(f"{f'{scores[name]:.1%}' if scores else '-':>10}" for name in policies)
        lines.append(f"{path.name:<16}{path.stat().st_size:>10,}{shown}{difference:>20.1e}")
    write_json(out / "export.json", found)
    if policies == ("argmax",):
        lines.append("\nThis network draws no locations, so its only policy is argmax.")
    lines.append(
        "\nlargest difference: between the file and torch, of a probability or a number of the state, over a look at "
        "random patches"
    )
    lines.append(
        f"\n{found['parameters']:,} parameters; {found['multiply_adds_per_glimpse']:,} multiply-adds a glimpse, "
        f"{found['multiply_adds']:,} for all {model.glimpses}\nfiles: {out}"
    )
    show(found, "\n".join(lines), as_json=args.as_json)


def _task(args: ExportArgs, model: Model) -> Task | None:
    """The task of the run, or of a published network; None, with a message, if its images are not available."""
    from nogs.model.stopping import check
    from nogs.recipes import names, recipe
    from nogs.runtime.progress import say
    from nogs.stages.settings import load, remembered, run_task

    run, settings, kind = Path(args.run), args.settings(), str(model.about["task"])
    own = (run / "recipe.yaml").exists()
    if remembered(settings, run=run).data is None and kind != "digits":
        say(f"Accuracy is not measured: give --data the folder of {'the run' if own else kind}'s images.")
        return None
    if not own and kind not in names():
        say(f"Accuracy is not measured: {run} has no recipe.yaml, so its images can't be found.")
        return None
    task = run_task(run, settings)[1] if own else load(recipe(kind), settings)
    check(model.networks, dict(model.about), task)
    return task


def _policies(model: Model) -> tuple[str, ...]:
    """The policies by which the network may look: its own if it draws no locations, else both."""
    return ("argmax", "sample") if model.networks.policy == "sample" else ("argmax",)


def _accuracies(path: Path, model: Model, task: Task) -> dict[str, Any]:
    """Accuracy on the test images with each of its policies, one look per image."""
    import torch

    from nogs.attention.cohort import Member, member_labels
    from nogs.model.exported import Exported, accuracy
    from nogs.runtime import streams
    from nogs.runtime.progress import track

    about = model.about
    rows = task.rows("test")
    labels = member_labels(task, Member(about["method"], seed=about["seed"], attribute=about["attribute"]))[rows]
    counter = torch.arange(len(rows) * model.glimpses).view(len(rows), -1)
    uniforms = streams.uniform(streams.key(about["seed"], "evaluation", "test"), counter).numpy()
    exported = Exported(path)
    drawn, policies = {"argmax": None, "sample": uniforms}, _policies(model)
    with track(f"evaluating {path.name}", total=len(policies) * len(rows), unit="looks") as bar:
        found = {
            name: accuracy(exported, task.images, rows, labels, drawn[name], advance=bar.advance) for name in policies
        }
    return {**found, "images": len(rows)}
