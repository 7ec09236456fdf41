import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from nogs.data import DataConfig, load_task
from nogs.data.augment import AugmentConfig
from nogs.glimpse.changes import changed
from nogs.posterior.config import PosteriorConfig
from nogs.recipes import changed as with_fields
from nogs.recipes import recipe
from nogs.runtime import streams
from nogs.runtime.device import one_thread
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_json
from nogs.stages import estimates
from nogs.whole import WholeConfig, train_whole, whole_scores
from nogs.whole import training as stage
from nogs.whole.trainer import Trainer

CONFIG = WholeConfig(iterations=6, batch=16, width=3)
PLAIN = PosteriorConfig(flip=False)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def digits():
    return load_task(DataConfig(kind="digits", image_size=24, glimpse=8, grid_spacing=8, count=60, annotated=4))


def train(task, folder, config=CONFIG, posterior=PLAIN, **more):
    train_whole(task, config=config, posterior=posterior, folder=folder, device="cpu", **more)
    return read_json(folder / "evaluation.json")


def trainer(task, posterior=PLAIN, config=CONFIG):
    return Trainer(task, config=config, posterior=posterior, seed=0, device=CPU, mark="")


def test_training_images_are_mirrored_and_changed_as_the_posterior_says(digits):
    rows, images = torch.arange(40), torch.from_numpy(digits.images)
    assert torch.equal(trainer(digits).shown(rows), images[:40])
    flipped = trainer(digits, PosteriorConfig(flip=True)).shown(rows)
    ways = [[torch.equal(shown, way) for way in (image, image.flip(1))] for shown, image in zip(flipped, images)]
    assert all(any(way) for way in ways)
    assert 5 < sum(way[0] for way in ways) < 35
    augment = AugmentConfig(zoom=0.2, turn=20, move=2, colour=0.1)
    one = trainer(digits, PosteriorConfig(flip=False, augment=augment))
    for iteration in (0, 3):  # anew each time
        one.iteration = iteration
        changes = augment.draw(streams.key(0, "whole-image changes"), 16 * iteration + rows)
        assert torch.equal(one.shown(rows), changed(images, changes, index=rows))
    assert not torch.equal(one.shown(rows), images[:40])


def test_every_training_image_is_seen_once_a_round_and_no_other(digits, monkeypatch):
    one, seen = trainer(digits), []
    monkeypatch.setattr(one, "shown", lambda rows: seen.append(rows.tolist()) or one.images[rows])
    for _ in range(6):
        one.step()
    training = set(digits.rows("train").tolist())
    assert len(training) == 48
    for start in (0, 3):
        assert sorted(row for batch in seen[start : start + 3] for row in batch) == sorted(training)
    assert seen[:3] != seen[3:]


@pytest.fixture
def interrupted(monkeypatch, ctrl_c):
    """Trains until Ctrl-C comes in the fourth step."""

    def run(*arguments):
        def interrupts(self):
            if self.iteration == 3:
                ctrl_c()
            step(self)

        step = Trainer.step
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "step", interrupts)
            with pytest.raises(KeyboardInterrupt):
                train(*arguments)
        assert not (arguments[1] / "done.json").exists()

    return run


