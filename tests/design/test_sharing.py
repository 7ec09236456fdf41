"""Posterior and bank from a store: a worker's tools from there give the same results as those from files."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nogs.bank import BankConfig, build_bank
from nogs.bank.store import Shards
from nogs.completion import CompletionConfig, train_completion
from nogs.completion.config import NetworkConfig
from nogs.data import DataConfig, load_task
from nogs.design.config import DesignConfig
from nogs.design.sharing import Shared, StoredImages, share
from nogs.design.tools import Files
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import save_posterior
from nogs.runtime.errors import InputError

DATA = DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=200, annotated=20, fragments=2)


class Kept:
    """A store in this process, whose values can't be written to, as in a cluster's."""

    def __init__(self, room=1 << 30):
        self._room, self.put = room, 0

    def room(self):
        return self._room

    def share(self, value):
        self.put += 1
        for array in (value, *vars(value).values()) if hasattr(value, "__dict__") else (value,):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return lambda: value


@pytest.fixture
def files(tmp_path):
    task = load_task(DATA)
    config = BankConfig(generator="digits", count=70, components=8)
    build_bank(task, config=config, folder=tmp_path / "bank", device="cpu")
    architecture = Architecture.of(PosteriorConfig(width=16, layers=1, heads=2), task=task, glimpses=3)
    posterior = NetworkPosterior(architecture.build(), architecture, precision="float32")
    save_posterior(tmp_path / "posterior.safetensors", posterior, task=task)
    return Files(
        posterior=str(tmp_path / "posterior.safetensors"),
        bank=tmp_path / "bank",
        completion=CompletionConfig(drawn=20, kept=10, flips=False, proposal_reach=0, exact_reach=0),
        design=DesignConfig(),
        task=DATA,
        glimpse=8,
        seed=0,
        device="cpu",
    )


def answers(tools, task):
    images = torch.from_numpy(np.array(task.images[:3]))
    pixels = task.grid.pixels[torch.tensor([[3, 9], [0, 20], [11, 5]])]
    found = tools.completion.complete(images, pixels, ids=["a", "b", "c"])
    pool, index = found.pool, found.index.flatten()
    asked = tools.posterior.log_probabilities(pool, pixels.repeat_interleave(10, 0), index=index)
    return found.rows, found.weights, asked


def test_tools_from_the_store_answer_as_those_from_files(files, monkeypatch, capsys):
    monkeypatch.setattr("nogs.design.sharing._BLOCK", 30 * 32 * 32 * 3)  # 30 images a block
    task, store = load_task(DATA), Kept()
    expected = answers(files(), task)
    shared = share(files, store)
    assert isinstance(shared, Shared)
    assert store.put == 4  # three blocks of images, and the rest
    assert "sharing the bank: 70/70 images" in capsys.readouterr().err
    shutil.rmtree(files.bank)
    tools = shared()
    for one, two in zip(answers(tools, task), expected, strict=True):
        assert torch.equal(one, two)
    bank = tools.completion.bank
    for tensor in (bank.pca.mean, bank.pca.basis, bank.codes, *tools.posterior.network.state_dict().values()):
        assert tensor.data_ptr() % 64 == 0, "where it lies decides how products are rounded"
    assert shared == Shared(files, lambda: None), "a worker keeps what it has opened for the next block"


def test_cross_fitted_posterior_and_the_sources_of_a_bank_are_shared_too(files):
    task = load_task(DATA)
    shutil.rmtree(files.bank)
    build_bank(task, config=BankConfig(count=70, components=8), folder=files.bank, device="cpu")
    architecture = Architecture.of(PosteriorConfig(width=16, layers=1, heads=2), task=task, glimpses=3)
    members = [NetworkPosterior(architecture.build(seed=n), architecture, precision="float32") for n in range(2)]
    save_posterior(
        Path(files.posterior),
        CrossFitted(members, splits=task.fingerprint),
        task=task,
        about={"task_fingerprint": task.fingerprint},
    )
    here, there = files(), share(files, Kept())()
    assert len(there.posterior.members) == 2
    assert torch.equal(there.completion.bank.sources, here.completion.bank.sources)
    for one, two in zip(answers(there, task), answers(here, task), strict=True):
        assert torch.equal(one, two)


def test_what_does_not_fit_stays_in_files_and_that_is_said(files, capsys):
    store = Kept(room=100_000)
    assert share(files, store) is files
    assert store.put == 0
    said = capsys.readouterr().err
    assert "posterior and bank (0.0 GiB) don't fit the object store of every node (0.0 GiB): each node reads" in said
    assert str(files.bank) in said


def test_images_of_several_arrays_are_found_by_row():
    whole = np.random.default_rng(0).integers(0, 256, (10, 4, 5, 3), dtype=np.uint8)
    stored = StoredImages([whole[:3], whole[3:4], whole[4:]])
    assert (len(stored), stored.size) == (10, (4, 5))
    rows = np.array([9, 0, 3, 3, 4, 2])
    assert (stored.read(rows).numpy() == whole[rows]).all()


def test_damaged_shard_is_not_shared(files):
    shard = files.bank / "images" / Shards.open(files.bank / "images")._shards[0].file
    shard.write_bytes(shard.read_bytes()[:-3000] + bytes(3000))
    with pytest.raises(InputError, match="is damaged: image 69 has changed since the bank was built"):
        share(files, Kept())


@pytest.mark.parametrize("kind", ["cgan", "flow"])
def test_the_network_of_a_learned_completion_travels_along(files, kind):
    task, store = load_task(DATA), Kept()
    network = NetworkConfig(width=8, iterations=2, batch=4, steps=2)
    config = CompletionConfig(kind=kind, kept=10, flips=False, network=network)
    own = replace(files, completion=config)
    folder = files.bank / kind
    train_completion(task, config=config, glimpses=3, folder=folder, rms=0.0, device=torch.device("cpu"))
    expected = answers(own(), task)
    shared = share(own, store)
    assert isinstance(shared, Shared)
    shutil.rmtree(files.bank)
    for here, there in zip(expected, answers(shared(), task), strict=True):
        assert torch.equal(here, there)
