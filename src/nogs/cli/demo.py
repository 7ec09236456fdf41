"""`nogs demo`: the whole method on the embedded task; the same as `nogs run digits`, with a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nogs.cli.flags import parse


@dataclass(frozen=True)
class DemoArgs:
    """Arguments of `nogs demo`."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/demo")
    """Folder of the run; one that was stopped goes on, what is done is skipped."""


def demo(argv: list[str]) -> None:
    """Do all stages of the recipe `digits` and name the report."""
    args = parse(
        DemoArgs,
        argv,
        prog="nogs demo",
        description="The whole method on the embedded task, handwritten digits among clutter: a posterior, a bank of "
        "images, near-optimal glimpse sequences, hard-attention networks with them (PS-NOGS) and without (RAM), and a "
        "report. About four minutes on two CPU cores; the same as nogs run digits --device cpu.",
    )
    from nogs.cli.run import RunArgs, follow
    from nogs.recipes import recipe

    with one_thread():
        follow(RunArgs(out=args.out, device="cpu"), recipe("digits"))


@contextmanager
def one_thread() -> Iterator[None]:
    """The networks are so small that threads gain little, and where other programs run they wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
