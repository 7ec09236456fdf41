import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nogs.bank import TrainedConfig
from nogs.bank.generators import steps, training
from nogs.bank.generators.training import STATE, train_generator
from nogs.data import DataConfig, load_task
from nogs.runtime.tensors import load_tensors

TINY = TrainedConfig(autoencoder_width=8, autoencoder_iterations=5, width=32, depth=1, iterations=7, batch=8, steps=2)


@pytest.fixture(scope="module")
def task():
    return load_task(
        DataConfig(kind="digits", image_size=24, glimpse=8, grid_spacing=4, count=60, annotated=6, fragments=0)
    )


class Killed(Exception):
    pass


class Steps:
    """The steps of a training: each takes a second of a simulated clock; `kill` stops before a step."""

    def __init__(self, monkeypatch):
        self.now, self.rates, self.kill = 1000.0, [], None
        self.taken = 0
        real, set_rate = steps.Work._step, steps.set_rate

        def step(work):
            if self.taken == self.kill:
                raise Killed
            real(work)
            self.taken, self.now = self.taken + 1, self.now + 1

        def note(optimizer, rate):
            self.rates.append(rate)
            set_rate(optimizer, rate)

        monkeypatch.setattr(steps.Work, "_step", step)
        monkeypatch.setattr(steps, "set_rate", note)
        monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def taken(monkeypatch):
    return Steps(monkeypatch)


def train(task, **fields):
    state = fields.pop("state", None)
    config = TINY.model_copy(update=fields)
    return train_generator(task, task.rows("posterior"), config=config, seed=3, state=state)


def cosine(count):
    return [0.5 * (1 + math.cos(math.pi * n / count)) for n in range(count)]


def test_step_sizes_reach_zero_when_the_time_is_over(task, taken, capsys):
    made = train(task, autoencoder_iterations=100_000, iterations=100_000, seconds=60, learning_rate=1.0)
    # a third of the time for the autoencoder, in each stage a tenth to warm up
    expected = []
    for count in (20, 40):
        rise = [max((n + 1) / 500, 10 * n / count) for n in range(count)]
        expected += [min(up, down) for up, down in zip(rise, cosine(count), strict=True)]
    assert taken.rates == pytest.approx(expected)
    assert taken.rates[19] < 0.01
    assert taken.rates[-1] < 0.002
    assert (made.about["flow_iterations"], made.seconds["training"]) == (40, 60)
    told = capsys.readouterr().err
    assert "The time limit of 20 s ends the autoencoder after 20 steps: hardly any training; give it more time" in told
    assert "The time limit of 40 s ends the flow after 40 steps: hardly any" in told


def test_encoding_takes_no_time_from_the_flow(task, taken, monkeypatch):
    encode = training._latents

    def slowly(*given):
        taken.now += 50
        return encode(*given)

    monkeypatch.setattr(training, "_latents", slowly)
    made = train(task, autoencoder_iterations=100_000, iterations=100_000, seconds=60)
    assert (made.about["flow_iterations"], made.seconds["training"]) == (40, 60)


def test_the_flow_has_the_time_that_the_autoencoder_leaves(task, taken):
    made = train(task, iterations=100_000, seconds=60)
    assert made.about["flow_iterations"] == 55


def test_iterations_end_a_training_that_has_time_left(task, taken):
    made = train(task, autoencoder_iterations=30, iterations=70, seconds=1e6, learning_rate=1.0)
    assert made.about["flow_iterations"] == 70
    plain = train(task, autoencoder_iterations=30, iterations=70, learning_rate=1.0)
    assert taken.rates[:100] == pytest.approx(taken.rates[100:], rel=1e-3)
    assert taken.rates[30:100] == pytest.approx(np.minimum((np.arange(70) + 1) / 7, cosine(70)), rel=1e-3)
    assert plain.seconds["training"] == 100


@pytest.mark.parametrize("kill", [3, 5, 9])  # in the autoencoder, between the two, in the flow
def test_killed_training_goes_on_to_the_same_generator(task, taken, monkeypatch, tmp_path, kill):
    monkeypatch.setattr(steps, "_SAVED", 0.0)
    monkeypatch.setattr(steps, "_TOLD", 2)
    whole, path = train(task), tmp_path / STATE
    taken.kill, taken.taken = kill, 0
    with pytest.raises(Killed):
        train(task, state=path)
    taken.kill, taken.now = None, taken.now + 3600  # that nobody trained
    torch.manual_seed(5)
    resumed = train(task, state=path)
    assert 12 <= taken.taken <= 12 + 2  # only what came after the last saved state is done again
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.about == whole.about


def test_time_before_a_kill_counts(task, taken, monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "_SAVED", 0.0)
    monkeypatch.setattr(steps, "_TOLD", 1)
    taken.kill = 30
    limited = {"autoencoder_iterations": 100_000, "iterations": 100_000, "seconds": 60, "state": tmp_path / STATE}
    with pytest.raises(Killed):
        train(task, **limited)
    taken.kill, taken.now = None, taken.now + 3600
    made = train(task, **limited)
    assert taken.taken == 60
    assert (made.about["flow_iterations"], made.seconds["training"]) == (40, 60)


@pytest.mark.parametrize(("seconds", "steps_taken", "flow"), [(90, 90, 70), (40, 40, 20), (25, 31, 11), (None, 40, 20)])
def test_killed_training_goes_on_under_another_limit_of_time(
    task, taken, monkeypatch, tmp_path, capsys, seconds, steps_taken, flow
):
    monkeypatch.setattr(steps, "_SAVED", 0.0)
    monkeypatch.setattr(steps, "_TOLD", 1)
    taken.kill = 30  # after 20 steps of the autoencoder and 10 of the flow
    fields = {"autoencoder_iterations": 100_000, "iterations": 100_000 if seconds else 20, "state": tmp_path / STATE}
    with pytest.raises(Killed):
        train(task, seconds=60, **fields)
    taken.kill = None
    made = train(task, seconds=seconds, **fields)
    told = capsys.readouterr().err
    assert "Going on from iteration 10 of the flow." in told
    assert "another training" not in told
    assert (made.about["flow_iterations"], taken.taken) == (flow, steps_taken)
    assert made.seconds["training"] == taken.taken
    assert made.about["config"]["seconds"] == seconds


def test_state_of_another_training_is_left_alone(task, taken, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(steps, "_SAVED", 0.0)
    path = tmp_path / STATE
    train(task, state=path, iterations=45)
    assert load_tensors(path)[0]["work.clock"] == 40
    train(task, state=path)
    assert f"{path} is the state of another training; this one starts at iteration 0." in capsys.readouterr().err


def test_a_slow_disk_is_written_to_less_often(task, taken, monkeypatch, tmp_path):
    saved = []

    def save(path, tensors, *, mark, counters):
        saved.append(int(tensors["work.clock"]))
        taken.now += 10

    monkeypatch.setattr(steps, "save_state", save)
    monkeypatch.setattr(steps, "_TOLD", 10)
    train(task, state=tmp_path / STATE, iterations=500)
    # a minute (with the autoencoder's 5 s) to the first, then 20 times the 10 s that saving took
    assert saved == [60, 260, 460]


def test_training_leaves_the_global_random_numbers_alone(task):
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    train(task)
    assert torch.equal(torch.rand(3), wanted)
