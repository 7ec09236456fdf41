from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import miniature
from nogs.data import Task, load_task, read_catalogue
from nogs.runtime.errors import InputError

CONFIG = miniature.CUB


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return miniature.cub(tmp_path / "data")


def load(data: Path) -> Task:
    return load_task(CONFIG, data=data, cache=data.parent / "cache")


def table(data: Path, name: str) -> list[list[str]]:
    return [line.split() for line in (data / "CUB_200_2011" / name).read_text().splitlines()]


def crop_of(data: Path, row: int) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """The picture and its square crop, read directly from the files."""
    with Image.open(data / "CUB_200_2011" / "images" / table(data, "images.txt")[row][1]) as opened:
        picture = opened.copy()
    x, y, w, h = map(float, table(data, "bounding_boxes.txt")[row][1:])
    half = int(max(w, h) * 0.75)
    middle = int(x + w / 2), int(y + h / 2)
    low = [max(0, m - half) for m in middle]
    high = [min(side, m + half) for side, m in zip(picture.size, middle)]
    return picture, (low[0], low[1], high[0], high[1])


def test_images_are_the_boxes_squares(data: Path) -> None:
    task = load(data)
    for row in range(len(task.ids)):
        picture, crop = crop_of(data, row)
        expected = picture.crop(crop).resize((32, 32), Image.Resampling.LANCZOS)
        assert np.array_equal(task.images[row], np.asarray(expected))


def test_labels_splits_and_classes(data: Path) -> None:
    task = load(data)
    assert task.ids == tuple(str(n) for n in range(1, 31))
    assert task.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert task.space.names == ("001.Bird_A", "002.Bird_B", "003.Bird_C")
    assert task.splits["test"] == tuple(str(n) for n in range(2, 31, 2))
    assert {split: len(members) for split, members in task.splits.items()} == {
        "train": 13, "validation": 2, "test": 15, "annotate": 3, "posterior": 10,
    }  # fmt: skip


def test_parts_and_boxes_move_with_the_crop(data: Path) -> None:
    task = load(data)
    assert task.parts is not None
    assert task.boxes is not None
    assert task.parts.names == miniature.PARTS
    for n, line in enumerate(table(data, "parts/part_locs.txt")):
        row, part = divmod(n, 15)
        _, (left, top, right, bottom) = crop_of(data, row)
        x, y, visible = float(line[2]), float(line[3]), line[4] == "1"
        assert task.parts.visible[row, part] == visible
        expected = ((y - top) / (bottom - top) * 32, (x - left) / (right - left) * 32) if visible else (0, 0)
        np.testing.assert_allclose(task.parts.positions[row, part], expected, rtol=1e-5, atol=1e-5)
    for row, line in enumerate(table(data, "bounding_boxes.txt")):
        _, (left, top, right, bottom) = crop_of(data, row)
        x, y, w, h = map(float, line[1:])
        tall, wide = 32 / (bottom - top), 32 / (right - left)
        expected = ((y - top) * tall, (x - left) * wide, h * tall, w * wide)
        np.testing.assert_allclose(task.boxes[row], expected, rtol=1e-5, atol=1e-5)
    # and the pixels agree: the middle of the box has the bird's single colour
    middle = (task.boxes[:, :2] + task.boxes[:, 2:] / 2).astype(int)
    seen = np.array([image[row, column] for image, (row, column) in zip(task.images, middle)])
    assert (seen.astype(int).sum(1) > 300).all()


def test_parts_stay_with_their_images_when_one_is_skipped(data: Path) -> None:
    whole = load(data)
    (path,) = (data / "CUB_200_2011" / "images").rglob("*_8.jpg")
    path.write_bytes(b"")
    task = load_task(CONFIG, data=data, cache=data.parent / "cache", skip_corrupt=True)
    kept = whole.rows(task.ids)
    assert len(kept) == 29
    assert whole.parts is not None
    assert task.parts is not None
    assert np.array_equal(task.parts.positions, whole.parts.positions[kept])
    assert np.array_equal(task.boxes, whole.boxes[kept])
    assert np.array_equal(task.images, whole.images[kept])
    assert np.array_equal(task.attributes, whole.attributes[kept])


def test_part_outside_the_crop_counts_as_hidden(data: Path) -> None:
    path = data / "CUB_200_2011" / "parts" / "part_locs.txt"
    lines = path.read_text().splitlines()
    lines[4] = "1 5 500.0 10.0 1"
    path.write_text("\n".join(lines))
    task = load(data)
    assert task.parts is not None
    assert not task.parts.visible[0, 4]


