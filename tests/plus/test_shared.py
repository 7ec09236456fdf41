"""One policy for all attributes: its order, its training, its file, and its use."""

import json

import numpy as np
import pytest
import torch

import nogs
import worlds
from exact_design import ExactPosterior
from nogs.attention.cohort import Member
from nogs.model.exporting import agreement, export_onnx
from nogs.model.finding import find
from nogs.model.hub import pack
from nogs.plus.config import PlusConfig
from nogs.plus.publishing import publish
from nogs.plus.store import load_network
from nogs.plus.together import look_together
from nogs.plus.training import train
from nogs.posterior.tokens import GlimpseTokens
from nogs.posterior.training import train_posterior
from nogs.recipes import recipe
from nogs.runtime.errors import InputError
from nogs.stages.evaluation import evaluate
from nogs.supervision.fixed import fixed_order
from small_posteriors import SMALL, images_of

NAMES = ("red", "green", "blue")
CONFIG = PlusConfig(iterations=4, batch=16, candidates=3, learning_rate=1e-2, validate_every=4, shared=True)


def run(task, folder, *methods, names=NAMES, config=CONFIG):
    return train(
        task,
        [Member(method, attribute=name) for method in methods for name in names],
        posterior=str(folder / "p.safetensors"),
        config=config,
        how=SMALL,
        glimpses=3,
        folder=folder / "run",
        device="cpu",
    )


@pytest.fixture(scope="module")
def task(world):
    return world.task(kind="bernoulli")


