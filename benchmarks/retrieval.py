"""Proposal weights in code space against a plain implementation, which rebuilds regions and compares every shift."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from nogs.bank.bank import Bank
from nogs.bank.pca import PCA, fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion.proposal import CodeSpace
from nogs.completion.windows import window
from nogs.runtime.device import pick_device
from nogs.runtime.files import write_json
from provenance import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bank", type=int, default=50_000, help="images in the bank")
    parser.add_argument("--images", type=int, default=1, help="query images together")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--size", type=int, default=128, help="px of an image")
    parser.add_argument("--glimpse", type=int, default=16, help="px of a glimpse")
    parser.add_argument("--glimpses", type=int, default=4)
    parser.add_argument(
        "--reach", type=int, default=2, help="farthest shift in px, 2 px apart: 2 is 9 shifts, 0 is none"
    )
    parser.add_argument("--variance-kept", type=float, default=0.996)
    parser.add_argument("--temperature", type=float, default=40.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 leaves its choice")
    parser.add_argument(
        "--pictures", type=Path, help=".npy of uint8 images [N, H, W, 3] to fit the PCA on; else invented"
    )
    parser.add_argument("--without-plain", action="store_true", help="leave the plain way out (for large banks)")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = pick_device(arguments.device)
    torch.manual_seed(0)

    bank = make(arguments, device)
    steps = range(-arguments.reach, arguments.reach + 1, 2)
    shifts = [(row, column) for row in steps for column in steps]
    options = {"glimpse": arguments.glimpse, "shifts": shifts, "variance_kept": arguments.variance_kept}
    space = CodeSpace(bank, **options)
    last = arguments.size - arguments.glimpse - 4
    pixels = torch.randint(4, last, (arguments.images, arguments.glimpses, 2))
    pixels[:, 0] = pixels[0, 0].clone()  # the first location is the same for every image of a task
    truth = bank.pca.decode(sampled_codes(bank.pca, arguments.images, device)) + 0.05 * torch.randn(
        arguments.images, arguments.size, arguments.size, 3, device=device
    )
    query = torch.stack([patches(image, pixels[b], arguments.glimpse) for b, image in enumerate(truth)])

    def fresh() -> torch.Tensor:
        space._factors.clear()
        return space.log_likelihood(query, pixels, temperature=arguments.temperature)

    def warm() -> torch.Tensor:
        return space.log_likelihood(query, pixels, temperature=arguments.temperature)

    def plain_way() -> torch.Tensor:
        return plain(bank, query[0], pixels[0].tolist(), shifts, arguments.glimpse, arguments.temperature)

    ways = {"code_space": warm, "code_space_new_locations": fresh}
    if space.fused:
        unfused = CodeSpace(bank, fused=False, **options)
        ways["code_space_not_fused"] = lambda: unfused.log_likelihood(query, pixels, temperature=arguments.temperature)
    if not arguments.without_plain:
        ways["plain"] = plain_way
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():  # warm up
        way() if name != "plain" else None
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            synchronise(device)
            began = time.perf_counter()
            way()
            synchronise(device)
            seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "benchmark": "retrieval",
        "bank": arguments.bank,
        "images_together": arguments.images,
        "components": arguments.components,
        "glimpses": arguments.glimpses,
        "glimpse_px": arguments.glimpse,
        "flips": 2,
        "shifts": len(shifts),
        "ranks": {"region": space.rank, "shift": space.shift_rank},
        "fused": space.fused,
        "pictures": "given" if arguments.pictures else "invented, power-law spectrum",
        "median_seconds": {name: round(value, 5) for name, value in median.items()},
        "milliseconds_per_image": round(1e3 * median["code_space"] / arguments.images, 4),
        "distance_error": errors(space, bank, query[0], pixels[0], shifts),
        "cost_per_image": cost(arguments, space, len(shifts), bank.codes.element_size()),
        "provenance": provenance(),
    }
    if space.fused:
        found = warm()
        difference = (found - ways["code_space_not_fused"]()).abs()
        alone = space.log_likelihood(query[:1], pixels[:1], temperature=arguments.temperature)
        result["log_weight_difference_from_not_fused"] = {
            "mean": float(difference.mean()),
            "largest": float(difference.max()),
            "of_a_spread_of": float(found.std(2).mean()),
        }
        result["same_numbers_alone_and_among_others"] = torch.equal(alone[0], found[0])
    if "plain" in median:
        result["times_faster_than_plain"] = round(median["plain"] * arguments.images / median["code_space"], 2)
        result["times_faster_with_new_locations"] = round(
            median["plain"] * arguments.images / median["code_space_new_locations"], 2
        )
        difference = (plain_way() - warm()[0]).abs()
        result["log_weight_difference"] = {"mean": float(difference.mean()), "largest": float(difference.max())}
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_json(arguments.out, result)


def make(arguments: argparse.Namespace, device: torch.device) -> Bank:
    """A bank of codes drawn with the variances of a PCA: of given pictures, or of smooth synthetic ones."""
    pca = invented(arguments.size, arguments.components) if arguments.pictures is None else fitted(arguments)
    pca = pca.to(device)
    codes = sampled_codes(pca, arguments.bank, device)
    codes = codes.half() if device.type == "cuda" else codes
    pixels = torch.empty(0, arguments.size, arguments.size, 3, dtype=torch.uint8, device=device)
    return Bank(ResidentImages(pixels), pca, codes, {"fingerprint": "benchmark"})


def sampled_codes(pca: PCA, number: int, device: torch.device) -> torch.Tensor:
    parts = [torch.randn(min(1 << 17, number - n), pca.components, device=device) for n in range(0, number, 1 << 17)]
    return torch.cat([part * pca.variance.sqrt() for part in parts])


def fitted(arguments: argparse.Namespace) -> PCA:
    pictures = np.load(arguments.pictures, mmap_mode="r", allow_pickle=False)[:4000]
    images = ResidentImages(torch.from_numpy(np.array(pictures)))
    return fit_pca(images, components=arguments.components, centre=(0.485, 0.456, 0.406), scale=(0.229, 0.224, 0.225))


def invented(size: int, components: int) -> PCA:
    """Plane waves in order of frequency, with the power law of natural pictures, on three correlated colours."""
    axis = torch.arange(size) / size * 2 * torch.pi
    waves, powers = [], []
    colours = torch.tensor([[0.577, 0.577, 0.577], [0.707, 0.0, -0.707], [0.408, -0.816, 0.408]])
    reach = 16
    for row in range(reach):
        for column in range(-reach, reach):
            power = 1 / (1 + row**2 + column**2) ** 1.25
            for phase in (0.0, torch.pi / 2):
                wave = torch.cos(row * axis[:, None] + column * axis + phase)
                for colour, strength in zip(colours, (1.0, 0.1, 0.03)):
                    waves.append((wave[..., None] * colour).flatten())
                    powers.append(power * strength)
    order = torch.tensor(powers).argsort(descending=True, stable=True)[: 2 * components]
    basis = torch.stack([waves[int(place)] for place in order])
    lengths = basis.norm(dim=1)
    kept = lengths > 1e-3
    orthogonal, _ = torch.linalg.qr(basis[kept].T)
    variance = torch.tensor(powers)[order][kept][:components] * 0.15 * 3 * size**2
    basis = orthogonal.T[:components].contiguous()
    return PCA(torch.zeros(3 * size**2), basis, variance, (0.5,) * 3, (0.25,) * 3, (size, size), float(variance.sum()))


def patches(image: torch.Tensor, pixels: torch.Tensor, glimpse: int) -> torch.Tensor:
    return torch.stack([image[r : r + glimpse, c : c + glimpse].flatten() for r, c in pixels.tolist()])


def plain_distances(
    bank: Bank, y: torch.Tensor, pixel: list[int], shifts: list[tuple[int, int]], glimpse: int, flip: int, rows: slice
) -> torch.Tensor:
    """Distances [S, n] of some bank images at one glimpse: the region is rebuilt once, then every shift is compared."""
    size = bank.pca.size
    region = window((pixel[0], pixel[1]), shifts, glimpse=glimpse, size=size)
    left = size[1] - region.column - region.width if flip else region.column
    part = []
    for maps in (bank.pca.basis.reshape(-1, *size, 3), bank.pca.mean.reshape(1, *size, 3)):
        inside = maps[:, region.row : region.row + region.height, left : left + region.width]
        part.append((inside.flip(2) if flip else inside).flatten(1))
    rebuilt = torch.addmm(part[1][0], bank.codes[rows].float(), part[0])
    rebuilt = rebuilt.reshape(-1, region.height, region.width, 3)
    target = y.reshape(glimpse, glimpse, 3)
    distances = []
    for place in region.offsets:
        assert place is not None
        r, c = place
        distances.append((rebuilt[:, r : r + glimpse, c : c + glimpse] - target).square().sum((1, 2, 3)))
    return torch.stack(distances)


def plain(
    bank: Bank, query: torch.Tensor, pixels: list[list[int]], shifts: list[tuple[int, int]], glimpse: int, v: float
) -> torch.Tensor:
    """log w₁ [2, N] of one image."""
    out = torch.zeros(2, len(bank), device=bank.device)
    for first in range(0, len(bank), 4096):
        rows = slice(first, first + 4096)
        for y, pixel in zip(query, pixels):
            for flip in range(2):
                distances = plain_distances(bank, y, pixel, shifts, glimpse, flip, rows)
                out[flip, rows] += torch.logsumexp(distances / -v, 0) - math.log(len(shifts))
    return out


def errors(
    space: CodeSpace, bank: Bank, query: torch.Tensor, pixels: torch.Tensor, shifts: list[tuple[int, int]]
) -> dict[str, float]:
    """Relative error against the plain one on 2,000 bank images: of one distance, and of a sum over the glimpses."""
    few = slice(0, 2000)
    found = space.all_distances(query[None], pixels[None])[0][0, ..., few]
    truth = torch.stack(
        [
            torch.stack([plain_distances(bank, y, pixel, shifts, space.glimpse, flip, few) for flip in range(2)])
            for y, pixel in zip(query, pixels.tolist())
        ]
    )
    single = ((found - truth) / truth).abs()
    summed = ((found.sum(0) - truth.sum(0)) / truth.sum(0)).abs()
    return {
        "mean_of_one_distance": float(single.mean()),
        "percentile_99_of_one_distance": float(single.flatten().kthvalue(int(0.99 * single.numel())).values),
        "mean_of_summed_distance": float(summed.mean()),
        "percentile_99_of_summed_distance": float(summed.flatten().kthvalue(int(0.99 * summed.numel())).values),
    }


def cost(arguments: argparse.Namespace, space: CodeSpace, shifts: int, bytes_per_number: int) -> dict[str, float]:
    """Arithmetic and memory traffic of one image whose locations are shared with no other."""
    slots = arguments.bank * 2 * arguments.glimpses
    form = space.rank * space.shift_rank * shifts if shifts > 1 else 0
    flops = 2 * slots * (arguments.components * space.rank + form + space.rank * shifts)
    codes = arguments.bank * arguments.components * bytes_per_number
    if space.tile is not None:
        from nogs.completion.fused import TOGETHER

        # from memory: codes once for the images of a program, log weights written once; every tile of rows reads the
        # image's maps, which stay in the second-level cache
        moved = codes / min(TOGETHER, arguments.images) + arguments.bank * 2 * 4
        maps = (arguments.components * space.rank + form) * bytes_per_number + space.rank * shifts * 4
        cached = slots / space.tile.rows * maps
        return {"gigaflop": giga(flops), "gigabytes_moved": giga(moved), "gigabytes_from_cache": giga(cached)}
    parts = space.rank + (space.shift_rank * shifts if shifts > 1 else 0)
    moved = arguments.glimpses * codes
    moved += 2 * slots * parts * bytes_per_number + slots * space.rank * bytes_per_number + 6 * slots * shifts * 4
    return {"gigaflop": giga(flops), "gigabytes_moved": giga(moved)}


def giga(number: float) -> float:
    return round(number / 1e9, 3)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