@pytest.mark.parametrize("features", ["residual", "fine-tuned", "frozen"])
def test_an_interrupted_training_goes_on_to_the_same_bytes(
    digits, tmp_path, interrupted, features, vgg_file, monkeypatch, capsys
):
    posterior = PLAIN if features == "residual" else vgg_file(tmp_path / "vgg.safetensors")
    config = CONFIG.model_copy(update={"pretrained_rate": 0.0 if features == "frozen" else 0.1})
    interrupted(digits, tmp_path / "stopped", config, posterior)
    assert (tmp_path / "stopped" / "state.safetensors").exists() == (features != "frozen")
    found = [train(digits, tmp_path / name, config, posterior) for name in ("stopped", "whole")]
    assert ("Going on from iteration 4." in capsys.readouterr().err) == (features != "frozen")
    assert found[0]["tests"] == found[1]["tests"]
    for name in ("network.safetensors", "metrics.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "stopped" / "state.safetensors").exists()


def test_a_finished_reference_is_kept_and_one_of_another_recipe_is_refused(digits, tmp_path, monkeypatch):
    train(digits, tmp_path / "whole")
    monkeypatch.setattr(stage, "Trainer", None)
    train(digits, tmp_path / "whole")
    with pytest.raises(InputError, match=r"holds whole-image of another recipe .*\(whole\.width = 3, not 4\)"):
        train(digits, tmp_path / "whole", CONFIG.model_copy(update={"width": 4}))
    with pytest.raises(InputError, match=r"holds whole-image of another recipe"):
        train(digits, tmp_path / "whole", posterior=PosteriorConfig(flip=True))
    train(digits, tmp_path / "whole", posterior=PLAIN.model_copy(update={"width": 64}))  # which it does not share


def slowed(monkeypatch, seconds):
    """Each iteration takes this long by the clock, without actually waiting."""
    clock = [0.0]
    step, features = Trainer.step, Trainer.features

    def slow(work):
        def late(*values):
            clock[0] += seconds
            return work(*values)

        return late

    monkeypatch.setattr(Trainer, "step", slow(step))
    monkeypatch.setattr(Trainer, "features", slow(features))
    for module in ("nogs.whole.trainer", "nogs.runtime.training"):
        monkeypatch.setattr(f"{module}.time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))


def test_the_time_ends_a_training_and_its_step_size_has_fallen_by_then(digits, tmp_path, monkeypatch, capsys):
    rates = []
    monkeypatch.setattr("nogs.whole.trainer.set_rate", lambda optimizer, rate: rates.append(rate))
    slowed(monkeypatch, 1.0)
    found = train(digits, tmp_path, CONFIG.model_copy(update={"iterations": 1_000, "seconds": 5.0}))
    assert (found["iterations"], found["seconds"]) == (5, 5.0)
    assert "The time limit of 5 s ends the training after 5 iterations." in capsys.readouterr().err
    falling = [rate * 50 / (n + 1) for n, rate in enumerate(rates)]  # without the warm-up of 50 iterations
    assert falling == pytest.approx([0.003 * 0.5 * (1 + np.cos(np.pi * n / 5)) for n in range(5)])


def test_the_time_limits_the_images_whose_frozen_features_are_computed(digits, tmp_path, monkeypatch, vgg_file):
    monkeypatch.setattr("nogs.whole.trainer._AT_ONCE", {"cpu": 6})
    slowed(monkeypatch, 1.0)
    posterior = vgg_file(tmp_path / "vgg.safetensors")
    config = WholeConfig(iterations=4, batch=8, pretrained_rate=0, seconds=5.0)
    # 5 chunks of 6 images, after the two of validation and test images
    assert train(digits, tmp_path / "few", config, posterior)["trained_on"] == "30 images of the split 'train'"
    config = config.model_copy(update={"seconds": 0.5})  # a batch at least
    assert train(digits, tmp_path / "least", config, posterior)["trained_on"] == "12 images of the split 'train'"
    config = config.model_copy(update={"seconds": None})
    found = train(digits, tmp_path / "all", config, posterior)
    assert found["trained_on"] == "48 images of the split 'train'"
    assert found["iterations"] == 4


def test_a_file_of_weights_is_known_by_what_it_holds(digits, tmp_path, vgg_file):
    posterior = vgg_file(tmp_path / "vgg.safetensors")
    config = WholeConfig(iterations=1, batch=8, pretrained_rate=0)
    train(digits, tmp_path / "out", config, posterior)
    moved = (tmp_path / "vgg.safetensors").rename(tmp_path / "moved.safetensors")
    with pytest.raises(InputError, match=r"There is no file .*vgg\.safetensors; check --posterior\.weights\."):
        train(digits, tmp_path / "out", config, posterior)
    train(digits, tmp_path / "out", config, posterior.model_copy(update={"weights": str(moved)}))


def test_what_cannot_be_trained_is_one_sentence(digits, tmp_path):
    alone = replace(digits, splits={**digits.splits, "train": ("0",), "annotate": (), "posterior": ("0",)})
    with pytest.raises(InputError, match=r"has one training image; the whole-image reference needs two or more\."):
        train(alone, tmp_path / "alone")
    with pytest.raises(InputError, match=r"not a finite number by iteration \d+; lower --whole\.learning-rate\."):
        train(digits, tmp_path / "wild", CONFIG.model_copy(update={"learning_rate": 1e30}))
    assert not (tmp_path / "wild" / "done.json").exists()


def test_the_estimate_follows_iterations_and_limit(tmp_path):
    fields = {"data.count": 80, "data.annotated": 6, "whole.iterations": 50, "whole.width": 3}
    found = with_fields(recipe("digits"), fields)
    task = load_task(found.data)

    def seconds(**fields):
        changed = with_fields(found, {f"whole.{name}": value for name, value in fields.items()})
        return estimates.whole(changed, task, device=CPU, data=None).seconds

    began = time.monotonic()
    train_whole(task, config=found.whole, posterior=found.posterior, folder=tmp_path, device="cpu")
    taken = time.monotonic() - began
    assert taken / 5 < seconds() < 5 * taken
    assert seconds(iterations=1_000_000, seconds=7) < 8


def test_the_scores_of_a_run_are_those_of_its_reference(tmp_path):
    assert whole_scores(tmp_path, None) is None
    scores = {"accuracy": 0.75, "balanced_accuracy": 0.5, "nll": 0.625}
    write_json(tmp_path / "whole-image" / "evaluation.json", {"tests": {"Smiling": scores}})
    assert whole_scores(tmp_path, "Smiling") == scores
    with pytest.raises(InputError, match=r"evaluation\.json is not the evaluation of a whole-image reference: 'Male'"):
        whole_scores(tmp_path, "Male")
