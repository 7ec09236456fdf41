import json

import numpy as np
import pytest
import torch

import miniature
from nogs.cli import main
from nogs.data import load_task
from nogs.plus.store import load_attributes, load_network
from nogs.recipes import recipe
from nogs.sequences import load
from nogs.stages import attention as stage

RECIPE = """
base: digits
name: tiny
glimpses: 2
data: {count: 80, annotated: 6}
posterior: {iterations: 2, validate_every: 2, batch: 16, width: 16, layers: 1, heads: 2, warmup: 0, precision: float32}
plus: {iterations: 1, validate_every: 1, batch: 8, candidates: 2}
attention: {iterations: 2, validate_every: 1, hidden: 16, embedding: 16, batch: 16, trajectories: 1}
"""
FACES = "image_size: 32, glimpse: 8, grid_count: 5, grid_last: null, annotated: 600"


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
    assert "6 sequences of 2 glimpses; cross-entropy (nats) after each: " in capsys.readouterr().out
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


def test_attributes_share_one_order_where_they_are_told_to(tmp_path, capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(
        stage, "load_attributes", lambda path, **how: loaded.append(path) or load_attributes(path, **how)
    )
    faces = RECIPE.replace("base: digits", "base: celeba-hq").replace("count: 80, annotated: 6", FACES)
    (tmp_path / "faces.yaml").write_text(faces)
    data = ["--data", str(miniature.celeba_hq(tmp_path)), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    data += ["--posterior.optimizer", "adam", "--posterior.token", "4"]
    words = [str(tmp_path / "faces.yaml"), *data, "--out", str(tmp_path / "run")]
    assert main(["posterior", "train", *words]) == 0
    words += ["--attribute", "Male", "Young", "--plus.shared"]
    assert main(["train", *words, "--method", "fixed", "--published", "None"]) == 0
    assert len(loaded) == 1  # for what both attributes say after fewer glimpses
    assert len(list((tmp_path / "run").glob("attention/fixed/*/seed-0/accuracy-by-glimpses.json"))) == 2
    words[words.index(str(tmp_path / "run"))] = str(tmp_path / "order")
    posterior = str(tmp_path / "run" / "posterior" / "posterior.safetensors")
    assert main(["sequences", "fixed", *words, "--posterior", posterior]) == 0
    network, _ = load_network(tmp_path / "run" / "attention" / "fixed" / "seed-0.safetensors", attribute="Male")
    image = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    expected = network.look(image, torch.tensor([0]), None)[1][0].tolist()
    for name in ("Male", "Young"):
        found = load(tmp_path / "order" / name)
        assert found.provenance["shared"] == ["Male", "Young"]
        assert found.indices()[0].tolist() == expected
    words[words.index(str(tmp_path / "order"))] = str(tmp_path / "run")
    capsys.readouterr()
    assert main(["train", *words, "--plus.no-shared", "--method", "fixed", "--published", "None"]) == 2
    assert "plus.shared was ['Male', 'Young'] and is None" in capsys.readouterr().err


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
