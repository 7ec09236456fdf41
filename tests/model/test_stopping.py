import json

import numpy as np
import pytest
import torch

from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluator, coverage
from nogs.attention.network import Networks
from nogs.model.classifier import Model
from nogs.model.stopping import accuracy_by_glimpses, summary, watch, write_accuracy_by_glimpses
from nogs.runtime.errors import InputError
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
