import numpy as np
import pytest
import torch

import exact_design
import worlds
from nogs.design.annotation import first_of_task
from nogs.design.config import DesignConfig
from nogs.design.steps import Tools, first_step
from nogs.posterior.protocol import entropy
from nogs.runtime.errors import InputError
from nogs.supervision import (
    Heuristic,
    LocationDistribution,
    load_heuristic,
    save_heuristic,
)
from nogs.supervision.heuristic import ImagePrior
from nogs.supervision.picture import heuristic_figure
from toy_attention import toy_task


def test_distribution_is_equation_17():
    epe = np.array([3.0, 2.0, 2.5, 4.0])
    for inverse in (0.0, 1.0, 5.0):
        found = LocationDistribution.heuristic(epe, inverse_temperature=inverse).log_probabilities
        constant = -np.log(sum(np.exp(-inverse * value) for value in epe))
        assert found == pytest.approx(constant - inverse * epe)
        assert np.exp(found).sum() == pytest.approx(1)
    far = LocationDistribution.heuristic(1000 * epe, inverse_temperature=5.0).log_probabilities
    assert np.exp(far).tolist() == [0, 1, 0, 0]


def test_sequences_are_independent_draws_by_image_and_seed():
    task = toy_task(count=1000)
    distribution = LocationDistribution.heuristic(np.linspace(0, 2, len(task.grid)), inverse_temperature=1.0)
    found = distribution.sequences(task, task.ids, glimpses=20, seed=3)
    shares = np.bincount(found.indices().ravel(), minlength=len(task.grid)) / found.indices().size
    assert shares == pytest.approx(np.exp(distribution.log_probabilities), abs=0.01)
    some = distribution.sequences(task, ["7", "5"], glimpses=20, seed=3)
    assert (some.by_id("5") == found.by_id("5")).all()
    assert (distribution.sequences(task, ["5"], glimpses=20, seed=4).by_id("5") != found.by_id("5")).any()


def test_map_is_read_back_from_its_folder_a_file_and_an_array(tmp_path):
    task = toy_task()
    epe = np.linspace(1, 2, len(task.grid))[None]
    save_heuristic(Heuristic(epe, 0.1 * epe, {"over": "bank"}), tmp_path, task=task)
    for path in (tmp_path, tmp_path / "heuristic.safetensors"):
        found = load_heuristic(path, task=task)
        assert (found.epe == epe).all()
        assert (found.error == 0.1 * epe).all()
        assert found.provenance == {"over": "bank"}
    np.save(tmp_path / "map.npy", epe.reshape(task.grid.shape).astype(np.float32))
    assert load_heuristic(tmp_path / "map.npy", task=task).epe == pytest.approx(epe)


def test_map_that_does_not_fit_is_refused(tmp_path):
    task = toy_task()
    with pytest.raises(InputError, match="holds no map of the heuristic"):
        load_heuristic(tmp_path, task=task)
    np.save(tmp_path / "map.npy", np.zeros(7))
    with pytest.raises(InputError, match="a map of 1 x 7 labels and locations"):
        load_heuristic(tmp_path / "map.npy", task=task)
    np.save(tmp_path / "map.npy", np.full(len(task.grid), np.nan))
    with pytest.raises(InputError, match="has no value for some locations"):
        load_heuristic(tmp_path / "map.npy", task=task)
    other = toy_task(spacing=4)
    save_heuristic(Heuristic(np.zeros((1, len(other.grid))), np.zeros((1, len(other.grid)))), tmp_path, task=other)
    with pytest.raises(InputError, match="make one for it with nogs sequences heuristic"):
        load_heuristic(tmp_path, task=task)


def test_each_attribute_has_its_own_map(tmp_path):
    task = toy_task(attributes=("Round", "Red"))
    epe = np.stack([np.linspace(0, 1, len(task.grid)), np.linspace(1, 0, len(task.grid))])
    found = Heuristic(epe, np.zeros_like(epe))
    assert (found.of(task, "Red") == epe[1]).all()
    assert found.of(task, None) == pytest.approx(1)
    assert found.distribution(task, "Round", inverse_temperature=1.0).log_probabilities.argmax() == 0


def test_held_out_images_give_the_expected_entropy_of_the_world_they_come_from():
    world = worlds.pointer_world()
    task = world.task()
    tools = exact_design.tools(draws=40)
    images = torch.from_numpy(np.array(task.images))
    prior = Tools(tools.posterior, ImagePrior(images, fingerprint="all"), tools.device)
    found = first_step(prior, task.images[0], config=DesignConfig(batch=64))
    rows = torch.arange(len(images))
    for location in (0, len(task.grid) // 2):
        pixels = task.grid.pixels[location].expand(len(images), 1, 2)
        answers = tools.posterior.log_probabilities(images, pixels, index=rows)
        expected = entropy(answers)[:, 0].double().mean().item()
        assert found.map.estimate[0, location].item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="can't complete glimpses"):
        prior.completion.complete(images[:1], torch.zeros(1, 1, 2, dtype=torch.int64), ids=["0"])


def test_first_step_of_an_annotation_serves_as_the_map(tmp_path):
    task = worlds.pointer_world().task()

    def tools():
        return exact_design.tools(draws=40)

    first = first_of_task(
        task, tmp_path / "first.safetensors", open_tools=tools, config=DesignConfig(batch=64), made_from="m"
    )
    found = load_heuristic(tmp_path, task=task)
    assert found.epe == pytest.approx(first.map.estimate.double().numpy())


def test_picture_has_the_map_and_each_distribution():
    task = toy_task()
    figure = heuristic_figure(np.linspace(0, 1, len(task.grid)), task.grid, title="toy")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["expected posterior entropy (nats)", "p(location), 1/γ = 1", "p(location), 1/γ = 5"]
