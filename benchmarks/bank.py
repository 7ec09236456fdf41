"""PCA of a bank: one pass to fit and one to encode, of synthetic images on disk or resident on the device."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from nogs.bank.pca import fit_pca
from nogs.bank.store import Images, Shards, resident, stored_blocks
from nogs.runtime.device import pick_device
from nogs.runtime.files import write_json
from provenance import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=128, help="px of an image")
    parser.add_argument("--components", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="where the shards go; by default a temporary folder")
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        seconds: dict[str, float] = {}
        store = timed("write_shards", seconds, device, lambda: write(Path(folder), arguments.images, arguments.size))
        on_disk = measure(store, arguments.components, device, seconds, "from_disk")
        timed("verify", seconds, device, store.verify)
        if device.type == "cuda":
            here = timed("load_to_device", seconds, device, lambda: resident(store, device=device))
            measure(here, arguments.components, device, seconds, "resident")
    result = {
        "benchmark": "bank",
        "images": arguments.images,
        "size_px": arguments.size,
        "components": arguments.components,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "explained_variance": round(on_disk, 4),
        "largest_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "provenance": provenance(),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_json(arguments.out, result)


def write(folder: Path, number: int, size: int) -> Shards:
    """Shards of smooth random pictures: random colours on a coarse lattice, enlarged, with a little noise."""
    store = Shards.create(folder, size=(size, size))
    for first in range(0, number, 2048):
        generator = torch.Generator().manual_seed(first)
        count = min(2048, number - first)
        coarse = torch.rand(count, 3, 9, 9, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=True)
        noise = torch.randint(0, 8, (1, size, size, 3), generator=generator)
        pictures = (smooth.permute(0, 2, 3, 1) * 240 + noise).to(torch.uint8)
        store.append(np.ascontiguousarray(pictures.numpy()))
    return store


def measure(images: Images, components: int, device: torch.device, seconds: dict[str, float], name: str) -> float:
    pca = timed(
        f"{name}_fit",
        seconds,
        device,
        lambda: fit_pca(images, components=components, centre=(0.5,) * 3, scale=(0.25,) * 3, device=device),
    )

    def encode() -> None:
        for _, block in stored_blocks(images, block=512):
            pca.encode(block.to(device)).half().cpu()

    timed(f"{name}_encode", seconds, device, encode)
    return pca.explained


def timed(name: str, seconds: dict[str, float], device: torch.device, job):  # type: ignore[no-untyped-def]
    began = time.perf_counter()
    out = job()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds[name] = time.perf_counter() - began
    return out


if __name__ == "__main__":
    main()
