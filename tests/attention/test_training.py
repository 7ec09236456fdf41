import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from nogs.attention import training
from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.store import load_network
from nogs.attention.training import Trainer, train
from nogs.attention.trunks import source_of
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.metrics import read_metrics
from toy_attention import PlainNetwork, advance, toy_sequences, toy_task

CPU = torch.device("cpu")
SMALL = AttentionConfig(
    hidden=12, embedding=16, batch=8, iterations=24, validate_every=4, save_every=2,
    trajectories=2, learning_rate=3e-3,
)  # fmt: skip
FILES = ("best-accuracy.safetensors", "best-balanced_accuracy.safetensors", "best-nll.safetensors", "evaluation.json",
         "locations.npy", "metrics.jsonl")  # fmt: skip


def members(task):
    """RAM and PS-NOGS with two seeds."""
    sequences = toy_sequences(task, task.splits["train"][:10])
    return [Member("ram"), Member("ps-nogs", seed=1, sequences=sequences, weight=4.0)]


def run(folder, *, config=SMALL, task=None, networks=None):
    task = task or toy_task()
    return train(task, networks or members(task), config=config, glimpses=3, folder=folder, device="cpu")


def products(folders):
    return {(n, name): (folder / name).read_bytes() for n, folder in enumerate(folders) for name in FILES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The result of a run that was never stopped."""
    return products(run(tmp_path_factory.mktemp("whole")))


def test_products_of_a_run(whole, tmp_path):
    folders = run(tmp_path)
    assert products(folders) == whole
    assert [folder.relative_to(tmp_path).as_posix() for folder in folders] == ["ram/seed-0", "ps-nogs/seed-1"]
    assert not (tmp_path / "state.safetensors").exists()
    task = toy_task()
    for folder in folders:
        lines = read_metrics(folder)
        assert [line["step"] for line in lines] == [4, 8, 12, 16, 20, 24]
        outcome = json.loads((folder / "evaluation.json").read_text())
        assert outcome["iterations"] == 24
        labels = task.labels[task.rows("test")]
        assert outcome["majority_class_accuracy"] == np.bincount(labels).max() / len(labels)
        for kind, better in (("accuracy", max), ("balanced_accuracy", max), ("nll", min)):
            curve = [line[f"validation_{kind}"] for line in lines]
            best = outcome["best"][kind]
            assert best["validation"] == pytest.approx(better(curve), rel=1e-6)
            assert best["iteration"] == lines[curve.index(better(curve))]["step"]
            network, about = load_network(folder / f"best-{kind}.safetensors")
            assert about["iteration"] == best["iteration"]
            assert about["labels"] == ["class 0", "class 1", "class 2"]
            assert about["test"] == best["test"]
            assert len(network) == 1
        assert np.load(folder / "locations.npy").shape == (8, 2, 3, 2)
        assert json.loads((folder / "done.json").read_text())["iterations"] == 24


class Stopped(Exception):
    """Stands for a crash."""


def stop_at(patch, iteration):
    step = Trainer.step

    def stop(self):
        if int(self.iteration) == iteration:
            raise Stopped
        step(self)

    patch.setattr(Trainer, "step", stop)


@pytest.mark.parametrize("iteration", [2, 8, 11, 16, 23])
def test_stopped_run_goes_on_to_the_same_result(whole, tmp_path, monkeypatch, capsys, iteration):
    with monkeypatch.context() as patch:
        stop_at(patch, iteration)
        with pytest.raises(Stopped):
            run(tmp_path)
    capsys.readouterr()
    assert products(run(tmp_path)) == whole
    saved = iteration // 8 * 8  # a state every other validation
    said = capsys.readouterr().err
    assert (f"Going on from iteration {saved}." in said) == (saved > 0)


@pytest.mark.parametrize("where", ["log", "save", "write_outcomes"])
def test_run_stopped_outside_of_a_step_goes_on_to_the_same_result(whole, tmp_path, monkeypatch, where):
    owner = training if where == "write_outcomes" else Trainer
    original, calls = getattr(owner, where), []

    def stop(*args):
        calls.append(None)
        if len(calls) == (1 if where == "write_outcomes" else 2):
            raise Stopped
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, stop)
        with pytest.raises(Stopped):
            run(tmp_path)
    assert products(run(tmp_path)) == whole


def test_killed_run_goes_on_to_the_same_result(whole, tmp_path):
    """SIGKILL at a random moment of the training, which is slowed down to allow many moments."""
    script = (
        "import sys, time, torch; from pathlib import Path; sys.path[:0] = sys.argv[2:]; "
        "torch.set_num_threads(int(sys.argv[1])); import test_training as t; step = t.Trainer.step; "
        "t.Trainer.step = lambda self: (time.sleep(0.05), step(self)); t.run(Path('run'))"
    )
    here = os.path.dirname(__file__)
    arguments = [str(torch.get_num_threads()), here, os.path.dirname(here)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "state.safetensors").exists() and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.01)
    time.sleep(random.random())
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert products(run(tmp_path / "run")) == whole


def test_done_networks_are_skipped_and_new_ones_join(whole, tmp_path, capsys, monkeypatch):
    task = toy_task()
    ram, supervised = members(task)
    folders = run(tmp_path, networks=[ram])
    before = products(folders)
    capsys.readouterr()
    assert run(tmp_path, networks=[ram, supervised])[0] == folders[0]
    assert "1 of 2 networks are trained already." in capsys.readouterr().err
    assert products(folders) == before
    monkeypatch.setattr(Trainer, "__init__", None)  # nothing is left to train
    run(tmp_path, networks=[ram, supervised])


def test_folder_of_another_recipe_is_refused_and_kept(tmp_path):
    networks = [Member("ram")]
    before = products(run(tmp_path, networks=networks))
    with pytest.raises(InputError, match=r"ram/seed-0 holds network ram/seed-0 of another recipe or other inputs"):
        run(tmp_path, networks=networks, config=SMALL.model_copy(update={"learning_rate": 1e-3}))
    with pytest.raises(InputError, match="choose another folder or delete this one"):
        run(tmp_path, networks=networks, task=toy_task(seed=1))
    assert products([tmp_path / "ram" / "seed-0"]) == before


def test_how_often_a_state_is_saved_changes_nothing(tmp_path):
    networks = [Member("ram")]
    before = products(run(tmp_path / "often", networks=networks))
    rarely = SMALL.model_copy(update={"save_every": 100})
    assert products(run(tmp_path / "rarely", networks=networks, config=rarely)) == before
    assert products(run(tmp_path / "often", networks=networks, config=rarely)) == before  # done, not refused


def test_unfinished_training_of_other_networks_is_not_lost(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 18)
        with pytest.raises(Stopped):
            run(tmp_path, networks=[Member("ram", seed=7)])
    before = (tmp_path / "state.safetensors").read_bytes()
    with pytest.raises(InputError, match="is the unfinished training of ram/seed-7; finish it with the command that"):
        run(tmp_path, networks=[Member("ram", seed=7), Member("ram", seed=8)])
    assert (tmp_path / "state.safetensors").read_bytes() == before
    fresh = products(run(tmp_path / "fresh", networks=[Member("ram", seed=7)]))
    assert products(run(tmp_path, networks=[Member("ram", seed=7)])) == fresh
    run(tmp_path, networks=[Member("ram", seed=7), Member("ram", seed=8)])


def test_same_network_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="the same method, attribute and seed; ask for each once"):
        run(tmp_path, networks=[Member("ram"), Member("ram")])


def poisoned(monkeypatch, *, iteration, networks):
    """From this iteration on, some networks' weights are NaN."""
    step = Trainer.step

    def poison(self):
        if int(self.iteration) == iteration:
            with torch.no_grad():
                for parameter in self.networks.parameters():
                    parameter[networks] = torch.nan
        step(self)

    monkeypatch.setattr(Trainer, "step", poison)


def test_nan_stops_with_a_sentence_and_keeps_the_best_networks(tmp_path, monkeypatch):
    # most images are of class 0, which is what a network of NaNs "predicts"
    task = toy_task()
    task.labels[:] = np.where(np.arange(40) % 8, 0, task.labels)
    poisoned(monkeypatch, iteration=9, networks=[0])
    with pytest.raises(InputError) as caught:
        run(tmp_path, task=task, networks=[Member("ram")])
    assert "The loss of 'ram/seed-0' was not a finite number by iteration 12" in str(caught.value)
    assert "lower --attention.learning-rate: nogs run then goes on here, other commands need" in str(caught.value)
    folder = tmp_path / "ram" / "seed-0"
    for kind in ("accuracy", "balanced_accuracy", "nll"):
        network, about = load_network(folder / f"best-{kind}.safetensors")
        assert about["iteration"] in (4, 8)
        assert all(parameter.isfinite().all() for parameter in network.parameters())
    lines = read_metrics(folder)
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert lines[-1]["validation_nll"] is None
    assert lines[-1]["validation_accuracy"] is None
    assert not (folder / "done.json").exists()


def test_nan_of_one_network_leaves_its_neighbour_alone(whole, tmp_path, monkeypatch):
    poisoned(monkeypatch, iteration=9, networks=[1])
    with pytest.raises(InputError, match="'ps-nogs/seed-1' was not a finite number by iteration 12"):
        run(tmp_path)
    ours = products([tmp_path / "ram" / "seed-0"])
    assert ours == {key: value for key, value in whole.items() if key[0] == 0}
    assert (tmp_path / "ram" / "seed-0" / "done.json").exists()
    assert not (tmp_path / "ps-nogs" / "seed-1" / "done.json").exists()


def test_network_that_never_was_sound_leaves_readable_json(tmp_path):
    config = SMALL.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(InputError, match="was not a finite number by iteration 4"):
        run(tmp_path, networks=[Member("ram")], config=config)
    outcome = (tmp_path / "ram" / "seed-0" / "evaluation.json").read_text()
    assert "Infinity" not in outcome
    assert "NaN" not in outcome


@pytest.mark.parametrize("embedder", ["paper", "release"])
def test_networks_side_by_side_train_as_they_do_alone(embedder):
    """The first 20 steps agree to 1e-4 in float32."""
    task = toy_task(attributes=("Round", "Red"))
    sequences = toy_sequences(task, task.splits["train"][:10])
    together = [
        Member("ram", seed=0, attribute="Round"),
        Member("ps-nogs", seed=0, attribute="Red", sequences=sequences, weight=64.0),
        Member("ram", seed=5, attribute="Red"),
    ]
    config = AttentionConfig(embedder=embedder, batch=8)
    trainer = Trainer(task, together, config=config, glimpses=3, device=CPU)
    advance(trainer, 20)
    for m, member in enumerate(together):
        alone = Trainer(task, [member], config=config, glimpses=3, device=CPU)
        start = {name: value.clone() for name, value in alone.networks.named_parameters()}
        advance(alone, 20)
        torch.testing.assert_close(trainer.sums[:, m], alone.sums[:, 0], rtol=1e-4, atol=1e-4)
        for name, parameter in alone.networks.named_parameters():
            if embedder == "release" and name.endswith(("dense_bias", "project_bias", "place1_bias", "place2_bias")):
                continue  # batch norm takes it away again: its gradient is rounding, which Adam makes large
            difference = (trainer.networks.get_parameter(name)[m] - parameter[0]).abs().max()
            assert difference < 1e-4, name
        moved = max((value - start[name]).abs().max() for name, value in alone.networks.named_parameters())
        assert moved > 1e-3


def test_training_is_adam_on_the_total_loss():
    """Ten steps against torch's own layers, optimiser and losses written out."""
    task = toy_task()
    sequences = toy_sequences(task, task.splits["train"][:10])
    config = AttentionConfig(batch=8, learning_rate=1e-3)
    trainer = Trainer(task, [Member("ps-nogs", sequences=sequences, weight=3.0)], config=config, glimpses=3, device=CPU)
    plain = PlainNetwork(trainer.networks)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
    for iteration in range(10):
        if iteration % 3 == 0:
            trainer.cohort.start_epoch(iteration)
        batch = trainer.cohort.draw(torch.tensor(iteration))
        rollout = plain(
            task.images[batch.rows[0].numpy()], uniforms=batch.uniforms[0], forced=batch.forced[0], flip=batch.flip[0]
        )
        loss = 0.0
        for b in range(8):
            label, logits = batch.labels[0, b], rollout.logits[0, b]
            loss = loss - logits.log_softmax(0)[label]
            log_probability, baseline = rollout.log_probabilities[0, b], rollout.baselines[0, b]
            if batch.supervised[0, b]:
                loss = loss - 3.0 * log_probability.sum()
            else:
                reward = float(logits.argmax() == label)
                loss = loss - ((reward - baseline.detach()) * log_probability).sum() + ((reward - baseline) ** 2).mean()
        optimizer.zero_grad()
        (loss / 8).backward()
        optimizer.step()
        trainer.step()
    for ours, theirs in plain.pairs(trainer.networks):
        torch.testing.assert_close(ours[0], theirs, rtol=0, atol=1e-4)


def first_step(**fields):
    """The change of each parameter in the first iteration, and the size of its gradient."""
    task = toy_task()
    config = AttentionConfig(batch=8, learning_rate=1e-3, **fields)
    trainer = Trainer(task, members(task), config=config, glimpses=3, device=CPU)
    before = {name: value.detach().clone() for name, value in trainer.networks.named_parameters()}
    advance(trainer, 1)
    return {name: (p.detach() - before[name], p.grad.abs()) for name, p in trainer.networks.named_parameters()}


def test_location_rate_scales_the_steps_of_location_network_and_baseline_alone():
    plain, scaled = first_step(), first_step(location_rate=10.0)
    of_policy = [name for name in plain if name.startswith("policy_parameters.")]
    assert {name.rpartition(".")[2] for name in of_policy} == {
        f"{layer}_{kind}" for layer in ("locate1", "locate2", "baseline") for kind in ("weight", "bias")
    }
    for name, (step, gradient) in scaled.items():
        if name not in of_policy:
            assert torch.equal(step, plain[name][0]), name
            continue
        # Adam's first step is lr g / (|g| + 1e-8)
        expected = 10 * 1e-3 * gradient / (gradient + 1e-8)
        torch.testing.assert_close(step.abs(), expected, rtol=0, atol=2e-7, msg=name)
        torch.testing.assert_close(step, 10 * plain[name][0], rtol=0, atol=2e-6, msg=name)
        assert step.abs().max() > 9e-3, name


def test_stopped_run_with_a_location_rate_goes_on_to_the_same_result(whole, tmp_path, monkeypatch):
    config = SMALL.model_copy(update={"location_rate": 10.0})
    unbroken = products(run(tmp_path / "whole", config=config))
    assert unbroken != whole
    with monkeypatch.context() as patch:
        stop_at(patch, 11)
        with pytest.raises(Stopped):
            run(tmp_path / "run", config=config)
    assert products(run(tmp_path / "run", config=config)) == unbroken


@pytest.mark.parametrize("changed", [{"location_rate": 3.0}, {"initial_state": "zeros"}])
def test_all_fields_but_those_that_decide_nothing_are_part_of_the_recipe(tmp_path, changed):
    folders = run(tmp_path)
    mark = json.loads((folders[0] / "done.json").read_text())["fingerprint"]
    elsewhere = {"save_every", "weights", "cache", "pretrain_abreast"}
    fields = SMALL.model_dump(exclude=elsewhere)
    task = toy_task()
    assert mark == fingerprint(fields, task.fingerprint, 3, members(task)[0].fingerprint(), source_of(SMALL, "none"))
    with pytest.raises(InputError, match="ram/seed-0"):
        run(tmp_path, config=SMALL.model_copy(update=changed))


def test_it_learns():
    task = toy_task(count=60)
    config = SMALL.model_copy(update={"batch": 36, "hidden": 32, "embedding": 32, "flip": False})
    trainer = Trainer(task, [Member("ram")], config=config, glimpses=3, device=CPU)
    advance(trainer, 150)
    assert trainer.validate().scores()["accuracy"].item() > 0.8
