"""`nogs report`: one self-contained page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nogs.cli.args import TaskArgs
from nogs.cli.flags import parse

if TYPE_CHECKING:
    from nogs.data import DataConfig, Task


class ReportArgs(TaskArgs):
    """Arguments of `nogs report`."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")] = ()
    """Folders of runs. The page shows the stages that each has, and compares several."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The page; by default RUN/report.html, or report.html beside the first of several runs."""
    images: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Test pictures in the gallery, and half as many with sequences; 0 for none. Default: 24, or one per class."""
    device: str = "auto"
    """Device for the walk-through of the design: auto, cpu, cuda, cuda:N or mps."""


def report(argv: list[str]) -> None:
    """Write the page and print its path."""
    args = parse(
        ReportArgs,
        argv,
        prog="nogs report",
        description="Write one HTML file about one or several runs: results, a gallery to step through glimpses, "
        "figures, tables, and the commands to reproduce the runs. It opens from the disk, without a server or the "
        "internet. Its figures are also written as PNG and SVG into a folder beside it.",
    )
    from nogs.data import load_task
    from nogs.recipes import recipe
    from nogs.report import write_report
    from nogs.stages.settings import remembered

    def load(config: DataConfig) -> Task | None:
        same = (run for run in args.runs if (path := run / "recipe.yaml").is_file() and recipe(path).data == config)
        settings = remembered(args.settings(), run=next(same, args.runs[0]))
        if config.kind != "digits" and settings.data is None:
            return None
        return load_task(config, data=settings.data, cache=settings.cache, skip_corrupt=settings.skip_corrupt)

    page = write_report(args.runs, out=args.out, task=load, images=args.images, device=args.device)
    print(f"{page.stat().st_size / 1e6:.1f} MB, with its figures in {page.with_suffix('')}\nopen {page}")
