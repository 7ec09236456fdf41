"""Blocks per second of a Ray cluster of one and of two nodes on this computer, and the nodes for many images; JSON.

    python benchmarks/nodes.py --seconds-per-image 0.05 --out results/benchmarks/nodes.json

The nodes have one core each. A block's pixels are sent to a node, as in an annotation, and its work is a wait as long
as a GPU would take. So the overhead of the driver and of this computer's network is measured, without computation.
Without a wait only the driver is measured: its blocks per second are the limit for any number of nodes.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from nogs.runtime.ray import RayExecutor
from provenance import provenance

sys.path.append(str(Path(__file__).parents[1] / "tests"))


def work(images: np.ndarray, *, wait: float) -> dict[str, object]:
    """A node's work on a block: waiting; the answer is as large as a block's."""
    time.sleep(wait)
    return {"locations": np.zeros((len(images), 5), int).tolist(), "numbers": np.zeros((5, len(images), 5)).tolist()}


def blocks_per_second(executor: RayExecutor, *, blocks: int, block: np.ndarray, wait: float) -> float:
    list(executor.map(partial(work, wait=0.0), [block] * 4))  # processes start
    began = time.perf_counter()
    done = sum(1 for _ in executor.map(partial(work, wait=wait), (block.copy() for _ in range(blocks))))
    return done / (time.perf_counter() - began)


def main() -> None:
    import cluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--images", type=int, default=250, help="of a block")
    parser.add_argument("--size", type=int, default=128, help="px of an image")
    parser.add_argument("--wait", type=float, default=1.0, help="seconds that a block takes on a node")
    parser.add_argument("--seconds-per-image", type=float, help="of one GPU, measured by benchmarks/annotate.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    block = np.zeros((options.images, options.size, options.size, 3), np.uint8)
    rows = []
    with cluster.running() as nodes:
        executor = RayExecutor(address=nodes.address)
        for number in (2, 1):
            if number == 1:
                nodes.remove()
                while executor.places() > 1:
                    time.sleep(0.2)
            for wait in (options.wait, 0.0):
                rate = blocks_per_second(executor, blocks=options.blocks, block=block, wait=wait)
                row = {"nodes": number, "seconds_a_block_on_a_node": wait, "blocks_per_s": round(rate, 3)}
                if wait:
                    row["share_of_ideal"] = round(rate * wait / number, 3)
                rows.append(row)
                print(json.dumps(row), flush=True)
        executor.close()
    most = min(row["blocks_per_s"] for row in rows if not row["seconds_a_block_on_a_node"])
    result = {
        "benchmark": "nodes",
        **provenance(),
        "images_a_block": options.images,
        "megabytes_a_block": round(block.nbytes / 1e6, 1),
        "rows": rows,
        "images_per_s_of_the_driver": round(most * options.images),
    }
    if options.seconds_per_image:
        gpus = (1, 8, 64)
        images = 1_000_000
        result["hours_of_a_million_images"] = {
            str(n): round(max(images * options.seconds_per_image / n, images / (most * options.images)) / 3600, 2)
            for n in gpus
        }
    print(json.dumps({name: result[name] for name in list(result)[-2:]}))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
