import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nogs.glimpse import Grid, cut


def slow_cut(images, pixels, *, glimpse, index, flip):
    """Glimpses one by one with numpy slices, from an image that is actually flipped."""
    out = np.empty((len(pixels), glimpse, glimpse, images.shape[-1]), np.uint8)
    for n, (row, column) in enumerate(pixels):
        image = np.flip(images[index[n]], 1) if flip[n] else images[index[n]]
        out[n] = image[row : row + glimpse, column : column + glimpse]
    return out


@st.composite
def scenes(draw):
    """Images and glimpses, often at borders or overlapping."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    number, height, width = draw(st.integers(1, 4)), draw(st.integers(3, 20)), draw(st.integers(3, 20))
    channels = draw(st.sampled_from([1, 3, 4]))
    glimpse = draw(st.integers(1, min(height, width)))
    images = generator.integers(0, 256, (number, height, width, channels), dtype=np.uint8)
    count = draw(st.integers(0, 8))
    last = np.array([height - glimpse, width - glimpse])
    pixels = generator.integers(0, last + 1, (count, 2))
    border = generator.random((count, 2))
    pixels = np.where(border < 0.25, 0, np.where(border > 0.75, last, pixels))
    return images, pixels, glimpse, generator.integers(0, number, count), generator.random(count) < 0.5


@given(scenes())
def test_cut_agrees_with_slices_of_flipped_images(scene):
    images, pixels, glimpse, index, flip = scene
    got = cut(
        torch.from_numpy(images),
        torch.from_numpy(pixels),
        glimpse=glimpse,
        index=torch.from_numpy(index),
        flip=torch.from_numpy(flip),
    )
    assert got.dtype == torch.uint8
    assert np.array_equal(got.numpy(), slow_cut(images, pixels, glimpse=glimpse, index=index, flip=flip))


@pytest.mark.parametrize("batch", [(5,), (5, 1), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize("flipped", [False, True])
def test_first_axis_names_the_image_and_further_axes_are_kept(batch, flipped):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (5, 16, 12, 3), dtype=np.uint8)
    pixels = generator.integers(0, (13, 9), (*batch, 2))
    flip = generator.random(batch) < 0.5
    got = cut(
        torch.from_numpy(images),
        torch.from_numpy(pixels),
        glimpse=4,
        flip=torch.from_numpy(flip) if flipped else None,
    )
    assert got.shape == (*batch, 4, 4, 3)
    expected = slow_cut(
        images,
        pixels.reshape(-1, 2),
        glimpse=4,
        index=np.arange(5).repeat(int(np.prod(batch[1:]))),
        flip=flip.reshape(-1) & flipped,
    )
    assert np.array_equal(got.numpy().reshape(expected.shape), expected)


def test_explicit_index_may_have_any_batch_shape():
    images = torch.randint(0, 256, (3, 9, 9, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([[2, 2, 0, 1], [0, 1, 1, 2]])
    pixels = torch.tensor([1, 4]).expand(2, 4, 2)
    assert cut(images, pixels, glimpse=5, index=index).equal(images[index][:, :, 1:6, 4:9])
    single = cut(images, torch.tensor([1, 4]), glimpse=5, index=torch.tensor(1))
    assert single.equal(images[1, 1:6, 4:9])


def test_flipped_image_is_read_mirrored():
    image = torch.arange(4 * 6, dtype=torch.uint8).reshape(1, 4, 6, 1)
    flipped = cut(image, torch.tensor([[1, 0]]), glimpse=2, flip=torch.tensor([True]))
    assert flipped[0, ..., 0].tolist() == [[11, 10], [17, 16]]


def test_mirrored_location_of_flipped_image_shows_the_glimpse_mirrored():
    grid = Grid.cub()
    images = torch.randint(0, 256, (1, 128, 128, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels = grid.pixels[None, ::7]
    flip = torch.ones(pixels.shape[:-1], dtype=torch.bool)
    mirrored = torch.stack([pixels[..., 0], 128 - 32 - pixels[..., 1]], -1)
    assert cut(images, mirrored, glimpse=32, flip=flip).equal(cut(images, pixels, glimpse=32).flip(-2))


def test_overlapping_glimpses_share_their_pixels():
    image = torch.arange(8 * 8, dtype=torch.uint8).reshape(1, 8, 8, 1)
    one, two = cut(image, torch.tensor([[[2, 2], [3, 4]]]), glimpse=4)[0]
    assert one[1:, 2:].equal(two[:-1, :-2])


def test_images_need_not_be_contiguous_or_own_their_memory():
    images = torch.randint(0, 256, (2, 3, 9, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    view = images.permute(0, 2, 3, 1)[:, 1:]
    pixels = torch.tensor([[0, 4], [4, 0]])
    assert cut(view, pixels, glimpse=4).equal(torch.stack([view[0, 0:4, 4:8], view[1, 4:8, 0:4]]))


def test_narrow_integer_locations_are_read_as_well():
    images = torch.randint(0, 256, (40, 64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels = torch.randint(0, 48, (40, 2), generator=torch.Generator().manual_seed(1))
    expected = cut(images, pixels, glimpse=16)
    for dtype in (torch.int16, torch.int32):
        assert cut(images, pixels.to(dtype), glimpse=16).equal(expected)


def test_batch_without_index_must_have_one_entry_per_image():
    images = torch.zeros(3, 8, 8, 3, dtype=torch.uint8)
    for pixels in (torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"first batch axis must have one entry per image \(3\)"):
            cut(images, pixels, glimpse=4)
