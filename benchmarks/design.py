"""The design end to end: evaluations per second, seconds an image, and how searches compare with the grid; JSON out.

    python benchmarks/design.py --recipe cub --data DATA --bank-folder RUN --posterior FILE --device cuda --compile \
        --images 128 --judged 32 --seconds 300 --out results/benchmarks/design-cub.json
    python benchmarks/design.py --task celeba-hq --kind cnn --device cuda --compile --searches grid --parts speed \
        --images 2 --completions 20 --glimpses 3 --bank 4000 --out ...
    python benchmarks/design.py --out results/benchmarks/design-cpu.json

With --recipe: its data, a bank and a trained posterior. Without: random smooth pictures and an untrained posterior of
the task's size, which only measure the speed. --posterior takes a trained posterior, and --pictures the pictures of zip
files, the first for annotation and the others for the bank. --parts chooses the parts:

speed      annotates --images images with each of --searches, block by block, and extrapolates to the whole task.
agreement  fills the whole grid for --judged images, step by step along the grid's own choices, and runs every variant
           of `race` and of `coarse-to-fine` on those numbers: the share of evaluations that it would have needed, and
           the regret of its choice.

They stop after --seconds in total; the file is rewritten after every row, so that nothing is lost.
"""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile
from zlib import crc32

import numpy as np
import torch
from PIL import Image

from nogs.bank import load_bank, make_bank
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import Retrieval
from nogs.data import load_task
from nogs.design.coarse import CoarseToFine
from nogs.design.entropies import Entropies, objective, random_order
from nogs.design.race import Race
from nogs.design.search import GridSearch, means
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.design.tools import bank_folder, fits
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import load_posterior
from nogs.recipes import recipe as named_recipe
from nogs.runtime.streams import key
from posterior import synthetic_task
from provenance import provenance

PARTS = ("speed", "agreement")
VARIANTS = {
    "race": lambda: Race(),
    "race, confidence 0.99": lambda: Race(confidence=0.99),
    "race, confidence 0.8": lambda: Race(confidence=0.8),
    "race, first 4": lambda: Race(first=4),
    "race, stride 2": lambda: Race(stride=2),
    "race, stride 2, slack 0.5": lambda: Race(stride=2, slack=0.5),
    "race, stride 2, slack 1": lambda: Race(stride=2, slack=1.0),
    "race, stride 2, first 4": lambda: Race(stride=2, first=4),
    "race, stride 2, confidence 0.8": lambda: Race(stride=2, confidence=0.8),
    "race, stride 3": lambda: Race(stride=3),
    "race, stride 4": lambda: Race(stride=4),
    "race, stride 4, slack 0.5": lambda: Race(stride=4, slack=0.5),
    "race, stride 4, slack 1": lambda: Race(stride=4, slack=1.0),
    "race, stride 4, confidence 0.8": lambda: Race(stride=4, confidence=0.8),
    "race, stride 4, share 0.1": lambda: Race(stride=4, share=0.1),
    "race, stride 4, share 0.05": lambda: Race(stride=4, share=0.05),
    "race, stride 2, share 0.2": lambda: Race(stride=2, share=0.2),
    "race, stride 2, share 0.25": lambda: Race(stride=2, share=0.25),
    "race, stride 2, share 0.3": lambda: Race(stride=2, share=0.3),
    "race, stride 4, slack 1, share 0.25": lambda: Race(stride=4, slack=1.0, share=0.25),
    "race, stride 4, share 0.25": lambda: Race(stride=4, share=0.25),
    "race, stride 2, share 0.25, growth 1.25": lambda: Race(stride=2, share=0.25, growth=1.25),
    "race, stride 4, share 0.25, growth 1.25": lambda: Race(stride=4, share=0.25, growth=1.25),
    "race, stride 4, share 0.25, growth 1.25, first 6": lambda: Race(stride=4, share=0.25, growth=1.25, first=6),
    "race, stride 3, refine 0.2": lambda: Race(stride=3, refine=0.2),
    "race, stride 3, refine 0.2, growth 1.25": lambda: Race(stride=3, refine=0.2, growth=1.25),
    "race, stride 3, refine 0.3, growth 1.25": lambda: Race(stride=3, refine=0.3, growth=1.25),
    "race, stride 2, refine 0.2, growth 1.25": lambda: Race(stride=2, refine=0.2, growth=1.25),
    "race, stride 3, slack 1": lambda: Race(stride=3, slack=1.0),
    "race, stride 4, slack 1, growth 1.25": lambda: Race(stride=4, slack=1.0, growth=1.25),
    "race, stride 4, slack 0.75, growth 1.25": lambda: Race(stride=4, growth=1.25),
    "race, stride 3, refine 0.1, growth 1.25": lambda: Race(stride=3, refine=0.1, growth=1.25),
    "race, stride 4, refine 0.2, growth 1.25": lambda: Race(stride=4, refine=0.2, growth=1.25),
    "race, stride 4, refine 0.15, growth 1.25": lambda: Race(stride=4, refine=0.15, growth=1.25),
    "race, stride 4, refine 0.1, growth 1.5": lambda: Race(stride=4, refine=0.1),
    "race, stride 5, refine 0.15, growth 1.25": lambda: Race(stride=5, refine=0.15, growth=1.25),
    "race, stride 4, refine 0.1, growth 1.25": lambda: Race(stride=4, refine=0.1, growth=1.25),
    "coarse-to-fine, stride 2": lambda: CoarseToFine(stride=2),
    "coarse-to-fine, stride 4": lambda: CoarseToFine(stride=4),
}
REFERENCE = {224: 17_400, 128: 49_300}
"""Images a second of DenseNet-121 in bfloat16, compiled, on one H200, by side in px: the most a cnn can reach."""


