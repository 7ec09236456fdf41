"""Cross-fitted networks: the images of each, resumption, and their combined predictions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from nogs.data.config import CUB
from nogs.posterior.card import publish
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import CrossFitted, fold_task, uncalibrated
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.queries import fixed_pixels
from nogs.posterior.store import about_posterior, load_posterior, save_posterior
from nogs.posterior.training import Trainer, train_posterior
from nogs.recipes import Recipe
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.metrics import read_metrics
from nogs.runtime.tensors import load_tensors, save_tensors

CPU = torch.device("cpu")
T, K = 3, 3
QUICK = PosteriorConfig(width=16, layers=1, heads=2, token=4, batch=32, iterations=8, validate_every=2, folds=K)


def trained(task, folder, config=QUICK):
    return train_posterior(task, config=config, glimpses=T, folder=folder, device="cpu")


@pytest.fixture(scope="module")
def run(task, tmp_path_factory):
    """A finished training, and the rows that each of its networks was given."""
    torch.set_num_threads(1)
    folder, seen, step = tmp_path_factory.mktemp("folds"), [], Trainer.step

    def noting(self):
        if self.iteration == 0:
            seen.append(set())
        read = self.network.read
        self.network.read = lambda images, pixels, index, *rest: (
            seen[-1].update(index.tolist()),
            read(images, pixels, index, *rest),
        )[1]
        step(self)
        self.network.read = read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", noting)
        # some epochs, so that every image that may be read is
        trained(task, folder, QUICK.model_copy(update={"batch": 216, "iterations": 16, "validate_every": 8}))
    return folder, seen


def made(task, *, temperatures=(1.0, 0.9, 0.8, 0.7), number=K):
    architecture = Architecture.of(QUICK, task=task, glimpses=T)
    members = []
    for seed in range(number):
        network = architecture.build(seed=seed)
        with torch.no_grad():
            network.head.weight.mul_(20)
        table = torch.tensor(temperatures)[:, None] * (1 + seed)
        members.append(NetworkPosterior(network, architecture, inverse_temperature=table, precision="float32"))
    return CrossFitted(members, splits=task.fingerprint)


def queries(task, number=20):
    images = torch.from_numpy(np.array(task.images[:number]))
    return images, fixed_pixels(number, glimpses=T, grid=task.grid, locations="grid", seed=1, purpose="q", device=CPU)


def test_each_network_is_trained_without_its_own_images_and_with_all_others(task, run):
    _, seen = run
    rows = task.rows("posterior").tolist()
    assert len(seen) == K
    for fold in range(K):
        assert seen[fold] == {row for rank, row in enumerate(rows) if rank % K != fold}
        assert fold_task(task, fold=fold, folds=K).splits["test"] == task.splits["test"]


def test_one_file_holds_all_networks_and_their_calibration(task, run):
    folder, _ = run
    found = load_posterior(folder / "posterior.safetensors", task=task)
    assert isinstance(found, CrossFitted)
    assert found.splits == task.fingerprint
    assert found.glimpses == T
    images, pixels = queries(task)
    for fold, member in enumerate(found.members):
        alone = load_posterior(folder / f"fold-{fold}" / "posterior.safetensors", task=task)
        assert torch.equal(member.log_probabilities(images, pixels), alone.log_probabilities(images, pixels))
        assert not (folder / f"fold-{fold}" / "state.safetensors").exists()
    about = read_json(folder / "evaluation.json")
    each = [read_json(folder / f"fold-{fold}" / "evaluation.json") for fold in range(K)]
    assert about["iterations"] == sum(one["iterations"] for one in each) == 16 * K
    assert about["config"]["folds"] == K
    assert about["trained_on"].endswith("in 3 networks, each without 1/3 of them")
    assert [row["glimpses"] for row in about["tables"]["test, calibrated"]] == [0, 1, 2, 3]
    assert (folder / "posterior.png").exists()
    assert read_json(folder / "done.json")["iterations"] == 16 * K


def test_finished_training_is_not_done_again_and_another_number_is_refused(task, run, monkeypatch):
    folder, _ = run
    config = QUICK.model_copy(update={"batch": 216, "iterations": 16, "validate_every": 8})
    monkeypatch.setattr(Trainer, "step", lambda self: pytest.fail("trained again"))
    assert len(trained(task, folder, config).members) == K
    with pytest.raises(InputError, match=r"another recipe or other inputs \(posterior.folds = 3, not 2\)"):
        trained(task, folder, config.model_copy(update={"folds": 2}))


def test_interrupted_training_of_folds_goes_on_to_the_same_bits(task, tmp_path, monkeypatch, ctrl_c):
    trained(task, tmp_path / "whole")
    step, networks = Trainer.step, []

    def dies(self):
        if self not in networks:
            networks.append(self)
        if len(networks) == 2 and self.iteration == 4:
            ctrl_c()
        step(self)

    monkeypatch.setattr(Trainer, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        trained(task, tmp_path / "parts")
    monkeypatch.setattr(Trainer, "step", lambda self: (networks.append((self, self.iteration)), step(self))[1])
    networks.clear()
    trained(task, tmp_path / "parts")
    assert networks[0][1] == 5, "the second network goes on from its last state, the first is left alone"
    assert len({id(trainer) for trainer, _ in networks}) == 2
    whole, parts = (load_tensors(tmp_path / name / "posterior.safetensors")[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    for fold in range(K):
        one, two = (read_metrics(tmp_path / name / f"fold-{fold}") for name in ("whole", "parts"))
        assert one == two


def test_saved_networks_answer_as_before(task, tmp_path):
    posterior, path = made(task), tmp_path / "p.safetensors"
    save_posterior(path, posterior, task=task, about={"task_fingerprint": task.fingerprint})
    loaded = load_posterior(path, task=task, precision="float32")
    images, pixels = queries(task)
    assert torch.equal(loaded.log_probabilities(images, pixels), posterior.log_probabilities(images, pixels))
    for one, two in zip(loaded.members, posterior.members, strict=True):
        assert torch.equal(one.inverse_temperature, two.inverse_temperature)
    assert loaded.splits == task.fingerprint
    tensors, metadata = load_tensors(path)
    assert metadata["folds"] == 3
    assert {name[:2] for name in tensors} == {"0.", "1.", "2."}
    tensors.pop("1.head.bias")
    save_tensors(path, tensors, metadata)
    with pytest.raises(InputError, match=r"tensor '1.head.bias' is missing, unknown or misshapen"):
        load_posterior(path)


def test_half_precision_leaves_each_calibration_as_it_is(task, run, tmp_path):
    own = Recipe(name="own", data=CUB, posterior=QUICK).model_dump(mode="json")
    publish(run[0] / "posterior.safetensors", tmp_path / "passed-on.safetensors", fields=own, defaults=own)
    tensors, _ = load_tensors(tmp_path / "passed-on.safetensors")
    for fold in range(K):
        assert tensors[f"{fold}.calibration.inverse_temperature"].dtype == torch.float32
        assert tensors[f"{fold}.head.weight"].dtype == torch.float16
    card = (tmp_path / "passed-on.md").read_text()
    assert "3 cross-fitted networks, each a transformer over glimpse tokens, together of" in card
    assert len(load_posterior(tmp_path / "passed-on.safetensors", task=task).members) == K


def test_answer_is_the_mean_probability_of_the_networks(task):
    posterior = made(task)
    images, pixels = queries(task)
    mean = sum(one.log_probabilities(images, pixels).double().exp() for one in posterior.members) / K
    np.testing.assert_allclose(posterior.log_probabilities(images, pixels).exp(), mean, atol=1e-6)
    ahead = posterior.look_ahead(images, pixels[:, :2], task.grid.pixels)
    for place, location in enumerate(task.grid.pixels):
        where = torch.cat([pixels[:, :2], location.expand(len(images), 1, 2)], 1)
        np.testing.assert_allclose(ahead[:, place], posterior.log_probabilities(images, where), atol=2e-5)
    plain = uncalibrated(posterior, precision="float32")
    expected = made(task, temperatures=(1.0,) * 4).members[0].log_probabilities(images, pixels)
    assert torch.equal(plain.members[0].log_probabilities(images, pixels), expected)


def test_networks_are_no_start(task, tmp_path):
    path = tmp_path / "p.safetensors"
    save_posterior(path, made(task), task=task)
    single = QUICK.model_copy(update={"folds": 1})
    with pytest.raises(InputError, match=r"it has 3 networks; give the file of one, such as fold-0"):
        Trainer(task, config=single.model_copy(update={"start": str(path)}), glimpses=T, seed=0, device=CPU)


def test_start_that_has_seen_the_images_is_refused():
    with pytest.raises(ValidationError, match="start can't be used with folds: it may have seen the images"):
        PosteriorConfig(folds=2, start="other.safetensors")


def test_too_few_images_for_a_batch_leave_nothing_behind(task, tmp_path):
    few = replace(task, splits={**task.splits, "posterior": task.splits["posterior"][:5]}, fingerprint="few")
    with pytest.raises(InputError, match="a batch needs an image for each number of glimpses"):
        trained(few, tmp_path)
    assert not list(tmp_path.rglob("*.json"))


def test_more_networks_than_images_are_refused(task, tmp_path):
    few = replace(task, splits={**task.splits, "posterior": task.splits["posterior"][:5]}, fingerprint="few")
    with pytest.raises(InputError, match=r"--posterior.folds is 6, but only 5 images train .* use at most 5"):
        trained(few, tmp_path, QUICK.model_copy(update={"folds": 6}))
    assert not list(tmp_path.rglob("*.json"))


def test_folder_is_its_own_from_the_first_network_on(task, tmp_path, monkeypatch):
    step = Trainer.step

    def stopped(self):
        if self.iteration == 3:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            trained(task, tmp_path)
    with pytest.raises(InputError, match=r"another recipe or other inputs \(posterior.folds = 3, not 1\)"):
        trained(task, tmp_path, QUICK.model_copy(update={"folds": 1}))
    assert len(trained(task, tmp_path).members) == K


def test_start_of_other_splits_is_remembered(task, tmp_path):
    other = replace(task, fingerprint="other")
    about = {"task_fingerprint": other.fingerprint, "started_from": [fold_task(task, fold=1, folds=4).fingerprint]}
    single = QUICK.model_copy(update={"folds": 1, "iterations": 2})
    save_posterior(tmp_path / "p.safetensors", made(task).members[0], task=task, about=about)
    started = single.model_copy(update={"start": str(tmp_path / "p.safetensors")})
    trained(task, tmp_path / "a", started)
    assert about_posterior(tmp_path / "a" / "posterior.safetensors")["started_from"] == ["other"]
    again = single.model_copy(update={"start": str(tmp_path / "a" / "posterior.safetensors")})
    trained(task, tmp_path / "b", again)
    assert about_posterior(tmp_path / "b" / "posterior.safetensors")["started_from"] == ["other"]
    own = {"task_fingerprint": fold_task(task, fold=2, folds=3).fingerprint}
    save_posterior(tmp_path / "own.safetensors", made(task).members[0], task=task, about=own)
    fine = single.model_copy(update={"start": str(tmp_path / "own.safetensors")})
    assert Trainer(task, config=fine, glimpses=T, seed=0, device=CPU).started_from == []
