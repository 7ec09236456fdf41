import errno
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import miniature
from nogs.data import Task, load_task, read_catalogue
from nogs.data import cache as cache_module
from nogs.data.images import decode
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_sealed
from nogs.runtime.lock import held

CONFIG = miniature.CELEBA_HQ


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return miniature.celeba_hq(tmp_path / "data", count=12)


def load(data: Path, **options) -> Task:
    return load_task(CONFIG, data=data, cache=data.parent / "cache", **options)


def spoil(data: Path, *indices: int) -> None:
    """Cut pictures short, as an interrupted download does."""
    for index in indices:
        path = data / "CelebAMask-HQ" / "CelebA-HQ-img" / f"{index}.jpg"
        path.write_bytes(path.read_bytes()[:-400])


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_images_are_what_pillow_decodes_one_by_one(data: Path) -> None:
    task = load(data)
    catalogue = read_catalogue(CONFIG, data=data)
    expected = np.stack([decode(entry.read(), catalogue.how).pixels for entry in catalogue.entries])
    assert isinstance(task.images, np.memmap)
    assert np.array_equal(task.images, expected)


def test_processes_decode_the_same_as_one(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_CHUNK", 5)  # three chunks, the last one short
    alone = load_task(CONFIG, data=data, cache=data.parent / "one", workers=1)
    together = load_task(CONFIG, data=data, cache=data.parent / "two", workers=2)
    assert np.array_equal(alone.images, together.images)
    assert alone.fingerprint == together.fingerprint


def test_second_start_decodes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(data)
    monkeypatch.setattr(cache_module, "_decode_all", lambda *_: pytest.fail("decoded again"))
    assert np.array_equal(load(data).images, first.images)


def test_changed_picture_is_decoded_again(data: Path) -> None:
    before = load(data).images.copy()
    path = data / "CelebAMask-HQ" / "CelebA-HQ-img" / "3.jpg"
    Image.new("RGB", (48, 48), "red").save(path)
    after = load(data).images
    assert not np.array_equal(before[3], after[3])
    assert np.array_equal(np.delete(before, 3, 0), np.delete(after, 3, 0))


def test_copy_elsewhere_is_the_same_task(data: Path, tmp_path: Path) -> None:
    other = miniature.celeba_hq(tmp_path / "elsewhere", count=12)
    for path in other.rglob("*.jpg"):
        os.utime(path, (0, 0))
    assert load(data).fingerprint == load_task(CONFIG, data=other, cache=tmp_path / "cache").fingerprint


@pytest.mark.parametrize("lost", ["cache.json", "images.npy", "sizes.npy"])
def test_half_written_cache_is_not_used(data: Path, lost: str) -> None:
    images = load(data).images.copy()
    folder = only(data.parent / "cache")
    (folder / lost).unlink()
    if lost == "cache.json":  # the pixels exist, but no record says that they are complete
        with (folder / "images.npy").open("r+b") as file:
            file.seek(-500, os.SEEK_END)
            file.write(bytes(500))
    assert np.array_equal(load(data).images, images)


def test_truncated_pixels_are_not_used(data: Path) -> None:
    images = load(data).images.copy()
    path = only(data.parent / "cache") / "images.npy"
    os.truncate(path, path.stat().st_size - 1000)
    assert np.array_equal(load(data).images, images)


def test_interrupted_decoding_leaves_no_cache(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, workers: int) -> None: ...

        def map(self, function, items, *, shared):
            yield 0, function(items[0], shared)
            raise KeyboardInterrupt

    monkeypatch.setattr(cache_module, "_CHUNK", 5)
    with monkeypatch.context() as patched:
        patched.setattr(cache_module, "LocalExecutor", Killed)
        with pytest.raises(KeyboardInterrupt):
            load(data)
    assert list(only(data.parent / "cache").iterdir()) == []
    assert len(load(data).ids) == 12


def test_cache_of_another_recipe_is_refused(data: Path) -> None:
    load(data)
    path = only(data.parent / "cache") / "cache.json"
    write_sealed(path, read_json(path) | {"fingerprint": "0" * 16})
    sentence = (
        r"The cache .* holds images of another recipe than its name says; delete that folder or give another --cache\."
    )
    with pytest.raises(InputError, match=sentence):
        load(data)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_damaged_record_of_a_cache_is_said_and_decoded_again(data: Path, text: str, capsys) -> None:
    images = load(data).images.copy()
    path = only(data.parent / "cache") / "cache.json"
    path.write_text(text)
    assert np.array_equal(load(data).images, images)
    assert f"{path} is damaged: the pictures are decoded again." in capsys.readouterr().err.splitlines()
    assert json.loads(path.read_text())["images"] == 12


def test_image_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    lacking = cache_module.shortage(tmp_path, images=1, size=100_000)
    assert lacking is not None
    assert lacking.startswith("One image of 100000 x 100000 px needs 27.94 GiB, more than the limit of 1.00 GiB")
    assert lacking.endswith("lower --data.image-size.")
    assert cache_module.shortage(tmp_path, images=1, size=100) is None


def test_two_sizes_live_side_by_side(data: Path) -> None:
    smaller = load_task(CONFIG.model_copy(update={"image_size": 24}), data=data, cache=data.parent / "cache")
    assert smaller.images.shape[1:] == (24, 24, 3)
    assert load(data).images.shape[1:] == (32, 32, 3)


def test_all_unreadable_pictures_are_listed_at_once(data: Path) -> None:
    spoil(data, 2, 3, 5, 6, 7, 11)
    (data / "CelebAMask-HQ" / "CelebA-HQ-img" / "9.jpg").write_text("an error page")
    with pytest.raises(InputError) as refused:
        load(data)
    sentence = str(refused.value)
    assert sentence.startswith("7 of 12 pictures can't be read: ")
    assert "2.jpg (image file is truncated" in sentence
    assert " and 2 more; all are listed in " in sentence
    assert sentence.endswith(": replace them, or skip them with --skip-corrupt.")
    lines = (only(data.parent / "cache") / "corrupt.txt").read_text().splitlines()
    assert [Path(line.split("\t")[0]).stem for line in lines] == ["2", "3", "5", "6", "7", "9", "11"]
    assert "9.jpg\tnot a picture" in lines[5]


def test_many_skipped_pictures_are_noted_by_the_first_of_them(data: Path) -> None:
    spoil(data, 0, 1, 2, 3, 4, 5)
    (note,) = [note for note in load(data, skip_corrupt=True).notes if note.startswith("Left out")]
    assert note.startswith("Left out 6 unreadable pictures: ")
    assert note.endswith("4.jpg and 1 more (--no-skip-corrupt lists all); replace or delete them.")
    assert str(data.parent) not in note


def test_skipped_pictures_are_left_out_and_noted(data: Path) -> None:
    whole = load(data)
    spoil(data, 2, 8)
    task = load(data, skip_corrupt=True)
    assert task.ids == ("0", "1", "3", "4", "5", "6", "7", "9", "10", "11")
    kept = whole.rows(task.ids)
    assert np.array_equal(task.images, whole.images[kept])
    assert np.array_equal(task.labels, whole.labels[kept])
    assert "2" not in task.splits["train"]
    folder = "CelebA-HQ-img"
    note = f"Left out 2 unreadable pictures: {folder}/2.jpg, {folder}/8.jpg; replace or delete them."
    assert note in task.notes
    assert task.fingerprint != whole.fingerprint
    with pytest.raises(InputError, match="2 of 12 pictures can't be read"):  # also from the finished cache
        load(data)


def test_nothing_readable_is_an_error_even_when_skipping(data: Path) -> None:
    spoil(data, *range(12))
    with pytest.raises(InputError, match=r"None of the 12 pictures can be read; the first is .*0\.jpg"):
        load(data, skip_corrupt=True)


def test_pictures_that_are_not_rgb_are_converted_and_noted(data: Path) -> None:
    for index in (1, 4):
        path = data / "CelebAMask-HQ" / "CelebA-HQ-img" / f"{index}.jpg"
        Image.open(path).convert("L").save(path)
    task = load(data)
    assert "Pictures that were not plain RGB were converted: 2 grey." in task.notes
    assert np.ptp(task.images[4].astype(int), axis=-1).max() == 0


def test_unwritable_cache_is_named(data: Path) -> None:
    blocked = data.parent / "file"
    blocked.write_text("not a folder")
    with pytest.raises(InputError, match=r"Cannot write .*file.*images\.npy \(.*\): .* another folder\."):
        load_task(CONFIG, data=data, cache=blocked)


def test_small_disk_is_refused_before_decoding(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    sentence = r"need 0\.04 MiB in .*, but only 0\.01 MiB are free; free some space, give another --cache or lower --"
    with pytest.raises(InputError, match=sentence):
        load(data)


def test_large_amounts_are_in_gibibytes(data: Path) -> None:
    lacking = cache_module.shortage(data, images=2**21, size=1024)
    assert re.search(r"need 6144\.00 GiB in .*, but only .* are free", lacking)


def test_disk_that_fills_up_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module.os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"Cannot write .*images\.npy \(No space left on device\): free some space"):
        load(data)
    assert list(only(data.parent / "cache").iterdir()) == []


def test_leftovers_of_killed_runs_are_removed_unless_they_are_in_use(data: Path) -> None:
    load(data)
    folder, other = only(data.parent / "cache"), data.parent / "cache" / "another"
    left = [folder / ".images.0.part.npy", other / ".images.1.part.npy"]
    other.mkdir()
    for path in left:
        path.write_bytes(b"half")
    with held(other / ".images.2.part.npy"):
        load(data)
        assert [path.exists() for path in left] == [False, False]
        assert (other / ".images.2.part.npy").exists()
    load(data)
    assert list(other.iterdir()) == []


def test_a_killed_decoding_is_cleaned_by_the_next_one(data: Path) -> None:
    """SIGKILL while pictures are decoded; the files are removed without waiting for a day."""
    program = (
        "import sys, time; from pathlib import Path; import nogs.data.cache as cache\n"
        "from miniature import CELEBA_HQ; from nogs.data import load_task\n"
        "cache.LocalExecutor.map = lambda *_, **__: time.sleep(60)\n"
        "load_task(CELEBA_HQ, data=Path(sys.argv[1]), cache=Path(sys.argv[2]))"
    )
    cache = data.parent / "cache"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.Popen([sys.executable, "-c", program, str(data), str(cache)], env=environment)
    deadline = time.monotonic() + 60
    while not (left := list(cache.glob("*/.images.*.part.npy"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left
    load(data)
    assert left[0].exists(), "another process is at work on it"
    process.kill()
    process.wait()
    load(data)
    assert not left[0].exists()


def test_flipped_bit_of_a_picture_is_found_at_the_next_start(data: Path, capsys) -> None:
    images = load(data).images.copy()
    path = only(data.parent / "cache") / "images.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert np.array_equal(load(data).images, images)
    said = f"{path} has changed since it was written: the pictures are decoded again."
    assert said in capsys.readouterr().err.splitlines()


def test_bit_that_flips_on_the_disk_is_found_by_verifying(data: Path, capsys) -> None:
    images = load(data).images.copy()
    path = only(data.parent / "cache") / "images.npy"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([images.flat[-1] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # nothing wrote it
    assert not np.array_equal(load(data).images, images)
    assert np.array_equal(load_task(CONFIG, data=data, cache=data.parent / "cache", verify=True).images, images)
    assert "has changed since it was written" in capsys.readouterr().err


def test_copied_cache_is_compared_once(data: Path, capsys) -> None:
    load(data)
    path = only(data.parent / "cache") / "images.npy"
    os.utime(path, (0, 0))
    load(data)
    assert "Comparing the decoded images" in capsys.readouterr().err
    load(data)
    assert "Comparing" not in capsys.readouterr().err


def test_subset_of_a_catalogue_is_a_task(data: Path) -> None:
    catalogue = read_catalogue(CONFIG, data=data).take([0, 4, 10, 11])
    prepared = cache_module.prepare(
        name="few", entries=catalogue.entries, boxes=None, how=catalogue.how, cache=data.parent / "cache"
    )
    splits = {"train": ("0", "4"), "validation": ("10",), "test": ("11",), "annotate": ("0",), "posterior": ("4",)}
    task = replace(catalogue, splits=splits).task(prepared, grid=CONFIG.grid)
    assert np.array_equal(task.images, load(data).images[[0, 4, 10, 11]])
