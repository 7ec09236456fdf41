"""`nogs demo`: the embedded task from nothing to a network that looks at it, ending with the files to open."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nogs.cli.flags import parse

if TYPE_CHECKING:
    from nogs.data import Task


@dataclass(frozen=True)
class DemoArgs:
    """Arguments of `nogs demo`."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("runs/demo")
    """Folder of the run; one that was stopped goes on, what is done is skipped."""


def demo(argv: list[str]) -> None:
    """Prepare the task `digits`, train RAM on it and draw where the network looks."""
    args = parse(
        DemoArgs,
        argv,
        prog="nogs demo",
        description="Prepare the embedded task (handwritten digits among clutter), train a hard-attention network on "
        "it (RAM), and draw where it looks: at small squares, and at half resolution around them. About two minutes on "
        "two CPU cores.",
    )
    from nogs.attention.cohort import Member
    from nogs.attention.training import train
    from nogs.cli.data import begin_run, write_inspection
    from nogs.cli.train import check_recipe, table
    from nogs.data import load_task
    from nogs.recipes import recipe
    from nogs.runtime.progress import say

    digits = recipe("digits")
    check_recipe(digits, run=args.out)
    task = load_task(digits.data)
    begin_run(task, recipe=digits, run=args.out)
    print(write_inspection(task, recipe=digits, folder=args.out / "data"), flush=True)
    say("\nTraining RAM: a network learns from rewards alone where to look.")
    with one_thread():
        folders = train(
            task,
            [Member("ram", seed=digits.seed)],
            config=digits.attention,
            glimpses=digits.glimpses,
            folder=args.out / "attention",
            device="cpu",
        )
    print(f"\n{table(folders)}")
    write_glimpses(task, network=folders[0] / "best-accuracy.safetensors", path=args.out / "glimpses.png")
    print(f"\nopen {args.out / 'data' / 'contact-sheet.png'}")
    print(f"open {args.out / 'glimpses.png'}")


@contextmanager
def one_thread() -> Iterator[None]:
    """The network is so small that threads gain little, and where other programs run they wait for each other long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def write_glimpses(task: Task, *, network: Path, path: Path, trajectories: int = 5) -> None:
    """Draw what a network does on the test images."""
    import torch

    from nogs.attention.cohort import Cohort, Member
    from nogs.attention.evaluation import Evaluator
    from nogs.attention.store import load_network
    from nogs.report import glimpses_figure
    from nogs.runtime.files import write_bytes

    loaded, about = load_network(network)
    glimpses = loaded.architecture.glimpses
    member = Member(about["method"], seed=about["seed"], attribute=about["attribute"])
    cohort = Cohort(task, [member], glimpses=glimpses, batch=1, flip=False, device=torch.device("cpu"))
    figure = glimpses_figure(
        task,
        Evaluator(loaded, cohort, "test", trajectories=trajectories)(),
        labels=about["labels"],
        scales=loaded.architecture.scales,
        title=f"{about['method'].upper()} on {about['task']}: {glimpses} glimpses, then an answer",
    )
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    write_bytes(path, picture.getvalue())
