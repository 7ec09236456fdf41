"""Networks that come with the package, by their names: with one label, and with several attributes."""

import copy
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nogs
import worlds
from nogs.cli import main
from nogs.model import Answers, Attributes, Model
from nogs.model.answers import Answer
from nogs.model.exporting import agreement, export_onnx
from nogs.model.finding import find
from nogs.model.hub import pack
from nogs.plus.publishing import publish
from nogs.plus.store import save_network
from nogs.posterior import store
from nogs.recipes import recipe
from nogs.runtime.errors import InputError
from small_posteriors import network, untrained

NAMES = ("red", "blue")
FIELDS = recipe("digits").model_dump(mode="json")
ROW = {"glimpses": 1, "accuracy": 0.5, "cross_entropy": 0.7, "entropy": 0.7, "calibration_error": 0.1}
TRAINED = {
    "task": "toy",
    "config": {"kind": "tokens", "teacher": "folder/of/teacher.safetensors"},
    "trained_on": "few images",
    "parameters": 1,
    "seed": 0,
    "versions": {"device": "a CPU", "nogs": "0", "torch": "0"},
    "iterations": 1,
    "best_iteration": 1,
    "tables": {"test, calibrated": [ROW]},
}


def about(task, attribute=None):
    labels = list(task.space.names) if attribute is None else [f"not {attribute}", attribute]
    said = {"task": task.name, "labels": labels, "method": "ps-nogs+", "attribute": attribute, "seed": 0}
    score = 0.75 if attribute == "blue" else 0.5
    return {**said, "best": "accuracy", "iteration": 3, "validation": score, "test": {"accuracy": score, "nll": 0.5}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A package whose published networks are `birds`, of one label, `faces`, of two attributes, and the posterior
    `blind`; a picture; and the networks that they were made from."""
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("published")
    world, made = worlds.pointer_world(), {}
    for name, task, attributes in (
        ("birds", world.task(), (None,)),
        ("faces", world.task(kind="bernoulli"), NAMES),
    ):
        variables = [0 if one is None else task.attribute(one) for one in attributes]
        made[name], posterior = network(task, variables=variables)
        path = home / "run" / f"{name}.safetensors"
        entries = {one or "": about(task, one) for one in attributes}
        save_network(path, made[name], posterior, task=task, about=entries, trained=TRAINED)
        out = home / "nogs" / "pretrained" / f"{name}.safetensors"
        publish(path, out, fields=FIELDS, defaults=FIELDS, bits=16)
        Image.fromarray(np.array(task.images[5])).save(home / f"{name}.png")
    store.save_posterior(home / "nogs" / "pretrained" / "blind.safetensors", untrained(task), task=task)
    return home, made


@pytest.fixture(autouse=True)
def package(place, monkeypatch, tmp_path):
    monkeypatch.setattr(store, "__file__", str(place[0] / "nogs" / "posterior" / "store.py"))
    monkeypatch.chdir(tmp_path)


def test_a_name_loads_the_network_that_was_published(place):
    home, made = place
    model = nogs.load("birds")
    answer = model.classify(home / "birds.png")
    image = torch.from_numpy(np.array(Image.open(home / "birds.png")))[None]
    said, places, _ = made["birds"].look(image, torch.tensor([0]), torch.tensor([0]))
    assert list(answer.probabilities.values()) == pytest.approx(said[0, -1].exp().tolist(), abs=0.01)
    assert [list(one) for one in answer.locations] == model.grid.pixels[places[0]].tolist()
    assert model.why == "birds comes with nogs"


def test_all_attributes_answer_each_with_its_own_glimpses(place):
    home, _ = place
    model = nogs.load("faces")
    assert isinstance(model, Attributes)
    assert tuple(model) == NAMES
    answers = model.classify(home / "faces.png")
    assert isinstance(answers, Answers)
    for name in NAMES:
        one = nogs.load("faces", attribute=name)
        assert isinstance(one, Model)
        assert one.labels == (f"not {name}", name)
        for alone in (one.classify(home / "faces.png"), model[name].classify(home / "faces.png")):
            assert alone.locations == answers[name].locations
            assert alone.confidence == pytest.approx(answers[name].confidence, abs=1e-5)
            assert alone.probabilities == pytest.approx(answers[name].probabilities, abs=1e-5)
    sure = model.classify(home / "faces.png", stop_at=0.01)
    assert all(len(answer.locations) == 1 for answer in sure.values())
    assert answers["red"].locations != answers["blue"].locations
    assert answers.pixels_read > answers["red"].pixels_read
    assert set(answers.present) == {name for name in NAMES if answers[name].probabilities[name] > 0.5}
    assert answers._repr_png_()[:4] == b"\x89PNG"
    assert len(repr(answers)) < 120
    assert len(repr(model)) < 120
    assert nogs.load(place[0] / "run" / "faces.safetensors", attribute="red").labels == ("not red", "red")


def test_views_share_the_weights(place):
    model = nogs.load("faces")
    red, blue = (model[name].networks for name in NAMES)
    assert (red.attribute, blue.attribute) == (0, 1)
    assert red.core.prior is blue.core.prior
    assert copy.copy(red).looks is red.looks


@pytest.mark.parametrize(
    ("source", "how", "sentence"),
    [
        ("nobody", {}, "There is no run nobody; give the folder .*, or a published name: birds, blind, faces"),
        ("blind", {}, "blind.safetensors is a posterior, which does not say where to look"),
        ("faces", {"attribute": "green"}, r"^faces has no network for 'green'; choose red, blue\.$"),
        ("birds", {"attribute": "green"}, r"^birds is for one label, not for attributes; leave 'green' out\.$"),
    ],
)
def test_what_is_not_published_is_one_sentence(source, how, sentence):
    with pytest.raises(InputError, match=sentence):
        nogs.load(source, **how)


def test_a_folder_of_a_published_name_is_meant_by_its_path(place):
    Path("birds").mkdir()
    assert nogs.load("birds").why == "birds comes with nogs; the folder of that name is ./birds"
    for source in (Path("birds"), "./birds"):
        with pytest.raises(InputError, match="birds holds no trained networks"):
            nogs.load(source)


def test_predict_names_the_attributes_and_draws_all_of_them(place, capsys, monkeypatch):
    home, _ = place
    answers = nogs.load("faces").classify(home / "faces.png")
    picture = str(home / "faces.png")
    assert main(["predict", "faces", picture, "--picture", "sheet.png", "--csv", "all.csv"]) == 0
    said = capsys.readouterr()
    present = ", ".join(f"{name} {share:.1%}" for name, share in answers.present.items()) or "none"
    each = (answers["red"].pixels_read + answers["blue"].pixels_read) / 2
    assert said.out == (
        f"{picture}: {present}; 2 attributes, 3 glimpses for each, {each:.1%} of the pixels for one attribute on "
        f"average, {answers.pixels_read:.1%} for all together\n"
    )
    assert "Network: faces comes with nogs." in said.err
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (2 * (160 + 12) + 12, 160 + 44 + 24 + 3 * 18)  # and a note of three lines
    with open("all.csv", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [answers[name].label for name in NAMES]
    assert main(["predict", "faces", picture, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attributes"] == json.loads(json.dumps({name: one.to_json() for name, one in answers.items()}))
    assert main(["predict", "faces", picture, "--attribute", "blue"]) == 0
    assert capsys.readouterr().out.startswith(f"{picture}: {answers['blue'].label}, ")
    assert main(["predict", "nobody", picture]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_likeliest_attribute_is_drawn_first(place, monkeypatch):
    from nogs.model import drawing

    tiles = []
    monkeypatch.setattr(drawing, "_sheet", lambda given, **_: tiles.extend(given))
    answers = nogs.load("faces").classify(place[0] / "faces.png")
    drawing.attributes_sheet([np.zeros(1)], [answers], grid=answers["red"].grid, names=[""])
    shares = {name: answers[name].probabilities[name] for name in NAMES}
    assert [lines[0][1] for _, _, lines in tiles] == sorted(NAMES, key=lambda name: -shares[name])
    for _, locations, ((_, name, _), said) in tiles:
        assert locations == answers[name].locations
        assert "".join(said) == f"{'yes' if shares[name] > 0.5 else 'no'}, {answers[name].probability:.1%}"


def test_a_tile_has_the_probability_of_its_answer(monkeypatch):
    from nogs.model import drawing

    tiles = []
    monkeypatch.setattr(drawing, "_sheet", lambda given, **_: tiles.extend(given))
    no = Answer("not red", 0.75, {"not red": 0.75, "red": 0.25}, (), (), 0.0, stopped_early=False)
    drawing.attributes_sheet([np.zeros(1)], [{"red": no}], grid=None, names=[""])
    assert ["".join(line) for line in tiles[0][2]] == ["red", "no, 75.0%"]


def test_published_network_is_exported(place, capsys):
    model = nogs.load("faces", attribute="blue")
    assert agreement(model, export_onnx(model, Path("step.onnx")), steps=5) < 1e-4
    assert main(["export", "faces", "--out", "exported"]) == 2
    assert (
        "error: faces has networks for 2 attributes; name one with --attribute or `attribute`: red, blue."
        in capsys.readouterr().err
    )
    Path("birds").mkdir()
    assert main(["export", "birds", "--precision", "float32"]) == 2
    assert "nogs export needs --out" in capsys.readouterr().err
    assert main(["export", "birds", "--precision", "float32", "--out", "exported"]) == 0
    assert Path("exported/float32.onnx").exists()


def test_published_network_is_packed_with_card_and_looks(place, capsys):
    home, _ = place
    assert main(["hub", "push", "faces", "--out", "all"]) == 0
    packed = nogs.load("all")
    assert packed.classify(home / "faces.png") == nogs.load("faces").classify(home / "faces.png")
    card, config = Path("all/README.md").read_text(), json.loads(Path("all/config.json").read_text())
    assert "says whether each of 2 attributes is there" in card
    assert "| accuracy | 62.5% |" in card  # the mean of 50 and 75
    assert "## Network faces" in card
    assert "which it chooses among " in card
    assert "iteration 3)" in card
    assert config["attributes"] == list(NAMES)
    assert config["architecture"]["glimpses"] == 3
    assert "folder/of" not in Path("all/config.json").read_text()
    pack(find("faces", attribute="blue"), Path("one"))
    assert nogs.load("one").labels == ("not blue", "blue")
    assert nogs.load("one", attribute="red").labels == ("not red", "red")
    shutil.copy(home / "run" / "birds.safetensors", "mine.safetensors")
    pack(find("mine.safetensors"), Path("two"))
    assert nogs.load("two").classify(home / "birds.png") == nogs.load("mine.safetensors").classify(home / "birds.png")
    assert store.about_posterior("two/model.safetensors")["config"]["teacher"] == "teacher.safetensors"


@pytest.mark.parametrize(("attributes", "own"), [((None,), ""), (NAMES, ", one for each attribute,")])
def test_card_of_a_kept_fixed_order_says_so_and_has_each_score_once(attributes, own):
    task = worlds.pointer_world().task(kind="categorical" if attributes == (None,) else "bernoulli")
    made, posterior = network(task, learned=False, variables=range(len(attributes)))
    test = {"accuracy": 0.5, "averaged_accuracy": 0.5, "greedy_accuracy": 0.5, "nll": -0.0}
    entries = {one or "": about(task, one) | {"iteration": 0, "test_images": 1234, "test": test} for one in attributes}
    save_network(Path("kept.safetensors"), made, posterior, task=task, about=entries, trained=TRAINED)
    card = (pack(find("kept.safetensors"), Path("kept")) / "README.md").read_text()
    assert f"px, in the same fixed order of locations{own} for every image, of {len(task.grid)} locations, and " in card
    assert "No learned choice of locations beat the fixed order on the validation images." in card
    assert "(seed 0)." in card
    assert "iteration" not in card
    assert "On the task's 1,234 test images:" in card
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    assert rows == ["| measure | value |", "| accuracy | 50.0% |", "| negative log-likelihood (nats) | 0.000 |"]
