import os
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from nogs.data import archives
from nogs.data.archives import Tree, by_stem, walk
from nogs.runtime.errors import InputError


def tree(folder: Path) -> Tree:
    return Tree([folder, folder / "Own"], archives=("images-*.zip", "annotations.zip"), prefix="Own")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_in_place(tmp_path: Path, method: int) -> None:
    contents = {f"Own/pics/{n}.webp": bytes([n]) * 1000 for n in range(5)}
    for part in range(2):
        with zipfile.ZipFile(tmp_path / f"images-{part}.zip", "w", method) as archive:
            for name in list(contents)[part::2]:
                archive.writestr(name, contents[name])
    found = tree(tmp_path).images("pics")
    assert {f"Own/{name}": entry.read() for name, entry in found.items()} == contents


def test_local_header_with_an_extra_field_is_passed_over(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("pics/0.png")
    info.extra = b"\xfe\xca\x04\x00abcd"
    with zipfile.ZipFile(tmp_path / "images-0.zip", "w") as archive:
        archive.writestr(info, b"content")
    assert tree(tmp_path).images("pics")["pics/0.png"].read() == b"content"


def test_damaged_member_fails_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "images-0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pics/0.png", b"x" * 100)
    path.write_bytes(path.read_bytes().replace(b"x" * 100, b"x" * 99 + b"y"))
    entry = tree(tmp_path).images("pics")["pics/0.png"]
    with pytest.raises(ValueError, match="checksum in the archive is wrong"):
        entry.read()


def test_loose_file_wins_over_its_archived_copy(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "annotations.zip", "w") as archive:
        archive.writestr("Own/list.txt", "archived")
    assert tree(tmp_path).text("list.txt", hint="") == "archived"
    (tmp_path / "Own").mkdir()
    (tmp_path / "Own" / "list.txt").write_text("loose")
    assert tree(tmp_path).text("list.txt", hint="") == "loose"


def test_archive_that_is_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "images-0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pics/0.png", b"x" * 100)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"images-0\.zip is not a whole zip archive .*; download it again\."):
        tree(tmp_path).images("pics")


def test_walk_is_sorted_and_passes_over_hidden_and_other_files(tmp_path: Path) -> None:
    for name in ("b/1.PNG", "a/2.jpg", "a/.3.jpg", ".git/4.jpg", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [entry.name for entry in walk(tmp_path)] == ["a/2.jpg", "b/1.PNG"]


def test_two_suffixes_of_one_image_are_refused(tmp_path: Path) -> None:
    for name in ("7.jpg", "7.png"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=r"Two files are the same image: .*7\.jpg and .*7\.png; remove one of them\."):
        by_stem({entry.name: entry for entry in walk(tmp_path)})


def test_only_regular_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "huge.png").touch()
    os.truncate(tmp_path / "huge.png", 2**40)  # takes no space
    problems = {}
    for entry in walk(tmp_path):
        with pytest.raises(OSError, match=r"not a regular file|larger than 256 MiB") as error:
            entry.read()
        problems[entry.name] = error.value.strerror
    assert problems == {
        "huge.png": "larger than 256 MiB", "pipe.png": "not a regular file", "zero.png": "not a regular file",
    }  # fmt: skip


def test_a_member_is_unpacked_no_further_than_it_should_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "images-0.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pics/0.png", b"x" * 10_000_000)
    entry = tree(tmp_path).images("pics")["pics/0.png"]
    assert len(entry.read()) == 10_000_000
    tracemalloc.start()
    with pytest.raises(ValueError, match="checksum"):
        entry._replace(size=100).read()  # a false size in the archive's directory
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    monkeypatch.setattr(archives, "MOST", 10**6)
    with pytest.raises(ValueError, match="larger than"):
        entry.read()


def test_an_archive_with_names_that_are_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "images-0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pics/é.png", b"x")  # marked as UTF-8
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
    with pytest.raises(InputError, match=r"images-0\.zip is not a whole zip archive"):
        tree(tmp_path).images("pics")


@pytest.mark.parametrize("name", [b"c\xfft/1.png", b"cat/\xff.png"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb"):
        pass
    with pytest.raises(InputError, match=r"The name of .* is not UTF-8; rename it\."):
        list(walk(tmp_path))


def test_a_member_without_a_name_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "images-0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nameless", b"x")
        archive.writestr("pics/0.png", b"x")
    path.write_bytes(path.read_bytes().replace(b"nameless", bytes(8)))
    assert list(tree(tmp_path).images("pics")) == ["pics/0.png"]


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "images-0.zip")
    assert tree(tmp_path).images("pics") == {}
