"""Regret of sequences in nats in the exact world, by bank, completions and search; JSON out.

    python benchmarks/regret.py --out results/benchmarks/regret.json

The world of tests/worlds.py is small enough to enumerate. Its exact posterior designs and scores the sequences;
completions come from a bank of some of its images, drawn from its distribution. Regret is the mean entropy after T
glimpses, less that of the exact greedy sequences (Eq. 3), and less that of the best T-step policy. Sequences may beat
greedy, which is not the best policy: then their regret against it is negative.
"""

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch

from provenance import provenance

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import worlds
from exact_design import ExactCompletion, ExactPosterior
from nogs.design.config import DesignConfig
from nogs.design.steps import Tools, annotate_images, first_step

SEARCHES = {
    "grid": {"search": "grid"},
    "race": {"search": "race"},
    "race, stride 2": {"search": "race", "stride": 2},
    "coarse-to-fine": {"search": "coarse-to-fine", "stride": 2},
    "bayesopt": {"search": "bayesopt", "start": 4, "budget": 7},
}
DEAR = {"bayesopt"}
"""Searches that take seconds per image: one seed, and fewer settings."""


def bank_of(world: worlds.World, size: int | None, seed: int) -> np.ndarray | None:
    """Rows of the different images among `size` draws from the world; None is all of them."""
    if size is None:
        return None
    share = world.counts / world.counts.sum()
    return np.unique(np.random.default_rng(seed).choice(len(share), size, p=share))


def measure(
    world: worlds.World, *, glimpses: int, fields: dict, bank: int | None, draws: int | None, seed: int
) -> dict:
    began = time.perf_counter()
    completion = ExactCompletion(world, bank=bank_of(world, bank, seed), draws=draws, seed=seed)
    tools = Tools(ExactPosterior(world), completion, torch.device("cpu"))
    config = DesignConfig(batch=512, images=len(world.images), **fields)
    first = first_step(tools, world.images[0], config=config)
    found = annotate_images(
        tools,
        world.images,
        [str(n) for n in range(len(world.images))],
        first=first,
        config=config,
        glimpses=glimpses,
        seed=seed,
    )
    pixels = world.grid.pixels.numpy()[found.locations]
    left = [worlds.expected_entropy_of(world, list(pixels[:, :t])) for t in range(1, glimpses + 1)]
    return {"left": left, "evaluations": found.evaluations, "seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glimpses", type=int, default=3)
    parser.add_argument("--spacing", type=int, default=4, help="px between locations: 4 has 9, 2 has 25")
    parser.add_argument(
        "--banks", type=int, nargs="*", default=[10, 30, 100, 300], help="draws; the whole world comes too"
    )
    parser.add_argument(
        "--completions", type=int, nargs="*", default=[3, 10, 30, 100], help="draws; all, weighted, too"
    )
    parser.add_argument("--searches", nargs="*", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    world = worlds.pointer_world(spacing=options.spacing)
    steps = range(1, options.glimpses + 1)
    greedy = [worlds.greedy_sequence(world, image, options.glimpses) for image in world.images]
    of_greedy = [worlds.expected_entropy_of(world, [one[:t] for one in greedy]) for t in steps]
    of_best = [worlds.best_policy(world, t)[0] for t in steps]
    print(f"entropy left by exact greedy {np.round(of_greedy, 4)}, by the best policy {np.round(of_best, 4)}")
    print(f"{'search':<18}{'bank':>8}{'completions':>13}{'evaluations':>13}   regret against greedy, against best")
    rows = []
    settings = [(b, None) for b in (None, *options.banks)] + [(None, draws) for draws in options.completions]
    for name, (bank, draws) in product(options.searches, settings):
        fixed = (bank is None and draws is None) or name in DEAR
        if name in DEAR and (bank or draws) not in (None, options.banks[-1], options.completions[-1]):
            continue
        runs = [
            measure(world, glimpses=options.glimpses, fields=SEARCHES[name], bank=bank, draws=draws, seed=seed)
            for seed in range(1 if fixed else options.seeds)
        ]
        left = np.mean([run["left"] for run in runs], 0)
        row = {
            "search": name,
            "bank": bank or "the whole world",
            "completions": draws or "all, weighted",
            "seeds": len(runs),
            "evaluations": float(np.mean([run["evaluations"] for run in runs])),
            "seconds": round(float(np.mean([run["seconds"] for run in runs])), 2),
            "entropy_left": left.tolist(),
            "regret_against_greedy": (left - of_greedy).tolist(),
            "regret_against_best": (left - of_best).tolist(),
        }
        rows.append(row)
        if options.out:
            result = {"benchmark": "regret", **provenance(), "greedy": of_greedy, "best": of_best, "rows": rows}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=2) + "\n")
        against = "  ".join(str(np.round(row[f"regret_against_{who}"], 4)) for who in ("greedy", "best"))
        print(f"{name:<18}{bank or 'all':>8}{draws or 'all':>13}{row['evaluations']:>13,.0f}   {against}", flush=True)


if __name__ == "__main__":
    main()