def test_attributes_of_the_class_stand_in_for_the_images_own(data: Path, tmp_path: Path) -> None:
    task = load(data)
    shares = np.array(table(data, "attributes/class_attribute_labels_continuous.txt"), float)
    assert task.attributes is not None
    np.testing.assert_allclose(task.attributes, shares[task.labels] / 100, rtol=1e-6)
    assert any("Attributes are those of the class" in note for note in task.notes)

    other = miniature.cub(tmp_path / "own", own_attributes=True)
    for _ in range(2):  # the second time from the cache
        task = load(other)
        assert task.attributes is not None
        ids = np.arange(1, 31)[:, None]
        assert np.array_equal(task.attributes, ((ids + np.arange(312)) % 3 == 0).astype(np.float32))
        assert any("Attributes are each image's own" in note for note in task.notes)


def test_attribute_names_are_read_where_they_are(data: Path) -> None:
    assert load(data).attribute_names[:2] == ("attribute 1", "attribute 2")
    (data / "attributes.txt").write_text("".join(f"{n} has_{n}::x\n" for n in range(1, 313)))
    assert load(data).attribute_names[:2] == ("has_1::x", "has_2::x")


def test_archives_are_read_in_place(data: Path) -> None:
    expected = load(data)
    folder = data / "CUB_200_2011"
    texts = [str(path.relative_to(folder)) for path in folder.rglob("*.txt")]
    miniature.zipped(folder, data / "annotations.zip", names=texts)
    miniature.zipped(folder, data / "images.zip", names=["images"])
    archived = load(data)
    assert archived.fingerprint == expected.fingerprint
    assert np.array_equal(archived.images, expected.images)


def test_copy_in_another_format_answers_to_the_same_list(data: Path) -> None:
    expected = load(data)
    for path in sorted((data / "CUB_200_2011" / "images").rglob("*.jpg")):
        with Image.open(path) as opened:
            opened.save(path.with_suffix(".webp"), lossless=True)
        path.unlink()
    assert np.array_equal(load(data).images, expected.images)


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("image_class_labels.txt", "7 1\n", "7 4\n", "Image 7 of image_class_labels.txt has the class 4, outside 1..3"),
        ("image_class_labels.txt", "7 1\n", "7 0\n", "Image 7 of image_class_labels.txt has the class 0, outside 1..3"),
        ("image_class_labels.txt", "7 1\n", "", "lists 29 images and images.txt 30: image 7 is in one only"),
        ("image_class_labels.txt", "7 1\n", "7 one\n", "Line 7 of image_class_labels.txt is '7 one', not a number"),
        ("classes.txt", "3 003.Bird_C\n", "3 003.Bird_C\n4 004.Bird_D\n", "Class '004.Bird_D' of classes.txt has no"),
        ("classes.txt", "3 003.Bird_C\n", "5 003.Bird_C\n", "must be numbered 1..3"),
        ("images.txt", "\n7 ", "\n6 ", "Line 7 of images.txt has the number 6 a second time"),
        ("images.txt", "Bird_0006_7.", "Bird_0005_6.", "Images 6 and 7 of images.txt are the same file"),
        ("images.txt", "Bird_0006_7.", "Bird_x.", "1 of the 30 images that images.txt lists are not in"),
        ("train_test_split.txt", "7 1\n", "7 5\n", "Image 7 of train_test_split.txt has the value 5; it must be 0"),
        ("bounding_boxes.txt", "\n7 ", "\n6 ", "bounding_boxes.txt has more than one line for an image"),
        ("bounding_boxes.txt", "\n7 ", "\nseven ", "bounding_boxes.txt is not a table of numbers (could not convert"),
        ("parts/part_locs.txt", "\n7 3 ", "\n7 4 ", "must have one line for each of 30 images and 15 parts"),
    ],
)  # fmt: skip
def test_damaged_file_is_refused(data: Path, name: str, old: str, new: str, sentence: str) -> None:
    path = data / "CUB_200_2011" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        read_catalogue(CONFIG, data=data)
    assert sentence in str(refused.value)


def test_class_table_of_another_dataset_is_refused(data: Path) -> None:
    path = data / "CUB_200_2011" / "attributes" / "class_attribute_labels_continuous.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:2]))
    with pytest.raises(InputError, match="has 2 lines for 3 classes; download the file again"):
        read_catalogue(CONFIG, data=data)
    path.write_text("\n".join([lines[0].replace(" ", " 101 ", 1), *lines[1:]]))
    with pytest.raises(InputError, match=r"class_attribute_labels_continuous\.txt is not a table of numbers"):
        read_catalogue(CONFIG, data=data)


def test_missing_list_is_named(data: Path) -> None:
    (data / "CUB_200_2011" / "images.txt").unlink()
    with pytest.raises(InputError, match=r"There is no images\.txt in .*; give --data the folder of the CUB-200-2011"):
        read_catalogue(CONFIG, data=data)
