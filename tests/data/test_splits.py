import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import miniature
from nogs.data import DataConfig, Task, load_task, read_splits, write_splits
from nogs.data.splits import celeba_hq_splits, cub_splits, stratified_splits
from nogs.runtime.errors import InputError


def numbers(ids: tuple[str, ...]) -> list[int]:
    return [int(id) for id in ids]


def check(splits: dict[str, tuple[str, ...]], ids: list[str]) -> None:
    """The rules of every task: no annotated image trains the posterior, and splits are disjoint."""
    assert not set(splits["annotate"]) & set(splits["posterior"])
    assert set(splits["annotate"]) | set(splits["posterior"]) <= set(splits["train"])
    together = [*splits["train"], *splits["validation"], *splits["test"]]
    assert sorted(together) == sorted(ids)
    for members in splits.values():
        assert members, splits
        chosen = set(members)
        assert list(members) == [id for id in ids if id in chosen]


def test_celeba_hq_has_the_releases_ranges() -> None:
    ids = [str(n) for n in range(30_000)]
    splits, notes = celeba_hq_splits(ids, annotated=600)
    assert {split: (numbers(members)[0], numbers(members)[-1], len(members)) for split, members in splits.items()} == {
        "train": (0, 26_999, 27_000),
        "validation": (27_000, 27_499, 500),
        "test": (27_500, 29_999, 2_500),
        "annotate": (0, 599, 600),
        "posterior": (2_000, 26_999, 25_000),
    }
    assert notes == ()


@given(st.integers(4, 400), st.integers(1, 2_000))
def test_few_celeba_hq_images_fill_every_split(count: int, annotated: int) -> None:
    ids = [str(n) for n in range(count)]
    splits, notes = celeba_hq_splits(ids, annotated=annotated)
    check(splits, ids)
    assert abs(len(splits["test"]) - count / 12) <= 1.5
    assert notes == (f"CelebA-HQ has {count} images here, not 30,000: its splits are the same shares of them.",)


def test_celeba_hq_refuses_too_few_images_and_too_many_annotated() -> None:
    with pytest.raises(InputError, match="CelebA-HQ has only 3 images here; its splits need at least 4"):
        celeba_hq_splits(["0", "1", "2"], annotated=600)
    with pytest.raises(InputError, match="trains on images from 2000 on, so `annotated` can't be 2001"):
        celeba_hq_splits([str(n) for n in range(30_000)], annotated=2_001)


def test_cub_has_the_papers_sizes_and_the_releases_annotated_images() -> None:
    train = [str(n) for n in range(2, 11_990, 2)]
    test = [str(n) for n in range(1, 11_588, 2)]
    splits, notes = cub_splits(train, test, annotated=1_000, seed=0)
    assert {split: len(members) for split, members in splits.items()} == {
        "train": 5_120, "validation": 874, "test": 5_794, "annotate": 1_000, "posterior": 4_120,
    }  # fmt: skip
    assert splits["annotate"] == tuple(train[int(place)] for place in np.linspace(0, 5_993, 1_000))
    assert sorted([*splits["annotate"], *splits["posterior"]], key=int) == list(splits["train"])
    check(splits, sorted(train + test, key=int))
    assert notes == ()
    assert cub_splits(train, test, annotated=1_000, seed=0)[0] == splits
    assert cub_splits(train, test, annotated=1_000, seed=1)[0]["validation"] != splits["validation"]


@given(st.integers(3, 300), st.integers(1, 2_000))
def test_few_cub_images_fill_every_split(count: int, annotated: int) -> None:
    train = [str(n) for n in range(count)]
    check(cub_splits(train, ["test"], annotated=annotated, seed=0)[0], [*train, "test"])


def test_cub_refuses_to_annotate_all() -> None:
    with pytest.raises(InputError, match="leave none to train the posterior; lower `annotated`"):
        cub_splits([str(n) for n in range(5_994)], ["x"], annotated=5_120, seed=0)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=8), st.integers(0, 3))
def test_classes_keep_their_shares_in_a_folder(sizes: list[int], seed: int) -> None:
    classes = [f"c{k}" for k, size in enumerate(sizes) for _ in range(size)]
    ids = [f"{n:04}" for n in range(len(classes))]
    label = dict(zip(ids, classes))
    splits, _ = stratified_splits(ids, classes, given={}, validation_share=0.1, test_share=0.2, annotated=30, seed=seed)
    assert len(splits["posterior"]) >= len(splits["train"]) / 2
    assert not set(splits["annotate"]) & set(splits["posterior"])
    count = Counter(label[id] for id in splits["test"])
    for k, size in enumerate(sizes):
        # a class of one image gives none, so other classes replace its share
        assert abs(count[f"c{k}"] - 0.2 * size) <= 1.5 + 0.2 * sizes.count(1)
        assert any(label[id] == f"c{k}" for id in splits["train"])  # a class is never without a training image
    again, _ = stratified_splits(ids, classes, given={}, validation_share=0.1, test_share=0.2, annotated=30, seed=seed)
    assert again == splits


def test_many_classes_of_few_images_still_give_a_test_set() -> None:
    classes = [f"{k:02}" for k in range(25) for _ in range(4)]
    ids = [str(n) for n in range(100)]
    splits, notes = stratified_splits(
        ids, classes, given={}, validation_share=0.1, test_share=0.1, annotated=1_000, seed=0
    )
    assert (len(splits["test"]), len(splits["validation"]), len(splits["annotate"])) == (10, 10, 40)
    assert notes == ("Only 40 images are annotated, not 1000: half of the training images train the posterior.",)


