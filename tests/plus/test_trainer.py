import json

import numpy as np
import pytest
import torch

import worlds
from exact_design import ExactPosterior
from nogs.attention.cohort import Member
from nogs.plus import encoded as encoded_module
from nogs.plus import trainer as trainer_module
from nogs.plus import training as training_module
from nogs.plus.config import PlusConfig
from nogs.plus.encoded import encodes
from nogs.plus.looks import Looks
from nogs.plus.network import TokenNetwork
from nogs.plus.store import load_network
from nogs.plus.training import train
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from nogs.stages.evaluation import evaluate
from nogs.supervision import fixed as fixed_module
from nogs.supervision.fixed import fixed_order
from small_posteriors import SMALL, images_of, saved, untrained


def run(task, posterior, folder, *methods, config=None, glimpses=3, attributes=(None,), seeds=(0,)):
    members = [Member(m, seed=s, attribute=a) for m in methods for s in seeds for a in attributes]
    config = config or PlusConfig(iterations=4, batch=16, candidates=3, validate_every=2)
    return train(
        task, members, posterior=posterior, config=config, how=SMALL, glimpses=glimpses, folder=folder, device="cpu"
    )


def test_fixed_order_is_the_slow_search_in_the_exact_world(world, task):
    exact, rows = ExactPosterior(world), task.rows("validation")
    images, labels = torch.from_numpy(np.array(task.images)), torch.from_numpy(task.labels)[:, None]
    found = fixed_order(exact, images, labels, torch.from_numpy(rows), glimpses=3)
    grid, order = world.grid.pixels.numpy(), []
    for step in range(3):
        values = []
        for place in range(len(grid)):
            where = np.tile(grid[[*order, place]], (len(world.images), 1, 1))
            right = worlds.exact_posteriors(world, world.images, where)[np.arange(len(where)), world.labels]
            values.append(float(-np.log(right) @ world.counts / world.counts.sum()))
        np.testing.assert_allclose(found.losses[0, step].numpy(), values, atol=1e-6)
        order.append(min((place for place in range(len(grid)) if place not in order), key=values.__getitem__))
    assert found.order[0].tolist() == order
    assert tuple(grid[order[0]]) == worlds.A


