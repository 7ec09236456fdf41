import numpy as np
import pytest
import torch

from nogs.bank import TrainedConfig
from nogs.bank.generators.networks import Autoencoder, Flow
from nogs.bank.generators.trained import Trained
from nogs.bank.generators.training import train_generator
from nogs.bank.leaks import allowed_rows
from nogs.data.task import LabelSpace, Task
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError

SIZE = 16
TINY = TrainedConfig(
    autoencoder_width=16,
    autoencoder_iterations=250,
    width=64,
    depth=2,
    iterations=400,
    batch=64,
    learning_rate=2e-3,
    steps=12,
)


@pytest.fixture(scope="module")
def task():
    """Flat pictures of one of two colours: the generator must learn these two and no third."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 240)
    colours = np.array([[210, 60, 60], [50, 70, 200]])
    images = (colours[labels][:, None, None] + rng.integers(-15, 16, (240, 1, 1, 3))).astype(np.uint8)
    images = np.broadcast_to(images, (240, SIZE, SIZE, 3)).copy()
    ids = tuple(str(n) for n in range(240))
    return Task(
        name="two colours",
        images=images,
        ids=ids,
        labels=labels,
        space=LabelSpace("categorical", ("red", "blue")),
        splits={
            "train": ids[:220],
            "validation": ids[220:230],
            "test": ids[230:],
            "annotate": ids[:4],
            "posterior": ids[4:220],
        },
        grid=Grid.spaced(image=SIZE, glimpse=4, spacing=4),
        fingerprint="two colours",
    )


@pytest.fixture(scope="module")
def made(task):
    torch.manual_seed(0)
    return train_generator(task, allowed_rows(task, rms=0.0), config=TINY)


def test_both_colours_are_generated_and_no_other(made):
    images = made.generate(np.arange(64), seed=0).float()
    assert images.shape == (64, SIZE, SIZE, 3)
    means = images.mean((1, 2))
    red, blue = torch.tensor([210.0, 60.0, 60.0]), torch.tensor([50.0, 70.0, 200.0])
    to_red, to_blue = (means - red).norm(dim=1), (means - blue).norm(dim=1)
    near = torch.minimum(to_red, to_blue) < 60
    assert near.float().mean() > 0.8
    share = (to_red < to_blue)[near].float().mean()
    assert 0.2 < share < 0.8


def test_an_image_depends_on_its_number_and_seed_alone(made):
    images, others = (made.generate(np.arange(6), seed=seed).int() for seed in (0, 1))
    again = made.generate(np.array([4]), seed=0)[0].int()
    assert (images[4] - again).abs().max() <= 1
    assert (images - others).abs().max() > 1


def test_file_reads_back_with_its_images_and_origin(made, task, tmp_path):
    path = tmp_path / "generator.safetensors"
    made.save(path)
    again = Trained.load(path)
    assert again.fingerprint == made.fingerprint
    assert again.ids == tuple(task.ids[row] for row in allowed_rows(task, rms=0.0))
    assert torch.equal(again.generate(np.arange(3), seed=5), made.generate(np.arange(3), seed=5))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not a whole safetensors file"):
        Trained.load(path)


@pytest.mark.parametrize("size", [(20, 28), (64, 64), (130, 128)])
def test_networks_take_any_size(size):
    network = Autoencoder(width=8, latent=2)
    images = torch.rand(2, 3, *size)
    code = network.encode(images)
    assert code.shape == (2, 2, -(-size[0] // 8), -(-size[1] // 8))
    assert network.decode(code, size).shape == images.shape
    flow = Flow(channels=2, side=(code.shape[2], code.shape[3]), width=32, depth=1)
    assert flow(code, torch.rand(2)).shape == code.shape
