"""Annotates the pointer world exactly, as a command that a test can kill: OUT, number of workers, seconds a step."""

import sys
from functools import partial
from pathlib import Path

import exact_design
import worlds
from nogs.design.annotation import annotate
from nogs.design.config import DesignConfig
from nogs.runtime.executors import LocalExecutor


def run(out: Path, *, workers: int = 1, slow: float = 0.0, images: int = 14, **fields):
    """Sequences of three glimpses for some images of the world, in blocks of two."""
    task = worlds.pointer_world().task()
    config = DesignConfig(**{"images": 2, "batch": 64, **fields})
    ids = task.splits["annotate"][: 37 * images : 37]
    return annotate(
        task,
        ids,
        open_tools=partial(exact_design.tools, draws=40, slow=slow),
        marks=("exact",),
        config=config,
        glimpses=3,
        folder=out,
        executor=LocalExecutor(workers),
        seed=3,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), workers=int(sys.argv[2]), slow=float(sys.argv[3]))
