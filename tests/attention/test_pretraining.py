import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nogs.attention import pretrainer
from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.pretrainer import Pretrainer
from nogs.attention.pretraining import pretrain
from nogs.attention.trunks import Trunk, trunks_of
from nogs.data.augment import AugmentConfig
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.metrics import read_metrics
from nogs.runtime.tensors import load_tensors
from nogs.supervision import LocationDistribution
from toy_attention import toy_task

CPU = torch.device("cpu")
SMALL = AttentionConfig(
    hidden=12, embedding=16, batch=8, trajectories=2, learning_rate=3e-3, pretrain_epochs=6,
    save_every=2,
)  # fmt: skip


def distribution(task):
    return LocationDistribution.heuristic(np.linspace(0, 1, len(task.grid)), inverse_temperature=2.0)


def run(folder, *, task=None, **fields):
    task = task or toy_task()
    member = Member("ram+", pretraining=distribution(task))
    config = SMALL.model_copy(update=fields)
    return pretrain(task, [member], config=config, glimpses=3, folder=folder, device=CPU, weights="none")


def place(folder):
    return folder / "pretraining" / "heuristic" / "seed-0"


def trainer(task, **fields):
    trunk = Trunk("pretraining/heuristic/seed-0", distribution(task), None, 0)
    return Pretrainer(task, trunk, config=SMALL.model_copy(update=fields), glimpses=3, device=CPU, weights="none")


def test_network_of_the_best_validation_epoch_is_kept(tmp_path):
    frozen = run(tmp_path)
    lines = read_metrics(place(tmp_path))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    curve = [line["validation_accuracy"] for line in lines]
    done = read_json(place(tmp_path) / "done.json")
    assert done["validation_accuracy"] == max(curve)
    assert done["best_epoch"] == curve.index(max(curve)) + 1
    assert done["epochs"] == 6
    made = trainer(toy_task())
    made.networks.load_state_dict(frozen.networks[0].state_dict())
    assert made.validate()[0] == max(curve)
    assert not any(p.requires_grad for p in frozen.networks[0].parameters())
    assert not (place(tmp_path) / "state.safetensors").exists()


def test_pretraining_learns_the_embedder_the_rnn_and_the_classifier_and_not_the_location_network():
    made = trainer(toy_task())
    before = {name: value.clone() for name, value in made.networks.state_dict().items()}
    made.cohort.start_epoch(0)
    for _ in range(3):
        made.step()
    for name, value in made.networks.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("policy_parameters"), name


def test_loss_is_that_of_following_the_drawn_locations():
    task = toy_task()
    made = trainer(task, flip=False)
    made.cohort.start_epoch(0)
    batch = made.cohort.draw(torch.tensor(0))
    locations = made.draw(batch.uniforms)
    probabilities = np.exp(distribution(task).log_probabilities).cumsum()
    expected = [int((probabilities <= u).sum()) for u in batch.uniforms.flatten().double().numpy()]
    assert locations.flatten().tolist() == expected
    rollout = made.networks(made.cohort.images, batch.rows, forced=locations)
    loss = torch.nn.functional.cross_entropy(rollout.logits[0], batch.labels[0])
    made.step()
    assert made.loss.item() == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("changed", [{"initial_state": "zeros"}, {"pretrain_schedule": "cosine"}, {"flip": False}])
def test_pretraining_with_other_fields_is_not_taken_for_it(tmp_path, changed):
    run(tmp_path, pretrain_epochs=1)
    with pytest.raises(InputError, match="pretraining/heuristic/seed-0"):
        run(tmp_path, pretrain_epochs=1, **changed)


def test_location_networks_that_learn_faster_share_the_pretraining(tmp_path, monkeypatch):
    run(tmp_path, pretrain_epochs=1)
    monkeypatch.setattr("nogs.attention.pretraining.Pretrainer", None)
    run(tmp_path, pretrain_epochs=1, location_rate=10.0)


def test_locations_follow_the_distribution():
    task = toy_task()
    drawn = trainer(task).draw(torch.rand(200_000, generator=torch.Generator().manual_seed(0)))
    shares = torch.bincount(drawn, minlength=len(task.grid)) / len(drawn)
    expected = torch.from_numpy(np.exp(distribution(task).log_probabilities)).float()
    torch.testing.assert_close(shares, expected, atol=4e-3, rtol=0)


class Stopped(Exception):
    """Stands for a crash."""


