import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import miniature
from nogs.data import Task, load_task, read_catalogue
from nogs.runtime.errors import InputError

CONFIG = miniature.FOLDER


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return miniature.folder(tmp_path / "data")


def load(data: Path, **fields) -> Task:
    return load_task(CONFIG.model_copy(update=fields), data=data, cache=data.parent / "cache")


def refused(data: Path, sentence: str, **fields) -> None:
    with pytest.raises(InputError, match=sentence):
        load(data, **fields)


def test_task_is_called_by_its_folder_and_a_renamed_copy_is_the_same(data: Path) -> None:
    task = load(data)
    assert task.title == "data"
    with pytest.raises(InputError, match=r"Task 'data' has no image with the id 'cat/none\.png'"):
        task.rows(["cat/none.png"])
    other = load(data.rename(data.with_name("of mine")))
    assert other.title == "of mine"
    assert other.fingerprint == task.fingerprint
    assert load_task(miniature.CUB, data=miniature.cub(data.parent / "x"), cache=data.parent / "c").title == "cub"


def test_class_folders_become_labels(data: Path) -> None:
    task = load(data)
    assert task.space.names == ("cat", "dog")
    assert set(task.ids) == {f"{name}/{n}.png" for name in ("cat", "dog") for n in range(12)}
    assert all(task.space.names[label] == id.split("/")[0] for id, label in zip(task.ids, task.labels))
    # cats are red and dogs green: pictures and labels belong together
    assert np.array_equal(task.images.mean((1, 2)).argmax(1), task.labels)
    assert {split: len(members) for split, members in task.splits.items()} == {
        "train": 17, "validation": 2, "test": 5, "annotate": 8, "posterior": 9,
    }  # fmt: skip


def test_splits_depend_on_the_seed_alone(data: Path) -> None:
    assert load(data).splits == load(data).splits
    assert load(data, split_seed=1).splits["test"] != load(data).splits["test"]


def test_classes_of_numbers_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    data = miniature.folder(tmp_path / "data", classes=("10", "9", "1"), per_class=6)
    assert load(data).space.names == ("1", "9", "10")


