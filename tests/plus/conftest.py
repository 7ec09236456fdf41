"""The tiny world, and a well-trained posterior of it."""

import pytest
import torch

import worlds
from nogs.posterior.training import train_posterior
from small_posteriors import SMALL


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def world():
    return worlds.pointer_world()


@pytest.fixture(scope="session")
def task(world):
    return world.task()


@pytest.fixture(scope="session")
def trained(task, tmp_path_factory):
    """A well-trained posterior of the world: half a minute on one core."""
    torch.set_num_threads(1)
    config = SMALL.model_copy(
        update={"learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "batch": 192, "iterations": 500}
    )
    folder = tmp_path_factory.mktemp("posterior")
    train_posterior(task, config=config, glimpses=3, folder=folder, device="cpu")
    return str(folder / "posterior.safetensors")
