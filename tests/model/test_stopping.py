import json

import numpy as np
import pytest
import torch

import worlds
from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluator, coverage
from nogs.attention.network import Networks
from nogs.model.classifier import Model
from nogs.model.stopping import accuracies_by_glimpses, accuracy_by_glimpses, summary, watch, write_accuracy_by_glimpses
from nogs.plus.network import TokenNetwork
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from small_posteriors import network as token_network
from small_runs import GRID, about, images, network
from toy_attention import toy_task


@pytest.fixture(scope="module")
def task():
    return toy_task(count=60, size=24, glimpse=8, spacing=4)


@pytest.fixture(scope="module")
def said(task):
    return {**about(), "labels": list(task.space.names), "seed": 3}


@pytest.fixture(scope="module")
def found(task, said):
    return accuracy_by_glimpses(network(), said, task, trajectories=4, thresholds=(0.9, 0.4))


def test_last_glimpse_has_the_scores_of_evaluation(task, found):
    cohort = Cohort(task, [Member("ram", seed=3)], glimpses=3, batch=1, flip=False, device=torch.device("cpu"))
    for policy, greedy in (("argmax", True), ("sample", False)):
        evaluation = Evaluator(network(), cohort, "test", trajectories=4, greedy=greedy)()
        scores = evaluation.scores()
        assert found["policies"][policy]["accuracy"][-1] == pytest.approx(scores["accuracy"].item())
        assert found["policies"][policy]["nll"][-1] == pytest.approx(scores["nll"].item(), rel=1e-5)
        if greedy:
            share = coverage(evaluation.locations[0], task.grid)
            assert found["policies"][policy]["pixels_read"][-1] == pytest.approx(share)


def test_every_step_is_that_of_a_look_at_the_image_alone():
    pixels = images(6).numpy()
    networks = network()
    log_probabilities, locations = watch(networks, pixels, torch.arange(6), None)
    model = Model(networks, about=about())
    for n in range(6):
        answer = model.classify(pixels[n], policy="argmax")
        assert GRID.pixels[locations[n]].tolist() == [list(place) for place in answer.locations]
        assert log_probabilities[n].exp().max(-1).values.tolist() == pytest.approx(answer.confidence, abs=1e-5)


def test_summary_is_what_one_counts_by_hand():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet([0.6] * 3, (40, 4))
    labels, locations = random.integers(0, 3, 40), random.integers(0, len(GRID), (40, 4))
    found = summary(
        torch.from_numpy(np.log(probabilities)), torch.from_numpy(locations), torch.from_numpy(labels),
        grid=GRID, thresholds=(0.95, 0.6),
    )  # fmt: skip
    for t in range(4):
        right = [probabilities[n, t].argmax() == labels[n] for n in range(40)]
        assert found["accuracy"][t] == pytest.approx(np.mean(right))
        assert found["nll"][t] == pytest.approx(-np.log(probabilities[np.arange(40), t, labels]).mean())
        assert found["confidence"][t] == pytest.approx(probabilities[:, t].max(-1).mean())
    assert [part["stop_at"] for part in found["stopping"]] == [0.6, 0.95]
    for part in found["stopping"]:
        right, glimpses, read = [], [], []
        for n in range(40):
            sure = [t for t in range(4) if probabilities[n, t].max() >= part["stop_at"]]
            last = sure[0] if sure else 3
            right.append(probabilities[n, last].argmax() == labels[n])
            glimpses.append(last + 1)
            seen = np.zeros((24, 24), bool)
            for row, column in GRID.pixels[locations[n, : last + 1]].tolist():
                seen[row : row + 8, column : column + 8] = True
            read.append(seen.mean())
        assert part["accuracy"] == pytest.approx(np.mean(right))
        assert part["mean_glimpses"] == pytest.approx(np.mean(glimpses))
        assert part["pixels_read"] == pytest.approx(np.mean(read))
        assert part["stopped_after"] == pytest.approx([np.mean(np.array(glimpses) == t) for t in (1, 2, 3, 4)])


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_networks_on_a_posterior_say_in_batches_what_they_say_step_by_step(sampled, shared):
    task = worlds.pointer_world().task(kind="bernoulli")
    made, _ = token_network(task, learned=not sampled, sampled=sampled, variables=(0, 2), shared=shared)
    names = ("red", "blue")
    said = {"task": task.name, "method": "random" if sampled else "ps-nogs+", "seed": 3}
    abouts = [{**said, "attribute": name, "labels": [f"not {name}", name]} for name in names]
    found = accuracies_by_glimpses(made, abouts, task, trajectories=2, thresholds=(0.6,))
    rows = torch.from_numpy(task.rows("test"))
    for number, name in enumerate(names):
        made.attribute = number
        assert accuracy_by_glimpses(made, abouts[number], task, trajectories=2, thresholds=(0.6,)) == found[number]
        assert found[number]["attribute"] == name
        for policy in ("argmax", "sample"):
            drawn, uniforms = sampled and policy == "sample", None
            images = rows.repeat_interleave(2) if drawn else rows
            if drawn:
                counter = torch.arange(len(images) * 3).view(-1, 3)
                uniforms = streams.uniform(streams.key(3, "evaluation", "test"), counter)
            truth = torch.from_numpy(task.labels[images.numpy(), task.attribute(name)].astype(np.int64))
            slow = summary(*watch(made, task.images, images, uniforms), truth, grid=task.grid, thresholds=(0.6,))
            fast = found[number]["policies"][policy]
            for key in ("accuracy", "nll", "confidence", "pixels_read"):
                assert fast[key] == pytest.approx(slow[key], abs=1e-5)
            (ours,), (theirs,) = fast["stopping"], slow["stopping"]
            assert ours["stopped_after"] == pytest.approx(theirs["stopped_after"], abs=1e-5)
            assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=1e-5)


def test_what_draws_nothing_looks_once(monkeypatch):
    task = worlds.pointer_world().task(kind="bernoulli")
    made, _ = token_network(task, variables=(0, 2), shared=True)
    abouts = [
        {"task": task.name, "method": "fixed", "seed": 0, "attribute": name, "labels": [f"not {name}", name]}
        for name in ("red", "blue")
    ]
    look, images = TokenNetwork.look, []
    monkeypatch.setattr(
        TokenNetwork, "look", lambda made, _, rows, *a, **k: images.append(len(rows)) or look(made, _, rows, *a, **k)
    )
    accuracies_by_glimpses(made, abouts, task)
    assert sum(images) == len(task.splits["test"])  # for both attributes and both policies together


def test_file_lies_beside_the_network(tmp_path, found):
    path = write_accuracy_by_glimpses(tmp_path / "best-accuracy.safetensors", found)
    assert path == tmp_path / "accuracy-by-glimpses.json"
    assert json.loads(path.read_text()) == found
    assert (found["split"], found["images"], found["glimpses"]) == ("test", 12, [1, 2, 3])
    other = write_accuracy_by_glimpses(tmp_path / "best-accuracy.safetensors", {**found, "split": "validation"})
    assert other.name == "accuracy-by-glimpses-validation.json"


def test_other_task_is_refused(task, said):
    with pytest.raises(InputError, match="trained on task 'toy' with another grid, or other labels"):
        accuracy_by_glimpses(network(), {**said, "labels": ["a", "b", "c"]}, task)
    other = Networks(Architecture(toy_task().grid, 3, 3))
    with pytest.raises(InputError, match="another grid"):
        accuracy_by_glimpses(other, said, task)
