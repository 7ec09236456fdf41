"""`nogs export`: a network's step as a file for programs without torch, what it costs and how often it is right."""

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
    """Which files: float32, int8 or both."""
    accuracy: bool = True
    """Measure each file's accuracy on the run's test images."""
    as_json: bool = False
    """Print export.json instead of a table."""


def export(argv: list[str]) -> None:
    """Write the files and export.json, and print what they cost."""
    args = parse(
        ExportArgs,
        argv,
        prog="nogs export",
        description="One step of a network (state, patch, location -> state, labels, next location) as "
        "PRECISION.onnx, which onnxruntime runs without torch, and export.json with its cost and accuracy.",
    )
    from nogs.model.cost import cost
    from nogs.model.exporting import TOLERANCE, agreement, export_onnx
    from nogs.model.finding import find
    from nogs.model.loading import load_found
    from nogs.posterior.store import published

    if not args.precision:
        raise InputError("--precision needs at least one of float32 and int8.")
    model = load_found(find(args.run, network=args.network, attribute=args.attribute, best=args.best))
    local = Path(args.run).is_dir() and args.run not in published()
    if args.out is None and not local:
        raise InputError(f"nogs export needs --out, a folder for the files of {args.run}.")
    out = args.out or Path(args.run) / "export"
    write_bytes(out / ".writable", b"")  # a folder that takes no files is refused before the work
    (out / ".writable").unlink()
    task = _task(args, model) if args.accuracy else None
    found: dict[str, Any] = {"network": model.name, "why": model.why, **cost(model.networks), "files": {}}
    lines = [f"{model.why}\n\n{'file':<16}{'bytes':>10}{'argmax':>10}{'sample':>10}{'largest difference':>20}"]
    for precision in args.precision:
        path = export_onnx(model, out / f"{precision}.onnx", precision=precision)
        difference = agreement(model, path)
        if precision == "float32" and difference > TOLERANCE:
            raise ValueError(f"{path} differs from torch by {difference:.2g}, more than {TOLERANCE:.0e}.")
        scores = None if task is None else _accuracies(path, model, task)
        found["files"][path.name] = {"bytes": path.stat().st_size, "difference": difference, "accuracy": scores}
        shown = [f"{scores[name]:.1%}" for name in ("argmax", "sample")] if scores else ["-", "-"]
        lines.append(f"{path.name:<16}{path.stat().st_size:>10,}{shown[0]:>10}{shown[1]:>10}{difference:>20.1e}")
    write_json(out / "export.json", found)
    lines.append(
        f"\n{found['parameters']:,} parameters; {found['multiply_adds_per_glimpse']:,} multiply-adds a glimpse, "
        f"{found['multiply_adds']:,} for all {model.glimpses}\nfiles: {out}"
    )
    show(found, "\n".join(lines), as_json=args.as_json)


def _task(args: ExportArgs, model: Model) -> Task | None:
    """The run's task, or None with a reason where its images are not at hand."""
    from nogs.model.stopping import check
    from nogs.runtime.progress import say
    from nogs.stages.settings import remembered, run_task

    run = Path(args.run)
    if remembered(args.settings(), run=run).data is None and model.about["task"] != "digits":
        say("Accuracy is not measured: give --data the folder of the run's images.")
        return None
    if not (run / "recipe.yaml").exists():
        say(f"Accuracy is not measured: {run} has no recipe.yaml to find its images by.")
        return None
    _, task = run_task(run, args.settings())
    check(model.networks, dict(model.about), task)
    return task


def _accuracies(path: Path, model: Model, task: Task) -> dict[str, Any]:
    """Accuracy on the test images with each policy, one look an image."""
    import torch

    from nogs.attention.cohort import Member, member_labels
    from nogs.model.exported import Exported, accuracy
    from nogs.runtime import streams

    about = model.about
    rows = task.rows("test")
    labels = member_labels(task, Member(about["method"], seed=about["seed"], attribute=about["attribute"]))[rows]
    counter = torch.arange(len(rows) * model.glimpses).view(len(rows), -1)
    uniforms = streams.uniform(streams.key(about["seed"], "evaluation", "test"), counter).numpy()
    exported = Exported(path)
    return {
        "argmax": accuracy(exported, task.images, rows, labels),
        "sample": accuracy(exported, task.images, rows, labels, uniforms),
        "images": len(rows),
    }
