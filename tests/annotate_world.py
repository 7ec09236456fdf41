"""Annotates the pointer world exactly, as a command that a test can kill.

Arguments: OUT, number of workers or the address of a Ray cluster, seconds that a step takes, and a diary of the steps.
"""

import sys
from functools import partial
from pathlib import Path

import exact_design
import worlds
from nogs.design.annotation import annotate
from nogs.design.config import DesignConfig
from nogs.runtime.executors import LocalExecutor
from nogs.runtime.ray import RayExecutor


def run(out: Path, *, workers: int | str = 1, slow: float = 0.0, images: int = 14, diary: str | None = None, **fields):
    """Sequences of three glimpses for some images of the world, in blocks of two."""
    task = worlds.pointer_world().task()
    config = DesignConfig(**{"images": 2, "batch": 64, **fields})
    ids = task.splits["annotate"][: 37 * images : 37]
    return annotate(
        task,
        ids,
        open_tools=partial(exact_design.tools, draws=40, slow=slow, diary=diary),
        inputs=("exact",),
        config=config,
        glimpses=3,
        folder=out,
        executor=LocalExecutor(workers) if isinstance(workers, int) else RayExecutor(address=workers),
        seed=3,
    )


if __name__ == "__main__":
    where, place, seconds, *rest = sys.argv[1:]
    workers = int(place) if place.isdecimal() else place
    run(Path(where), workers=workers, slow=float(seconds), diary=rest[0] if rest else None)
