"""A folder of pictures, end to end: twelve groups of CUB's birds, with and without pretrained features.

    python benchmarks/folder.py --data DATA --work runs/birds --out results/folder/birds.json --seeds 0 1 2

DATA holds CUB-200-2011 and, for the runs with features, vgg16-imagenet-conv1-12.safetensors. The class of a bird is
the last word of its species' name (Warbler, Sparrow, Gull, ...). The twelve words with the most pictures are taken,
and of each at most 300 pictures, evenly spread over its list: 3,419 pictures. With --scattered each is scaled to 64 px
and lies at a random place of a grey canvas of 128 px, so that the place to look at differs. For the first seed, `nogs
run folder` chooses all sizes, as for a user, with --minutes and the flags after `--`. The other seeds train with the
same sizes and iterations, however busy the machine is. A run is stopped after --limit minutes. Given again, the
command resumes. The same command works on a CPU and a GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.stats import t as student

from nogs.data.config import CUB
from nogs.data.cub import catalogue
from nogs.posterior.imagenet import weights_file
from nogs.recipes import recipe
from nogs.runtime.files import read_json
from provenance import provenance

CLASSES, MOST = 12, 300
CANVAS, SIDE, GREY = 128, 64, (124, 116, 104)  # the grey is ImageNet's mean
FEATURES = ("none", "imagenet")


def make_pictures(data: Path, folder: Path) -> dict[str, int]:
    """Write the pictures into a folder for each class, unless they exist; returns the number of each class."""
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


def scatter(pictures: Path, folder: Path) -> None:
    """Write each picture, small and at a random place of a canvas, into the same class of another folder, unless it
    exists."""
    random = np.random.default_rng(0)
    for path in sorted(path for path in pictures.rglob("*") if path.is_file()):
        picture, canvas = Image.open(path).convert("RGB"), Image.new("RGB", (CANVAS, CANVAS), GREY)
        picture.thumbnail((SIDE, SIDE))
        down, right = random.integers(0, (CANVAS - picture.height + 1, CANVAS - picture.width + 1)).tolist()
        canvas.paste(picture, (right, down))
        target = folder / path.parent.name / f"{path.stem}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file():
            canvas.save(target)


def run(source: str, pictures: Path, folder: Path, flags: Sequence[str], *, seconds: float) -> tuple[float, bool]:
    """`nogs run` of a recipe, stopped after `seconds`; the time it took and whether it finished."""
    began = time.monotonic()
    command = [sys.executable, "-m", "nogs", "run", source, "--data", str(pictures), "--out", str(folder), *flags]
    try:
        subprocess.run(command, check=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return time.monotonic() - began, False
    return time.monotonic() - began, True


def outcome(folder: Path) -> dict[str, Any]:
    """The results of a run so far: its choices, and the scores of the posterior, the networks and the reference."""
    found: dict[str, Any] = {}
    if (folder / "recipe.yaml").is_file():
        chosen = recipe(folder / "recipe.yaml")
        found["chosen"] = {
            "image_size": chosen.data.image_size,
            "glimpse": chosen.data.glimpse,
            "glimpses": chosen.glimpses,
            "iterations": {name: getattr(chosen, name).iterations for name in ("posterior", "plus", "attention")},
        }
    path = folder / "posterior" / "evaluation.json"
    if path.is_file():
        about = read_json(path)
        names = ("parameters", "iterations", "best_iteration", "training_seconds")
        found["posterior"] = {name: about[name] for name in names} | {"test": about["tables"]["test, calibrated"]}
    scores = {}
    for path in sorted((folder / "attention").rglob("evaluation.json")):
        about = read_json(path)
        best = about["best"]["accuracy"]
        scores[about["member"]["method"]] = {"iteration": best["iteration"], **best["test"]}
    if (path := folder / "whole-image" / "evaluation.json").is_file():
        scores["whole-image"] = read_json(path)["tests"][""]
    return found | {"test": scores}


def means(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Test accuracy of each method in per cent: mean over the finished runs and Student's 95 % interval, and the same
    of PS-NOGS+ less the method."""
    done = [run["test"] for run in runs if run["finished"]]
    out = {}
    for method in dict.fromkeys(name for test in done for name in test):
        own = np.array([100 * test[method]["accuracy"] for test in done])
        out[method] = {"accuracy": _interval(own)}
        if "ps-nogs+" in done[0] and method != "ps-nogs+":
            plus = np.array([100 * test["ps-nogs+"]["accuracy"] for test in done])
            out[method]["ps-nogs+ less it"] = _interval(plus - own)
    return out


def _interval(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Mean, and the ends of its interval if there are several values."""
    mean, number = float(values.mean()), len(values)
    if number == 1:
        return [round(mean, 3), None, None]
    half = float(student.ppf(0.975, number - 1) * values.std(ddof=1) / np.sqrt(number))
    return [round(value, 3) for value in (mean, mean - half, mean + half)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds CUB, and VGG-16's weights")
    parser.add_argument("--work", type=Path, required=True, help="folder for the pictures and the runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=FEATURES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--scattered", action="store_true", help="small pictures at random places")
    parser.add_argument("--minutes", type=float, help="of each run, for which it chooses its sizes")
    parser.add_argument("--limit", type=float, default=60, help="minutes after which a run is stopped")
    parser.add_argument("flags", nargs="*", help="flags of nogs run folder, after --")
    options = parser.parse_args()
    pictures = options.work / "birds"
    result = {"benchmark": "folder", **provenance(), "pictures": make_pictures(options.data, pictures), "runs": {}}
    if options.scattered:
        pictures = options.work / "birds-scattered"
        scatter(options.work / "birds", pictures)
    for name in ("data", "work", "out"):  # other people's folders have other names
        result["command"] = result["command"].replace(str(getattr(options, name)), name.upper())
    file = options.data / weights_file()
    if "imagenet" in options.features and not file.is_file():
        raise SystemExit(f"{file} is missing; put it there, or leave the features out with --features none.")
    more = [] if options.minutes is None else ["--minutes", f"{options.minutes:g}"]
    for seed, name in product(options.seeds, options.features):
        kind = f"scattered-{name}" if options.scattered else name
        folder, first = options.work / f"{kind}-{seed}", seed == options.seeds[0]
        source = "folder" if first else str(options.work / f"{kind}-{options.seeds[0]}" / "recipe.yaml")
        weights = ["--posterior.weights", str(file) if name == "imagenet" else name]
        flags = ["--seed", str(seed), *options.flags, *([*weights, *more] if first else ["--no-estimate"])]
        taken, finished = run(source, pictures, folder, flags, seconds=60 * options.limit)
        record = {"seed": seed, "seconds": round(taken, 1), "finished": finished, **outcome(folder)}
        result["runs"].setdefault(name, []).append(record)
        result["means"] = {features: means(runs) for features, runs in result["runs"].items()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
        print(f"{name}, seed {seed}: {'' if finished else 'not '}finished after {taken:.0f} s", flush=True)
    for features, found in result["means"].items():
        print(f"\nfeatures: {features}; test accuracy (%), and PS-NOGS+ less it")
        for method, numbers in found.items():
            print(f"  {method:12} {'   '.join(map(_shown, numbers.values()))}")


def _shown(interval: Sequence[float | None]) -> str:
    mean, low, high = interval
    return f"{mean:.1f}" if low is None else f"{mean:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
