import math

import numpy as np
import pytest
import torch

from nogs.bank.bank import make_bank
from nogs.bank.generators import Differentiable
from nogs.bank.generators.finegan import FineGAN, FineGANNetwork
from nogs.bank.generators.noise import as_pictures, image_keys, normal
from nogs.bank.generators.stylegan import StyleGAN, StyleGANNetwork
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import Completion, CompletionConfig
from nogs.completion.config import HMCConfig
from nogs.completion.hmc import _mixing
from nogs.runtime.errors import InputError

SIZE, LATENT = 4, 3


class Linear:
    """Images 4 x 4 px that are linear in their latent, so that the posterior is a Gaussian that is known."""

    size, count, latent, fingerprint = (SIZE, SIZE), None, LATENT, "linear"

    def __init__(self):
        rng = np.random.default_rng(0)
        self.matrix = torch.from_numpy(rng.normal(0, 0.15, (LATENT, 3 * SIZE * SIZE))).float()

    def decode(self, z, keys):
        return (z @ self.matrix).reshape(-1, 3, SIZE, SIZE)

    def generate(self, numbers, *, seed):
        keys = image_keys(numbers, seed=seed, purpose="linear", device=torch.device("cpu"))
        return as_pictures(self.decode(normal(keys, LATENT), keys))


@pytest.fixture(scope="module")
def bank():
    pixels = Linear().generate(np.arange(60), seed=0)
    pca = fit_pca(ResidentImages(pixels), components=3, centre=(0.5,) * 3, scale=(0.25,) * 3)
    return make_bank(pixels, pca=pca)


def hmc(bank, *, kept=40, generator=None, seed=0, **fields):
    pytest.importorskip("pyro")
    from nogs.completion.hmc import HMC

    config = HMCConfig(**{"steps": 10, "step_size": 0.1, "chains": 2, "warmup": 5, **fields})
    whole = CompletionConfig(kind="hmc", kept=kept, prior=7, hmc=config)
    return HMC(generator or Linear(), bank, config=whole, glimpse=2, seed=seed)


PLACES = torch.tensor([[[0, 0], [2, 1]]])


@pytest.mark.parametrize("nuts", [False, True])
def test_samples_have_the_mean_and_spread_of_the_exact_posterior(bank, nuts):
    """A linear generator: z | y is normal with precision I + AᵀA / noise²; sampled here, computed there."""
    image = Linear().generate(np.array([1000]), seed=0)
    found = hmc(bank, kept=400, noise=0.4, nuts=nuts).complete(image, PLACES, ids=["a"])
    seen = np.zeros((SIZE, SIZE, 3), dtype=bool)
    for row, column in PLACES[0].tolist():
        seen[row : row + 2, column : column + 2] = True
    # normalised pixels are ((v + 1) / 2 - 0.5) / 0.25 = 2 v
    to_pixels = 2 * Linear().matrix.double().numpy().reshape(LATENT, 3, SIZE, SIZE).transpose(2, 3, 1, 0)
    a = to_pixels[seen]
    y = (image[0].numpy() / 255.0 - 0.5)[seen] / 0.25
    covariance = np.linalg.inv(np.eye(LATENT) + a.T @ a / 0.4**2)
    mean = covariance @ a.T @ y / 0.4**2
    expected = to_pixels.reshape(-1, LATENT) @ mean
    spread = np.sqrt(np.diag(to_pixels.reshape(-1, LATENT) @ covariance @ to_pixels.reshape(-1, LATENT).T))
    shown = (found.images(0).double().numpy() / 255.0 - 0.5).reshape(400, -1) / 0.25
    assert np.abs(shown.mean(0) - expected).max() < 0.35 * spread.max()
    assert np.allclose(shown.std(0), spread, rtol=0.35, atol=0.02)
    assert 0.7 < float(found.diagnostics["acceptance"][0]) <= 1
    assert 0.9 < float(found.diagnostics["rhat"][0]) < 1.2
    assert 20 < float(found.effective[0]) <= 400


