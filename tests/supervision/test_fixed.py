import json

import numpy as np
import pytest
import torch

from nogs.cli import main
from nogs.data import load_task
from nogs.plus.store import load_network
from nogs.recipes import recipe
from nogs.sequences import load

RECIPE = """
base: digits
name: tiny
glimpses: 2
data: {count: 80, annotated: 6}
posterior: {iterations: 2, validate_every: 2, batch: 16, width: 16, layers: 1, heads: 2, warmup: 0, precision: float32}
plus: {iterations: 1, validate_every: 1, batch: 8, candidates: 2}
attention: {iterations: 2, validate_every: 1, hidden: 16, embedding: 16, batch: 16, trajectories: 1}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "tiny.yaml").write_text(RECIPE)
    assert main(["posterior", "train", str(folder / "tiny.yaml"), "--out", str(folder / "run")]) == 0
    return folder


def fixed(place, out, *words):
    posterior = str(place / "run" / "posterior" / "posterior.safetensors")
    return main(["sequences", "fixed", str(place / "tiny.yaml"), "--out", str(out), "--posterior", posterior, *words])


def test_sequences_are_the_order_that_the_network_looks_in(place, tmp_path, capsys):
    assert fixed(place, tmp_path / "fixed") == 0
    assert "6 sequences of 2 glimpses; nats after each: " in capsys.readouterr().out
    found = load(tmp_path / "fixed")
    task = load_task(recipe(place / "tiny.yaml").data)
    assert found.ids == task.splits["annotate"]
    assert (found.locations == found.locations[:1]).all()
    assert found.provenance["images"] == len(task.splits["validation"]) + len(task.splits["train"]) - len(
        task.splits["posterior"]
    )
    run = str(place / "run")
    assert main(["train", str(place / "tiny.yaml"), "--method", "fixed", "--out", run, "--device", "cpu"]) == 0
    network, _ = load_network(place / "run" / "attention" / "fixed" / "seed-0" / "best-accuracy.safetensors")
    _, places, _ = network.look(torch.from_numpy(np.array(task.images[:1])), torch.tensor([0]), torch.tensor([0]))
    assert found.indices()[0].tolist() == places[0].tolist()


def test_sequences_can_be_scored_and_trained_with(place, tmp_path, capsys):
    assert fixed(place, tmp_path / "fixed") == 0
    judge = str(place / "run" / "posterior" / "posterior.safetensors")
    words = ["sequences", "score", str(place / "tiny.yaml"), "--sequences", str(tmp_path / "fixed"), "--judge", judge]
    assert main([*words, "--elsewhere", "test", "--draws", "1"]) == 2
    assert "made the sequences 'fixed' itself" in capsys.readouterr().err
    assert main([*words, "--own", "--elsewhere", "test", "--draws", "1", "--json"]) == 0
    assert "fixed" in json.loads(capsys.readouterr().out)
    train = ["train", str(place / "tiny.yaml"), "--method", "ps-nogs", "--sequences", str(tmp_path / "fixed")]
    assert main([*train, "--out", str(tmp_path / "run"), "--device", "cpu"]) == 0


def test_other_sequences_are_not_overwritten_unless_asked(place, tmp_path, capsys):
    assert fixed(place, tmp_path / "fixed") == 0
    assert fixed(place, tmp_path / "fixed") == 0  # the same again
    assert fixed(place, tmp_path / "fixed", "--glimpses", "1") == 2
    assert "holds other sequences already" in capsys.readouterr().err
    assert fixed(place, tmp_path / "fixed", "--glimpses", "1", "--overwrite") == 0
    assert fixed(place, tmp_path / "more", "--glimpses", "3") == 2
    assert "was trained for up to 2 glimpses, not 3" in capsys.readouterr().err
    assert main(["sequences", "fixed", str(place / "tiny.yaml"), "--out", str(tmp_path / "none")]) == 2
    assert "holds no posterior; train one" in capsys.readouterr().err
