import functools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import worlds
from nogs.data.augment import AugmentConfig
from nogs.glimpse import Grid
from nogs.glimpse.changes import changed
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import whole_task
from nogs.posterior.labels import Head
from nogs.posterior.queries import (
    central_pixels,
    fixed_pixels,
    observed_first,
    random_pixels,
    strata,
    with_overlaps,
)
from nogs.posterior.schedule import learning_rate, make_optimizer
from nogs.posterior.store import load_posterior, trained_elsewhere
from nogs.posterior.training import Trainer, train_posterior
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.metrics import read_metrics
from nogs.runtime.tensors import load_tensors, save_tensors

CPU = torch.device("cpu")
T = 3
QUICK = PosteriorConfig(width=16, layers=1, heads=2, token=4, batch=32, iterations=8, validate_every=2)
TOKENS = PosteriorConfig(
    kind="tokens",
    width=48,
    layers=2,
    heads=4,
    token=4,
    learning_rate=3e-3,
    batch=256,
    iterations=500,
    schedule="cosine",
    warmup=20,
    validate_every=250,
    flip=False,
    locations="grid",
)
CNN = TOKENS.model_copy(
    update={"kind": "cnn", "backbone": "shufflenet_v2_x0_5", "learning_rate": 3e-3, "batch": 96, "iterations": 450}
)


def trained(task, config, folder, **options):
    return train_posterior(task, config=config, glimpses=T, folder=folder, device="cpu", **options)


def gap(posterior, world):
    """KL divergence of the posterior from the exact one in nats, averaged over the world and t = 0..T."""
    draws = 4
    images = np.tile(world.images, (draws, 1, 1, 1))
    weights = np.tile(world.counts / world.counts.sum() / draws, draws)
    pixels = fixed_pixels(
        len(images), glimpses=T, grid=world.grid, locations="grid", seed=5, purpose="judge", device=CPU
    )
    total = 0.0
    for t in range(T + 1):
        observed = observed_first(torch.full((len(images),), t), T)
        answers = posterior.log_probabilities(torch.from_numpy(images), pixels, observed=observed)
        exact = worlds.exact_posteriors(world, images, pixels.numpy(), observed.numpy())
        found = answers[:, 0].double().numpy()
        if posterior.space.kind == "bernoulli":
            found = answers[..., 1].double().numpy()
            other = answers[..., 0].double().numpy()
            divergence = _relative(exact, found) + _relative(1 - exact, other)
        else:
            divergence = _relative(exact, found)
        total += divergence.sum(1) @ weights
    return total / (T + 1)


def _relative(p, log_q):
    return np.where(p > 0, p * (np.log(np.where(p > 0, p, 1)) - log_q), 0)


@pytest.fixture(scope="module")
def folder_of(task, tmp_path_factory):
    """The folder of a trained posterior of a kind, trained once on first use."""

    @functools.cache
    def made(kind):
        torch.set_num_threads(1)
        folder = tmp_path_factory.mktemp(kind)
        trained(task, TOKENS if kind == "tokens" else CNN, folder)
        return folder

    return made


@pytest.mark.parametrize("kind", ["tokens", "cnn"])
def test_posterior_trained_for_seconds_is_the_exact_one(world, folder_of, kind):
    posterior = load_posterior(folder_of(kind) / "posterior.safetensors")
    assert gap(posterior, world) < 0.02
    images = torch.from_numpy(world.images)
    pixels = torch.tensor([worlds.P, worlds.A, worlds.H]).expand(len(images), -1, -1)
    answer = posterior.log_probabilities(images, pixels)
    for other in (pixels[:, [2, 1, 0]], pixels[:, [0, 1, 2, 1, 0]]):
        torch.testing.assert_close(posterior.log_probabilities(images, other), answer, rtol=1e-4, atol=1e-4)


def test_attributes_are_learned_as_well_as_classes(world, tmp_path):
    config = TOKENS.model_copy(update={"iterations": 400})
    assert gap(trained(world.task(kind="bernoulli"), config, tmp_path), world) < 0.06  # three variables


