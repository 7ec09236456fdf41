"""Training speed of hard-attention networks: ours against a plain eager loop, in one run; JSON out.

    python benchmarks/attention.py --out results/benchmarks/attention-cpu.json
    python benchmarks/attention.py --device cuda --side-by-side 1 40 240 --out ...

The plain loop is the paper's network from torch.nn modules with a crop per image and `multinomial`. Images are random:
speed does not depend on their content. Interleaved measurements in processes of their own; medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.trainer import Trainer
from nogs.attention.training import pick
from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.runtime.capture import captured
from nogs.sequences import Sequences
from provenance import provenance

SUPERVISED, GLIMPSES = 600, 5


def synthetic_task(images: int) -> Task:
    """CelebA-HQ's shapes with random pixels."""
    rng = np.random.default_rng(0)
    ids = tuple(map(str, range(images)))
    cuts = (0, int(0.9 * images), int(0.9 * images) + max(1, images // 60), images)
    splits = {name: ids[a:b] for name, a, b in zip(("train", "validation", "test"), cuts, cuts[1:])}
    pixels = rng.integers(0, 256, (images, 224, 224, 3), dtype=np.uint8)
    labels = rng.integers(0, 2, (images, 1)).astype(np.uint8)
    space = LabelSpace("bernoulli", ("Smiling",))
    return Task("random", pixels, ids, labels, space, splits, Grid.celeba_hq(), fingerprint="random")


def sequences(task: Task) -> Sequences:
    """Random sequences for the first training images."""
    grid, number = task.grid, min(SUPERVISED, len(task.splits["train"]))
    index = torch.randint(0, len(grid), (number, GLIMPSES), generator=torch.Generator().manual_seed(0))
    return Sequences(task.name, "Smiling", grid, GLIMPSES, task.ids[:number], grid.pixels[index].numpy())


class Plain(nn.Module):
    """The paper's network in a plain implementation."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self.embed = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(288, 64),
        )
        self.place = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 64))
        self.core, self.first = nn.GRUCell(64, 64), nn.Parameter(torch.zeros(64))
        self.locate = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(grid)))
        self.baseline, self.classify = nn.Linear(64, 1), nn.Linear(64, 2)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        state = self.first.expand(len(images), -1)
        log_probabilities, baselines = [], []
        for _ in range(GLIMPSES):
            policy = torch.distributions.Categorical(logits=self.locate(state.detach()), validate_args=False)
            location = policy.sample()
            log_probabilities.append(policy.log_prob(location))
            baselines.append(self.baseline(state.detach())[:, 0])
            pixels = self.grid.pixels[location]
            crops = [image[r : r + 16, c : c + 16] for image, (r, c) in zip(images, pixels.tolist())]
            patches = torch.stack(crops).permute(0, 3, 1, 2) / 127.5 - 1
            state = self.core(torch.relu(self.embed(patches) + self.place(self.grid.normalise(pixels))), state)
        logits = self.classify(state)
        reward = (logits.argmax(-1) == labels).float()
        error = reward[:, None] - torch.stack(baselines, 1)
        reinforce = -(error.detach() * torch.stack(log_probabilities, 1)).sum(1)
        return nn.functional.cross_entropy(logits, labels) + (reinforce + error.square().mean(1)).mean()


def plain_loop(task: Task) -> "callable":
    network = Plain(task.grid)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4)
    images, labels = torch.from_numpy(task.images), torch.from_numpy(task.labels[:, 0].astype(np.int64))

    def step() -> None:
        rows = torch.randint(0, len(images), (64,))
        optimizer.zero_grad()
        network.loss(images[rows], labels[rows]).backward()
        optimizer.step()

    return step


def our_loop(task: Task, networks: int, device: torch.device) -> "callable":
    supervision = sequences(task)
    members = [
        Member("ps-nogs" if n % 2 else "ram", seed=n, attribute="Smiling", sequences=supervision if n % 2 else None)
        for n in range(1, networks + 1)
    ]
    trainer = Trainer(task, members, config=AttentionConfig(), glimpses=GLIMPSES, device=device)
    trainer.cohort.start_epoch(0)
    with pick(AttentionConfig(), device).active():
        return captured(trainer.step, device)


def seconds(step: "callable", repeats: int, device: torch.device) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def measure(name: str, task: Task, device: torch.device, repeats: int) -> float:
    loop = plain_loop(task) if name == "plain" else our_loop(task, int(name), device)
    seconds(loop, 5, device)  # warm up
    return seconds(loop, repeats, device)


def in_own_process(name: str, options: argparse.Namespace) -> float:
    """Our loop changes how the process allocates memory, which must not speed up the plain one."""
    flags = ["--device", options.device, "--images", str(options.images), "--repeats", str(options.repeats)]
    command = [sys.executable, __file__, *flags, "--only", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--side-by-side", type=int, nargs="+", default=[1], help="numbers of networks")
    parser.add_argument("--repeats", type=int, default=60, help="iterations in one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements, interleaved, each in a process of its own")
    parser.add_argument("--only", help="measure this loop once and print its seconds an iteration")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    if options.only:
        print(measure(options.only, synthetic_task(options.images), device, options.repeats))
        return
    result = {"benchmark": "hard-attention training", **provenance(), "networks": {}}
    names = [*map(str, options.side_by_side), *(["plain"] if device.type == "cpu" else [])]
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            times[name].append(in_own_process(name, options))
    for name, measured in times.items():
        networks = 1 if name == "plain" else int(name)
        iterations = 1 / statistics.median(measured)
        row = {"iterations_per_s": round(iterations, 1), "network_iterations_per_s": round(networks * iterations, 1)}
        result["networks"][name] = row
        print(f"{name:>6} networks: {iterations:9.1f} it/s  {networks * iterations:10.1f} network-it/s")
    if "plain" in times and "1" in times:
        result["ratio_to_plain"] = round(statistics.median(times["plain"]) / statistics.median(times["1"]), 2)
        print(f"one network against the plain loop: {result['ratio_to_plain']} times as fast")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
