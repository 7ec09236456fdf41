"""A tiny world that the posterior's tests share."""

import pytest
import torch

import worlds


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors here are small: threads would wait longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def blank(blank_figures_in_the_module):
    """Leave out the figure of each trained network, which takes longer than the training."""


@pytest.fixture(scope="session")
def world():
    return worlds.pointer_world()


@pytest.fixture(scope="session")
def task(world):
    return world.task()