class Timed:
    """A completion that measures its time."""

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


class Replayed:
    """Entropies that are all known; counts the evaluations that a search requests."""

    def __init__(self, entropies: Entropies):
        self._full, self._most = entropies.values, entropies.most()
        self.weights, self.used, self.candidates = entropies.weights, entropies.used, entropies.candidates
        self.posterior = SimpleNamespace(grid=entropies.posterior.grid)
        self.values = torch.full_like(self._full, torch.nan)
        self.tried = torch.zeros_like(entropies.tried)
        self.evaluations = 0

    def most(self, objective=0):
        return self._most

    def fill(self, wanted, last=None):
        end = torch.tensor(self.used, device=self.tried.device)[:, None]
        end = end if last is None else end.clamp(max=last)
        wanted = wanted.to(self.tried.device) & (self.tried < end)
        self.evaluations += int(torch.where(wanted, end - self.tried, 0).sum())
        self.tried = torch.where(wanted, end, self.tried)
        place = torch.arange(self.values.shape[1], device=self.tried.device)[:, None]
        self.values = torch.where(place < self.tried[:, None], self._full, torch.nan)


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def read_pictures(archives: list[Path], number: int, size: int) -> torch.Tensor:
    """Pictures of some zip files, in the order of their names' numbers, or of a digest of their names."""
    found: list[tuple[Path, str]] = []
    for archive in archives:
        with ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if Path(name).suffix in (".webp", ".jpg", ".png")]
        found += [(archive, name) for name in sorted(names, key=_position)]
    if len(found) < number:
        raise SystemExit(f"{number} pictures are needed, but there are {len(found)}; give more --pictures.")

    def read(some: list[tuple[Path, str]]) -> list[np.ndarray]:
        out = []
        for archive, name in some:
            with opened[archive].open(name) as file, Image.open(BytesIO(file.read())) as picture:
                out.append(np.array(picture.convert("RGB").resize((size, size))))
        return out

    opened = {archive: ZipFile(archive) for archive in archives}
    with ThreadPoolExecutor() as threads:
        parts = threads.map(read, [found[start : start + 64] for start in range(0, number, 64)])
        return torch.from_numpy(np.stack([picture for part in parts for picture in part][:number]))


def _position(name: str) -> int:
    stem = Path(name).stem
    return int(stem) if stem.isdecimal() else crc32(name.encode())


