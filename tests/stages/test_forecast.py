import pytest
import torch

import miniature
from nogs.data.folder import survey
from nogs.recipes import changed, recipe
from nogs.runtime.device import one_thread
from nogs.stages import Settings, estimates, forecast

SMALL = {
    "data.image_size": 32,
    "data.glimpse": 8,
    "data.annotated": 10,
    "posterior.width": 16,
    "posterior.token": 8,
    "posterior.layers": 1,
    "posterior.heads": 2,
    "posterior.batch": 16,
    "posterior.iterations": 1_000,
    "posterior.validate_every": 100,
    "whole.width": 4,
    "whole.iterations": 100,
    "whole.seconds": None,
    "attention.hidden": 16,
    "attention.embedding": 16,
    "attention.batch": 16,
    "plus.batch": 8,
    "plus.candidates": 2,
}


@pytest.fixture(autouse=True)
def quick():
    with one_thread():
        yield


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("NOGS_CACHE", str(tmp_path / "cache"))
    return miniature.folder(tmp_path / "data", classes=("cat", "dog"), per_class=30)


def expected(data, *, method=("ps-nogs+", "ram", "fixed"), **changes):
    found = changed(recipe("folder"), SMALL | {name.replace("__", "."): value for name, value in changes.items()})
    settings = Settings(data=data, device="cpu", method=method)
    stages = forecast.forecast(found, survey(found.data, data=data), settings=settings)
    return {one.stage: one for one in stages}


def test_every_stage_is_measured_and_no_picture_is_prepared(data, tmp_path):
    found = expected(data)
    assert list(found) == ["data", "posterior", "whole image", "networks", "report"]
    assert all(one.seconds > 0 for one in found.values())
    assert not (tmp_path / "cache").exists()


def test_training_takes_as_long_as_it_has_iterations(data, monkeypatch):
    monkeypatch.setattr(estimates, "_seconds", lambda work, device: (work(), 1.0)[1])
    before, after = expected(data), expected(data, posterior__iterations=3_000, whole__iterations=300)
    assert (before["posterior"].training, after["posterior"].training) == (1_000, 3_000)
    # 10 and 30 validations; and the evaluation on 6 validation and 12 test images
    assert after["posterior"].other - before["posterior"].other == 20
    assert before["posterior"].other == 10 + 3 + 2 * 12 / 6
    assert (before["whole image"].training, after["whole image"].training) == (100, 300)
    alone = expected(data, method=("fixed",))["networks"]
    assert alone.training == 0
    assert before["networks"].other > alone.other > 0
    assert before["networks"].training == recipe("folder").plus.iterations + recipe("folder").attention.iterations


def test_a_posterior_that_is_given_is_not_measured(data, tmp_path):
    found = changed(recipe("folder"), SMALL)
    (tmp_path / "mine.safetensors").touch()
    settings = Settings(data=data, device="cpu", method=("ram",), posterior=str(tmp_path / "mine.safetensors"))
    stages = forecast.forecast(found, survey(found.data, data=data), settings=settings)
    assert [one.stage for one in stages] == ["data", "whole image", "networks", "report"]


def test_measuring_leaves_the_random_numbers_alone(data):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    expected(data)
    assert torch.equal(torch.get_rng_state(), before)
