import numpy as np
import pytest
import torch

import worlds
from nogs.bank.bank import make_bank
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages
from nogs.completion import CompletionConfig, Corrected, Retrieval
from nogs.completion.corrected import Gaussian
from nogs.glimpse import cut
from small_banks import SCALE, normalised, pictures
from small_banks import bank as small_bank

PIXELS = torch.tensor([[0, 0], [4, 7], [6, 8]])  # the last two overlap
CONFIG = CompletionConfig(
    kind="corrected", drawn=100, kept=30, proposal_reach=0, exact_reach=0, temperatures=(30.0, 20.0, 12.0)
)


@pytest.fixture(scope="module")
def bank():
    return small_bank(300, components=20)


def queries(number=2):
    return torch.from_numpy(pictures(number, seed=70))


def places(number=2, observed=3):
    return PIXELS[None, :observed].expand(number, observed, 2)


def test_images_move_by_the_conditional_mean_of_the_dense_covariance(bank):
    """The slow truth: a covariance of all pixels, and the textbook's formula for a part of them."""
    pca = bank.pca
    basis, variance = pca.basis.double().numpy(), pca.variance.double().numpy()
    number = basis.shape[1]
    noise = variance[-1]
    dense = basis.T @ np.diag(variance - noise) @ basis + noise * np.eye(number)
    image, config = queries(1), CONFIG
    found = Corrected(bank, config=config, glimpse=4).complete(image, places(1), ids=["a"])
    plain = Retrieval(bank, config=config, glimpse=4).complete(image, places(1), ids=["a"])
    seen = np.zeros((12, 14, 3), dtype=bool)
    for row, column in PIXELS.tolist():
        seen[row : row + 4, column : column + 4] = True
    seen = seen.ravel()
    gain = dense[:, seen] @ np.linalg.inv(dense[np.ix_(seen, seen)])
    truth = normalised(image[0].numpy()).ravel()
    moved = 0.0
    for before, after in zip(plain.images(0).numpy(), found.images(0).numpy()):
        start = normalised(before).ravel()
        expected = (start + gain @ (truth - start)[seen]).reshape(12, 14, 3)
        grey = (expected * np.array(SCALE) + np.array([0.4, 0.5, 0.6])) * 255
        assert np.abs(after - grey.clip(0, 255)).max() < 0.6
        moved = max(moved, np.abs(after.astype(float) - before).reshape(-1)[~seen].max())
    assert moved > 5
    assert torch.equal(plain.weights, found.weights)


def test_observed_pixels_are_matched_and_the_bank_is_left_alone(bank):
    before = bank.images.pixels.clone()
    images = queries()
    found = Corrected(bank, config=CONFIG, glimpse=4).complete(images, places(), ids=["a", "b"])
    for b in range(2):
        shown = found.images(b)
        there = PIXELS.expand(len(shown), 3, 2)
        assert torch.equal(
            cut(shown, there, glimpse=4),
            cut(images[b : b + 1], PIXELS[None], glimpse=4).expand(len(shown), -1, -1, -1, -1),
        )
    assert torch.equal(bank.images.pixels, before)
    assert (found.rows == -1).all()  # the same image of the bank moves elsewhere for another image


