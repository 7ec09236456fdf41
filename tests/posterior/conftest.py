"""A tiny world that the posterior's tests share."""

import pytest
import torch

import worlds


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors here are small: threads would wait for each other longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def blank(blank_figures_in_the_module):
    """Each network that is trained has a figure, which takes longer."""


@pytest.fixture(autouse=True)
def every_validation_is_saved(monkeypatch):
    monkeypatch.setattr("nogs.runtime.training.SAVE_SECONDS", 0.0)


@pytest.fixture(scope="session")
def world():
    return worlds.pointer_world()


@pytest.fixture(scope="session")
def task(world):
    return world.task()
