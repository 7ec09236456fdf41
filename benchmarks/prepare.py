"""Preparing CelebA-HQ against two processes of bare Pillow on the same files, and the time of a second start, as JSON.

    python benchmarks/prepare.py --data DATA --out FILE

Bare Pillow only decodes, timed from when both processes are ready. Preparing is timed as a whole: starting the
processes, decoding, writing the cache and syncing it to disk. Rounds alternate; the ratio is their median. Processor
time is given too, because other work on the machine disturbs it less.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path


def bare(entries, barrier, times) -> None:
    """One process of bare Pillow."""
    from PIL import Image

    barrier.wait()
    start = time.monotonic()
    for entry in entries:
        with Image.open(io.BytesIO(entry.read())) as picture:
            picture.load()
    times.put((start, time.monotonic()))


def bare_seconds(entries) -> float:
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(2), context.Queue()
    workers = [context.Process(target=bare, args=(entries[n::2], barrier, times)) for n in range(2)]
    for worker in workers:
        worker.start()
    spans = [times.get() for _ in workers]
    for worker in workers:
        worker.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def prepare_seconds(catalogue, cache: Path) -> float:
    from nogs.data.cache import prepare

    with tempfile.TemporaryDirectory(dir=cache, prefix="benchmark-") as folder:
        start = time.monotonic()
        prepare(
            name="benchmark",
            entries=catalogue.entries,
            boxes=None,
            how=catalogue.how,
            cache=Path(folder),
            workers=2,
        )
        return time.monotonic() - start


def processor_seconds() -> float:
    """Processor seconds of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    # imported here, since the decoding processes import this script too and must not wait for torch
    from nogs.data import CELEBA_HQ, cache_folder, load_task, read_catalogue
    from nogs.runtime import files
    from provenance import provenance

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds CelebA-HQ")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="folder of the decoded images")
    parser.add_argument("--images", type=int, default=30_000, help="how many are decoded in the comparison")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of each side")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    arguments = parser.parse_args()

    arguments.cache.mkdir(parents=True, exist_ok=True)
    catalogue = read_catalogue(CELEBA_HQ, data=arguments.data).take(range(arguments.images))
    sides = {
        "bare": lambda: bare_seconds(catalogue.entries),
        "prepare": lambda: prepare_seconds(catalogue, arguments.cache),
    }
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    processor: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, measure in sides.items():
            before = processor_seconds()
            seconds[side].append(measure())
            processor[side].append(processor_seconds() - before)
    rates = {side: arguments.images / statistics.median(times) for side, times in seconds.items()}

    load_task(CELEBA_HQ, data=arguments.data, cache=arguments.cache)
    start = time.monotonic()
    task = load_task(CELEBA_HQ, data=arguments.data, cache=arguments.cache)
    second_start = time.monotonic() - start

    result = {
        "benchmark": "prepare",
        "images": arguments.images,
        "bare_images_per_s": round(rates["bare"], 1),
        "prepare_images_per_s": round(rates["prepare"], 1),
        "ratio": round(statistics.median(a / b for a, b in zip(seconds["bare"], seconds["prepare"])), 3),
        "ratio_wanted": 0.8,
        "second_start_images": len(task.ids),
        "second_start_s": round(second_start, 3),
        "second_start_wanted_s": 2.0,
        "processor_ratio": round(statistics.median(processor["bare"]) / statistics.median(processor["prepare"]), 3),
        "seconds": {side: [round(value, 3) for value in times] for side, times in seconds.items()},
        "provenance": provenance(),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        files.write_json(arguments.out, result)


if __name__ == "__main__":
    main()
