"""The exact world, and its posterior and completions, for the design's tests."""

import pytest
import torch
from jaxtyping import install_import_hook

import worlds

# the modules without protocols in their signatures, which can't be checked at run time
install_import_hook(["nogs.design.baselines", "nogs.design.epe"], "beartype.beartype")


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors here are small, so that threads would wait longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def world():
    return worlds.pointer_world()


@pytest.fixture(scope="session")
def fine_world():
    """The same images with 25 locations, 2 px apart."""
    return worlds.pointer_world(spacing=2)