def test_a_large_grid_is_searched_coarsely_and_then_around_the_best(monkeypatch):
    world = worlds.pointer_world(spacing=1)  # 9 x 9 locations
    task, exact = world.task(), ExactPosterior(world)
    images, labels = torch.from_numpy(np.array(task.images)), torch.from_numpy(task.labels)[:, None]
    rows = torch.from_numpy(task.rows("validation"))
    whole = fixed_order(exact, images, labels, rows, glimpses=1)
    monkeypatch.setattr(fixed_module, "_ALL", 20)
    monkeypatch.setattr(fixed_module, "_COARSE", 3)
    monkeypatch.setattr(fixed_module, "_FEW", len(rows) // 4)
    monkeypatch.setattr(fixed_module, "_BEST", 6)
    tried = []
    found = fixed_order(exact, images, labels, rows, glimpses=2, advance=tried.append)
    assert sum(tried) < 2 * len(task.grid)
    assert found.losses.min(-1).values[0, 0] == pytest.approx(float(whole.losses.min()), abs=1e-6)
    taken = found.losses[0].clone()
    for step, place in enumerate(found.order[0].tolist()):  # the table alone gives the order
        assert int(taken[step].argmin()) == place
        taken[:, place] = torch.inf


def test_glimpses_encoded_once_give_the_same_order(task, monkeypatch):
    posterior = untrained(task)
    images, labels = torch.from_numpy(np.array(task.images)), torch.from_numpy(task.labels)[:, None]
    rows = torch.from_numpy(task.rows("validation"))
    found = fixed_order(posterior, images, labels, rows, glimpses=3)
    monkeypatch.setattr(fixed_module, "ENCODED", 0)
    monkeypatch.setattr(posterior, "among", None)  # not used where the glimpses do not fit in memory
    plain = fixed_order(posterior, images, labels, rows, glimpses=3)
    assert torch.equal(found.order, plain.order)
    torch.testing.assert_close(found.losses, plain.losses)


def test_the_head_learns_the_expected_posterior_entropy(world, task, trained, tmp_path):
    """For a calibrated posterior, the mean cross-entropy after a location is Eq. 3's expected posterior entropy."""
    config = PlusConfig(iterations=300, batch=64, candidates=6, learning_rate=5e-3, validate_every=300)
    (folder,) = run(task, trained, tmp_path, "ps-nogs+", config=config)
    network, about = load_network(folder / "best-accuracy.safetensors")
    assert (about["task"], about["title"]) == (task.name, task.title)
    assert about["iteration"] > 0
    seen, errors = [worlds.A], []
    for image in world.images[::10]:
        shown = image[:4, :4][None]
        exact = worlds.exact_epe(world, shown, np.array(seen))
        row, place = torch.tensor([0]), torch.tensor([[0]])  # A is the grid's first location
        tokens = network.read(torch.from_numpy(image)[None], row, place)
        scores = network.scores(tokens, row, place)[0]
        errors.append((scores - torch.from_numpy(exact))[1:].abs().max().item())
    assert np.mean(errors) < 0.12
    test = json.loads((folder / "evaluation.json").read_text())["best"]["accuracy"]["test"]
    (plain,) = run(task, trained, tmp_path, "fixed")
    fixed = json.loads((plain / "evaluation.json").read_text())["best"]["accuracy"]["test"]
    assert test["nll"] < fixed["nll"] - 0.02


def test_what_does_not_beat_the_fixed_order_is_not_kept(task, tmp_path, monkeypatch):
    posterior = saved(task, tmp_path / "p.safetensors")
    config = PlusConfig(iterations=3, batch=16, candidates=3, validate_every=1)
    validate = trainer_module.Trainer.validate

    def worse(trainer):
        found = validate(trainer)
        return {**found, "validation_nll": found["validation_nll"] + trainer.iteration}

    monkeypatch.setattr(trainer_module.Trainer, "validate", worse)
    (folder,) = run(task, posterior, tmp_path / "run", "ps-nogs+", config=config)
    network, about = load_network(folder / "best-accuracy.safetensors")
    (plain,) = run(task, posterior, tmp_path / "run", "fixed")
    fixed, _ = load_network(plain / "best-accuracy.safetensors")
    assert about["iteration"] == 0
    assert network.looks.head is None
    ((judged, _, _),) = evaluate(
        folder / "best-accuracy.safetensors", task, split="test", trajectories=1, device=torch.device("cpu")
    )
    assert judged["scores"]["warning"] is None  # it is kept on purpose, and no collapsed policy
    for name, value in fixed.state_dict().items():
        assert torch.equal(value, network.state_dict()[name]), name


@pytest.mark.parametrize(("gain", "kept"), [(0.05, False), (0.2, True)])
def test_a_version_that_may_be_better_by_chance_is_not_kept(task, tmp_path, monkeypatch, gain, kept):
    """The images' cross-entropies fall by `gain` on average, with a standard error of 0.05 or less."""
    posterior = saved(task, tmp_path / "p.safetensors")
    validate = trainer_module.Trainer.validate

    def slightly_better(trainer):
        found, count = validate(trainer), len(trainer.losses)
        if not trainer.iteration:
            return found
        change = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)[: count - count % 2]
        change = 0.05 * count**0.5 * torch.cat([change, torch.zeros(count % 2)]) - gain
        trainer.losses.copy_(trainer.fixed + change)
        return {**found, "validation_nll": float(trainer.losses.mean())}

    monkeypatch.setattr(trainer_module.Trainer, "validate", slightly_better)
    (folder,) = run(task, posterior, tmp_path / "run", "ps-nogs+")
    _, about = load_network(folder / "best-accuracy.safetensors")
    assert (about["iteration"] > 0) == kept


@pytest.mark.parametrize("rate", [0, 1e-2])
def test_training_changes_the_core_unless_told_otherwise(task, rate):
    posterior = untrained(task)
    looks = Looks(posterior.network, torch.zeros(1, 3, len(task.grid)))
    temperatures = posterior.inverse_temperature
    network = TokenNetwork(posterior.network, posterior.architecture, looks, inverse_temperature=temperatures)
    before = {name: value.clone() for name, value in network.core.state_dict().items()}
    config = PlusConfig(iterations=3, batch=16, candidates=3, core_rate=rate)
    rows = torch.from_numpy(task.rows("train"))
    how = {"precision": posterior.precision, "mark": "", "training": rows, "validation": rows}
    made = trainer_module.Trainer(task, network, config=config, seed=0, **how)
    made.step()
    same = [torch.equal(value, before[name]) for name, value in network.core.state_dict().items()]
    assert all(same) if rate == 0 else not any(same)
    assert network.looks.table.any() == (rate > 0)  # the table of a posterior that stays is what was measured
    assert network.looks.head.last.weight.any()


