"""The time of an annotation: seconds by stage, and how they grow with each size; JSON out.

    python benchmarks/annotate.py --task cub --device cuda --images 500 --bank 40000 --out ...
    python benchmarks/annotate.py --task celeba-hq --device cuda --images 120 --bank 50000 --parts stages --out ...
    python benchmarks/annotate.py --task cub --tiny --count

Pictures are random and smooth, of the task's shape, the posterior is the published one, and the fields are the
recipe's, so the rates need nothing but the repository. The number of evaluations per image depends on the pictures:
--pictures reads them from zip files. --parts chooses the parts:

stages   annotates --images images, block by block, and gives the seconds of each stage. On a GPU they come from events
         in its stream, which do not block: the time of a stage includes the GPU's waits for the host.
growth   annotates with twice, four and eight times as many images, locations, completions and bank images as the least,
         one changed at a time, and fits the slope of log seconds against log size.

--count gives the number of torch's operations and of waits for the device in each stage, on any device. --tiny takes
an untrained posterior of two layers, few completions, and small sizes for everything else.
"""

import argparse
import json
import math
import time
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from design import read_pictures, smooth_pictures
from nogs.bank import make_bank
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import Retrieval
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.glimpse import Grid
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import load_posterior
from nogs.recipes import recipe as named_recipe
from nogs.runtime.device import pick_device
from posterior import synthetic_task
from provenance import provenance

WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "repeat_interleave")
"""Operations that wait until the device is done: their answer, or its size, is needed on the host."""
REST = "search and host"


class Stages:
    """Seconds of each stage, from events of the GPU's stream or from the clock."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.now = device, REST
        self._spans: list[tuple[str, object, object]] = []

    @contextmanager
    def stage(self, name: str):
        before, self.now, began = self.now, name, self._mark()
        try:
            yield
        finally:
            self._spans.append((name, began, self._mark()))
            self.now = before

    def seconds(self) -> dict[str, float]:
        """Seconds of each stage since the last call."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        out: Counter[str] = Counter()
        for name, began, ended in self._spans:
            out[name] += began.elapsed_time(ended) / 1e3 if self.device.type == "cuda" else ended - began
        self._spans.clear()
        return dict(out)

    def _mark(self) -> object:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


class Counted(TorchDispatchMode):
    """Operations and waits of each stage."""

    def __init__(self, stages: Stages) -> None:
        super().__init__()
        self.stages, self.operations, self.waits = stages, Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.partition(".")[0]
        self.operations[self.stages.now] += 1
        masks = name in ("index", "index_put_") and any(
            part is not None and part.dtype == torch.bool for part in args[1]
        )
        if name in WAITS or masks:
            self.waits[self.stages.now] += 1
        return function(*args, **(kwargs or {}))


class TimedCompletion:
    """A completion whose time is the stage "completion"."""

    def __init__(self, completion: Retrieval, stages: Stages) -> None:
        self.completion, self.stages, self.fingerprint = completion, stages, completion.fingerprint

    def complete(self, *args, **keywords):
        with self.stages.stage("completion"):
            return self.completion.complete(*args, **keywords)


class TimedPosterior:
    """A posterior whose answers are the stages "encoding" and "evaluation"; its calls are counted."""

    def __init__(self, posterior: NetworkPosterior, stages: Stages, *, grid: Grid) -> None:
        self.posterior, self.stages, self.grid, self.space = posterior, stages, grid, posterior.space
        self.log_probabilities, self.look_ahead = posterior.log_probabilities, posterior.look_ahead
        self.calls = 0

    def prepare(self, *args, **keywords):
        with self.stages.stage("encoding"):
            return self.posterior.prepare(*args, **keywords)

    def extend(self, *args):
        self.calls += 1
        with self.stages.stage("evaluation"):
            return self.posterior.extend(*args)


