import zipfile
from pathlib import Path

import numpy as np
import pytest

import miniature
from nogs.data import Task, load_task, read_catalogue
from nogs.runtime.errors import InputError

CONFIG = miniature.CELEBA_HQ


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return miniature.celeba_hq(tmp_path / "data", count=12)


def load(data: Path) -> Task:
    return load_task(CONFIG, data=data, cache=data.parent / "cache")


def annotation(data: Path) -> Path:
    return data / "CelebAMask-HQ" / "CelebAMask-HQ-attribute-anno.txt"


def test_labels_are_those_of_the_annotation(data: Path) -> None:
    task = load(data)
    lines = annotation(data).read_text().splitlines()
    assert task.space.kind == "bernoulli"
    assert task.space.names == miniature.ATTRIBUTES
    assert task.ids == tuple(str(n) for n in range(12))
    for n, line in enumerate(lines[2:]):
        assert [1 if value == "1" else 0 for value in line.split()[1:]] == task.labels[n].tolist()
    smiling = task.attribute("Smiling")
    bright = task.images[:, smiling // 6 * 32 // 7 + 1, smiling % 6 * 32 // 6 + 1, 0] > 150
    assert np.array_equal(bright, task.labels[:, smiling] == 1)  # pictures and labels belong together


def test_layouts_are_the_same_task(data: Path, tmp_path: Path) -> None:
    expected = load(data)
    own = load(data / "CelebAMask-HQ")
    assert own.fingerprint == expected.fingerprint
    (tmp_path / "whole").mkdir()
    (data).rename(tmp_path / "whole" / "celeba-hq")
    below = load(tmp_path / "whole")
    assert below.fingerprint == expected.fingerprint
    folder = tmp_path / "whole" / "celeba-hq" / "CelebAMask-HQ"
    names = [f"CelebA-HQ-img/{n}.jpg" for n in range(12)]
    miniature.zipped(folder, folder / "images-0.zip", names=names[:7])
    miniature.zipped(folder, folder / "images-1.zip", names=names[7:], method=zipfile.ZIP_DEFLATED)
    archived = load(tmp_path / "whole")
    assert archived.fingerprint == expected.fingerprint
    assert np.array_equal(archived.images, expected.images)


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_other_suffixes_are_read(tmp_path: Path, suffix: str) -> None:
    assert len(load(miniature.celeba_hq(tmp_path / "data", count=6, suffix=suffix)).ids) == 6


def test_lines_may_come_in_any_order(data: Path) -> None:
    expected = load(data)
    count, names, *lines = annotation(data).read_text().splitlines()
    annotation(data).write_text("\n".join([count, names, *reversed(lines)]))
    assert load(data).fingerprint == expected.fingerprint


def refused(data: Path, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_catalogue(CONFIG, data=data)


def test_missing_things_are_named(data: Path) -> None:
    with pytest.raises(InputError, match="The task 'celeba-hq' needs its pictures; give --data the folder"):
        load_task(CONFIG)
    refused(data / "nowhere", r"There is no folder .*nowhere; check --data\.")
    for index in (3, 5):
        (data / "CelebAMask-HQ" / "CelebA-HQ-img" / f"{index}.jpg").unlink()
    refused(data, r"2 of the 12 images that .*anno\.txt lists are not in CelebA-HQ-img of .*, the first is 3; download")
    annotation(data).unlink()
    refused(data, r"There is no CelebAMask-HQ-attribute-anno\.txt in .*; give --data the folder of the CelebA-HQ")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("12\n", "13\n", r"anno\.txt says that it lists 13 images, but lists 12; download the file again"),
        ("12\n", "faces\n", "must start with a count and a line of names"),
        ("\n3.jpg", "\n4.jpg", r"Line 7 of .*anno\.txt names image 4 a second time; remove one of the lines"),
        ("\n3.jpg", "\nx.jpg", r"Line 6 of .*anno\.txt names 'x\.jpg', which is not <index>\.jpg"),
        ("\n3.jpg ", "\n3.jpg 1 ", r"Line 6 of .*anno\.txt has 41 values for 40 attributes"),
    ],
)
def test_damaged_annotation_is_refused_with_its_line(data: Path, old: str, new: str, sentence: str) -> None:
    text = annotation(data).read_text()
    assert old in text
    annotation(data).write_text(text.replace(old, new, 1))
    refused(data, sentence)


def test_label_outside_the_range_is_refused(data: Path) -> None:
    lines = annotation(data).read_text().splitlines()
    fields = lines[4].split()
    fields[2] = "2"
    lines[4] = " ".join(fields)
    annotation(data).write_text("\n".join(lines))
    refused(data, "Image 2 of .* has the value 2 for Arched_Eyebrows; it must be -1 or 1")


def test_image_in_two_formats_is_refused(data: Path) -> None:
    folder = data / "CelebAMask-HQ" / "CelebA-HQ-img"
    (folder / "5.png").write_bytes((folder / "5.jpg").read_bytes())
    refused(data, r"Two files are the same image: .*5\.jpg and .*5\.png; remove one of them")