@pytest.mark.parametrize("flip", [False, True])
def test_glimpses_encoded_once_train_the_same_network(task, monkeypatch, flip):
    """With a frozen stem; the layers behind it learn."""
    found, reads = [], []
    for once in (True, False):
        posterior = untrained(task)
        network = TokenNetwork.on(posterior, torch.zeros(1, 3, len(task.grid)))
        before = {name: value.clone() for name, value in network.core.state_dict().items()}
        rows = torch.from_numpy(task.rows("train"))
        how = {"precision": posterior.precision, "mark": "", "training": rows, "validation": rows, "flip": flip}
        config = PlusConfig(iterations=3, batch=16, candidates=3, core_rate=1e-2)
        made = trainer_module.Trainer(task, network, config=config, seed=0, frozen_stem=True, **how)
        if once:
            made.encode()
        read = network.read
        monkeypatch.setattr(network, "read", lambda *given, read=read, **how: reads.append(0) or read(*given, **how))
        made.step()
        made.step()
        assert bool(reads) == (not once)
        after = network.core.state_dict()
        kept = [name for name in after if name.startswith(("stem.", "place."))]
        assert all(torch.equal(after[name], before[name]) for name in kept)
        assert not any(torch.equal(after[name], before[name]) for name in after if name not in kept)
        found.append(network.state_dict())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_the_average_of_the_weights_is_validated_and_kept(task):
    posterior = untrained(task)
    network = TokenNetwork.on(posterior, torch.zeros(1, 3, len(task.grid)))
    rows = torch.from_numpy(task.rows("validation"))
    how = {"precision": posterior.precision, "mark": "", "training": rows, "validation": rows}
    config = PlusConfig(iterations=5, batch=16, candidates=3, core_rate=1e-2, average=0.2)
    made = trainer_module.Trainer(task, network, config=config, seed=0, **how)
    name = "core.head.weight"
    expected = network.state_dict()[name].clone()
    for step in range(1, 6):  # the first steps weigh less than the decay says
        made.step()
        expected += (1 - min(step / (step + 10), 0.2)) * (network.state_dict()[name] - expected)
    torch.testing.assert_close(made.kept.state_dict()[name], expected)
    assert not torch.equal(expected, network.state_dict()[name])


