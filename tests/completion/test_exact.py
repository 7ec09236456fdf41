import numpy as np
import pytest
import torch

from nogs.completion.exact import log_likelihood, squared_distances
from small_banks import SCALE, normalised, pictures, slow_log_likelihood

IMAGES = pictures(20, seed=5)
PIXELS = [(0, 0), (4, 7), (8, 10)]
ALL = [(r, c) for r in range(-4, 5) for c in range(-4, 5)]
ONE_SIDED = [(r, c) for r in range(9) for c in range(9)]


def likelihoods(images, flip, *, glimpses, pixels, shifts, join="product"):
    distances = [
        squared_distances(
            torch.from_numpy(images),
            torch.arange(len(images))[None],
            torch.full((1, len(images)), flip),
            glimpses=torch.from_numpy(glimpse)[None],
            pixels=[pixel],
            shifts=shifts,
            scale=SCALE,
        )
        for glimpse, pixel in zip(glimpses, pixels)
    ]
    return log_likelihood(distances, temperature=25.0, join=join)[0]


@pytest.mark.parametrize("shifts", [[(0, 0)], ALL, ONE_SIDED], ids=["none", "centred", "one-sided"])
@pytest.mark.parametrize("join", ["product", "sum"])
def test_likelihoods_agree_with_a_loop(shifts, join):
    truth = pictures(1, seed=8)[0]
    glimpses = np.stack([truth[r : r + 4, c : c + 4] for r, c in PIXELS])
    slow = slow_log_likelihood(
        normalised(IMAGES), normalised(glimpses), np.array(PIXELS), shifts=shifts, v=25.0, join=join
    )
    for flip in (False, True):
        found = likelihoods(IMAGES, flip, glimpses=glimpses, pixels=PIXELS, shifts=shifts, join=join)
        assert np.allclose(found.numpy(), slow[int(flip)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(9, 9), (8, 20), (20, 8)])
def test_a_window_as_wide_as_the_image_is_read(height, width):
    """Shifts that reach beyond the borders of a small image."""
    images = pictures(6, seed=5, height=height, width=width)
    truth = pictures(1, seed=8, height=height, width=width)[0]
    glimpse = truth[3:7, 2:6][None]
    far = [(r, c) for r in range(-6, 7, 3) for c in range(-6, 7, 3)]
    slow = slow_log_likelihood(normalised(images), normalised(glimpse), np.array([[3, 2]]), shifts=far, v=25.0)
    for flip in (False, True):
        found = likelihoods(images, flip, glimpses=glimpse, pixels=[(3, 2)], shifts=far)
        assert np.allclose(found.numpy(), slow[int(flip)], rtol=1e-4, atol=1e-4)
