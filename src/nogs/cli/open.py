"""`nogs open`: the report of a run, in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from nogs.cli.args import Args, RunFolder
from nogs.cli.flags import parse
from nogs.runtime.errors import InputError
from nogs.runtime.progress import say


class OpenArgs(Args):
    """Arguments of `nogs open`."""

    run: RunFolder = Path()
    """Folder of a run that has a report, or the report's file."""


def open_(argv: list[str]) -> None:
    """Open the page in the browser, and print where it is."""
    args = parse(OpenArgs, argv, prog="nogs open", description="Open the report of a run in the browser.")
    page = args.run / "report.html" if args.run.is_dir() else args.run
    if not args.run.exists():
        raise InputError(f"There is no run {args.run}; give the folder that nogs run or nogs demo wrote.")
    if page.suffix != ".html" or not page.is_file():
        raise InputError(f"{args.run} has no report yet; write it with nogs report {args.run}.")
    print(page)
    if not webbrowser.open(page.resolve().as_uri()):
        say("No browser could be started here; open that file in one.")