@pytest.fixture(scope="module")
def place(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    config = SMALL.model_copy(update={"iterations": 4, "validate_every": 2, "batch": 16})
    train_posterior(task, config=config, glimpses=3, folder=folder / "posterior", device="cpu")
    (folder / "posterior" / "posterior.safetensors").rename(folder / "p.safetensors")
    run(task, folder, "fixed", "ps-nogs+", "random")
    return folder


@pytest.mark.parametrize("variables", [(0, 1, 2), (1, 2)])
def test_shared_order_lowers_the_mean_of_the_cross_entropies(world, task, variables):
    exact, rows = ExactPosterior(world, kind="bernoulli"), task.rows("validation")
    images, labels = torch.from_numpy(np.array(task.images)), torch.from_numpy(task.labels.astype(np.int64))
    objectives = [variables, (variables[0],)]
    found = fixed_order(exact, images, labels, torch.from_numpy(rows), glimpses=3, objectives=objectives)
    grid, truth = world.grid.pixels.numpy(), np.eye(3)[world.labels].astype(bool)
    for n, some in enumerate(objectives):
        order = []
        for step in range(3):
            values = []
            for place in range(len(grid)):
                where = np.tile(grid[[*order, place]], (len(world.images), 1, 1))
                yes = worlds.exact_posteriors(world, world.images, where)
                right = np.where(truth, yes, 1 - yes)[:, list(some)]
                values.append(float((-np.log(right).mean(1)) @ world.counts / world.counts.sum()))
            np.testing.assert_allclose(found.losses[n, step].numpy(), values, atol=1e-6)
            order.append(min((place for place in range(len(grid)) if place not in order), key=values.__getitem__))
        assert found.order[n].tolist() == order


@pytest.mark.parametrize("method", ["fixed", "ps-nogs+", "random"])
def test_one_look_answers_all_attributes_as_each_for_itself(task, place, method):
    network, about = load_network(place / "run" / method / "seed-0.safetensors", attribute="blue")
    assert len(network.looks.table) == 1
    assert (about["attribute"], network.variables, network.attribute) == ("blue", (0, 1, 2), 2)
    rows = torch.arange(0, 60, 7)
    images, uniforms = images_of(task, np.arange(60)), torch.rand(len(rows), 3) if method == "random" else None
    together = look_together(network, images, rows, uniforms=uniforms)
    for n in range(3):
        said, locations, entropies = network.look(images, rows, torch.full_like(rows, n), uniforms=uniforms)
        torch.testing.assert_close(together.answers[n], said)
        assert torch.equal(together.locations[n], locations)
        torch.testing.assert_close(together.entropies[n], entropies)
    some = look_together(network, images, rows, attributes=[2, 0], uniforms=uniforms)
    assert torch.equal(some.answers, together.answers[[2, 0]])
    places = [np.load(place / "run" / method / name / "seed-0" / "locations.npy") for name in NAMES]
    assert all((one == places[0]).all() for one in places)


def test_head_of_all_attributes_is_trained_and_judged_by_their_mean(task, place, tmp_path):
    one = json.loads((place / "run/ps-nogs+/red/seed-0/metrics.jsonl").read_text().splitlines()[0])
    (tmp_path / "p.safetensors").write_bytes((place / "p.safetensors").read_bytes())
    run(task, tmp_path, "ps-nogs+", config=CONFIG.model_copy(update={"iterations": 40, "validate_every": 40}))
    network, about = load_network(tmp_path / "run/ps-nogs+/seed-0.safetensors", attribute="red")
    assert about["iteration"] == 40
    assert network.looks.head.gain.shape[0] == 1
    assert network.looks.head.last.weight.any()
    rows = torch.from_numpy(task.rows("validation"))
    said = look_together(network, torch.from_numpy(np.array(task.images)), rows).answers[:, :, -1]
    truth = torch.from_numpy(task.labels.astype(np.int64))[rows].T
    nll = -said.gather(2, truth[..., None])
    lines = [json.loads(line) for line in (tmp_path / "run/ps-nogs+/red/seed-0/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["validation_nll"] == pytest.approx(nll.mean().item(), rel=1e-4)
    assert lines[-1]["validation_nll"] < one["validation_nll"]


def test_one_glimpse_after_the_other_serves_all_attributes(task, place, monkeypatch):
    model = nogs.load(place / "run" / "fixed" / "seed-0.safetensors")
    read, calls = GlimpseTokens.encode, []
    monkeypatch.setattr(GlimpseTokens, "encode", lambda core, *given: calls.append(len(given[0])) or read(core, *given))
    answers = model.classify(np.array(task.images[5]))
    assert sum(calls) == 3  # as many glimpses as one attribute needs
    for name in NAMES:
        assert answers[name].locations == answers["red"].locations
        alone = model[name].classify(np.array(task.images[5]))
        assert alone.locations == answers[name].locations
        assert alone.probabilities == pytest.approx(answers[name].probabilities, abs=1e-5)


def test_other_attributes_are_another_network(task, place):
    before = (place / "run/fixed/seed-0.safetensors").read_bytes()
    for how in ({"names": ("red", "blue")}, {"config": CONFIG.model_copy(update={"shared": False})}):
        with pytest.raises(InputError, match=r"holds network .* of another recipe or other inputs"):
            run(task, place, "fixed", **how)
    run(task, place, "fixed", names=NAMES[::-1])
    assert (place / "run/fixed/seed-0.safetensors").read_bytes() == before


def test_published_file_keeps_one_order(task, place, tmp_path):
    fields, out = recipe("digits").model_dump(mode="json"), tmp_path / "faces.safetensors"
    source = place / "run" / "fixed" / "seed-0.safetensors"
    assert publish(source, out, fields=fields, defaults=fields, bits=16) == 4 * 3 + 4 * 3 * 4
    images, rows = images_of(task, np.arange(9)), torch.arange(9)
    looked = [look_together(load_network(path, attribute="red")[0], images, rows) for path in (source, out)]
    assert torch.equal(looked[0].locations, looked[1].locations)
    card = out.with_suffix(".md").read_text()
    assert "3 glimpses shared by all attributes." in card
    assert "--method fixed --attribute all --seed 0 --plus.shared " in card


@pytest.mark.parametrize("method", ["fixed", "random"])
def test_attributes_are_evaluated_together_as_one_by_one(task, place, method):
    how = {"split": "test", "trajectories": 5, "device": torch.device("cpu")}
    for together, name in zip(evaluate(place / "run" / method / "seed-0.safetensors", task, **how), NAMES):
        folder = place / "run" / method / name / "seed-0"
        ((said, locations, by_glimpses),) = evaluate(folder / "best-accuracy.safetensors", task, **how)
        assert together[0] == said
        assert said["attribute"] == name
        assert (together[1] == locations).all()
        assert (locations == np.load(folder / "locations.npy")).all()
        assert together[2] == by_glimpses
        written = json.loads((folder / "evaluation.json").read_text())["best"]["accuracy"]["test"]
        for score in ("accuracy", "averaged_accuracy", "balanced_accuracy", "nll", "pixels_seen"):
            assert said["scores"][score] == pytest.approx(written[score], abs=1e-6)
        curve = by_glimpses["policies"][by_glimpses["own"]]
        assert curve["accuracy"][-1] == pytest.approx(written["accuracy"], abs=1e-6)
        assert curve["nll"][-1] == pytest.approx(written["nll"], abs=1e-5)


def test_packed_and_exported_network_looks_the_same_way(task, place, tmp_path):
    image, source = np.array(task.images[5]), place / "run" / "ps-nogs+" / "seed-0.safetensors"
    pack(find(source), tmp_path / "packed")
    assert nogs.load(tmp_path / "packed").classify(image) == nogs.load(source).classify(image)
    model = nogs.load(source, attribute="blue")
    assert agreement(model, export_onnx(model, tmp_path / "step.onnx"), steps=5) < 1e-4
