"""`nogs compare`: the trained networks of one or several runs, method against method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nogs.cli.flags import parse
from nogs.runtime.errors import InputError
from nogs.runtime.files import write_bytes, write_json, write_text


@dataclass(frozen=True)
class CompareArgs:
    """Arguments of `nogs compare`."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Folders of runs that nogs train made, or curves.json files of earlier comparisons."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder for the tables, the curves and the figures."""
    reference: str = "ram"
    """The method that the others are compared with."""


def compare(argv: list[str]) -> None:
    """Write tables, raw curves and figures of the methods side by side, and print the table."""
    args = parse(
        CompareArgs,
        argv,
        prog="nogs compare",
        description="Iterations to convergence and test accuracy of each method, averaged over attributes and seeds, "
        "with bootstrap intervals. Writes table.md, attributes.md, comparison.json, curves.json, and figures.",
    )
    import io

    from nogs.attention.comparison import compare as compare_networks
    from nogs.attention.comparison import curves_json, read_run, table, tasks_table
    from nogs.report.learning import convergence_figure, curves_figure

    if not args.runs:
        raise InputError("nogs compare needs at least one RUN: a folder that nogs train made, or a curves.json.")
    networks = [network for run in args.runs for network in read_run(run)]
    methods = sorted({network.method for network in networks})
    if args.reference not in methods:
        raise InputError(
            f"There is no method {args.reference!r} among these; --reference may be {', or '.join(methods)}."
        )
    networks.sort(key=lambda network: network.method != args.reference)
    found = compare_networks(networks, reference=args.reference)
    write_text(args.out / "curves.json", curves_json(networks))
    write_json(args.out / "comparison.json", found)
    write_text(args.out / "table.md", table(found) + "\n")
    write_text(args.out / "attributes.md", tasks_table(found) + "\n")
    for name, figure in (("convergence", convergence_figure(found)), ("curves", curves_figure(networks))):
        for kind in ("png", "svg"):
            picture = io.BytesIO()
            figure.savefig(picture, format=kind)
            write_bytes(args.out / f"{name}.{kind}", picture.getvalue())
    print(table(found))
    print(f"\ntables, curves and figures: {args.out}")
