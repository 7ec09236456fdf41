"""Errors of the expected posterior entropy with each kind of completion, in the exact world; JSON out.

    python benchmarks/completions.py --kinds exact retrieval corrected --out results/completions/exact-world.json
    python benchmarks/completions.py --kinds cgan cgan-mask flow --out results/completions/exact-world.json
    python benchmarks/completions.py --kinds hmc --images 24 --out results/completions/exact-world.json

The world of tests/worlds.py is small enough to enumerate. A kind only gets a bank of some of its images, drawn from its
distribution, to retrieve from or to train on. Some images are completed after 1, 2 and 3 glimpses at random locations.
Each completion is replaced by the nearest image of the world, whose posterior gives every location's entropy (Eq. 6).
That map is compared with the exact one (Eq. 3): mean absolute error, and the regret of the location chosen. `exact`
draws from the true conditional: no completion can do better with as many draws. Rows of other kinds in the file are
kept.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from provenance import provenance

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import worlds
from exact_design import ExactCompletion
from nogs.bank.bank import make_bank
from nogs.bank.config import TrainedConfig
from nogs.bank.generators.training import train_generator
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import HMC, CompletionConfig, Conditional, Corrected, Retrieval
from nogs.completion.config import HMCConfig, NetworkConfig
from nogs.completion.training import train_network
from nogs.glimpse import cut

KINDS = ("exact", "retrieval", "corrected", "cgan", "cgan-mask", "flow", "hmc")
GLIMPSES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--bank", type=int, default=100)
    parser.add_argument("--kept", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=2500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    world = worlds.pointer_world()
    rows: dict[str, dict] = {}
    if options.out and options.out.exists():
        rows = json.loads(options.out.read_text())["kinds"]
    for kind in options.kinds:
        began = time.perf_counter()
        completion = make(kind, world, options)
        made = time.perf_counter() - began
        rows[kind] = {**measure(world, completion, options), "seconds_of_training": round(made, 1), **provenance()}
        print(kind, json.dumps({name: rows[kind][name] for name in ("after", "seconds_per_image")}))
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            ordered = {name: rows[name] for name in KINDS if name in rows}
            options.out.write_text(json.dumps({"benchmark": "completions", "kinds": ordered}, indent=2) + "\n")


def make(kind: str, world: worlds.World, options: argparse.Namespace):
    """The completion of a kind over a bank of the world's images; a learned kind is trained on them."""
    if kind == "exact":
        return ExactCompletion(world, draws=options.kept)
    task = world.task()
    chosen = np.random.default_rng(0).choice(task.rows("posterior"), options.bank, replace=False)
    pixels = torch.from_numpy(task.images[chosen])
    pca = fit_pca(ResidentImages(pixels), components=20, centre=(0.5,) * 3, scale=(0.25,) * 3)
    bank = make_bank(pixels, pca=pca)
    name = kind.partition("-")[0]
    network = NetworkConfig(
        width=16, iterations=options.iterations, batch=32, learning_rate=1e-3, steps=10, mask=kind == "cgan-mask"
    )
    config = CompletionConfig(
        kind=name,
        drawn=200,
        kept=options.kept,
        temperatures=(2.0,),
        least_effective=8,
        flips=False,
        proposal_reach=0,
        exact_reach=0,
        network=network,
        hmc=HMCConfig(steps=50, step_size=0.02, chains=8, warmup=20),
    )
    if name in ("retrieval", "corrected"):
        return {"retrieval": Retrieval, "corrected": Corrected}[name](bank, config=config, glimpse=4)
    if name == "hmc":
        fields = TrainedConfig(
            autoencoder_width=16, autoencoder_iterations=options.iterations, width=64, depth=4,
            iterations=2 * options.iterations, batch=64, learning_rate=1e-3, steps=8,
        )  # fmt: skip
        return HMC(train_generator(task, chosen, config=fields), bank, config=config, glimpse=4)
    learned = train_network(task, chosen, config=config, glimpses=GLIMPSES)
    return Conditional(learned, bank, config=config, glimpse=4)


def measure(world: worlds.World, completion, options: argparse.Namespace) -> dict:
    """Errors of the maps after 1, 2, ... glimpses, and the time that a completed image takes."""
    rng = np.random.default_rng(1)
    drawn = rng.choice(len(world.images), options.images, p=world.counts / world.counts.sum())
    images = torch.from_numpy(world.images[drawn])
    ids = [str(n) for n in range(len(drawn))]
    grid = world.grid.pixels.numpy()
    sequences = np.stack([rng.choice(grid, GLIMPSES - 1, replace=False) for _ in drawn])
    known = torch.from_numpy(world.images).flatten(1).float()
    after, seconds = [], 0.0
    for observed in range(1, GLIMPSES):
        places = torch.from_numpy(sequences[:, :observed])
        began = time.perf_counter()
        found = completion.complete(images, places, ids=ids)
        seconds += time.perf_counter() - began
        errors, regrets, wrong, away = [], [], [], []
        for b in range(len(images)):
            shown, weights = found.images(b).flatten(1).float(), found.weights_of(b).double().numpy()
            distance = torch.cdist(shown, known)
            nearest = distance.argmin(1).numpy()
            away.append(float((distance.amin(1) / shown.shape[1] ** 0.5).mean()))
            glimpses = cut(images[b, None], places[b, None], glimpse=4)[0].numpy()
            exact = worlds.exact_epe(world, glimpses, sequences[b, :observed])
            estimate = epe(world, nearest, weights, sequences[b, :observed])
            errors.append(np.abs(estimate - exact).mean())
            regrets.append(exact[estimate.argmin()] - exact.min())
            agrees = world.agreeing(glimpses, sequences[b, :observed])
            wrong.append(weights @ ~agrees[nearest])
        row = {"observed": observed, "error_of_epe": mean(errors), "regret": mean(regrets)}
        row |= {"disagreeing": mean(wrong), "distance_to_the_world": mean(away)}
        row |= {name: round(float(each.mean()), 4) for name, each in found.diagnostics.items()}
        after.append(row)
    options_used = {name: getattr(options, name) for name in ("images", "bank", "kept", "iterations")}
    return {"after": after, "seconds_per_image": round(seconds / len(images) / (GLIMPSES - 1), 4), **options_used}


def epe(world: worlds.World, nearest: np.ndarray, weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Eq. 6 for every location, with the world's own posterior on images of the world [L]."""
    codes, history = world.codes(world.grid.pixels.numpy()), world.codes(places)
    out = np.zeros(codes.shape[1])
    for n in np.unique(nearest):
        members = (history == history[n]).all(1)[:, None] & (codes == codes[n])
        out += weights[nearest == n].sum() * worlds.entropy(world.label_distribution(members.T))
    return out


def mean(values: list) -> dict[str, float]:
    """A mean and its standard error over images."""
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return {"mean": round(float(np.mean(values)), 4), "error": round(float(error), 4)}


if __name__ == "__main__":
    main()
