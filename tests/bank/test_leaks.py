from dataclasses import replace

import numpy as np
import pytest
import torch

from nogs.bank import BankConfig, TrainedConfig, make_generator
from nogs.bank.generators.training import train_generator
from nogs.bank.leaks import Duplicates, allowed_rows, held_out, refuse_ids
from nogs.data import DataConfig, load_task
from nogs.runtime.errors import InputError


@pytest.fixture(scope="module")
def task():
    return load_task(
        DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=300, annotated=30, fragments=2)
    )


def with_copy(task, *, of, instead_of, change=lambda image: image):
    """The task, with one image replaced by a changed copy of another."""
    images = task.images.copy()
    images[task.position[instead_of]] = change(task.images[task.position[of]])
    return replace(task, images=images)


def test_annotated_validation_and_test_images_are_held_out(task):
    assert held_out(task) == {*task.splits["annotate"], *task.splits["validation"], *task.splits["test"]}


def test_training_images_leave_the_held_out_ones_out(task):
    rows = allowed_rows(task, rms=4.0)
    ids = {task.ids[row] for row in rows}
    assert ids == set(task.splits["train"]) - set(task.splits["annotate"])
    made = make_generator(BankConfig(), task=task)
    assert set(made.ids) == ids
    shown = made.generate(np.arange(len(rows)), seed=0).numpy()
    for id in held_out(task):
        assert not (shown == task.images[task.position[id]]).all((1, 2, 3)).any()


def noisy(image):
    change = np.random.default_rng(0).integers(-6, 7, image.shape)
    return (image.astype(int) + change).clip(0, 255).astype(np.uint8)


def brighter(image):
    return (image.astype(int) + 12).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("change", [np.copy, noisy, brighter, lambda image: image[:, ::-1]])
@pytest.mark.parametrize("split", ["annotate", "validation", "test"])
def test_a_near_duplicate_under_another_id_is_left_out(task, split, change):
    free = task.splits["posterior"][0]
    copied = with_copy(task, of=task.splits[split][0], instead_of=free, change=change)
    rows = allowed_rows(copied, rms=4.0)
    assert copied.position[free] not in rows
    assert len(rows) == len(allowed_rows(task, rms=4.0)) - 1


def test_different_images_are_no_duplicates(task):
    check = Duplicates.of(task, rms=4.0)
    others = torch.from_numpy(task.images[task.rows("posterior")])
    assert not check(others).any()
    assert check(torch.from_numpy(task.images[task.rows("test")])).all()


def test_a_generator_trained_on_a_held_out_image_is_refused(task, tmp_path):
    config = TrainedConfig(autoencoder_width=8, autoencoder_iterations=1, width=32, depth=1, iterations=1, batch=8)
    leaky = task.rows([*task.splits["posterior"][:10], task.splits["annotate"][0]])
    with pytest.raises(InputError, match="held out, such as '0'"):
        train_generator(task, leaky, config=config)
    made = train_generator(task, allowed_rows(task, rms=4.0), config=config)
    made.save(tmp_path / "generator.safetensors")
    make_generator(BankConfig(generator="trained"), task=task, path=tmp_path / "generator.safetensors")
    # the same file for a task that holds out one of the images that it was trained on
    moved = made.ids[0]
    splits = {
        **task.splits,
        "annotate": (*task.splits["annotate"], moved),
        "posterior": tuple(id for id in task.splits["posterior"] if id != moved),
    }
    other = replace(task, splits=splits)
    with pytest.raises(InputError, match=f"held out, such as '{moved}'"):
        make_generator(BankConfig(generator="trained"), task=other, path=tmp_path / "generator.safetensors")
    with pytest.raises(InputError, match="made with 1 images"):
        refuse_ids([moved], other, what="It")
