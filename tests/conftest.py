"""Shapes and types of the numerical packages are checked at run time in tests; examples are few and repeatable."""

import os
import signal
from functools import partial

import hypothesis
import pytest
import torch
from jaxtyping import install_import_hook

# The modules with shapes in their signatures. Others stay out: `beartype` resolves annotations at run time, and some
# import what they name for the type checker only, so that a command starts quickly.
CHECKED = [
    "nogs.runtime.streams",
    "nogs.glimpse",
    "nogs.sequences.sequences",
    "nogs.attention.network",
    "nogs.attention.objective",
    "nogs.attention.policy",
    "nogs.attention.stacked",
]
install_import_hook(CHECKED, "beartype.beartype")


@pytest.fixture(autouse=True)
def no_download(monkeypatch):
    """No test fetches ImageNet's weights, though a machine may reach them."""
    monkeypatch.setattr("nogs.posterior.imagenet.reachable", lambda *_, **__: False)


@pytest.fixture
def ctrl_c():
    """Interrupts as a terminal does; a job in the background inherits the signal as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield partial(signal.raise_signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def _blank_figures():
    """Figures are made and saved, but blank: to draw them is half of a short run's time, and tested in tests/report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nogs.runtime.figures.Figure.draw", lambda self, renderer: None)
        yield


blank_figures = pytest.fixture(_blank_figures)
blank_figures_in_the_module = pytest.fixture(scope="module")(_blank_figures)


def _quick_estimates():
    """Estimates time one call of each step, in place of up to 20."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nogs.stages.estimates._LONG", 0.0)
        yield


quick_estimates_in_the_module = pytest.fixture(scope="module")(_quick_estimates)


if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    torch.set_num_threads(1)

hypothesis.settings.register_profile("nogs", deadline=None, max_examples=25, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("nogs")
