import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from nogs.data import DataConfig, digits
from nogs.data.digits import POOLS, _pool, load_digits_task, render_digits
from nogs.runtime.errors import InputError


def render(ids, *, pool="posterior", seed=0, fragments=8, image_size=64):
    return render_digits(ids, pool=pool, seed=seed, fragments=fragments, image_size=image_size)


def config(**fields):
    return DataConfig(
        **{"kind": "digits", "image_size": 64, "glimpse": 12, "grid_spacing": 4, "count": 60, "annotated": 5} | fields
    )


def ink(image):
    """Brightness over the background, 0..1."""
    grey = image.astype(float).mean(-1)
    return (grey - grey.min()) / np.ptp(grey)


def test_image_is_the_same_whichever_images_are_drawn_with_it():
    images, labels, boxes = render(range(12))
    for n in (0, 7, 11):
        image, label, box = render([n])
        assert np.array_equal(image[0], images[n])
        assert label[0] == labels[n]
        assert np.array_equal(box[0], boxes[n])


def test_image_is_the_same_at_any_count():
    few, many = load_digits_task(config(count=30)), load_digits_task(config(count=70))
    assert np.array_equal(few.images, many.images[:30])
    assert np.array_equal(few.labels, many.labels[:30])
    assert np.array_equal(few.boxes, many.boxes[:30])


def test_seed_and_pool_and_id_change_the_image():
    first = render([0])[0]
    assert not np.array_equal(first, render([0], seed=1)[0])
    assert not np.array_equal(first, render([0], pool="test")[0])
    assert not np.array_equal(first, render([1])[0])


def test_ink_lies_in_the_box_and_nowhere_else_without_fragments():
    images, _, boxes = render(range(30), fragments=0)
    for image, (row, column, height, width) in zip(images, boxes.astype(int)):
        bright = ink(image) > 0.3
        inside = np.zeros((64, 64), bool)
        inside[row : row + height, column : column + width] = True
        assert not (bright & ~inside).any()
        rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
        assert abs(rows[-1] + 1 - rows[0] - height) <= 2
        assert abs(columns[-1] + 1 - columns[0] - width) <= 2


def test_label_is_the_digit_that_the_box_shows():
    """Nearest neighbour among scikit-learn's digits, each cropped to its ink and resized to one size."""
    images, labels, boxes = render(range(60), fragments=0)
    source, truth = load_digits(return_X_y=True)

    def normal(grey):
        rows, columns = np.flatnonzero((grey > 64).any(1)), np.flatnonzero((grey > 64).any(0))
        cut = grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        return np.asarray(Image.fromarray(cut).resize((16, 16), Image.Resampling.BILINEAR), dtype=float).ravel()

    known = np.stack([normal((digit.reshape(8, 8) * 15.9).astype(np.uint8)) for digit in source])
    right = 0
    for image, label, (row, column, height, width) in zip(images, labels, boxes.astype(int)):
        seen = normal((ink(image)[row : row + height, column : column + width] * 255).astype(np.uint8))
        right += truth[((known - seen) ** 2).sum(1).argmin()] == label
    assert right >= 57


def test_fragments_add_ink_outside_the_box_and_leave_the_digit_where_it_is():
    plain, _, boxes = render(range(20), fragments=0)
    cluttered, _, same = render(range(20), fragments=8)
    assert np.array_equal(boxes, same)
    brighter = (cluttered.astype(int) - plain).max(-1)
    assert (brighter >= 0).all()
    outside = np.ones((20, 64, 64), bool)
    for n, (row, column, height, width) in enumerate(boxes.astype(int)):
        outside[n, row : row + height, column : column + width] = False
    assert ((brighter > 60) & outside).sum((1, 2)).min() > 20


def test_no_digit_fits_into_one_glimpse_and_all_fit_into_the_image():
    task = load_digits_task(config())
    row, column, height, width = task.boxes.T
    assert height.min() > task.grid.glimpse
    assert min(row.min(), column.min()) >= 0
    assert max((row + height).max(), (column + width).max()) <= 64


def test_digits_lie_anywhere():
    row, column, height, width = render(range(300))[2].T
    for start, length in ((row, height), (column, width)):
        centre = start + length / 2
        assert centre.min() < 16
        assert centre.max() > 48


def test_pools_share_no_source_digit_and_are_stratified():
    labels = load_digits().target
    pools = {pool: set(_pool(pool).tolist()) for pool in dict.fromkeys(POOLS)}
    assert sum(map(len, pools.values())) == len(set().union(*pools.values())) == 1797
    assert set(_pool("train").tolist()) == pools["annotate"] | pools["posterior"]
    share = {"annotate": 0.2, "posterior": 0.6, "validation": 0.1, "test": 0.1}
    for pool, members in pools.items():
        counts = np.bincount(labels[sorted(members)], minlength=10)
        assert np.abs(counts - share[pool] * np.bincount(labels)).max() < 2


def test_splits_are_80_10_10_and_no_annotated_image_trains_the_posterior():
    task = load_digits_task(config(count=200, annotated=12))
    sizes = {name: len(ids) for name, ids in task.splits.items()}
    assert sizes == {"train": 160, "validation": 20, "test": 20, "annotate": 12, "posterior": 120}
    assert not set(task.splits["annotate"]) & set(task.splits["posterior"])
    assert task.ids == tuple(str(n) for n in range(200))
    assert len(task.grid) == 196


def test_images_of_a_split_are_of_its_pool():
    task = load_digits_task(config(count=40))
    for split in ("validation", "test", "annotate", "posterior"):
        rows = task.rows(split)
        assert np.array_equal(task.images[rows], render(rows.tolist(), pool=split)[0])


def test_every_size_of_canvas_keeps_its_proportions():
    small, _, box_small = render(range(20), image_size=32)
    large, _, box_large = render(range(20), image_size=128)
    assert small.shape == (20, 32, 32, 3)
    assert large.shape == (20, 128, 128, 3)
    assert np.abs(box_large / 4 - box_small).max() < 2


def test_fingerprint_follows_the_configuration():
    assert load_digits_task(config()).fingerprint == load_digits_task(config()).fingerprint
    assert load_digits_task(config()).fingerprint != load_digits_task(config(fragments=3)).fingerprint


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"count": 9}, "data.count must be at least 10 so that no split is empty, but is 9."),
        ({"count": 50, "annotated": 11}, "data.annotated must be in 0..10, a fifth of data.count = 50, but is 11;"),
        ({"image_size": 15}, "data.image_size must be at least 16 px for digits, but is 15."),
    ],
)
def test_impossible_configuration_is_refused(fields, sentence):
    with pytest.raises(InputError) as error:
        load_digits_task(config(**fields))
    assert sentence in str(error.value)


def test_unknown_pool_is_our_mistake():
    with pytest.raises(ValueError, match="No pool 'tset'"):
        render([0], pool="tset")


def test_more_images_than_the_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr(digits, "physical_memory", lambda: 2**30)
    with pytest.raises(InputError, match=r"9,000,000 digits of 64 px take 103 GiB, and this machine has 1 GiB"):
        load_digits_task(config(count=9_000_000))
