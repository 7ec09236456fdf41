"""A folder of one's own pictures, end to end: twelve groups of CUB's birds, with pretrained features and without.

    python benchmarks/folder.py --data DATA --work runs/birds --out results/folder/birds.json --minutes 60

The class of a bird is the last word of its species' name (Warbler, Sparrow, Gull, ...). The twelve words with the most
pictures are taken, and of each at most 300 pictures, evenly spread over its list: 3,419 of them. `nogs run folder` then
chooses all sizes, as for a user; flags after `--` are passed on to it, such as `--seeds 0 1 2`. Each run goes on where
it was when this is started again, and is stopped after its share of the minutes.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nogs.data.config import CUB
from nogs.data.cub import catalogue
from nogs.posterior.imagenet import weights_file
from nogs.runtime.files import read_json
from provenance import provenance

CLASSES, MOST = 12, 300
FEATURES = ("none", "imagenet")


def make_pictures(data: Path, folder: Path) -> dict[str, int]:
    """Write the pictures into a folder for each class, unless they are there; how many each has."""
    found = catalogue(CUB, data=data)
    groups = defaultdict(list)
    for entry, label in zip(found.entries, found.labels):
        groups[found.space.names[label].rpartition("_")[2]].append(entry)
    largest = sorted(groups, key=lambda name: (-len(groups[name]), name))[:CLASSES]
    counts = {}
    for name in largest:
        members = groups[name]
        kept = np.unique(np.linspace(0, len(members) - 1, min(MOST, len(members))).astype(int))
        (folder / name).mkdir(parents=True, exist_ok=True)
        for place in kept:
            path = folder / name / Path(members[place].name).name
            if not path.is_file():
                path.write_bytes(members[place].read())
        counts[name] = len(kept)
    return counts


def run(pictures: Path, folder: Path, flags: Sequence[str], *, seconds: float) -> tuple[float, bool]:
    """`nogs run folder`, stopped after so many seconds; the time it took and whether it came to its end."""
    began = time.monotonic()
    command = [sys.executable, "-m", "nogs", "run", "folder", "--data", str(pictures), "--out", str(folder), *flags]
    try:
        subprocess.run(command, check=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return time.monotonic() - began, False
    return time.monotonic() - began, True


def outcome(folder: Path) -> dict[str, Any]:
    """What a run has found so far: the posterior at random locations, and the scores of each method's networks."""
    path, found = folder / "posterior" / "evaluation.json", dict[str, Any]()
    if path.is_file():
        about = read_json(path)
        names = ("parameters", "iterations", "best_iteration", "training_seconds")
        found["posterior"] = {name: about[name] for name in names} | {"test": about["tables"]["test, calibrated"]}
    attention = folder / "attention"
    scores = sorted(attention.rglob("evaluation.json"))
    found["networks"] = {path.parent.relative_to(attention).as_posix(): read_json(path) for path in scores}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds CUB, and VGG-16's weights")
    parser.add_argument("--work", type=Path, required=True, help="folder for the pictures and the runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=FEATURES)
    parser.add_argument("--minutes", type=float, default=60, help="limit of all runs together")
    parser.add_argument("flags", nargs="*", help="flags of nogs run folder, after --")
    options = parser.parse_args()
    pictures = options.work / "pictures"
    result = {"benchmark": "folder", **provenance(), "pictures": make_pictures(options.data, pictures), "runs": {}}
    file = options.data / weights_file()
    for name in options.features:
        weights = str(file) if name == "imagenet" and file.is_file() else name
        flags = ["--posterior.weights", weights, *options.flags]
        folder, seconds = options.work / name, 60 * options.minutes / len(options.features)
        taken, finished = run(pictures, folder, flags, seconds=seconds)
        record = {"flags": options.flags, "seconds": round(taken, 1), "finished": finished, **outcome(folder)}
        result["runs"][name] = record
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        last = record.get("posterior", {}).get("test", [{}])[-1]
        print(f"{name:>9}: {'' if finished else 'not '}finished after {taken:.0f} s, posterior {last}", flush=True)


if __name__ == "__main__":
    main()
