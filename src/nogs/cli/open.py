"""`nogs open`: the report of a run, in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from nogs.cli.args import Args, RunFolder
from nogs.cli.flags import parse
from nogs.runtime.errors import InputError
from nogs.runtime.progress import say
from nogs.runtime.spelling import instead_of_run


class OpenArgs(Args):
    """Arguments of `nogs open`."""

    run: RunFolder = Path()
    """Folder of a run that has a report, or the report's file."""


def open_(argv: list[str]) -> None:
    """Open the page in the browser, and print its path."""
    args = parse(OpenArgs, argv, prog="nogs open", description="Open the report of a run in the browser.")
    page = args.run / "report.html" if args.run.is_dir() else args.run
    if not args.run.exists():
        meant = instead_of_run(args.run, otherwise="give the folder that nogs run or nogs demo wrote.")
        raise InputError(f"There is no run {args.run}; {meant}")
    if page.suffix != ".html" or not page.is_file():
        meant = instead_of_run(args.run, otherwise=f"write it with nogs report {args.run}.", has="report.html")
        raise InputError(f"{args.run} has no report yet; {meant}")
    print(page)
    if not webbrowser.open(page.resolve().as_uri()):
        say("No browser could be started; open this file in one.")