def test_the_outcome_depends_on_seed_id_and_step_and_not_on_the_batch(bank):
    images = Linear().generate(np.arange(1000, 1003), seed=0)
    completion = hmc(bank, kept=6)
    assert isinstance(completion, Completion)
    places = PLACES.expand(3, -1, -1)
    state = torch.random.get_rng_state()
    together = completion.complete(images, places, ids=["a", "b", "c"])
    assert torch.equal(torch.random.get_rng_state(), state)
    alone = completion.complete(images[1:2], PLACES, ids=["b"])
    assert torch.equal(together.images(1), alone.images(0))
    assert torch.equal(together.effective[1], alone.effective[0])
    assert not torch.equal(completion.complete(images[1:2], PLACES, ids=["z"]).pool, alone.pool)
    other = hmc(bank, kept=6, seed=1)
    assert not torch.equal(other.complete(images[1:2], PLACES, ids=["b"]).pool, alone.pool)
    assert other.fingerprint != completion.fingerprint
    assert torch.allclose(together.weights.sum(1), torch.ones(3))


def test_more_images_than_are_sampled_together_are_each_their_own(bank):
    images = Linear().generate(np.arange(1000, 1040), seed=0)
    ids = [str(n) for n in range(40)]
    completion = hmc(bank, kept=6)
    found = completion.complete(images, PLACES.expand(40, -1, -1), ids=ids)
    last = completion.complete(images[39:], PLACES, ids=ids[39:])
    assert torch.equal(found.images(39), last.images(0))
    assert found.diagnostics["acceptance"].shape == (40,)
    assert found.diagnostics["acceptance"][39] == last.diagnostics["acceptance"][0]


def test_before_the_first_glimpse_images_come_from_the_bank(bank):
    found = hmc(bank).complete(Linear().generate(np.arange(2), seed=0), PLACES[:, :0].expand(2, 0, 2), ids=["a", "b"])
    assert found.weights.shape == (2, 7)
    assert (found.rows >= 0).all()


def test_large_steps_are_rejected_and_said_so(bank):
    image = Linear().generate(np.array([1000]), seed=0)
    found = hmc(bank, kept=10, step_size=3.0, noise=0.05).complete(image, PLACES, ids=["a"])
    assert float(found.diagnostics["acceptance"][0]) < 0.5


def test_chains_too_short_to_tell_have_no_rhat(bank):
    image = Linear().generate(np.array([1000]), seed=0)
    found = hmc(bank, kept=3).complete(image, PLACES, ids=["a"])
    assert found.weights.shape == (1, 3)
    assert math.isnan(float(found.diagnostics["rhat"][0]))


@pytest.mark.parametrize("name", ["stylegan", "finegan"])
def test_the_generators_of_the_paper_have_a_gradient_and_hold_the_rest_fixed(name):
    torch.manual_seed(0)
    if name == "stylegan":
        generator = StyleGAN(StyleGANNetwork(8), image_size=6, device=torch.device("cpu"), mark="a")
    else:
        generator = FineGAN(FineGANNetwork(width=64), image_size=16, device=torch.device("cpu"), mark="b")
    assert isinstance(generator, Differentiable)
    numbers = np.arange(3)
    keys = image_keys(numbers, seed=5, purpose=name, device=torch.device("cpu"))
    z = normal(keys, generator.latent).requires_grad_()
    images = generator.decode(z, keys)
    assert torch.equal(as_pictures(images.detach()), generator.generate(numbers, seed=5))
    (slope,) = torch.autograd.grad(images[1].sum(), z)
    assert slope[1].abs().sum() > 0
    assert slope[0].abs().sum() == 0
    assert torch.equal(generator.decode(z[:1].expand(2, -1), keys[:1].expand(2))[0], images[0])


def test_without_pyro_a_sentence_says_what_to_install(bank, monkeypatch):
    import sys

    from nogs.completion.hmc import HMC

    monkeypatch.setitem(sys.modules, "pyro", None)
    with pytest.raises(InputError, match=r'needs Pyro; install it with pip install "nogs\[hmc\]"'):
        HMC(Linear(), bank, config=CompletionConfig(kind="hmc"), glimpse=2)


def test_chains_that_never_move_and_lie_apart_have_a_large_finite_rhat():
    pytest.importorskip("pyro")
    pictures = torch.zeros(2, 8, 16, 16, 3, dtype=torch.uint8)
    pictures[1] = 255
    size, rhat = _mixing(pictures)
    assert size <= 2
    assert 1e3 < rhat < math.inf
