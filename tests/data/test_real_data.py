"""The real datasets, where available: their annotations, and a few pictures."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from nogs.data import CELEBA_HQ, CUB, DataConfig, Task, read_catalogue
from nogs.data.cache import prepare
from nogs.data.images import box_square
from real_data import real_data


def some(config: DataConfig, data: Path, rows: list[int], cache: Path) -> Task:
    """A task of a few rows, decoded anew."""
    catalogue = read_catalogue(config, data=data).take(rows)
    first, second, third, *more = catalogue.ids
    train = (first, *more)
    splits = {"train": train, "validation": (second,), "test": (third,), "annotate": (first,), "posterior": ()}
    prepared = prepare(
        name="some", entries=catalogue.entries, boxes=catalogue.boxes, how=catalogue.how, cache=cache, workers=1
    )
    return replace(catalogue, splits=splits).task(prepared, grid=config.grid)


def test_celeba_hq(tmp_path: Path) -> None:
    data = real_data("celeba-hq")
    catalogue = read_catalogue(CELEBA_HQ, data=data)
    assert catalogue.labels.shape == (30_000, 40)
    assert catalogue.ids == tuple(str(n) for n in range(30_000))
    sizes = {split: len(members) for split, members in catalogue.splits.items()}
    assert sizes == {"train": 27_000, "validation": 500, "test": 2_500, "annotate": 600, "posterior": 25_000}
    assert not set(catalogue.splits["annotate"]) & set(catalogue.splits["posterior"])
    test = catalogue.labels[27_500:].mean(0)
    assert np.maximum(test, 1 - test).mean().round(4) == 0.7945  # the majority class's accuracy
    assert catalogue.labels[27_000:27_500, catalogue.space.names.index("Blurry")].sum() == 0
    male = catalogue.labels[:, catalogue.space.names.index("Male")]
    assert (male[:27_000].mean().round(2), male[27_000:27_500].mean().round(2)) == (0.36, 0.46)
    task = some(CELEBA_HQ, data, [234, 235, 29_999], tmp_path)
    assert task.images.shape == (3, 224, 224, 3)
    difference = np.abs(task.images[0].astype(int) - task.images[1]).mean()
    assert difference < 3 < np.abs(task.images[0].astype(int) - task.images[2]).mean()  # 234 and 235 are duplicates


def test_cub(tmp_path: Path) -> None:
    data = real_data("cub-200-2011")
    catalogue = read_catalogue(CUB, data=data)
    assert (len(catalogue.ids), len(catalogue.space.names)) == (11_788, 200)
    sizes = {split: len(members) for split, members in catalogue.splits.items()}
    assert sizes == {"train": 5_120, "validation": 874, "test": 5_794, "annotate": 1_000, "posterior": 4_120}
    assert not set(catalogue.splits["annotate"]) & set(catalogue.splits["posterior"])
    assert catalogue.attributes is not None
    assert catalogue.attributes.shape == (11_788, 312)
    assert catalogue.points is not None
    assert len(catalogue.points.names) == 15
    rows = list(range(0, 11_788, 400))
    task = some(CUB, data, rows, tmp_path)
    assert task.images.shape == (30, 128, 128, 3)
    assert task.parts is not None
    assert (task.parts.visible == catalogue.points.visible[rows]).all()  # no visible part falls outside its crop
    assert task.boxes is not None
    assert (task.boxes > -2).all()
    assert (task.boxes[:, :2] + task.boxes[:, 2:] < 130).all()


def test_annotated_cub_images_are_those_of_the_released_sequences() -> None:
    data = real_data("released-sequences.zip")
    with zipfile.ZipFile(data / "released-sequences.zip") as archive:
        lists = [archive.read(name).decode().split() for name in archive.namelist() if "/birds/" in name]
    released = {str(int(Path(words[-1]).stem) + 1) for words in lists if words}
    real_data("cub-200-2011")
    assert set(read_catalogue(CUB, data=data).splits["annotate"]) == released


def test_crop_of_the_cut_copy_is_the_whole_picture() -> None:
    """The copy's pictures are cut by the same rule already; scaling them left at most 2 px of rounding."""
    catalogue = read_catalogue(CUB, data=real_data("cub-200-2011/images.zip"))
    assert catalogue.boxes is not None
    for row in range(0, 11_788, 100):
        width, height = Image.open(io.BytesIO(catalogue.entries[row].read())).size
        left, top, right, bottom = box_square(catalogue.boxes[row].tolist(), width, height)
        assert max(left, top, width - right, height - bottom) <= 2
