"""Posteriors of the tiny world that networks of `nogs.plus` stand on."""

import numpy as np
import torch

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


def saved(task, path, **how):
    posterior = untrained(task, **how)
    save_posterior(path, posterior, task=task, about={"task_fingerprint": task.fingerprint})
    return str(path)


def images_of(task, rows):
    return torch.from_numpy(np.array(task.images[rows]))
