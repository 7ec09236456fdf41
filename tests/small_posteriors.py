"""Posteriors of the tiny world that networks of `nogs.plus` stand on."""

import numpy as np
import torch

from nogs.plus.looks import Looks
from nogs.plus.network import TokenNetwork
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import save_posterior

SMALL = PosteriorConfig(
    flip=False, locations="grid", token=4, stem="conv", width=32, layers=2, heads=4, dropout=0.0, precision="float32"
)


def untrained(task, *, glimpses=3, seed=0):
    """A posterior whose answers depend on what it sees, though nothing was learned."""
    architecture = Architecture.of(SMALL, task=task, glimpses=glimpses)
    network = architecture.build(seed=seed)
    with torch.no_grad():
        network.head.weight.mul_(8)
        network.prior.normal_(generator=torch.Generator().manual_seed(seed))
    scale = torch.linspace(0.5, 1.5, glimpses + 1)[:, None]
    return NetworkPosterior(network.eval(), architecture, inverse_temperature=scale, precision="float32")


def network(task, *, learned=True, sampled=False, variables=(0,), shared=False, seed=0):
    """A network whose head says something, though nothing was learned."""
    posterior = untrained(task, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    table = 0.2 * torch.rand(1 if shared else len(variables), 3, len(task.grid), generator=generator)
    looks = Looks(posterior.network, table, learned=learned, sampled=sampled)
    if looks.head is not None:
        with torch.no_grad():
            looks.head.last.weight.normal_(std=0.02, generator=generator)
            looks.head.gain.normal_(generator=generator)
    temperatures = torch.rand(4, len(variables), generator=generator) + 0.5
    made = TokenNetwork(
        posterior.network, posterior.architecture, looks, variables=variables, inverse_temperature=temperatures
    )
    return made.eval().requires_grad_(False), posterior


def saved(task, path, **how):
    posterior = untrained(task, **how)
    save_posterior(path, posterior, task=task, about={"task_fingerprint": task.fingerprint})
    return str(path)


def images_of(task, rows):
    return torch.from_numpy(np.array(task.images[rows]))
