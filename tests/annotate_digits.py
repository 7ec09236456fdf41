"""Annotates digits with a bank and a network from files, here or on a Ray cluster, as a command that a test can start.

Arguments: the folder of `make`, OUT, and the address of a cluster, if there is one.
"""

import sys
from pathlib import Path

import torch

from nogs.bank import BankConfig, build_bank
from nogs.completion import CompletionConfig
from nogs.data import DataConfig, load_task
from nogs.design.annotation import annotate
from nogs.design.config import DesignConfig
from nogs.design.sharing import Shared, share
from nogs.design.tools import Files
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import save_posterior
from nogs.runtime.ray import RayExecutor

DATA = DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=200, annotated=24, fragments=2)


def make(folder: Path) -> None:
    """A bank of digits and a posterior with initial weights, which are large enough for answers to differ."""
    task = load_task(DATA)
    config = BankConfig(generator="digits", count=300, components=48)
    build_bank(task, config=config, folder=folder / "bank", device="cpu")
    architecture = Architecture.of(PosteriorConfig(width=32, layers=2, heads=2), task=task, glimpses=3)
    network = architecture.build()
    with torch.no_grad():
        network.head.weight *= 20
    posterior = NetworkPosterior(network, architecture, precision="float32")
    save_posterior(folder / "posterior.safetensors", posterior, task=task)


def run(folder: Path, out: Path, *, address: str | None = None) -> None:
    """Sequences of three glimpses, in blocks of four images."""
    design = DesignConfig(images=4, batch=256)
    files = Files(
        posterior=str(folder / "posterior.safetensors"),
        bank=folder / "bank",
        completion=CompletionConfig(drawn=60, kept=30),
        design=design,
        task=DATA,
        glimpse=8,
        seed=0,
        device="cpu",
    )
    executor = None if address is None else RayExecutor(address=address)
    tools = files if executor is None else share(files, executor)
    assert executor is None or isinstance(tools, Shared)
    task = load_task(DATA)
    ids = task.splits["annotate"]
    annotate(
        task,
        ids,
        open_tools=tools,
        inputs=("digits",),
        config=design,
        glimpses=3,
        folder=out,
        executor=executor,
        seed=3,
    )


if __name__ == "__main__":
    made, where, *place = sys.argv[1:]
    run(Path(made), Path(where), address=place[0] if place else None)