def test_draws_from_a_gaussian_become_draws_from_its_conditional():
    """Matheron's rule: images of the prior, moved, have the conditional's mean and variance, which is not zero."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(3, 6 * 6 * 3)) * 12
    flat = 128 + rng.normal(size=(4000, 3)) @ mixing + rng.normal(0, 6, (4000, 108))
    pixels = torch.from_numpy(flat.reshape(-1, 6, 6, 3).round().clip(0, 255).astype(np.uint8))
    pca = fit_pca(ResidentImages(pixels), components=3, centre=(0.5,) * 3, scale=(0.2,) * 3)
    bank = make_bank(pixels, pca=pca)
    gaussian = Gaussian(bank.pca, noise=(6 / 255 / 0.2) ** 2)
    observed = torch.zeros(6, 6, 3, dtype=torch.bool)
    observed[:2, :2] = True
    observed = observed.flatten()
    x = (pixels.flatten(1).double() / 255 - 0.5) / 0.2
    truth, draws = x[0], x[1:]
    moved = draws + gaussian.moved((truth - draws).float(), observed).double()
    covariance = torch.cov(x.T)
    gain = covariance[:, observed] @ torch.linalg.inv(covariance[observed][:, observed])
    mean = x.mean(0) + gain @ (truth - x.mean(0))[observed]
    left = covariance - gain @ covariance[observed]
    assert (moved.mean(0) - mean).abs().max() < 0.06
    assert torch.allclose(moved.var(0)[~observed], left.diagonal()[~observed], rtol=0.15)


def test_what_the_components_leave_out_does_not_make_hidden_pixels_overshoot():
    """Images of a spectrum that falls slowly, as photographs have it: what is left out is alike in neighbours."""
    rng, size = np.random.default_rng(0), 24
    far = np.hypot(*np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size), indexing="ij"))
    waves = np.fft.fft2(rng.normal(size=(1064, size, size))) / (far + 0.5 / size)
    grey = np.fft.ifft2(waves).real
    flat = np.repeat((128 + 40 * grey / grey.std())[..., None], 3, -1)
    pixels = torch.from_numpy(flat.round().clip(0, 255).astype(np.uint8))
    pca = fit_pca(ResidentImages(pixels[64:]), components=40, centre=(0.5,) * 3, scale=(0.2,) * 3)
    observed = torch.zeros(size, size, 3, dtype=torch.bool)
    observed[4:12, 4:12] = observed[10:18, 14:22] = True
    x = ((pixels.float() / 255 - 0.5) / 0.2).flatten(1)
    truth, start = x[:64], x[64:128]
    moved = start + torch.cat([Gaussian(pca).moved((t - s)[None], observed.flatten()) for t, s in zip(truth, start)])
    near = torch.zeros(size, size, 3, dtype=torch.bool)
    near[2:20, 2:23] = True
    near &= ~observed
    before, after = (((part - truth)[:, near.flatten()] ** 2).mean() for part in (start, moved))
    assert after < 0.75 * before


def test_the_images_beside_an_image_do_not_matter(bank):
    images, completion = queries(3), Corrected(bank, config=CONFIG, glimpse=4)
    together = completion.complete(images, places(3), ids=["a", "b", "c"])
    alone = completion.complete(images[1:2], places(1), ids=["b"])
    assert torch.equal(together.images(1), alone.images(0))
    assert torch.equal(together.weights[1], alone.weights[0])


def test_before_the_first_glimpse_nothing_is_moved(bank):
    nothing = places()[:, :0]
    found = Corrected(bank, config=CONFIG, glimpse=4).complete(queries(), nothing, ids=["a", "b"])
    plain = Retrieval(bank, config=CONFIG, glimpse=4).complete(queries(), nothing, ids=["a", "b"])
    assert torch.equal(found.images(0), plain.images(0))
    assert torch.equal(found.rows, plain.rows)


def test_a_training_image_stays_known_when_it_is_moved(bank):
    from dataclasses import replace

    known = replace(bank, sources=torch.arange(len(bank)))
    found = Corrected(known, config=CONFIG, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    plain = Retrieval(known, config=CONFIG, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    assert torch.equal(found.sources, plain.sources)
    assert torch.equal(found.folds(4)[found.weights > 0], plain.folds(4)[plain.weights > 0])


def test_components_that_hold_everything_leave_a_solvable_system():
    """The exact world: 100 images of few directions, whose noise is only that of whole grey levels."""
    world = worlds.pointer_world()
    pixels = torch.from_numpy(world.images[np.random.default_rng(0).choice(162, 100)])
    pca = fit_pca(ResidentImages(pixels), components=20, centre=(0.5,) * 3, scale=(0.25,) * 3)
    config = CONFIG.model_copy(update={"flips": False, "temperatures": (2.0,)})
    completion = Corrected(make_bank(pixels, pca=pca), config=config, glimpse=4)
    places = torch.tensor([worlds.A, worlds.N])[None].expand(40, 2, 2)
    images = torch.from_numpy(world.images[::4][:40])
    found = completion.complete(images, places, ids=[str(n) for n in range(40)])
    for b in range(40):
        shown = found.images(b)
        assert torch.equal(shown[:, :4, :4], images[b, :4, :4].expand(len(shown), -1, -1, -1))
