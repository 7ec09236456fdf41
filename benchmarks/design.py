"""Evaluations per second of the design end to end, and race against grid on the same completions; JSON out.

    python benchmarks/design.py --out results/benchmarks/design-cpu.json
    python benchmarks/design.py --device cuda --task cub --images 64 --bank 50000 --compile --out ...
    python benchmarks/design.py --recipe cub --data DATA --bank-folder RUN --posterior FILE --images 100 --out ...

Without --recipe: random smooth pictures and an untrained posterior of the task's size, which is enough for speed. With
it: a real bank and a trained posterior; --against-grid then adds the share of steps in which the search picks the
grid's location, or one that is at most 0.002 nats worse, and the evaluations that it spent of the grid's.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from nogs.bank import load_bank, make_bank
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import Retrieval
from nogs.data import load_task
from nogs.design.config import DesignConfig
from nogs.design.search import Choice, GridSearch, make_search, means
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.design.tools import bank_folder
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import load_posterior
from nogs.recipes import recipe as named_recipe
from posterior import synthetic_task
from provenance import provenance


class Timed:
    """A completion that says how long it took."""

    def __init__(self, completion, device):
        self.completion, self.device, self.seconds = completion, device, 0.0

    @property
    def fingerprint(self):
        return self.completion.fingerprint

    def complete(self, *args, **keywords):
        began = clock(self.device)
        found = self.completion.complete(*args, **keywords)
        self.seconds += clock(self.device) - began
        return found


class AgainstGrid:
    """A search that also fills the grid, and notes how the two differ; the search's own location is taken."""

    def __init__(self, search):
        self.search_, self.regret, self.share = search, [], []

    def search(self, entropies, allowed) -> Choice:
        choice = self.search_.search(entropies, allowed)
        spent = entropies.evaluations
        GridSearch().search(entropies, allowed)
        all_means = means(entropies, allowed)
        regret = all_means.gather(1, choice.location[:, None])[:, 0] - all_means.amin(1)
        self.regret += regret.tolist()
        self.share.append(spent / entropies.evaluations)
        return choice


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def smooth_pictures(number: int, size: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(0)
    parts = []
    for first in range(0, number, 1024):
        noise = torch.rand(min(1024, number - first), 3, 8, 8, generator=generator, device=device)
        large = torch.nn.functional.interpolate(noise, size=(size, size), mode="bicubic").clamp(0, 1)
        parts.append((large * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous())
    return torch.cat(parts)


def synthetic(options, recipe, device):
    task = synthetic_task(recipe.data.kind, max(16, options.images))
    pool = smooth_pictures(options.bank + len(task.ids), task.grid.height, device)
    config = recipe.bank
    pca = fit_pca(
        ResidentImages(pool[: options.bank]),
        components=min(config.components, options.bank // 2),
        centre=config.pixel_mean,
        scale=config.pixel_std,
    )
    architecture = Architecture.of(
        recipe.posterior.model_copy(update={"kind": options.kind}), task=task, glimpses=recipe.glimpses
    )
    posterior = NetworkPosterior(
        architecture.build().to(device),
        architecture,
        precision=options.precision,
        chunk=options.batch,
        compiled=options.compile,
    )
    images = pool[options.bank : options.bank + options.images].cpu().numpy()
    return task, posterior, make_bank(pool[: options.bank].clone(), pca=pca), images, list(task.ids[: options.images])


def real(options, recipe, device):
    task = load_task(recipe.data, data=options.data, cache=options.cache)
    posterior = load_posterior(
        options.posterior, task=task, device=device, precision=options.precision, chunk=options.batch,
        compiled=options.compile,
    )  # fmt: skip
    bank = load_bank(bank_folder(options.bank_folder), device=options.device, task=task)
    ids = list(task.splits["annotate"][: options.images])
    return task, posterior, bank, np.array(task.images[task.rows(ids)]), ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["celeba-hq", "cub"], default="cub", help="whose shapes, without --recipe")
    parser.add_argument("--recipe", help="real data: a recipe's name or file")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--bank-folder", type=Path)
    parser.add_argument("--posterior")
    parser.add_argument("--attribute")
    parser.add_argument("--kind", choices=["tokens", "cnn"], default="tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--block", type=int, help="images at once; by default the recipe's")
    parser.add_argument("--bank", type=int, default=500, help="images of the synthetic bank")
    parser.add_argument("--completions", type=int, help="by default the recipe's")
    parser.add_argument("--glimpses", type=int, help="by default the recipe's")
    parser.add_argument("--batch", type=int, help="evaluations at once")
    parser.add_argument(
        "--searches", nargs="+", default=["race"], choices=["grid", "race", "coarse-to-fine", "bayesopt"]
    )
    parser.add_argument("--stride", type=int)
    parser.add_argument("--against-grid", action="store_true", help="also fill the grid, and compare")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    recipe = named_recipe(options.recipe or options.task)
    design = recipe.design.model_copy(update={"compile": options.compile, "stride": options.stride})
    options.batch = options.batch or DesignConfig().batch_on(device.type)
    glimpses = options.glimpses or recipe.glimpses
    task, posterior, bank, images, ids = (real if options.recipe else synthetic)(options, recipe, device)
    completion = recipe.completion.model_copy(update={"kept": options.completions or recipe.completion.kept})
    column = task.attribute(options.attribute) if options.attribute else (0 if task.space.kind == "bernoulli" else None)
    block = options.block or design.images
    rows = []
    for name in options.searches:
        config = design.model_copy(update={"search": name, "batch": options.batch, "images": min(block, len(ids))})
        timed = Timed(Retrieval(bank, config=completion, glimpse=task.grid.glimpse, seed=recipe.seed), device)
        tools = Tools(posterior, timed, device)
        search = AgainstGrid(make_search(config)) if options.against_grid else make_search(config)
        began = clock(device)
        first = first_step(tools, images[0], config=config)
        first_seconds, timed.seconds = clock(device) - began, 0.0
        annotate_images(tools, images[:1], ids[:1], first=first, config=config, glimpses=glimpses, attribute=column)
        timed.seconds, spent, began = 0.0, 0, clock(device)
        if isinstance(search, AgainstGrid):
            search.regret, search.share = [], []
        for start in range(0, len(ids), block):
            found = annotate_images(
                tools, images[start : start + block], ids[start : start + block], first=first, config=config,
                glimpses=glimpses, attribute=column, search=search,
            )  # fmt: skip
            spent += found.evaluations
        seconds = clock(device) - began
        row = {
            "search": name,
            "images": len(ids),
            "seconds": round(seconds, 3),
            "of_which_completion": round(timed.seconds, 3),
            "evaluations": spent,
            "evaluations_per_s": round(spent / seconds),
            "evaluations_per_s_without_completion": round(spent / max(seconds - timed.seconds, 1e-9)),
            "first_step": {"seconds": round(first_seconds, 3), "evaluations": first.evaluations},
            "seconds_per_image": round(seconds / len(ids), 4),
        }
        if isinstance(search, AgainstGrid):
            regret = np.array(search.regret)
            row |= {
                "share_of_grid": round(float(np.mean(search.share)), 4),
                "same_location": round(float((regret <= 1e-6).mean()), 4),
                "within_0.002_nats": round(float((regret <= 0.002).mean()), 4),
                "largest_regret": round(float(regret.max()), 5),
            }
        rows.append(row)
        print(json.dumps(row), flush=True)
    result = {
        "benchmark": "design",
        **provenance(),
        "task": task.name,
        "data": "real" if options.recipe else "synthetic",
        "kind": posterior.architecture.config.kind,
        "locations": len(task.grid),
        "completions": completion.kept,
        "bank": len(bank),
        "batch": options.batch,
        "compiled": options.compile,
        "glimpses": glimpses,
        "rows": rows,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
