import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nogs.glimpse import mask, shown


def slow_mask(pixels, observed, *, glimpse, height, width):
    out = np.zeros((len(pixels), height, width), bool)
    for n, locations in enumerate(pixels):
        for (row, column), counts in zip(locations, observed[n]):
            if counts:
                out[n, row : row + glimpse, column : column + glimpse] = True
    return out


@given(
    seed=st.integers(0, 2**32),
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    share=st.floats(0, 1),
    number=st.integers(1, 4),
    steps=st.integers(0, 6),
    partial=st.booleans(),
)
def test_mask_agrees_with_painted_squares(seed, height, width, share, number, steps, partial):
    generator = np.random.default_rng(seed)
    glimpse = 1 + int(share * (min(height, width) - 1))
    pixels = generator.integers(0, (height - glimpse + 1, width - glimpse + 1), (number, steps, 2))
    observed = generator.random((number, steps)) < 0.5 if partial else np.ones((number, steps), bool)
    got = mask(
        torch.from_numpy(pixels),
        glimpse=glimpse,
        height=height,
        width=width,
        observed=torch.from_numpy(observed) if partial else None,
    )
    assert np.array_equal(got.numpy(), slow_mask(pixels, observed, glimpse=glimpse, height=height, width=width))


def test_without_glimpses_nothing_is_observed():
    assert not mask(torch.empty(2, 0, 2, dtype=torch.long), glimpse=3, height=8, width=8).any()


def test_extra_batch_axes_are_kept():
    pixels = torch.randint(0, 5, (2, 3, 4, 2), generator=torch.Generator().manual_seed(0))
    got = mask(pixels, glimpse=4, height=8, width=9)
    assert got.shape == (2, 3, 8, 9)
    assert got[1, 2].equal(mask(pixels[1, 2], glimpse=4, height=8, width=9))


def test_overlapping_glimpses_are_counted_once():
    seen = mask(torch.tensor([[0, 0], [0, 0], [2, 2], [4, 4]]), glimpse=4, height=8, width=8)
    assert seen.sum().item() == 3 * 16 - 2 * 4
    assert seen[7, 7]
    assert not seen[0, 4]


def test_shown_is_the_mean_of_the_mask():
    pixels = torch.randint(0, 20, (50, 6, 2), generator=torch.Generator().manual_seed(0))
    pixels[:10, 3] = pixels[:10, 1]  # the same location twice
    found = shown(pixels, glimpse=9, height=28, width=30)
    for t in range(6):
        expected = mask(pixels[:, : t + 1], glimpse=9, height=28, width=30).float().mean((1, 2))
        torch.testing.assert_close(found[:, t], expected)