@pytest.mark.parametrize(
    ("step", "schedule", "average"),
    [(2, "constant", 0), (8, "constant", 0), (13, "constant", 0), (11, "cosine", 0), (13, "constant", 0.8)],
)
def test_stopped_pretraining_goes_on_to_the_same_network(tmp_path, monkeypatch, capsys, step, schedule, average):
    fields = {"pretrain_schedule": schedule, "pretrain_average": average}
    whole = run(tmp_path / "whole", **fields).networks[0].state_dict()
    original, count = Pretrainer.step, []

    def stop(self):
        count.append(None)
        if len(count) == step:
            raise Stopped
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Pretrainer, "step", stop)
        with pytest.raises(Stopped):
            run(tmp_path / "run", **fields)
    capsys.readouterr()
    again = run(tmp_path / "run", **fields).networks[0].state_dict()
    assert ("Going on from epoch" in capsys.readouterr().err) == (step > 6)  # a state every other epoch of 3 steps
    assert all(torch.equal(again[name], value) for name, value in whole.items())
    lines = [(place(tmp_path / name) / "metrics.jsonl").read_text() for name in ("whole", "run")]
    assert lines[0] == lines[1]


def watched_rates(monkeypatch, *, wait=0.0):
    """The step sizes of all iterations to come, on a clock that goes on by `wait` seconds at each."""
    rates, clock, original = [], [0.0], Pretrainer.step

    def step(self):
        rates.append(self.optimizer.param_groups[0]["lr"])
        clock[0] += wait
        original(self)

    monkeypatch.setattr(Pretrainer, "step", step)
    monkeypatch.setattr(pretrainer, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return rates


def test_step_size_is_constant_or_falls_as_a_cosine_over_the_epochs(tmp_path, monkeypatch):
    rates = watched_rates(monkeypatch)
    run(tmp_path / "constant")
    assert rates == [3e-3] * 18  # 6 epochs of 3
    rates.clear()
    run(tmp_path / "cosine", pretrain_schedule="cosine", pretrain_learning_rate=0.01)
    for epoch, share in ((0, 1.0), (1, (2 + math.sqrt(3)) / 4), (2, 0.75), (3, 0.5), (4, 0.25)):
        assert rates[3 * epoch] == pytest.approx(0.01 * share), epoch
    assert rates == pytest.approx([0.01 * math.cos(math.pi * n / 36) ** 2 for n in range(18)])


def test_step_size_falls_over_the_time_where_that_ends_sooner(tmp_path, monkeypatch):
    rates = watched_rates(monkeypatch, wait=1.0)
    run(tmp_path / "short", pretrain_schedule="cosine", pretrain_seconds=8.0)
    assert rates == pytest.approx([3e-3 * math.cos(math.pi * n / 16) ** 2 for n in range(9)])
    assert rates[-1] == 0
    rates.clear()
    run(tmp_path / "long", pretrain_schedule="cosine", pretrain_seconds=100.0)
    assert rates == pytest.approx([3e-3 * math.cos(math.pi * n / 36) ** 2 for n in range(18)])


def test_time_before_a_stop_counts_for_the_step_size(tmp_path, monkeypatch):
    rates, save = watched_rates(monkeypatch, wait=1.0), Pretrainer.save
    fields = {"pretrain_schedule": "cosine", "pretrain_seconds": 12.0}

    def save_and_stop(self, path, *, mark):
        save(self, path, mark=mark)
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Pretrainer, "save", save_and_stop)
        with pytest.raises(Stopped):
            run(tmp_path, **fields)
    assert len(rates) == 6  # a state every other epoch of 3
    run(tmp_path, **fields)
    assert rates == pytest.approx([3e-3 * math.cos(math.pi * n / 24) ** 2 for n in range(13)])


def test_done_pretraining_is_loaded_and_another_recipe_refused(tmp_path, monkeypatch):
    first = run(tmp_path).networks[0].state_dict()
    monkeypatch.setattr("nogs.attention.pretraining.Pretrainer", None)
    again = run(tmp_path).networks[0].state_dict()
    assert all(torch.equal(again[name], value) for name, value in first.items())
    with pytest.raises(InputError, match="of another recipe or other inputs"):
        run(tmp_path, pretrain_epochs=7)


def test_patience_and_time_end_it_early(tmp_path, monkeypatch):
    monkeypatch.setattr(Pretrainer, "validate", lambda self: (0.5, 1.0))
    run(tmp_path / "patience", pretrain_patience=2)
    done = read_json(place(tmp_path / "patience") / "done.json")
    assert (done["best_epoch"], done["epochs"]) == (1, 3)
    run(tmp_path / "time", pretrain_seconds=1e-9)
    assert read_json(place(tmp_path / "time") / "done.json")["epochs"] == 1


def test_loss_that_is_no_number_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Pretrainer, "validate", lambda self: (0.5, float("nan")))
    with pytest.raises(InputError, match=r"was never a finite number; lower --attention\.pretrain-learning-rate"):
        run(tmp_path)


