import numpy as np
import pytest
import torch

from nogs.cli import main
from nogs.data import load_task

RECIPE = """
base: digits
name: tiny
glimpses: 3
data: {count: 120, annotated: 12}
posterior: {iterations: 4, validate_every: 2, batch: 16, width: 16, layers: 1, heads: 2, warmup: 0, train_glimpses: 3}
bank: {count: 120, components: 8}
completion: {drawn: 40, kept: 10}
design: {images: 4, keep_maps: true}
attention: {iterations: 6, validate_every: 2, batch: 8, hidden: 16, trajectories: 2, supervision_weight: 1}
"""


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """All stages on a few digits: four sequences with maps, two methods with two seeds each."""
    root = tmp_path_factory.mktemp("whole")
    recipe, run = str(root / "tiny.yaml"), str(root / "tiny")
    (root / "tiny.yaml").write_text(RECIPE)
    end = ["--out", run, "--device", "cpu"]
    for words in (
        ["posterior", "train", recipe, *end],
        ["bank", "build", recipe, *end],
        ["bank", "evaluate", run, "--images", "2", "--shown", "1", "--device", "cpu"],
        ["annotate", recipe, *end, "--subset", "0:4", "--workers", "1"],
        ["train", recipe, *end, "--method", "ram", "ps-nogs", "--seeds", "0", "1", "--sequences", f"{run}/sequences"],
    ):
        assert main(words) == 0, words
    return root / "tiny"


@pytest.fixture
def load():
    """Loads a run's images for `write_report`, if they are digits."""
    return lambda config: load_task(config) if config.kind == "digits" else None


@pytest.fixture
def rng():
    return np.random.default_rng(0)
