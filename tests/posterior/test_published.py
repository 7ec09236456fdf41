"""The posteriors that come with the package, and when a recipe's is used."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import nogs
from nogs.data import load_task
from nogs.posterior.labels import label_table
from nogs.posterior.protocol import cross_entropy
from nogs.posterior.queries import fixed_pixels
from nogs.posterior.store import LOOKS, about_posterior, load_posterior, misfit, trained_elsewhere
from nogs.recipes import names, recipe
from nogs.runtime.tensors import load_tensors
from real_data import real_data

FOLDER = Path(nogs.__file__).parent / "pretrained"
FILES = sorted(FOLDER.glob("*.safetensors"))


def test_every_recipes_published_posterior_is_there():
    wanted = {recipe(name).published for name in names()} - {None}
    assert wanted
    assert wanted == {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_published_posterior_fits_its_recipe_and_has_a_card(file):
    own = recipe(file.stem)
    assert file.stat().st_size <= 16 * 2**20
    posterior = load_posterior(file.stem)
    assert posterior.grid == own.data.grid
    assert posterior.glimpses >= own.glimpses
    about, (tensors, metadata) = about_posterior(file.stem), load_tensors(file)
    matrices = {value.dtype for name, value in tensors.items() if value.ndim > 1 and not name.startswith(LOOKS)}
    assert matrices <= {torch.uint8, torch.float16, torch.float32}
    assert metadata["images"]
    assert not re.search(r'"/|\\\\', json.dumps(metadata["about"])), "no file of the machine that trained it is named"
    card = file.with_suffix(".md").read_text()
    for row in about["tables"]["test, calibrated"]:
        assert f"| {row['glimpses']} | {row['accuracy']:.1%} | {row['cross_entropy']:.4f} |" in card


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_published_network_looks_and_answers(file):
    model, own = nogs.load(file.stem), recipe(file.stem)
    assert model.glimpses == own.glimpses
    said = model.classify(np.zeros((own.data.image_size, own.data.image_size, 3), np.uint8))
    answers = said.values() if isinstance(said, dict) else [said]
    assert all(len(set(answer.locations)) == own.glimpses for answer in answers)
    assert "## Locations" in file.with_suffix(".md").read_text()


def test_published_posteriors_are_small_together():
    assert sum(file.stat().st_size for file in FILES) <= 30 * 2**20


def test_published_posterior_of_faces_knows_faces_it_has_not_seen():
    own = recipe("celeba-hq")
    task = load_task(own.data, data=real_data("celeba-hq"))
    assert misfit("celeba-hq", task, glimpses=5) is None
    assert misfit("celeba-hq", task, glimpses=6) == "it was trained for up to 5 glimpses, not 6"
    rows = torch.from_numpy(task.rows("test"))[::25]
    images, labels = torch.from_numpy(task.images[rows.numpy()]), torch.from_numpy(label_table(task))[rows]
    pixels = fixed_pixels(
        len(rows), glimpses=5, grid=task.grid, locations="grid", seed=3, purpose="test", device=torch.device("cpu")
    )
    found = cross_entropy(load_posterior("celeba-hq", task=task).log_probabilities(images, pixels), labels)
    assert found.mean() < 0.33  # 0.304 on all test images; a hundred vary by 0.01
    # another copy of the pictures is another task, but of the same training images; other training images are not
    assert trained_elsewhere("celeba-hq", dataclasses.replace(task, fingerprint="a copy")) == []
    fewer = {**task.splits, "posterior": task.splits["posterior"][1:]}
    other = dataclasses.replace(task, fingerprint="other splits", splits=fewer)
    assert trained_elsewhere("celeba-hq", other) == [task.fingerprint]
    assert misfit("celeba-hq", other, glimpses=5) == "it was trained on other images"


def test_published_posterior_of_birds_knows_birds_it_has_not_seen():
    task = load_task(recipe("cub").data, data=real_data("cub-200-2011"))
    assert misfit("cub", task, glimpses=5) is None
    assert trained_elsewhere("cub", task) == []
    rows = torch.from_numpy(task.rows("test"))[::25]
    images, labels = torch.from_numpy(task.images[rows.numpy()]), torch.from_numpy(label_table(task))[rows]
    pixels = fixed_pixels(
        len(rows), glimpses=5, grid=task.grid, locations="grid", seed=3, purpose="test", device=torch.device("cpu")
    )
    found = load_posterior("cub", task=task).log_probabilities(images, pixels)
    assert cross_entropy(found, labels).mean() < 3.2  # 2.80 on all test images; of 232 it varies by 0.1