def smooth_pictures(number: int, size: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(0)
    parts = []
    for first in range(0, number, 1024):
        noise = torch.rand(min(1024, number - first), 3, 8, 8, generator=generator, device=device)
        large = torch.nn.functional.interpolate(noise, size=(size, size), mode="bicubic").clamp(0, 1)
        parts.append((large * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous())
    return torch.cat(parts)


def synthetic(options, recipe, device):
    number = max(options.images, options.judged)
    task = synthetic_task(recipe.data.kind, max(16, number))
    wanted = options.bank + len(task.ids)
    if options.pictures:
        pool = read_pictures(options.pictures, wanted, task.grid.height).flip(0).to(device)
    else:
        pool = smooth_pictures(wanted, task.grid.height, device)
    config = recipe.bank
    pca = fit_pca(
        ResidentImages(pool[: options.bank]),
        components=min(config.components, options.bank // 2),
        centre=config.pixel_mean,
        scale=config.pixel_std,
        device=device,
    )
    how = {"precision": options.precision, "chunk": options.batch, "compiled": options.compile}
    if options.posterior:
        posterior = load_posterior(options.posterior, device=device, **how)
    else:
        architecture = Architecture.of(
            recipe.posterior.model_copy(update={"kind": options.kind}), task=task, glimpses=recipe.glimpses
        )
        posterior = NetworkPosterior(architecture.build().to(device), architecture, **how)
    images = pool[options.bank : options.bank + number].cpu().numpy()
    return task, posterior, make_bank(pool[: options.bank].clone(), pca=pca), images, list(task.ids[:number])


def real(options, recipe, device):
    task = load_task(recipe.data, data=options.data, cache=options.cache)
    posterior = load_posterior(
        options.posterior, task=task, device=device, precision=options.precision, chunk=options.batch,
        compiled=options.compile,
    )  # fmt: skip
    folder = bank_folder(options.bank_folder)
    bytes_ = json.loads((folder / "done.json").read_text())["images"] * recipe.data.image_size**2 * 3
    bank = load_bank(folder, device=str(device), on_gpu=fits(bytes_, device))
    ids = list(task.splits["annotate"][: max(options.images, options.judged)])
    return task, posterior, bank, np.array(task.images[task.rows(ids)]), ids


class Bench:
    """One run: its tools, the rows so far, and their file."""

    def __init__(self, options):
        self.options, self.device = options, torch.device(options.device)
        self.began = time.perf_counter()
        self.recipe = named_recipe(options.recipe or options.task)
        fields = {"compile": options.compile, "batch": options.batch, "keep_maps": False}
        self.design = self.recipe.design.model_copy(update=fields)
        self.glimpses = options.glimpses or self.recipe.glimpses
        make = real if options.recipe else synthetic
        self.task, self.posterior, self.bank, self.images, self.ids = make(options, self.recipe, self.device)
        self.completion = self.recipe.completion.model_copy(
            update={"kept": options.completions, "prior": options.completions} if options.completions else {}
        )
        self.attribute = options.attribute
        if self.attribute is None and self.task.space.kind == "bernoulli":
            self.attribute = self.task.space.names[0]
        self.column = None if self.attribute is None else self.task.attribute(self.attribute)
        self.block = min(options.block or self.design.images, len(self.ids))
        self.retrieval = Retrieval(
            self.bank, config=self.completion, glimpse=self.task.grid.glimpse, seed=self.recipe.seed
        )
        self.result = {
            "benchmark": "design",
            **provenance(),
            "task": self.task.name,
            "attribute": self.attribute,
            "data": "real" if options.recipe else "pictures" if options.pictures else "synthetic",
            "kind": self.posterior.architecture.config.kind,
            "locations": len(self.task.grid),
            "completions": self.completion.kept,
            "bank": len(self.bank),
            "batch": self.design.batch_on(self.device.type),
            "chunk": self.posterior.chunk,
            "block": self.block,
            "compiled": options.compile,
            "precision": self.posterior.precision.name,
            "glimpses": self.glimpses,
            "seconds_to_open": round(time.perf_counter() - self.began, 1),
            "speed": [],
            "agreement": [],
        }

    def tools(self, completion=None) -> Tools:
        return Tools(self.posterior, completion or self.retrieval, self.device)

    def late(self) -> bool:
        return time.perf_counter() - self.began > self.options.seconds

    def note(self, part: str, row: dict) -> None:
        """Add a row, or replace the last of the same name, and write the file."""
        rows = self.result[part]
        if rows and rows[-1]["name"] == row["name"]:
            rows.pop()
        rows.append(row)
        if self.options.out:
            self.options.out.parent.mkdir(parents=True, exist_ok=True)
            self.options.out.write_text(json.dumps(self.result, indent=2) + "\n")

    def speed(self, search: str) -> None:
        config = self.design.model_copy(update={"search": search})
        timed = Timed(self.retrieval, self.device)
        tools, number = self.tools(timed), len(self.ids[: self.options.images])
        common = {"config": config, "glimpses": self.glimpses, "attribute": self.column, "seed": self.recipe.seed}
        began = clock(self.device)
        first = first_step(tools, self.images[0], config=config)
        first_seconds = clock(self.device) - began
        annotate_images(tools, self.images[:1], self.ids[:1], first=first, **common)
        warm = clock(self.device) - began - first_seconds
        timed.seconds, spent, done, began = 0.0, 0, 0, clock(self.device)
        while done < number and not (done and self.late()):
            some = slice(done, min(done + self.block, number))
            spent += annotate_images(tools, self.images[some], self.ids[some], first=first, **common).evaluations
            done, seconds = some.stop, clock(self.device) - began
            row = {
                "name": search,
                "design": config.model_dump(mode="json"),
                "images": done,
                "seconds": round(seconds, 3),
                "of_which_completion": round(timed.seconds, 3),
                "evaluations": spent,
                "evaluations_an_image_and_step": round(spent / done / max(1, self.glimpses - 1)),
                "evaluations_per_s": round(spent / seconds),
                "evaluations_per_s_without_completion": round(spent / max(seconds - timed.seconds, 1e-9)),
                "seconds_per_image": round(seconds / done, 4),
                "first_step": {"seconds": round(first_seconds, 3), "evaluations": first.evaluations},
                "warm_up_seconds": round(warm, 3),
            }
            whole = len(self.task.splits["annotate"]) if self.options.recipe else None
            if whole:
                row["extrapolated"] = {"images": whole, "minutes": round(whole * seconds / done / 60, 2)}
                if self.task.space.kind == "bernoulli":
                    row["extrapolated"]["minutes_for_all_attributes"] = round(
                        len(self.task.space.names) * whole * seconds / done / 60, 1
                    )
            reference = REFERENCE.get(self.task.grid.height)
            if self.posterior.architecture.config.kind == "cnn" and reference:
                row["share_of_reference"] = round(row["evaluations_per_s"] / reference, 3)
            self.note("speed", row)
        print(json.dumps({name: value for name, value in row.items() if name != "design"}), flush=True)

    def agreement(self) -> None:
        number = min(self.options.judged, len(self.ids))
        ids, pictures = self.ids[:number], torch.from_numpy(self.images[:number]).to(self.device)
        first = first_step(self.tools(), self.images[0], config=self.design)
        variables = objective(self.posterior.space, self.column)
        start = int(first.map.estimate[list(variables)].sum(0).argmin())
        variants = {name: make for name, make in VARIANTS.items() if any(w in name for w in self.options.variants)}
        found = {name: [] for name in variants}
        for at in range(0, number, self.options.together):
            some = slice(at, min(at + self.options.together, number))
            chosen = torch.full((some.stop - at, 1), start, device=self.device)
            for t in range(2, self.glimpses + 1):
                if self.late():
                    return
                pixels = self.task.grid.pixels.to(self.device)[chosen]
                completions = self.retrieval.complete(pictures[some], pixels.cpu(), ids=ids[some])
                streams = [key(self.recipe.seed, "design/order", id, t) for id in ids[some]]
                order = torch.stack([random_order(w, key=k) for w, k in zip(completions.weights, streams)])
                entropies = Entropies(
                    self.posterior, completions, pixels, objectives=[variables], order=order,
                    batch=self.design.batch_on(self.device.type),
                )  # fmt: skip
                allowed = torch.ones(len(chosen), len(self.task.grid), dtype=torch.bool, device=self.device)
                location = GridSearch().search(entropies, allowed).location
                full = means(entropies, allowed)
                for name, variant in variants.items():
                    replayed = Replayed(entropies)
                    choice = variant().search(replayed, allowed)
                    share = replayed.evaluations / int(entropies.tried.sum())
                    found[name].append((t, regret(full, choice.location), share, len(chosen)))
                chosen = torch.cat([chosen, location[:, None]], 1)
                self._note_agreement(found)
        for row in self.result["agreement"]:
            print(json.dumps({name: value for name, value in row.items() if name != "by_step"}), flush=True)

    def _note_agreement(self, found) -> None:
        self.result["agreement"] = []
        for name, entries in found.items():
            regrets = np.concatenate([entry[1] for entry in entries])
            sizes = np.array([entry[3] for entry in entries])
            row = {
                "name": name,
                "steps": len(regrets),
                "share_of_grid": round(float(np.average([entry[2] for entry in entries], weights=sizes)), 4),
                "same_location": round(float((regrets <= 1e-6).mean()), 4),
                "within_0.002_nats": round(float((regrets <= 0.002).mean()), 4),
                "mean_regret": round(float(regrets.mean()), 6),
                "largest_regret": round(float(regrets.max()), 5),
                "by_step": {
                    str(t): round(float((np.concatenate([e[1] for e in entries if e[0] == t]) <= 0.002).mean()), 3)
                    for t in sorted({entry[0] for entry in entries})
                },
            }
            self.note("agreement", row)


def regret(full: torch.Tensor, location: torch.Tensor) -> np.ndarray:
    return (full.gather(1, location[:, None])[:, 0] - full.amin(1)).cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["celeba-hq", "cub"], default="cub", help="whose shapes, without --recipe")
    parser.add_argument("--recipe", help="real data: a recipe's name or file")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--bank-folder", type=Path)
    parser.add_argument("--posterior", help="without --recipe too: a file or a published one's name")
    parser.add_argument("--pictures", nargs="+", type=Path, help="without --recipe: zip files of pictures")
    parser.add_argument("--attribute")
    parser.add_argument("--kind", choices=["tokens", "cnn"], default="tokens", help="without --recipe")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--images", type=int, default=4, help="speed: images to annotate")
    parser.add_argument("--judged", type=int, default=4, help="agreement: images with a full grid")
    parser.add_argument("--together", type=int, default=8, help="agreement: of them at once")
    parser.add_argument("--block", type=int, help="speed: images at once; by default the recipe's")
    parser.add_argument("--variants", nargs="+", default=[""], help="agreement: searches whose name holds one of these")
    parser.add_argument("--bank", type=int, default=500, help="images of the synthetic bank")
    parser.add_argument("--completions", type=int, help="by default the recipe's; also for the first step")
    parser.add_argument("--glimpses", type=int, help="by default the recipe's")
    parser.add_argument("--batch", type=int, help="evaluations at once; by default the posterior's own")
    parser.add_argument(
        "--searches", nargs="+", default=["race"], choices=["grid", "race", "coarse-to-fine", "bayesopt"]
    )
    parser.add_argument("--stride", type=int, help="instead of the recipe's")
    parser.add_argument("--share", type=float, help="instead of the recipe's")
    parser.add_argument("--seconds", type=float, default=600, help="stop after this time in total")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = Bench(options)
    changed = {"stride": options.stride, "share": options.share}
    bench.design = bench.design.model_copy(update={name: value for name, value in changed.items() if value is not None})
    if "speed" in options.parts:
        for search in options.searches:
            bench.speed(search)
    if "agreement" in options.parts:
        bench.agreement()


if __name__ == "__main__":
    main()