@pytest.mark.parametrize("sizes", [[2] * 260, [4, 1]])
def test_classes_too_small_to_give_leave_it_to_others(sizes: list[int]) -> None:
    classes = [f"{k:03}" for k, size in enumerate(sizes) for _ in range(size)]
    ids = [f"{n:03}" for n in range(len(classes))]
    splits, _ = stratified_splits(ids, classes, given={}, validation_share=0.2, test_share=0.2, annotated=10, seed=0)
    check(splits, ids)
    assert len(splits["test"]) == len(splits["validation"]) == round(0.2 * len(ids))
    label = dict(zip(ids, classes))
    assert {label[id] for id in splits["train"]} == set(classes)


def test_one_annotated_image_is_said_in_the_singular() -> None:
    _, notes = stratified_splits(
        list("abcd"), list("xxyy"), given={}, validation_share=0, test_share=0.25, annotated=8, seed=0
    )
    assert notes == ("Only 1 image is annotated, not 8: half of the training images train the posterior.",)


def miniatures(root: Path) -> list[tuple[DataConfig, Path | None]]:
    digits = DataConfig(kind="digits", image_size=64, glimpse=12, grid_count=5, count=200, annotated=20)
    return [
        (miniature.CELEBA_HQ, miniature.celeba_hq(root / "celeba", count=30)),
        (miniature.CUB, miniature.cub(root / "cub")),
        (miniature.FOLDER, miniature.folder(root / "folder")),
        (digits, None),
    ]


def test_no_annotated_image_trains_the_posterior_in_any_task(tmp_path: Path) -> None:
    for config, data in miniatures(tmp_path):
        task = load_task(config, data=data, cache=tmp_path / "cache")
        assert task.splits["annotate"], config.kind
        assert task.splits["posterior"], config.kind
        assert not set(task.splits["annotate"]) & set(task.splits["posterior"]), config.kind
        both = set(task.splits["annotate"]) | set(task.splits["posterior"])
        assert both <= set(task.splits["train"]), config.kind
        assert not set(task.splits["train"]) & (set(task.splits["validation"]) | set(task.splits["test"])), config.kind


@pytest.fixture
def task(tmp_path: Path) -> Task:
    data = miniature.folder(tmp_path / "data")
    return load_task(miniature.FOLDER, data=data, cache=tmp_path / "cache")


def test_written_splits_are_honoured_on_the_next_run(task: Task, tmp_path: Path) -> None:
    run = tmp_path / "run"
    path = write_splits(task, run)
    assert path == run / "splits.json"
    assert read_splits(task, run) is task
    other = load_task(
        miniature.FOLDER.model_copy(update={"split_seed": 5}), data=tmp_path / "data", cache=tmp_path / "cache"
    )
    assert other.splits != task.splits
    honoured = read_splits(other, run)
    assert honoured.splits == task.splits
    assert honoured.fingerprint != other.fingerprint


def test_skipped_images_are_listed_with_the_splits(task: Task, tmp_path: Path) -> None:
    assert json.loads(write_splits(task, tmp_path / "whole").read_text())["skipped"] == []
    for name in ("cat/3.png", "dog/10.png", "dog/9.png"):
        (tmp_path / "data" / name).write_bytes(b"not a picture")
    fewer = load_task(miniature.FOLDER, data=tmp_path / "data", cache=tmp_path / "cache", skip_corrupt=True)
    path = write_splits(fewer, tmp_path / "run")
    assert json.loads(path.read_text())["skipped"] == ["cat/3.png", "dog/10.png", "dog/9.png"]
    assert read_splits(fewer, tmp_path / "run") is fewer
    record = json.loads(path.read_text())
    del record["skipped"]  # as in older runs
    path.write_text(json.dumps(record))
    assert read_splits(fewer, tmp_path / "run") is fewer


def test_unwritable_run_is_named(task: Task, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"Cannot write .*run.splits\.json \(.*\): .* another folder\."):
        write_splits(task, tmp_path / "run")


def test_splits_of_something_else_are_refused(task: Task, tmp_path: Path) -> None:
    path = write_splits(task, tmp_path)
    text = path.read_text()
    path.write_text(text.replace('"task": "folder"', '"task": "cub"'))
    with pytest.raises(InputError, match=r"splits\.json belongs to the task 'cub', not 'folder'; give another --out\."):
        read_splits(task, tmp_path)
    path.write_text(text.replace('"cat/3.png"', '"cat/99.png"'))
    with pytest.raises(InputError, match=r"splits\.json does not fit this data.*no image with the id 'cat/99\.png'"):
        read_splits(task, tmp_path)
    path.write_text(text.replace('"annotate"', '"annotated"'))
    with pytest.raises(InputError, match="must list the splits train, validation, test, annotate, posterior"):
        read_splits(task, tmp_path)
    path.write_text("[]")
    with pytest.raises(InputError, match=r"splits\.json has no field 'splits'"):
        read_splits(task, tmp_path)


def test_annotated_image_moved_into_the_posteriors_is_refused(task: Task, tmp_path: Path) -> None:
    path = write_splits(task, tmp_path)
    id = task.splits["annotate"][0]
    path.write_text(path.read_text().replace('"posterior": [', f'"posterior": [\n      "{id}",'))
    with pytest.raises(InputError, match=f"{id}.* is in both 'annotate' and 'posterior'"):
        read_splits(task, tmp_path)