def test_folders_named_by_split_are_the_splits(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        miniature.folder(tmp_path / "data" / split, per_class=4)
    task = load(tmp_path / "data")
    assert task.space.names == ("cat", "dog")
    for split, top in (("train", "train"), ("validation", "val"), ("test", "test")):
        assert task.splits[split] == tuple(id for id in task.ids if id.startswith(f"{top}/"))


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_mixed_sizes_become_one(data: Path, fit: str) -> None:
    assert load(data, fit=fit).images.shape == (24, 32, 32, 3)


def test_csv_gives_labels_and_splits(data: Path) -> None:
    names = ["train", "validation", "test"]
    rows = [(f"cat/{n}.png", f"mood {n % 2}", names[n % 3]) for n in range(12)]
    miniature.labels_csv(data, rows, header=("file", "mood", "part"))
    task = load(data, labels="labels.csv", image_column="file", label_column="mood", split_column="part")
    assert task.space.names == ("mood 0", "mood 1")
    for id, label, split in rows:
        assert task.space.names[task.labels[task.position[id]]] == label
        assert id in task.splits[split]
    assert "12 pictures of data are not in labels.csv and are left out." in task.notes
    for n in range(1, 12):
        (data / "dog" / f"{n}.png").unlink()
    fields = {"image_column": "file", "label_column": "mood", "split_column": "part"}
    assert "1 picture of data is not in labels.csv and is left out." in load(data, labels="labels.csv", **fields).notes


def test_csv_without_splits_gets_stratified_ones(data: Path) -> None:
    path = miniature.labels_csv(data, [(f"cat/{n}.png", "ab"[n % 2]) for n in range(12)])
    path.write_text("\ufeff" + path.read_text())  # as spreadsheets write it
    task = load(data, labels="labels.csv")
    assert [len(task.splits[split]) for split in ("train", "validation", "test")] == [9, 1, 2]


def test_transparent_and_grey_pictures_are_converted_and_said(data: Path) -> None:
    Image.new("RGBA", (40, 40), (255, 0, 0, 0)).save(data / "cat" / "0.png")
    Image.new("L", (40, 40), 77).save(data / "cat" / "1.png")
    task = load(data)
    assert (task.images[task.position["cat/0.png"]] == 255).all()
    assert (task.images[task.position["cat/1.png"]] == 77).all()
    (note,) = [note for note in task.notes if "converted" in note]
    assert "1 grey" in note
    assert "1 transparent, laid on white" in note


def test_bad_folders_are_refused(data: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", r"There is no folder .*nowhere; check --data")
    refused(data / "cat" / "0.png", r"0\.png is a file, not a folder; give --data the folder that holds the pictures")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", r"There is no picture in .*empty \(\.jpg, .*\); give a folder that has some\.")
    refused(data / "cat", "has pictures but no class folders; make one folder per class, or name a CSV")
    (data / "bird").mkdir()
    refused(data, r"The class folder .*bird holds no picture; fill it or remove it")
    (data / "bird").rmdir()
    Image.new("RGB", (40, 40)).save(data / "stray.png")
    refused(data, r"stray\.png is beside the class folders, not in one; move it")
    (data / "stray.png").unlink()
    (data / "dog").rename(tmp_path / "dog")
    refused(data, "have only one class, 'cat'; a task needs at least 2")


def test_folder_above_that_of_the_classes_is_refused_with_its_name(data: Path, tmp_path: Path) -> None:
    nest = tmp_path / "nest"
    nest.mkdir()
    data.rename(nest / "group")
    group = "only one class, 'group'; its classes seem to be in .*nest/group; give that folder"
    refused(nest, group)
    Image.new("RGB", (40, 40)).save(nest / "group" / "stray.png")
    refused(nest, "only one class, 'group'; a task needs at least 2")
    (nest / "group" / "stray.png").unlink()
    (nest / "group").rename(tmp_path / "inner")
    (nest / "group").mkdir()
    (tmp_path / "inner").rename(nest / "group" / "inner")
    refused(nest, "only one class, 'group'; its classes seem to be in .*nest/group/inner; give that folder")
    (nest / "group" / "inner" / "dog").rename(tmp_path / "dog")
    refused(nest, "only one class, 'group'; a task needs at least 2")
    for split in ("train", "test"):
        miniature.folder(tmp_path / "splits" / split / "group", per_class=2)
    refused(tmp_path / "splits", "only one class, 'group'; a task needs at least 2")


def test_bad_csv_is_refused(data: Path) -> None:
    def csv(rows: list, sentence: str, header: tuple = ("image", "label"), **fields) -> None:
        miniature.labels_csv(data, rows, header)
        refused(data, sentence, labels="labels.csv", **fields)

    refused(data, r"There is no file .*other\.csv", labels="other.csv")
    csv([("cat/0.png", "a")], r"labels\.csv has no column 'label'; it has image, kind", header=("image", "kind"))
    csv([("cat/0.png", "a")], r"labels\.csv has no column 'part'; it has image, label", split_column="part")
    csv([("cat/0.png", "a"), ("cat/x.png", "b")], r"names 1 picture that is not in .*, the first is 'cat/x\.png'")
    csv([("cat/0.png", "a"), ("./cat/0.png", "b")], r"Line 3 of .*labels\.csv names the image 'cat/0\.png' a second")
    csv([("cat/0.png", "")], r"Line 2 of .*labels\.csv has no image or no label")
    csv([], r"labels\.csv lists no image")
    csv([], r"labels\.csv has its columns separated by ';'; save it with commas between them", header=("image;label",))
    header = ("image", "label", "split")
    csv(
        [("cat/0.png", "a", "exam")], r"Line 2 of .* has the split 'exam'; use train, validation or test", header=header
    )


def test_empty_split_is_refused(tmp_path: Path) -> None:
    data = miniature.folder(tmp_path / "data", per_class=2)
    shares = "add images, raise --data.validation-share or lower --data.test-share"
    refused(data, f"The split 'validation' of the pictures in .* is empty; {shares}", test_share=0.9)
    miniature.labels_csv(data, [("cat/0.png", "a", "val"), ("dog/0.png", "b", "train")], ("image", "label", "split"))
    shares = "add images, raise --data.test-share or lower --data.validation-share"
    refused(data, f"The split 'test' of .* is empty; {shares}", labels="labels.csv")
    miniature.labels_csv(
        data, [(f"{name}/0.png", name, "test") for name in ("cat", "dog")], ("image", "label", "split")
    )
    refused(data, "The split 'train' of the pictures in .* is empty; give it images", labels="labels.csv")


def test_pictures_that_all_differ_in_class_are_refused(data: Path) -> None:
    rows = [(f"{name}/{n}.png", f"{name} {n}") for name in ("cat", "dog") for n in range(4)]
    miniature.labels_csv(data, rows, ("image", "label"))
    refused(data, "Each of the 8 pictures in .* has a class of its own; a class needs several", labels="labels.csv")


def test_splits_that_no_picture_is_given_for_are_drawn_and_noted(data: Path) -> None:
    rows = [(f"{name}/{n}.png", name, "train") for name in ("cat", "dog") for n in range(4)]
    miniature.labels_csv(data, rows, ("image", "label", "split"))
    task = load(data, labels="labels.csv", validation_share=0.25, test_share=0.25)
    assert (len(task.splits["validation"]), len(task.splits["test"])) == (2, 2)
    for split in ("validation", "test"):
        assert f"No image is given for the split {split!r}: it is drawn from the training images." in task.notes


def test_class_without_a_training_image_is_noted(tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        miniature.folder(tmp_path / "data" / split, per_class=4)
    assert not any("no training image" in note for note in load(tmp_path / "data").notes)
    miniature.folder(tmp_path / "data" / "val", classes=("z",), per_class=1)
    assert "Class 'z' has no training image." in load(tmp_path / "data").notes
    miniature.folder(tmp_path / "data" / "test", classes=("y",), per_class=1)
    notes = load(tmp_path / "data").notes
    assert "Classes 'y', 'z' have no training image." in notes
    assert "Class 'y' has no validation image." in notes
    assert "Class 'z' has no test image." in notes


def test_classes_left_without_pictures_are_refused(data: Path) -> None:
    for n in range(12):
        (data / "dog" / f"{n}.png").write_bytes(b"no picture")
    sentence = "^After leaving out 12 unreadable pictures only class 'cat' of data has pictures; two classes are needed"
    refused(data, sentence, skip_corrupt=True)
    rows = [(f"cat/{n}.png", "ab"[n > 5], "train" if n < 6 else "validation" if n < 9 else "test") for n in range(12)]
    miniature.labels_csv(data, rows, ("image", "label", "split"))
    refused(data, "^Only class 'a' of data has training pictures; two classes are needed", labels="labels.csv")


def test_pictures_of_other_endings_are_counted(data: Path) -> None:
    for name in ("cat/a.gif", "cat/b.HEIC", "dog/c.heic", "dog/.d.gif", "dog/notes.txt"):
        (data / name).write_bytes(b"")
    (note,) = [note for note in load(data).notes if note.startswith("Left out")]
    assert note == "Left out 1 .gif file, 2 .heic files: only .jpg, .jpeg, .png, .webp, .bmp, .tif, .tiff are read."


@pytest.mark.parametrize("target", ["gone.png", "link.png"])
def test_link_to_nothing_is_an_unreadable_picture(data: Path, target: str) -> None:
    whole = load(data)
    (data / "cat" / "link.png").symlink_to(target)
    refused(data, r"1 of 25 pictures can't be read: .*cat/link\.png \([A-Z][\w ]+\); .* with --skip-corrupt")
    task = load_task(CONFIG, data=data, cache=data.parent / "cache", skip_corrupt=True)
    assert task.ids == whole.ids
    assert task.skipped == ("cat/link.png",)
    assert "Left out 1 unreadable picture: cat/link.png; replace or delete it." in task.notes


def test_folder_that_may_not_be_looked_into_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests may run as root, for whom every folder is readable; so the system's errors are simulated."""
    (data / "cat" / "closed").mkdir()
    stat, scandir = os.stat, os.scandir

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(path: Any, *args: Any, **how: Any) -> Any:
            text = str(path)
            if text.endswith("closed/recipe.yaml") or (call is scandir and text.endswith("closed")):
                raise PermissionError(errno.EACCES, "Permission denied", text)
            return call(path, *args, **how)

        return answer

    monkeypatch.setattr(os, "stat", refusing(stat))
    monkeypatch.setattr(os, "scandir", refusing(scandir))
    refused(data, r"Cannot read the folder .*closed \(Permission denied\); check its permissions\.")


def test_link_to_a_folder_above_is_not_followed(data: Path, tmp_path: Path) -> None:
    whole = load(data)
    (data / "cat" / "loop").symlink_to(data)
    (data / "cat" / "self").symlink_to(data / "cat")
    miniature.folder(tmp_path / "more", classes=("x",), per_class=1)
    assert load(data).ids == whole.ids
    (data / "cat" / "linked").symlink_to(tmp_path / "more" / "x")
    assert set(load(data).ids) - set(whole.ids) == {"cat/linked/0.png"}


def test_folders_of_the_system_are_no_classes(data: Path) -> None:
    for name in ("__MACOSX", ".thumbnails"):
        miniature.folder(data, classes=(name,), per_class=2)
    (data / "cat" / "__MACOSX").mkdir()
    (data / "cat" / "__MACOSX" / "0.png").write_bytes(b"")
    task = load(data)
    assert task.space.names == ("cat", "dog")
    assert len(task.ids) == 24


def test_runs_among_the_pictures_are_no_classes(data: Path) -> None:
    before = load(data)
    run = miniature.folder(data, classes=("runs/mine/data", "runs/mine.before/bank", "cat/mine/posterior"), per_class=3)
    for place in ("runs/mine", "cat/mine"):
        (run / place / "data").mkdir(exist_ok=True)
        (run / place / "recipe.yaml").write_text("name: mine\n")
    after = load(data)
    assert after.ids == before.ids
    assert after.fingerprint == before.fingerprint


def test_no_picture_is_opened_for_the_catalogue(data: Path) -> None:
    for path in data.rglob("*.png"):
        path.write_bytes(b"not a picture")
    assert len(read_catalogue(CONFIG, data=data).ids) == 24


def test_pipes_and_devices_are_named_as_unreadable_pictures(data: Path) -> None:
    os.mkfifo(data / "cat" / "pipe.png")
    (data / "dog" / "zero.png").symlink_to("/dev/zero")
    refused(data, r"(?s)pipe\.png.*not a regular file.*zero\.png.*not a regular file")


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("x" * 140_000, r"Line 3 of .*labels\.csv can't be read \(field larger than field limit.*\); correct it\."),
        ("7" * 5000, r"Line 3 of .*labels\.csv has a label of 5,000 characters; use at most 255\."),
    ],
)
def test_a_label_that_no_one_can_read_is_refused_with_its_line(data: Path, label: str, sentence: str) -> None:
    (data / "labels.csv").write_text(f"image,label\ncat/0.png,cat\ncat/1.png,{label}\n")
    refused(data, sentence, labels="labels.csv")


def test_names_of_numbers_are_in_order_however_long_they_are(data: Path) -> None:
    labels = ["9", "10", "007", "8" * 200, "7" * 201, "a"]
    lines = [f"cat/{n}.png,{label}" for n, label in enumerate(labels * 2)]
    (data / "labels.csv").write_text("\n".join(["image,label", *lines]))
    names = read_catalogue(CONFIG.model_copy(update={"labels": "labels.csv"}), data=data).space.names
    assert names == ("007", "9", "10", "8" * 200, "7" * 201, "a")
