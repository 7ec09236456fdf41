"""Random changes of images, compared with a slow computation pixel by pixel."""

import math

import numpy as np
import pytest
import torch

from nogs.glimpse import cut
from nogs.glimpse.changes import Changes, changed, draw_changes

IMAGES = torch.randint(256, (3, 11, 14, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
INDEX, FLIP = torch.tensor([2, 0, 2, 1]), torch.tensor([False, True, True, False])
LARGEST = {"zoom": (0.1, 0.4), "turn": 40.0, "move": 3.0, "colour": 0.4, "contrast": 0.3}
NOTHING = {name: (0.0, 0.0) if name == "zoom" else 0.0 for name in LARGEST}


def drawn(number=4, **largest):
    return draw_changes(7, torch.arange(number), **(NOTHING | largest))


def slowly(image, flip, changes, b, row, column):
    """One pixel of the changed image."""
    image = image[:, ::-1] if flip else image
    height, width, _ = image.shape
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    place = changes.turn[b].numpy() @ (np.array([row, column]) - centre) + changes.move[b].numpy()
    r, c = np.clip(place + centre, 0, [height - 1, width - 1])
    value = np.zeros(3)
    for i in range(height):
        for j in range(width):
            value += max(0, 1 - abs(r - i)) * max(0, 1 - abs(c - j)) * image[i, j].astype(float)
    value *= changes.gain[b].numpy()
    if changes.tone is not None:
        contrast, saturation, lighter = changes.tone[b].tolist()
        value = contrast * (value - 115) + 115 + lighter
        value = value.mean() + saturation * (value - value.mean())
    return np.clip(np.rint(value), 0, 255)


@pytest.mark.parametrize("contrast", [0.0, 0.3])
def test_whole_images_are_changed_as_pixel_by_pixel(contrast):
    changes = drawn(**(LARGEST | {"contrast": contrast}))
    found = changed(IMAGES, changes, index=INDEX, flip=FLIP).numpy().astype(int)
    for b in range(len(INDEX)):
        for row in range(11):
            for column in range(14):
                expected = slowly(IMAGES[INDEX[b]].numpy(), bool(FLIP[b]), changes, b, row, column)
                assert np.abs(found[b, row, column] - expected).max() <= 1  # halves may be rounded either way


def test_glimpses_are_those_of_the_changed_image():
    changes, pixels = drawn(**LARGEST), torch.randint(6, (4, 5, 2), generator=torch.Generator().manual_seed(1))
    whole = changed(IMAGES, changes, index=INDEX, flip=FLIP)
    glimpses = changed(IMAGES, changes, index=INDEX, flip=FLIP, pixels=pixels, glimpse=4)
    assert torch.equal(glimpses, cut(whole, pixels, glimpse=4))


def test_no_change_reads_the_image_itself():
    pixels = torch.randint(6, (4, 5, 2))
    plain = cut(IMAGES, pixels, glimpse=4, index=INDEX[:, None].expand(4, 5), flip=FLIP[:, None].expand(4, 5))
    assert torch.equal(changed(IMAGES, drawn(), index=INDEX, flip=FLIP, pixels=pixels, glimpse=4), plain)


@pytest.mark.parametrize("part", LARGEST)
def test_each_part_is_drawn_up_to_its_largest(part):
    changes = drawn(2000, **{part: LARGEST[part]})
    scale = changes.turn.det().sqrt()
    angle = torch.atan2(changes.turn[:, 1, 0], changes.turn[:, 0, 0])
    found = {
        "zoom": 1 / scale - 1,
        "turn": angle * 180 / math.pi,
        "move": changes.move,
        "colour": changes.gain - 1,
    }
    if changes.tone is not None:
        found["contrast"] = torch.cat([changes.tone[:, :2] - 1, changes.tone[:, 2:] / 255 * 4], 1)
    assert (changes.tone is None) == (part != "contrast")
    for name, values in found.items():
        bound = LARGEST[name] if name == part else 1e-4
        smaller, larger = bound if isinstance(bound, tuple) else (bound, bound)
        assert values.min() >= -1.001 * smaller
        assert values.max() <= 1.001 * larger
        if name == part:
            assert values.max() > 0.95 * larger
            assert values.min() < -0.95 * smaller
            assert abs(values.mean() - (larger - smaller) / 2) < 0.1 * larger


def test_a_change_depends_on_its_counter_alone():
    some, one = drawn(**LARGEST), draw_changes(7, torch.tensor([2]), **LARGEST)
    for name in vars(one):
        assert torch.equal(getattr(one, name)[0], getattr(some, name)[2])
    assert isinstance(one, Changes)
