"""`nogs demo`: the whole method on the embedded task, as `nogs run digits` does it, in a folder of its own."""

from __future__ import annotations

import shlex
from pathlib import Path

from nogs.cli.args import Args, Folder
from nogs.cli.flags import parse

METHODS = ("ps-nogs+", "ram", "ps-nogs", "fixed", "centre-out", "random")


class DemoArgs(Args):
    """Arguments of `nogs demo`."""

    out: Folder = Path("runs/demo")
    """Folder of the run. Finished work in it is skipped, stopped work resumes."""


def demo(argv: list[str]) -> None:
    """Run all stages of the recipe `digits` and print the path of the report."""
    args = parse(
        DemoArgs,
        argv,
        prog="nogs demo",
        description="Run the whole method on the embedded task, handwritten digits among clutter. Trains a posterior, "
        "builds a bank of images and finds near-optimal glimpse sequences. Then trains networks with the sequences "
        "(PS-NOGS), without them (RAM) and on the posterior (PS-NOGS+), and writes a report that compares them with "
        "baselines. Takes about four minutes on two CPU cores. Same as nogs run digits --device cpu --method "
        f"{' '.join(METHODS)}.",
    )
    from nogs.cli.run import check_writable
    from nogs.recipes import recipe
    from nogs.runtime.progress import tell
    from nogs.stages import Settings, run

    check_writable(args.out)
    settings = Settings(device="cpu", estimate=True, method=METHODS, command=shlex.join(["nogs", "demo", *argv]))
    end = run(recipe("digits"), args.out, settings, tell=tell, conclude=print)
    print(f"\nopen {end}")