def test_glimpses_are_encoded_once_where_that_is_less_work_and_they_fit_in_memory(task, monkeypatch):
    network = TokenNetwork.on(untrained(task), torch.zeros(1, 3, len(task.grid)))
    config = PlusConfig(iterations=10, batch=4, candidates=5)  # 600 glimpses are read
    most = 600 // len(task.grid)
    assert encodes(config, network, most, flip=False)
    assert not encodes(config, network, most + 1, flip=False)
    assert not encodes(config, network, most // 2 + 1, flip=True)
    numbers = most * len(task.grid) * network.tokens * network.width
    monkeypatch.setattr(encoded_module, "ENCODED", numbers)
    assert encodes(config, network, most, flip=False)
    monkeypatch.setattr(encoded_module, "ENCODED", numbers - 1)
    assert not encodes(config, network, most, flip=False)


@pytest.mark.parametrize(
    ("stem", "weights", "rate", "frozen"),
    [
        ("vgg", "imagenet", 0.0, True),
        ("vgg", "imagenet", 0.2, False),
        ("vgg", "none", 0.0, False),
        ("conv", "none", 0.0, False),
    ],
)
def test_features_that_the_recipe_freezes_stay_frozen(task, stem, weights, rate, frozen):
    how = SMALL.model_copy(update={"stem": stem, "stem_layers": 2, "weights": weights, "pretrained_rate": rate})
    architecture = Architecture.of(how, task=task, glimpses=3)
    assert training_module.frozen_stem(NetworkPosterior(architecture.build(), architecture), how) == frozen


def test_a_frozen_posteriors_head_learns_from_images_that_it_has_not_seen(task, tmp_path, monkeypatch):
    posterior = saved(task, tmp_path / "p.safetensors")
    seen = []
    monkeypatch.setattr(training_module, "Trainer", lambda *_, **given: seen.append(given) or 1 / 0)
    for split, frozen in (("train", 0.0), ("posterior", 0.0), ("posterior", 1e-3)):
        monkeypatch.setattr(
            training_module,
            "strangers",
            lambda task, _, split=split: tuple(
                id for id in (*task.splits["validation"], *task.splits["train"]) if id not in task.splits[split]
            ),
        )
        with pytest.raises(ZeroDivisionError):
            run(task, posterior, tmp_path / f"{split}{frozen}", "ps-nogs+", config=PlusConfig(core_rate=frozen))
    validation, annotated = (set(task.rows(name).tolist()) for name in ("validation", "annotate"))
    of_all, of_some, trained_on = [(set(g["training"].tolist()), set(g["validation"].tolist())) for g in seen]
    assert of_all[0] | of_all[1] == validation
    assert not of_all[0] & of_all[1]
    assert of_some == (annotated, validation)
    assert trained_on == (set(task.rows("train").tolist()), validation)


def test_what_all_candidates_share_weighs_a_tenth(task):
    expected, losses = torch.rand(5, 4, 2), torch.rand(5, 4, 2)
    new = torch.ones(5, 4, 1, dtype=torch.bool)
    new[0, 1] = False
    total = 0.0
    for image in range(5):
        for attribute in range(2):
            some = [c for c in range(4) if new[image, c]]
            apart = np.array([float(expected[image, c, attribute] - losses[image, c, attribute]) for c in some])
            total += (((apart - apart.mean()) ** 2).mean() + 0.1 * apart.mean() ** 2) / 10
    assert trainer_module._error(expected, losses, new).item() == pytest.approx(total, rel=1e-5)


def test_a_stopped_training_goes_on_to_the_same_network(task, tmp_path, monkeypatch, ctrl_c):
    posterior = saved(task, tmp_path / "p.safetensors")
    config = PlusConfig(
        iterations=6, batch=16, candidates=3, learning_rate=1e-2, core_rate=1e-2, validate_every=2, average=0.9
    )
    (whole,) = run(task, posterior, tmp_path / "whole", "ps-nogs+", config=config)
    step = trainer_module.Trainer.step

    def stopped(trainer):
        if trainer.iteration == 4:
            ctrl_c()
        step(trainer)

    monkeypatch.setattr(trainer_module.Trainer, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(task, posterior, tmp_path / "parts", "ps-nogs+", config=config)
    assert list((tmp_path / "parts").rglob("state.safetensors"))
    monkeypatch.setattr(trainer_module.Trainer, "step", step)
    (parts,) = run(task, posterior, tmp_path / "parts", "ps-nogs+", config=config)
    for name in ("best-accuracy.safetensors", "evaluation.json"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert not (parts / "state.safetensors").exists()


def test_attributes_share_one_network(world, tmp_path):
    task = world.task(kind="bernoulli")
    posterior = saved(task, tmp_path / "p.safetensors")
    folders = run(task, posterior, tmp_path / "run", "ps-nogs+", "random", attributes=("red", "blue"))
    for folder in folders:
        network, about = load_network(folder / "best-accuracy.safetensors")
        assert about["attribute"] == folder.parent.name
        assert network.variables == (0, 2)
        assert network.variables[network.attribute] == task.attribute(about["attribute"])
        said = json.loads((folder / "evaluation.json").read_text())
        assert said["best"]["accuracy"]["test"]["accuracy"] == about["test"]["accuracy"]
        assert (folder / "best-accuracy.safetensors").stat().st_size < 10_000
    shared = tmp_path / "run" / "ps-nogs+" / "seed-0.safetensors"
    network, about = load_network(shared, attribute="blue")
    assert about["attribute"] == "blue"
    with pytest.raises(InputError, match="name one with --attribute or `attribute`: red, blue"):
        load_network(shared)
    shared.unlink()
    with pytest.raises(InputError, match="which is not there; keep both"):
        load_network(folders[0] / "best-accuracy.safetensors")


def test_attributes_of_a_later_command_leave_the_earlier_ones_network(world, tmp_path):
    task = world.task(kind="bernoulli")
    posterior = saved(task, tmp_path / "p.safetensors")
    (red,) = run(task, posterior, tmp_path / "run", "fixed", attributes=("red",))
    before, _ = load_network(red / "best-accuracy.safetensors")
    folders = run(task, posterior, tmp_path / "run", "fixed", attributes=("red", "green", "blue"))
    for folder in folders:
        network, about = load_network(folder / "best-accuracy.safetensors")
        assert about["attribute"] == folder.parent.name
        assert network.variables[network.attribute] == task.attribute(about["attribute"])
    after, _ = load_network(red / "best-accuracy.safetensors")
    assert torch.equal(before.looks.table, after.looks.table)


def test_random_locations_are_uniform_and_centre_out_starts_in_the_centre(task, tmp_path):
    posterior = saved(task, tmp_path / "p.safetensors")
    random, centre = run(task, posterior, tmp_path / "run", "random", "centre-out")
    network, _ = load_network(random / "best-accuracy.safetensors")
    assert network.policy == "sample"
    logits = network.location_logits(network.start(1))[0, 0]
    assert torch.equal(logits, logits[:1].expand_as(logits))
    places = np.load(random / "locations.npy")
    assert places.shape[1] == 5
    _, counts = np.unique(places[:, :, 0].reshape(-1, 2), axis=0, return_counts=True)
    expected = places[:, :, 0].size / 2 / len(task.grid)
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()
    assert (np.load(centre / "locations.npy")[:, 0, 0] == worlds.P).all()


def test_temperatures_fit_where_the_network_looks(task, tmp_path):
    posterior = saved(task, tmp_path / "p.safetensors")
    (folder,) = run(task, posterior, tmp_path / "run", "fixed")
    network, _ = load_network(folder / "best-accuracy.safetensors")
    rows = task.rows("validation")
    images, truth = images_of(task, rows), torch.from_numpy(task.labels[rows])
    index = torch.arange(len(rows))
    tokens = network.read(images, index, network.look(images, index, torch.zeros_like(index))[1])
    logits = network.core.classify(network.states(tokens))
    factors = torch.linspace(0.05, 3, 600)
    losses = [torch.nn.functional.cross_entropy(logits * factor, truth).item() for factor in factors]
    assert network.inverse_temperature[3, 0].item() == pytest.approx(factors[int(np.argmin(losses))].item(), abs=0.02)


@pytest.mark.parametrize("method", ["fixed", "random"])
def test_one_temperature_serves_all_attributes_along_their_own_looks(world, tmp_path, method):
    task = world.task(kind="bernoulli")
    posterior = saved(task, tmp_path / "p.safetensors", seed=3)
    folders = run(task, posterior, tmp_path / "run", method, attributes=("red", "blue"))
    network, _ = load_network(folders[0] / "best-accuracy.safetensors")
    rows = task.rows("validation")
    images, factors = images_of(task, rows), np.linspace(0.05, 3, 300)
    index, losses = torch.arange(len(rows)), np.zeros((3, len(factors)))
    counter = torch.from_numpy(rows)[:, None] * 3 + torch.arange(3)
    drawn = streams.uniform(streams.key(0, "plus calibration"), counter) if method == "random" else None
    for n, name in enumerate(("red", "blue")):
        _, locations, _ = network.look(images, index, torch.full_like(index, n), uniforms=drawn)
        sign = 2 * task.labels[rows, task.attribute(name)].astype(float) - 1
        for step in range(3):
            tokens = network.read(images, index, locations[:, : step + 1])
            logits = network.core.classify(network.states(tokens)).detach()[:, task.attribute(name)].numpy()
            losses[step] += np.logaddexp(0, -sign * logits * factors[:, None]).mean(1)
    for step in range(3):
        found = network.inverse_temperature[step + 1].tolist()
        assert found == pytest.approx([factors[losses[step].argmin()]] * 2, abs=0.02)


@pytest.mark.parametrize("kind", ["cnn", "glimpses", "plain"])
def test_a_posterior_that_can_not_serve_is_refused(task, tmp_path, kind):
    posterior = saved(task, tmp_path / "p.safetensors")
    if kind == "plain":
        with pytest.raises(InputError, match="is a posterior, which does not say where to look"):
            load_network(posterior)
    elif kind == "glimpses":
        with pytest.raises(InputError, match="up to 3 glimpses, not 4"):
            run(task, posterior, tmp_path / "run", "fixed", glimpses=4)
    else:
        from nogs.plus.store import _core

        with pytest.raises(InputError, match="a CNN, which can't look glimpse by glimpse"):
            _core("p", type("Posterior", (), {"network": torch.nn.Linear(1, 1)}))
