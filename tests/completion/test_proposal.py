import numpy as np
import pytest
import torch

from nogs.bank.bank import make_bank
from nogs.completion.proposal import CodeSpace
from nogs.completion.windows import window
from small_banks import bank as small_bank
from small_banks import fitted, normalised, pictures, rebuilt, slow_log_likelihood

NINE = [(r, c) for r in (-2, 0, 2) for c in (-2, 0, 2)]
PIXELS = np.array([[0, 0], [4, 7], [8, 10], [5, 2]])  # two of them on the border


@pytest.fixture(scope="module")
def bank():
    return small_bank()


def query_at(image, pixels, side=4):
    return np.stack([normalised(image)[r : r + side, c : c + side] for r, c in pixels])


def log_weights(bank, query, pixels, *, shifts, v=30.0, **options):
    space = CodeSpace(bank, glimpse=4, shifts=shifts, variance_kept=options.pop("variance_kept", 1.0), **options)
    flat = torch.from_numpy(query).float().flatten(1)[None]
    return space.log_likelihood(flat, torch.from_numpy(pixels)[None], temperature=v)[0].numpy()


@pytest.mark.parametrize("shifts", [[(0, 0)], NINE], ids=["no shifts", "nine shifts"])
@pytest.mark.parametrize("observed", [1, 4])
def test_weights_agree_with_a_loop_over_rebuilt_images(bank, shifts, observed):
    pixels = PIXELS[:observed]
    query = query_at(pictures(1, seed=9)[0], pixels)
    found = log_weights(bank, query, pixels, shifts=shifts)
    slow = slow_log_likelihood(rebuilt(bank), query, pixels, shifts=shifts, v=30.0)
    assert np.allclose(found, slow, atol=2e-3)
    assert np.ptp(slow) > 1  # the comparison is about something


def test_blocks_do_not_change_weights(bank):
    query = query_at(pictures(1, seed=9)[0], PIXELS)
    whole = log_weights(bank, query, PIXELS, shifts=NINE)
    parts = log_weights(bank, query, PIXELS, shifts=NINE, block=7)
    assert np.allclose(whole, parts, atol=1e-4)


def test_low_rank_costs_little_accuracy():
    bank = small_bank(200, components=40, height=24, width=24)
    pixels = np.array([[2, 3], [12, 9]])
    query = query_at(pictures(1, seed=9, height=24, width=24)[0], pixels)
    exact = CodeSpace(bank, glimpse=4, shifts=NINE, variance_kept=1.0)
    quick = CodeSpace(bank, glimpse=4, shifts=NINE, variance_kept=0.99)
    assert quick.rank < exact.rank
    flat, places = torch.from_numpy(query).float().flatten(1)[None], torch.from_numpy(pixels)[None]
    truth, found = exact.all_distances(flat, places)[0], quick.all_distances(flat, places)[0]
    assert float(((found - truth) / truth).abs().mean()) < 0.02


def test_a_mirrored_copy_of_the_query_is_found():
    images = pictures(50, seed=3)
    truth = images[17, :, ::-1].copy()
    bank = make_bank(torch.from_numpy(images), pca=fitted(images, 30))
    found = log_weights(bank, query_at(truth, PIXELS), PIXELS, shifts=[(0, 0)], v=1.0)
    assert np.unravel_index(found.argmax(), found.shape) == (1, 17)
    alone = log_weights(bank, query_at(truth, PIXELS), PIXELS, shifts=[(0, 0)], v=1.0, flips=False)
    assert alone.shape == (1, 50)
    assert alone.max() < found.max() - 1


def test_a_moved_copy_of_the_query_is_found_by_a_shift():
    images = pictures(50, seed=4, height=20, width=20)
    truth = np.roll(images[17], (2, -2), (0, 1))
    bank = make_bank(torch.from_numpy(images), pca=fitted(images, 40))
    pixels = np.array([[6, 6], [9, 11]])
    found = log_weights(bank, query_at(truth, pixels), pixels, shifts=NINE, v=1.0)
    assert np.unravel_index(found.argmax(), found.shape) == (0, 17)


def test_the_releases_flip_moves_the_patch_and_leaves_its_content(bank):
    pixels = np.array([[4, 3]])
    query = query_at(pictures(1, seed=9)[0], pixels)
    found = log_weights(bank, query, pixels, shifts=[(0, 0)], mirrored=False)
    patches = rebuilt(bank)[:, 4:8, 14 - 4 - 3 : 14 - 3]
    assert np.allclose(found[1], -((patches - query[0]) ** 2).sum((1, 2, 3)) / 30, atol=2e-3)


def test_an_image_weighs_the_same_alone_and_among_others(bank):
    images = pictures(3, seed=9)
    pixels = np.stack([PIXELS, PIXELS[[0, 2, 1, 3]], PIXELS])
    query = np.stack([query_at(image, places) for image, places in zip(images, pixels)])
    space = CodeSpace(bank, glimpse=4, shifts=NINE)
    flat, places = torch.from_numpy(query).float().flatten(2), torch.from_numpy(pixels)
    together = space.log_likelihood(flat, places, temperature=20.0)
    for b in range(3):
        alone = space.log_likelihood(flat[b : b + 1], places[b : b + 1], temperature=20.0)
        assert torch.equal(alone[0], together[b])


@pytest.mark.parametrize("pixel", [(0, 0), (3, 5), (8, 10), (0, 10), (1, 9)])
def test_windows_hold_every_shift_inside_the_image(pixel):
    region = window(pixel, NINE, glimpse=4, size=(12, 14))
    assert (region.height, region.width) == (8, 8)
    assert 0 <= region.row <= 12 - 8
    assert 0 <= region.column <= 14 - 8
    for (down, right), place in zip(NINE, region.offsets):
        r, c = pixel[0] + down, pixel[1] + right
        if place is None:
            assert not (0 <= r <= 8 and 0 <= c <= 10)
        else:
            assert (region.row + place[0], region.column + place[1]) == (r, c)
            assert 0 <= place[0] <= 4
            assert 0 <= place[1] <= 4