def test_teachers_answers_alone_teach_the_posterior(world, task, folder_of, tmp_path):
    teacher = folder_of("tokens") / "posterior.safetensors"
    fields = {"iterations": 300, "teacher": str(teacher), "teacher_weight": 1.0, "temperature": "none"}
    student = trained(task, TOKENS.model_copy(update=fields), tmp_path)
    assert gap(student, world) < gap(load_posterior(teacher), world) + 0.02


def test_same_training_gives_the_same_bytes_however_long_it_takes(task, tmp_path, monkeypatch):
    trained(task, QUICK, tmp_path / "quick")
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self: (time.sleep(0.05), step(self)))
    trained(task, QUICK, tmp_path / "slow")
    quick, slow = (tmp_path / name / "posterior.safetensors" for name in ("quick", "slow"))
    assert quick.read_bytes() == slow.read_bytes()
    times = [read_json(path.with_name("done.json"))["training_seconds"] for path in (quick, slow)]
    assert times[1] >= times[0] + 0.2


@pytest.mark.parametrize(("optimizer", "average"), [("adam", 0.0), ("muon", 0.9)])
def test_interrupted_training_goes_on_to_the_same_bits(task, tmp_path, monkeypatch, ctrl_c, optimizer, average):
    fields = {"dropout": 0.2, "weight_decay": 0.1, "clip": 1.0, "optimizer": optimizer, "average": average}
    config = QUICK.model_copy(update={**fields, "smoothing": average / 9, "spread": 0.2 if average else None})
    trained(task, config, tmp_path / "whole")
    step = Trainer.step

    def dies(self):
        if self.iteration == 4:
            ctrl_c()
        step(self)

    monkeypatch.setattr(Trainer, "step", dies)
    with pytest.raises(KeyboardInterrupt):
        trained(task, config, tmp_path / "parts")
    assert list((tmp_path / "parts").rglob("state.safetensors"))
    monkeypatch.setattr(Trainer, "step", step)
    trained(task, config, tmp_path / "parts")
    whole, parts = (load_tensors(tmp_path / name / "posterior.safetensors")[0] for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert read_metrics(tmp_path / "whole") == read_metrics(tmp_path / "parts")
    assert not (tmp_path / "parts" / "state.safetensors").exists()


@pytest.mark.parametrize("damage", ["a counter", "a tensor", "another shape", "metrics"])
def test_damaged_state_is_refused_in_one_sentence(task, tmp_path, monkeypatch, ctrl_c, damage):
    step = Trainer.step

    def dies(self):
        if self.iteration == 4:
            ctrl_c()
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", dies)
        with pytest.raises(KeyboardInterrupt):
            trained(task, QUICK, tmp_path)
    path = tmp_path / "state.safetensors"
    tensors, header = load_tensors(path)
    if damage == "a counter":
        del header["counters"]["iteration"]
    elif damage == "a tensor":
        del tensors["best.head.bias"]
    elif damage == "another shape":
        tensors["best.head.bias"] = torch.zeros(7)
    else:
        lines = (tmp_path / "metrics.jsonl").read_text()
        path, half = tmp_path / "metrics.jsonl", lines[: len(lines) // 2]
        path.write_text(half)
    if damage != "metrics":
        save_tensors(path, tensors, header)
    with pytest.raises(InputError, match=f"{path.name} (is not the state|does not fit its own training|has changed)"):
        trained(task, QUICK, tmp_path)


def test_finished_training_is_not_done_again(task, tmp_path, monkeypatch):
    first = trained(task, QUICK, tmp_path)
    monkeypatch.setattr(Trainer, "step", lambda self: pytest.fail("trained again"))
    second = trained(task, QUICK, tmp_path)
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    with pytest.raises(InputError, match="another recipe or other inputs"):
        trained(task, QUICK.model_copy(update={"batch": 16}), tmp_path)


def test_annotated_image_in_training_is_refused(task):
    stolen = task.splits["annotate"][3]
    # a Task refuses this itself; here one that was tampered with afterwards
    broken = replace(task)
    object.__setattr__(broken, "splits", {**task.splits, "posterior": (*task.splits["posterior"], stolen)})
    with pytest.raises(InputError, match=f"Image '{stolen}' .* in the split 'annotate' and would train the posterior"):
        Trainer(broken, config=QUICK, glimpses=T, seed=0, device=CPU)


def test_only_images_of_the_posteriors_split_are_read_in_training(task):
    trainer = Trainer(task, config=QUICK.model_copy(update={"batch": 100}), glimpses=T, seed=0, device=CPU)
    read, seen = trainer.network.read, []
    trainer.network.read = lambda images, pixels, index, *rest: (
        seen.append(index),
        read(images, pixels, index, *rest),
    )[1]
    for _ in range(2 * trainer.per_epoch):
        trainer.step()
    rows = torch.cat(seen)
    assert set(rows.tolist()) <= set(task.rows("posterior").tolist())
    epoch = rows[: trainer.per_epoch * trainer.batch]
    assert len(set(epoch.tolist())) == len(epoch)  # no image twice in an epoch


def test_task_without_images_for_the_posterior_is_refused(task):
    empty = replace(task, splits={**task.splits, "posterior": ()})
    with pytest.raises(InputError, match="no images for the posterior"):
        Trainer(empty, config=QUICK, glimpses=T, seed=0, device=CPU)


def test_loss_that_is_not_a_number_stops_with_a_sentence_and_keeps_the_best(task, tmp_path, monkeypatch):
    step = Trainer.step

    def explodes(self):
        step(self)
        if self.iteration == 5:
            self.network.head.weight.data.fill_(math.nan)

    monkeypatch.setattr(Trainer, "step", explodes)
    with pytest.raises(InputError, match=r"not a finite number by iteration 6; the best network before that is kept"):
        trained(task, QUICK, tmp_path)
    kept = load_posterior(tmp_path / "posterior.safetensors", task=task)
    assert all(torch.isfinite(value).all() for value in kept.network.state_dict().values())
    assert read_json(tmp_path / "evaluation.json")["best_iteration"] <= 4


def test_time_that_is_over_ends_the_training_early(task, tmp_path):
    config = QUICK.model_copy(update={"iterations": 10_000, "seconds": 0.5, "validate_every": 1000})
    trained(task, config, tmp_path)
    found = read_json(tmp_path / "evaluation.json")
    assert 0 < found["iterations"] < 10_000
    assert found["best_iteration"] == found["iterations"]
    assert read_json(tmp_path / "done.json")["iterations"] == found["iterations"]


def test_batch_has_every_number_of_glimpses_alike():
    assert strata(64, 5) == ((10, 0), (11, 1), (11, 2), (10, 3), (11, 4), (11, 5))
    assert strata(12, 3) == ((3, 0), (3, 1), (3, 2), (3, 3))


def test_every_number_of_glimpses_weighs_the_same(task):
    trainer = Trainer(task, config=QUICK.model_copy(update={"batch": 30}), glimpses=T, seed=0, device=CPU)
    by_t = [part.sum().item() for part in trainer.row_weights.split([count for count, _ in trainer.groups])]
    assert by_t == pytest.approx([1 / 4] * 4)


def test_training_may_see_more_glimpses_than_the_recipe(task):
    config = QUICK.model_copy(update={"train_glimpses": 6, "batch": 30})
    trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
    trainer.step()
    assert [t for _, t in trainer.groups] == [0, 1, 2, 3, 4, 5, 6]
    by_t = trainer.validate()["validation_cross_entropy_by_glimpses"]
    assert len(by_t) == T + 1


def test_batch_smaller_than_the_numbers_of_glimpses_is_refused(task):
    with pytest.raises(InputError, match=r"posterior.batch is 3 .* use at least 4"):
        Trainer(task, config=QUICK.model_copy(update={"batch": 3}), glimpses=T, seed=0, device=CPU)


@pytest.mark.parametrize("locations", ["anywhere", "grid"])
def test_locations_are_uniform_over_what_was_asked(world, locations):
    grid = world.grid if locations == "grid" else worlds.pointer_world(spacing=1).grid
    drawn = random_pixels(streams.key(0, "x"), torch.arange(40_000), grid=world.grid, locations=locations)
    counts = torch.bincount(grid.index(drawn), minlength=len(grid)).double()
    expected = 40_000 / len(grid)
    assert ((counts - expected).abs() < 5 * math.sqrt(expected)).all()


@pytest.mark.parametrize("locations", ["anywhere", "grid"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("grid", [Grid.celeba_hq(), Grid.cub()])
def test_a_share_of_the_locations_overlaps_an_earlier_one(grid, locations, share):
    key, counter = streams.key(0, "x"), torch.arange(6_000).reshape(2_000, 3)
    drawn = random_pixels(key, counter, grid=grid, locations=locations)
    found = with_overlaps(drawn, share, key=key, counter=counter, grid=grid, locations=locations)
    torch.testing.assert_close(found[:, 0], drawn[:, 0])
    moved = (found != drawn).any(-1)[:, 1:]
    assert moved.double().mean() == pytest.approx(share, abs=0.05)
    near = torch.zeros_like(moved)
    for t in (1, 2):
        gaps = (found[:, :t] - found[:, t, None]).abs()
        near[:, t - 1] = ((gaps < grid.glimpse).all(-1) & (gaps > 0).any(-1)).any(1)
    assert near[moved].all()
    assert found.min() >= 0
    assert found[..., 0].max() <= grid.height - grid.glimpse
    if locations == "grid":
        grid.index(found)  # refuses what is off the grid
    if share == 1:  # either earlier one may be the one that the third overlaps, and not always both
        both = ((found[:, :2] - found[:, 2, None]).abs() < grid.glimpse).all(-1)
        assert (both.double().mean(0) > 0.5).all()
        assert not both.all()


def test_locations_that_can_not_overlap_stay_where_they_are():
    grid = Grid.spaced(image=64, glimpse=16, spacing=16)
    counter = torch.arange(600).reshape(200, 3)
    drawn = random_pixels(1, counter, grid=grid, locations="grid")
    assert torch.equal(with_overlaps(drawn, 1.0, key=1, counter=counter, grid=grid, locations="grid"), drawn)


def test_overlaps_are_trained_on_where_asked_for(task):
    runs = []
    for overlapping in (0.0, 0.0, 0.5):
        config = QUICK.model_copy(update={"overlapping": overlapping})
        trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
        trainer.step()
        runs.append(torch.cat([value.flatten() for value in trainer.network.parameters()]))
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=0)
    assert not torch.equal(runs[0], runs[2])


def test_learning_rate_warms_up_and_falls_as_a_cosine():
    config = QUICK.model_copy(
        update={"learning_rate": 1.0, "warmup": 10, "iterations": 110, "schedule": "cosine", "seconds": 1.0}
    )
    assert learning_rate(config, 0) == pytest.approx(0.1)
    assert learning_rate(config, 9) == pytest.approx(1)
    assert learning_rate(config, 60) == pytest.approx(0.5)
    assert learning_rate(config, 109) == pytest.approx(0, abs=1e-3)
    assert learning_rate(config.model_copy(update={"schedule": "constant"}), 100) == 1


def test_optimizer_of_the_defaults_is_adam():
    one, other = (torch.nn.Linear(3, 2) for _ in range(2))
    other.load_state_dict(one.state_dict())
    config = PosteriorConfig(learning_rate=0.01)
    ours = make_optimizer(dict(one.named_parameters()), config=config, loaded=set())
    adam = torch.optim.Adam(other.parameters(), lr=0.01)
    for _ in range(5):
        x = torch.randn(4, 3)
        for layer, optimizer in ((one, ours), (other, adam)):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(one.weight, other.weight)


def test_muon_moves_the_layers_matrices_as_torchs_own_and_the_rest_as_adam():
    torch.manual_seed(0)
    named = {
        "blocks.0.out.weight": torch.randn(6, 4),
        "blocks.0.out.bias": torch.randn(6),
        "head.weight": torch.randn(3, 4),
    }
    ours, theirs = ({name: torch.nn.Parameter(value.clone()) for name, value in named.items()} for _ in range(2))
    config = PosteriorConfig(learning_rate=0.01, weight_decay=0.1, optimizer="muon")
    optimizer = make_optimizer(ours, config=config, loaded=set())
    matrix, bias, head = theirs.values()
    muon = torch.optim.Muon([matrix], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(
        [{"params": [bias], "weight_decay": 0.0}, {"params": [head], "weight_decay": 0.1}], lr=0.01
    )
    for _ in range(4):
        for one, other in zip(ours.values(), theirs.values()):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for each in (optimizer, muon, adam):
            each.step()
    torch.testing.assert_close(ours["blocks.0.out.weight"], matrix, atol=2e-3, rtol=0)  # theirs works in bfloat16
    torch.testing.assert_close([ours["blocks.0.out.bias"], ours["head.weight"]], [bias, head])


def test_muon_takes_queries_keys_and_values_for_three_matrices():
    parts = [torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(3)]
    whole = torch.nn.Parameter(torch.zeros(12, 4))
    config = PosteriorConfig(learning_rate=0.01, optimizer="muon")
    optimizers = [
        make_optimizer({"blocks.0.qkv.weight": whole}, config=config, loaded=set()),
        make_optimizer({f"blocks.{n}.out.weight": part for n, part in enumerate(parts)}, config=config, loaded=set()),
    ]
    whole.grad = torch.randn(12, 4)
    for part, grad in zip(parts, whole.grad.clone().chunk(3)):
        part.grad = grad
    for optimizer in optimizers:
        optimizer.step()
    torch.testing.assert_close(whole, torch.cat(parts))
    turned = [part.detach() / (0.01 * 0.2 * 4**0.5) for part in parts]
    assert all(0.6 < value < 1.3 for part in turned for value in torch.linalg.svdvals(part))


def test_training_can_start_from_another_posterior(task, tmp_path):
    trained(task, QUICK, tmp_path)
    source = str(tmp_path / "posterior.safetensors")
    trainer = Trainer(task, config=QUICK.model_copy(update={"start": source}), glimpses=T, seed=1, device=CPU)
    for name, value in load_posterior(source).network.state_dict().items():
        assert torch.equal(trainer.network.state_dict()[name], value)
    wider = QUICK.model_copy(update={"start": source, "width": 96})
    with pytest.raises(InputError, match=r"its width is 16, not 96; set the same sizes"):
        Trainer(task, config=wider, glimpses=T, seed=1, device=CPU)


def test_loaded_weights_move_slowly_or_not_at_all():
    layer = torch.nn.Linear(3, 2)
    named = dict(layer.named_parameters())
    groups = make_optimizer(named, config=PosteriorConfig(pretrained_rate=0.1), loaded={"weight"}).param_groups
    assert {group["factor"]: group["params"][0].shape for group in groups} == {0.1: (2, 3), 1.0: (2,)}
    make_optimizer(named, config=PosteriorConfig(pretrained_rate=0), loaded={"weight"})
    assert not layer.weight.requires_grad
    assert layer.bias.requires_grad


def test_weight_file_that_is_not_there_is_named(task, tmp_path):
    config = QUICK.model_copy(update={"kind": "cnn", "weights": str(tmp_path / "none.safetensors")})
    with pytest.raises(InputError, match=r"There is no file .*none\.safetensors; check --posterior.weights"):
        trained(task, config, tmp_path)


def test_training_in_bfloat16_uses_the_weights_as_they_are_now(task):
    config = QUICK.model_copy(update={"precision": "bfloat16", "learning_rate": 0.1})
    trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
    pixels = fixed_pixels(4, glimpses=T, grid=task.grid, locations="grid", seed=0, purpose="stale", device=CPU)
    images, observed = torch.from_numpy(task.images[:4].copy()), torch.ones(4, T, dtype=torch.bool)
    with trainer.precision.active():  # one context around many iterations, as in a training
        for _ in range(3):
            trainer.step()
        seen = trainer.network.read(images, pixels, torch.arange(4))
        found = trainer.network(seen, pixels, observed)
    fresh = trainer.architecture.build()
    fresh.load_state_dict(trainer.network.state_dict())
    with trainer.precision.active():
        assert torch.equal(found, fresh(seen, pixels, observed))


def test_teacher_is_asked_about_each_query_with_its_own_glimpses(task, folder_of):
    config = QUICK.model_copy(update={"teacher": str(folder_of("tokens") / "posterior.safetensors"), "flip": False})
    trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
    rows = trainer.training[: trainer.batch]
    pixels = fixed_pixels(len(rows), glimpses=T, grid=task.grid, locations="grid", seed=0, purpose="ask", device=CPU)
    about = {"index": rows, "observed": trainer.observed}
    found = trainer.teacher.answers(trainer.images, pixels, groups=trainer.groups, **about)
    [teacher] = trainer.teacher.members
    at_once = teacher.log_probabilities(trainer.images, pixels, **about)
    assert torch.allclose(found, at_once, atol=1e-5)


@pytest.mark.parametrize("kind", ["tokens", "cnn"])
def test_network_and_teacher_see_the_same_changed_images(task, folder_of, kind):
    source = str(folder_of(kind) / "posterior.safetensors")
    fields = {"teacher": source, "augment": AugmentConfig(move=2, turn=30, colour=0.2)}
    trainer = Trainer(task, config=QUICK.model_copy(update=fields), glimpses=T, seed=0, device=CPU)
    rows, drawn = trainer.training[: trainer.batch], torch.arange(trainer.batch)
    changes, flip = trainer.config.augment.draw(3, drawn), drawn % 2 == 0
    pixels = fixed_pixels(len(rows), glimpses=T, grid=task.grid, locations="grid", seed=0, purpose="ask", device=CPU)
    pictures = changed(trainer.images, changes, index=rows, flip=flip)
    assert not torch.equal(pictures, trainer.images[rows])
    found = trainer.teacher.answers(
        trainer.images,
        pixels,
        index=rows,
        observed=trainer.observed,
        groups=trainer.groups,
        flip=flip,
        changes=changes,
    )
    [teacher] = trainer.teacher.members
    expected = teacher.log_probabilities(pictures, pixels, observed=trainer.observed)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    for network in (trainer.network, teacher.network):
        seen = network.read(trainer.images, pixels, rows, flip, changes)
        assert torch.equal(seen, network.read(pictures, pixels, drawn))


def test_changed_images_teach_otherwise_and_repeat(task):
    losses = []
    for move in (0, 3, 3):
        config = QUICK.model_copy(update={"augment": AugmentConfig(move=move)})
        trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
        for _ in range(3):
            trainer.step()
        losses.append(trainer.total.item())
    assert losses[1] == losses[2] != losses[0]


def test_average_of_the_weights_is_what_is_validated_and_kept(task, tmp_path):
    config = QUICK.model_copy(update={"average": 0.6, "iterations": 40, "validate_every": 40})
    trainer = Trainer(task, config=config, glimpses=T, seed=0, device=CPU)
    expected = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    trainer.network.train()
    for done in range(40):
        trainer.step()
        decay = min(0.6, done / (done + 10))
        for name, value in trainer.network.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value
    assert not torch.allclose(trainer.network.head.weight, expected["head.weight"], rtol=0, atol=1e-5)
    torch.testing.assert_close(dict(trainer.posterior().network.state_dict()), expected)
    found = trained(task, config, tmp_path).network.state_dict()
    torch.testing.assert_close(dict(found), expected)


def test_averaged_weights_are_validated_at_their_best_temperature(task):
    trainer = Trainer(task, config=QUICK.model_copy(update={"average": 0.5}), glimpses=T, seed=0, device=CPU)
    with torch.no_grad():
        trainer.average.head.weight *= 20
    by_t = torch.tensor(trainer.validate()["validation_cross_entropy_by_glimpses"])
    judge, posterior = trainer.validation, trainer.posterior()
    truth, count = trainer.labels[judge.rows][:, 0], torch.arange(T + 1).repeat_interleave(len(judge.rows))
    where, rows = judge.pixels.repeat(T + 1, 1, 1), judge.rows.repeat(T + 1)
    logits = posterior.logits(trainer.images, where, index=rows, observed=observed_first(count, T))

    def loss(factor):
        each = torch.nn.functional.cross_entropy(factor * logits, truth.repeat(T + 1), reduction="none")
        return each.reshape(T + 1, -1).mean(1)

    best = torch.stack([loss(factor) for factor in torch.logspace(-1.3, 1.3, 200)]).amin(0)
    torch.testing.assert_close(by_t, best, rtol=0, atol=2e-3)
    assert by_t.mean() < loss(1.0).mean() - 0.1


@pytest.mark.parametrize("kind", ["categorical", "bernoulli"])
def test_smoothed_labels_are_learned_as_torch_does(world, kind):
    head = Head.of(world.task(kind=kind))
    torch.manual_seed(0)
    logits = torch.randn(5, 3)
    if kind == "categorical":
        labels = torch.tensor([0, 2, 1, 1, 0])
        expected = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="none")
        labels = labels[:, None]
    else:
        labels = torch.randint(2, (5, 3))
        soft = 0.9 * labels + 0.05
        expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, soft, reduction="none").mean(1)
    torch.testing.assert_close(head.losses(logits, labels, None, smoothing=0.1), expected)


def test_smoothing_and_spread_change_the_training(task):
    losses = set()
    for fields in ({}, {"smoothing": 0.2}, {"spread": 0.2}):
        trainer = Trainer(task, config=QUICK.model_copy(update=fields), glimpses=T, seed=0, device=CPU)
        trainer.step()
        losses.add(trainer.total.item())
    assert len(losses) == 3


def test_central_locations_are_gaussian_around_the_centre():
    grid = Grid.cub()
    drawn = central_pixels(streams.key(0, "x"), torch.arange(40_000), grid=grid, spread=0.1).double()
    assert drawn.mean(0).tolist() == pytest.approx([48, 48], abs=0.3)
    assert drawn.std(0).tolist() == pytest.approx([12.8, 12.8], abs=0.2)
    assert torch.corrcoef(drawn.T)[0, 1].abs() < 0.02
    within = ((drawn[:, 0] - 48).abs() <= 12.5).double().mean()
    assert within == pytest.approx(0.671, abs=0.02)
    wide = central_pixels(streams.key(0, "x"), torch.arange(40_000), grid=grid, spread=5.0)
    assert (wide.amin(0).tolist(), wide.amax(0).tolist()) == ([0, 0], [96, 96])


def test_first_layers_of_a_loaded_stem_keep_their_weights(task, tmp_path):
    from torchvision.models import vgg

    state = vgg.make_layers(vgg.cfgs["D"])[:7].state_dict()
    weights = {f"features.{name}": value.clone() for name, value in state.items()}
    save_tensors(tmp_path / "vgg.safetensors", weights)
    fields = {"stem": "vgg", "stem_layers": 3, "frozen": 2, "weights": str(tmp_path / "vgg.safetensors"), "batch": 4}
    trainer = Trainer(task, config=QUICK.model_copy(update=fields), glimpses=T, seed=0, device=CPU)
    trainer.step()
    now = trainer.network.stem.features.state_dict()
    moved = {name for name, value in state.items() if not torch.equal(now[name], value)}
    assert moved == {"5.weight", "5.bias"}


def test_all_training_images_can_train_it_and_it_then_fits_no_annotation(task, tmp_path):
    whole = whole_task(task)
    config = QUICK.model_copy(update={"batch": 100, "split": "train", "iterations": 2})
    trainer = Trainer(whole, config=config, glimpses=T, seed=0, device=CPU)
    assert set(trainer.training.tolist()) == set(task.rows("train").tolist()) > set(task.rows("posterior").tolist())
    trained(task, config, tmp_path)
    assert "images of the split 'train'" in read_json(tmp_path / "evaluation.json")["trained_on"]
    assert trained_elsewhere(tmp_path / "posterior.safetensors", task) == [whole.fingerprint]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"spread": 0.2, "locations": "grid"}, "locations must be anywhere"),
        ({"split": "train", "folds": 2}, "can't be used with folds"),
    ],
)
def test_fields_that_exclude_each_other_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        PosteriorConfig(**fields)