class Bench:
    """The images to annotate, and the tools for it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, pick_device(options.device)
        self.recipe = named_recipe(options.task)
        fields = {"compile": options.compile, "images": options.block, "batch": options.batch}
        if options.tiny:
            fields |= {"images": options.block or 4, "batch": options.batch or 64}
        self.design = self.recipe.design.model_copy(update={k: v for k, v in fields.items() if v is not None})
        self.task = synthetic_task(options.task, 16)
        self.stages = Stages(self.device)
        self.posterior = self._posterior()
        most = options.images
        if options.pictures:
            pool = read_pictures(options.pictures, options.bank + most, self.task.grid.height).flip(0).to(self.device)
        else:
            pool = smooth_pictures(options.bank + most, self.task.grid.height, self.device)
        self.images = pool[options.bank :].cpu().numpy()
        self.ids = [f"image {n}" for n in range(most)]
        self.pool, self._pca = pool[: options.bank].clone(), None

    def _posterior(self) -> NetworkPosterior:
        if not self.options.tiny:
            return load_posterior(
                self.options.posterior or self.options.task,
                device=self.device,
                precision=self.options.precision,
                chunk=self.design.batch,
                compiled=self.design.compile,
            )
        config = self.recipe.posterior.model_copy(
            update={"kind": "tokens", "stem": "linear", "width": 16, "layers": 1, "heads": 2}
        )
        architecture = Architecture.of(config, task=self.task, glimpses=self.recipe.glimpses)
        return NetworkPosterior(architecture.build().to(self.device), architecture, chunk=self.design.batch)

    def completion(self, *, bank: int, kept: int | None = None) -> Retrieval:
        if self._pca is None:
            fields = self.recipe.bank
            self._pca = fit_pca(
                ResidentImages(self.pool),
                components=min(fields.components, len(self.pool) // 2),
                centre=fields.pixel_mean,
                scale=fields.pixel_std,
                device=self.device,
            )
        config = self.recipe.completion
        kept = kept or (12 if self.options.tiny else config.kept)
        # the first step is the same work for any number of images, and is not measured
        config = config.model_copy(update={"kept": kept, "drawn": min(config.drawn, bank // 4), "prior": 20})
        images = make_bank(self.pool[:bank], pca=self._pca)
        made = Retrieval(images, config=config, glimpse=self.task.grid.glimpse, seed=self.recipe.seed)
        made.together = self.options.together or made.together
        return made

    def annotate(self, *, images: int, completion: Retrieval, grid: Grid | None = None) -> dict[str, object]:
        """Seconds, by stage, of some images; the first step and the start of kernels are not counted."""
        posterior = TimedPosterior(self.posterior, self.stages, grid=grid or self.task.grid)
        tools = Tools(posterior, TimedCompletion(completion, self.stages), self.device)
        column = None if self.task.space.kind == "categorical" else self.options.attribute
        common = {"config": self.design, "glimpses": self.recipe.glimpses, "attribute": column, "seed": 0}
        first = first_step(tools, self.images[0], config=self.design)
        annotate_images(tools, self.images[:2], self.ids[:2], first=first, **common)
        self.stages.seconds()
        posterior.calls, spent = 0, 0
        counted = Counted(self.stages) if self.options.count else nullcontext()
        began, done = time.perf_counter(), 0
        with counted:
            while done < images:
                some = slice(done, min(done + self.design.images, images))
                found = annotate_images(tools, self.images[some], self.ids[some], first=first, **common)
                done, spent = some.stop, spent + found.evaluations
        by_stage = self.stages.seconds()
        seconds = time.perf_counter() - began
        by_stage[REST] = seconds - sum(by_stage.values())
        batch = self.design.batch_on(self.device.type)
        row = {
            "images": images,
            "seconds": round(seconds, 3),
            "of_which": {name: round(value, 3) for name, value in sorted(by_stage.items())},
            "evaluations": spent,
            "evaluations_an_image_and_step": round(spent / images / (self.recipe.glimpses - 1)),
            "evaluations_per_s": round(spent / seconds),
            "evaluations_per_s_of_the_network": round(spent / max(by_stage["evaluation"], 1e-9)),
            "calls": posterior.calls,
            "share_of_padded_evaluations_that_count": round(spent / max(1, posterior.calls * batch), 3),
        }
        if self.options.count:
            steps = images * (self.recipe.glimpses - 1)
            row["operations_an_image_and_step"] = {k: round(v / steps, 1) for k, v in counted.operations.items()}
            row["waits_an_image_and_step"] = {k: round(v / steps, 2) for k, v in counted.waits.items()}
        return row

    def growth(self) -> dict[str, object]:
        """Rows of each size, and the slopes."""
        images, bank = max(1, self.options.images // 8), self.options.bank // 8
        kept = max(1, self.completion(bank=bank).config.kept // 4)
        side = len(self.task.grid.rows)
        scales = (1, 2, 4, 8)
        rows: dict[str, list[dict[str, object]]] = {"images": [], "locations": [], "completions": [], "bank": []}
        for scale in scales:
            rows["images"].append({"size": images * scale, **self.annotate(
                images=images * scale, completion=self.completion(bank=bank))})  # fmt: skip
            count = max(2, round(side * math.sqrt(scale / 8)))
            old = self.task.grid
            grid = Grid.even(image=old.height, glimpse=old.glimpse, count=count)
            rows["locations"].append({"size": len(grid), **self.annotate(
                images=images, completion=self.completion(bank=bank), grid=grid)})  # fmt: skip
            rows["completions"].append({"size": kept * scale, **self.annotate(
                images=images, completion=self.completion(bank=bank, kept=kept * scale))})  # fmt: skip
            rows["bank"].append({"size": bank * scale, **self.annotate(
                images=images, completion=self.completion(bank=bank * scale))})  # fmt: skip
        slopes = {name: round(slope([(r["size"], r["seconds"]) for r in found]), 3) for name, found in rows.items()}
        return {"slopes": slopes, "rows": rows}


def slope(points: list[tuple[float, float]]) -> float:
    """Of log seconds against log size, by least squares."""
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["celeba-hq", "cub"], default="cub")
    parser.add_argument("--posterior", help="a file; by default the published one")
    parser.add_argument("--attribute", type=int, default=31, help="of celeba-hq, by its number; 31 is Smiling")
    parser.add_argument("--pictures", nargs="+", type=Path, help="zip files of pictures, in place of random ones")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true", default=None)
    parser.add_argument("--parts", nargs="+", default=["stages", "growth"], choices=["stages", "growth"])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--bank", type=int, default=400, help="images of the bank")
    parser.add_argument("--block", type=int, help="images at once; by default the recipe's")
    parser.add_argument("--batch", type=int, help="evaluations at once; by default the recipe's")
    parser.add_argument("--together", type=int, help="images completed at once; by default the device's")
    parser.add_argument("--count", action="store_true", help="operations and waits; slows it down")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    bench = Bench(options)
    result = {
        "benchmark": "annotate",
        **provenance(),
        "task": options.task,
        "data": "pictures" if options.pictures else "synthetic",
        "locations": len(bench.task.grid),
        "bank": options.bank,
        "design": bench.design.model_dump(mode="json"),
        "precision": bench.posterior.precision.name,
    }
    if "stages" in options.parts:
        completion = bench.completion(bank=options.bank)
        result |= {"completions": completion.config.kept, "seconds_to_open": round(time.perf_counter() - began, 1)}
        result["stages"] = bench.annotate(images=options.images, completion=completion)
        print(json.dumps(result["stages"], indent=1), flush=True)
    if "growth" in options.parts:
        result["growth"] = bench.growth()
        print(json.dumps(result["growth"]["slopes"]), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
