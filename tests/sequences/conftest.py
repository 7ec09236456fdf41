from pathlib import Path

import numpy as np
import pytest

from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.sequences import Sequences, save
from real_data import real_data

GRID = Grid.spaced(image=32, glimpse=8, spacing=4)  # 7 x 7: 0, 4 ... 24


@pytest.fixture
def sequences() -> Sequences:
    """Three images of a small task with every per-step number."""
    stream = np.random.default_rng(0)
    return Sequences(
        task="toy",
        attribute="Round",
        grid=GRID,
        length=2,
        ids=("a.png", "b.png", "ü/c.png"),
        locations=stream.integers(0, 7, (3, 2, 2)) * 4,
        entropy_before=stream.random((3, 2)),
        epe=stream.random((3, 2)),
        epe_error=stream.random((3, 2)) / 10,
        provenance={"source": "a test", "versions": {"nogs": "0"}},
    )


@pytest.fixture
def folder(sequences: Sequences, tmp_path: Path) -> Path:
    """The folder of `sequences`, as saved."""
    save(sequences, tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def task() -> Task:
    """The task that `sequences` are for: their images train, d.png validates, e.png tests."""
    ids = ("a.png", "b.png", "ü/c.png", "d.png", "e.png")
    return Task(
        name="toy",
        images=np.zeros((5, 32, 32, 3), np.uint8),
        ids=ids,
        labels=np.zeros((5, 2), np.uint8),
        space=LabelSpace("bernoulli", ("Round", "Red")),
        splits={"train": ids[:3], "validation": ids[3:4], "test": ids[4:]},
        grid=GRID,
        fingerprint="0",
    )


@pytest.fixture(scope="session")
def real_release() -> Path:
    """The authors' zip, where the real data is at hand."""
    return real_data("released-sequences.zip") / "released-sequences.zip"
