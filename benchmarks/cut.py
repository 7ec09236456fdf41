"""`cut` against a loop over images with tensor indices, for CelebA-HQ's geometry on the CPU."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from nogs.glimpse import Grid, cut
from nogs.runtime.files import write_json
from provenance import provenance


def loop(images: torch.Tensor, pixels: torch.Tensor, glimpse: int) -> torch.Tensor:
    """The plain implementation: slices whose bounds are tensors, one glimpse after the other."""
    glimpses = []
    for i in range(len(images)):
        for row, column in pixels[i]:
            glimpses.append(images[i, row : row + glimpse, column : column + glimpse])
    return torch.stack(glimpses).reshape(*pixels.shape[:-1], glimpse, glimpse, images.shape[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--batch", type=int, default=64, help="images")
    parser.add_argument("--glimpses", type=int, default=5, help="glimpses an image")
    parser.add_argument("--repeats", type=int, default=200, help="measurements of each, interleaved")
    parser.add_argument("--threads", type=int, default=1, help="of torch; the loop can't use more than one")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    grid = Grid.celeba_hq()
    generator = torch.Generator().manual_seed(0)
    shape = (arguments.batch, grid.height, grid.width, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    locations = torch.randint(0, len(grid), (arguments.batch, arguments.glimpses), generator=generator)
    pixels = grid.pixels[locations]
    flip = torch.rand(locations.shape, generator=generator) < 0.5

    ways = {
        "loop": lambda: loop(images, pixels, grid.glimpse),
        "cut": lambda: cut(images, pixels, glimpse=grid.glimpse),
        "cut_with_flips": lambda: cut(images, pixels, glimpse=grid.glimpse, flip=flip),
    }
    if not ways["cut"]().equal(ways["loop"]()):
        raise AssertionError("cut and the loop disagree")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)

    median = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "benchmark": "cut",
        "batch": arguments.batch,
        "glimpses": arguments.glimpses,
        "repeats": arguments.repeats,
        "median_milliseconds": {name: round(1e3 * value, 4) for name, value in median.items()},
        "times_faster_than_loop": {name: round(median["loop"] / median[name], 2) for name in ways if name != "loop"},
        "provenance": provenance(),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