def test_networks_pretrained_at_once_are_those_pretrained_one_after_the_other(tmp_path):
    task = toy_task()
    members = [
        Member(method, seed=seed, pretraining=pretraining)
        for method, pretraining in (("ram", LocationDistribution.uniform(task.grid)), ("ram+", distribution(task)))
        for seed in (0, 1)
    ]
    found = []
    for abreast in (1, 3):
        folder, config = tmp_path / str(abreast), SMALL.model_copy(update={"pretrain_abreast": abreast})
        pretrain(task, members, config=config, glimpses=3, folder=folder, device=CPU, weights="none")
        curves = sorted((path.parent.relative_to(folder), path.read_text()) for path in folder.rglob("metrics.jsonl"))
        networks = {path.relative_to(folder): load_tensors(path)[0] for path in folder.rglob("network.safetensors")}
        found.append((curves, networks))
    assert found[0][0] == found[1][0]
    assert found[0][1].keys() == found[1][1].keys()
    assert len(found[0][1]) == 4
    for path, tensors in found[0][1].items():
        assert all(torch.equal(value, found[1][1][path][name]) for name, value in tensors.items())


def test_changed_images_are_learned_from_and_repeat():
    plain, once, again = (
        trainer(toy_task(), pretrain_augment=AugmentConfig(move=move, colour=move / 10)) for move in (0, 2, 2)
    )
    for made in (plain, once, again):
        made.cohort.start_epoch(0)
        for _ in range(3):
            made.step()
    assert torch.equal(once.loss, again.loss)
    assert not torch.equal(once.loss, plain.loss)


def test_smoothed_labels_are_what_is_learned():
    task = toy_task()
    plain, smooth = (trainer(task, pretrain_smoothing=share, flip=False) for share in (0.0, 0.3))
    for made in (plain, smooth):
        made.cohort.start_epoch(0)
        batch = made.cohort.draw(torch.tensor(0))
        logits = made.networks.follow(made.cohort.images, batch.rows, made.draw(batch.uniforms))[0].detach()
        made.step()
    spread = -logits.log_softmax(-1).mean(-1).mean()  # towards all labels alike
    assert smooth.loss.item() == pytest.approx(0.7 * plain.loss.item() + 0.3 * spread.item(), rel=1e-5)


def test_average_of_the_weights_is_what_is_validated_and_kept():
    made = trainer(toy_task(), pretrain_average=0.6)
    made.metrics = SimpleNamespace(log=lambda *args, **numbers: seen.update(numbers), digest=None)
    made.cohort.start_epoch(0)
    seen: dict[str, float] = {}
    expected = {name: p.detach().clone() for name, p in made.learned.items()}
    for n in range(20):
        made.step()
        decay = min(n / (n + 10), 0.6)
        for name, p in made.learned.items():
            expected[name] = decay * expected[name] + (1 - decay) * p.detach()
    last = {name: p.detach().clone() for name, p in made.learned.items()}
    made.log(made.metrics, 1)
    for name, value in expected.items():
        torch.testing.assert_close(made.best[name], value, rtol=1e-4, atol=1e-6)
        assert torch.equal(made.learned[name], last[name])  # training goes on from the weights
    made.networks.load_state_dict(made.best)
    assert made.validate()[1] == pytest.approx(seen["validation_nll"])


def test_dropout_changes_training_and_repeats():
    losses = []
    for share in (0.0, 0.5, 0.5):
        made = trainer(toy_task(), pretrain_dropout=share)
        made.cohort.start_epoch(0)
        made.step()
        losses.append(made.loss.item())
    assert losses[0] != losses[1] == losses[2]


def test_pretraining_learns_on_the_toy_task(tmp_path):
    task = toy_task(count=120)
    run(tmp_path, task=task, pretrain_epochs=30, learning_rate=0.01)
    lines = read_metrics(place(tmp_path))
    assert lines[-1]["training_loss"] < 0.5 * lines[0]["training_loss"]
    assert json.loads((place(tmp_path) / "done.json").read_text())["validation_accuracy"] > 0.8


def test_methods_that_pretrain_alike_share_a_trunk():
    task = toy_task(attributes=("Round", "Red"))
    uniform, heuristic = LocationDistribution.uniform(task.grid), distribution(task)
    members = [
        Member("ram", attribute="Round", pretraining=uniform),
        Member("ram+", attribute="Round", pretraining=heuristic),
        Member("ps-nogs", attribute="Round", pretraining=heuristic),
        Member("ps-nogs", attribute="Red", pretraining=heuristic),
        Member("ps-nogs", attribute="Round", seed=2, pretraining=heuristic),
    ]
    trunks, numbers = trunks_of(members)
    assert [trunk.name for trunk in trunks] == [
        "pretraining/uniform/Round/seed-0",
        "pretraining/heuristic/Round/seed-0",
        "pretraining/heuristic/Red/seed-0",
        "pretraining/heuristic/Round/seed-2",
    ]
    assert numbers == [0, 1, 1, 2, 3]
