"""`nogs demo`: the whole method on the embedded task; the same as `nogs run digits`, with a folder of its own."""

from __future__ import annotations

import shlex
from pathlib import Path

from nogs.cli.args import Args, Folder
from nogs.cli.flags import parse

METHODS = ("ps-nogs+", "ram", "ps-nogs", "fixed", "centre-out", "random")


class DemoArgs(Args):
    """Arguments of `nogs demo`."""

    out: Folder = Path("runs/demo")
    """Folder of the run; one that was stopped goes on, what is done is skipped."""


def demo(argv: list[str]) -> None:
    """Do all stages of the recipe `digits` and name the report."""
    args = parse(
        DemoArgs,
        argv,
        prog="nogs demo",
        description="The whole method on the embedded task, handwritten digits among clutter: a posterior, a bank of "
        "images, near-optimal glimpse sequences, hard-attention networks with them (PS-NOGS) and without (RAM), one "
        "that stands on the posterior (PS-NOGS+), plain ways to look, and a report. About four minutes on two CPU "
        f"cores; the same as nogs run digits --device cpu --method {' '.join(METHODS)}.",
    )
    from nogs.recipes import recipe
    from nogs.runtime.progress import tell
    from nogs.stages import Settings, run

    settings = Settings(device="cpu", estimate=True, method=METHODS, command=shlex.join(["nogs", "demo", *argv]))
    end = run(recipe("digits"), args.out, settings, tell=tell)
    print(f"\nopen {end}")
