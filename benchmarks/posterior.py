"""Evaluations per second of posteriors, and their training speed, on random images; JSON out.

    python benchmarks/posterior.py --out results/benchmarks/posterior-cpu.json
    python benchmarks/posterior.py --device cuda --batch 16384 --cnn-batch 2048 --compile --out ...

An evaluation is one query: T glimpses of one image. `look_ahead` measures the same for the design: queries share T - 1
glimpses and have many candidates. Medians of interleaved measurements.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.queries import fixed_pixels
from nogs.posterior.training import Trainer
from provenance import provenance

GLIMPSES = 5
PARTS = ("log_probabilities", "look_ahead", "training")
TASKS = {"celeba-hq": (Grid.celeba_hq(), "bernoulli", 40), "cub": (Grid.cub(), "categorical", 200)}


def synthetic_task(name: str, images: int) -> Task:
    """A task's shapes with random pixels and labels."""
    grid, kind, labels = TASKS[name]
    random = np.random.default_rng(0)
    ids = tuple(map(str, range(images)))
    cuts = {"train": (0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1), "posterior": (0, 0.8), "annotate": (0, 0)}
    truth = random.integers(0, labels, images) if kind == "categorical" else random.integers(0, 2, (images, labels))
    return Task(
        name,
        random.integers(0, 256, (images, grid.height, grid.width, 3), dtype=np.uint8),
        ids,
        truth.astype(np.int64 if kind == "categorical" else np.uint8),
        LabelSpace(kind, tuple(map(str, range(labels)))),
        {split: ids[int(a * images) : int(b * images)] for split, (a, b) in cuts.items()},
        grid,
        fingerprint="random",
    )


def evaluations(
    task: Task, config: PosteriorConfig, batch: int, device: torch.device, compiled: bool, parts: Sequence[str]
) -> dict[str, tuple[Callable[[], object], int]]:
    """Measurement -> a function that does it once, and its number of evaluations or images."""
    architecture = Architecture.of(config, task=task, glimpses=GLIMPSES)
    network = architecture.build().to(device)
    posterior = NetworkPosterior(network, architecture, precision=config.precision, chunk=batch, compiled=compiled)
    images = torch.from_numpy(task.images).to(device)
    index = torch.arange(batch, device=device) % len(images)
    where = fixed_pixels(
        batch, glimpses=GLIMPSES, grid=task.grid, locations="grid", seed=0, purpose="benchmark", device=device
    )
    candidates = task.grid.pixels[: min(len(task.grid), 64)].to(device)
    few = max(1, batch // len(candidates))
    pairs = few * len(candidates)
    works: dict[str, tuple[Callable[[], object], int]] = {
        "log_probabilities": (lambda: posterior.log_probabilities(images, where, index=index), batch),
        "look_ahead": (
            lambda: posterior.look_ahead(images, where[:few, : GLIMPSES - 1], candidates, index=index[:few]),
            pairs,
        ),
    }
    if "training" in parts:
        trainer = Trainer(task, config=config, glimpses=GLIMPSES, seed=0, device=device)
        trainer.network.train()

        def train() -> None:
            with trainer.precision.active():
                trainer.step()

        works["training"] = (train, trainer.batch)
    return {name: work for name, work in works.items() if name in parts}


def seconds(function: Callable[[], object], repeats: int, device: torch.device) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="celeba-hq")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kind", nargs="+", choices=["tokens", "cnn"], default=["tokens", "cnn"])
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="what to measure; compiled, a cnn takes minutes to train",
    )
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256, help="queries at once, tokens")
    parser.add_argument("--cnn-batch", type=int, default=16, help="queries at once, cnn")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="fields of the posterior's recipe")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    fields = dict(pair.split("=", 1) for pair in options.set)
    task = synthetic_task(options.task, options.images)
    result = {"benchmark": "posterior", **provenance(), "task": options.task, "fields": fields, "kinds": {}}
    for kind in options.kind:
        batch = options.batch if kind == "tokens" else options.cnn_batch
        values = {**fields, "kind": kind, "batch": batch, "precision": options.precision, "compile": options.compile}
        config = PosteriorConfig.model_validate(values)
        works = evaluations(task, config, batch, device, options.compile, options.parts)
        times: dict[str, list[float]] = {name: [] for name in works}
        for function, _ in works.values():
            seconds(function, 2, device)  # warm up, compile
        for _ in range(options.rounds):
            for name, (function, _) in works.items():
                times[name].append(seconds(function, options.repeats, device))
        rates = {name: round(works[name][1] / statistics.median(taken), 1) for name, taken in times.items()}
        result["kinds"][kind] = {"batch": batch, "per_s": rates}
        print(f"{kind:>7}: " + ", ".join(f"{name} {rate:,.1f}/s" for name, rate in rates.items()), flush=True)
        if options.out:  # after each kind: compiling the next may exceed the time
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
