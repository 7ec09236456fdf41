import os
import zipfile
from pathlib import Path

import pytest

from nogs.glimpse import Grid
from nogs.runtime import files
from nogs.runtime.errors import InputError
from nogs.sequences import CELEBA_ATTRIBUTES, load, read_release, save, write_release
from nogs.sequences import release as release_module

FACE = "147, 126\n92, 118\n76, 160\n147, 76\n181, 21\n"
BIRD = "40, 48\n80, 32\n40, 64\n80, 72\n0, 96\ndata/birds/train/images/{}.png"


@pytest.fixture
def release():
    """A miniature of the release: two attributes of three faces, and three birds."""
    faces = {f"optimal-sequences/celebhq/{k}/{i}.txt": FACE for k in (0, 31) for i in (0, 2, 10)}
    birds = {f"optimal-sequences/birds/{n}.txt": BIRD.format(k) for n, k in enumerate((1, 8, 11_786))}
    return faces | birds


def zipped(texts, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def unpacked(texts, folder):
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_the_release_is_read_from_zip_and_folder(release, tmp_path, kind):
    source = zipped(release, tmp_path / "r.zip") if kind == "zip" else unpacked(release, tmp_path / "r")
    beard, smiling, birds = read_release(source)
    assert [(s.task, s.attribute) for s in (beard, smiling, birds)] == [
        ("celeba-hq", "5_o_Clock_Shadow"),
        ("celeba-hq", "Smiling"),
        ("cub", None),
    ]
    assert smiling.ids == ("0", "2", "10")
    assert smiling.by_id("10").tolist() == [[147, 126], [92, 118], [76, 160], [147, 76], [181, 21]]
    assert (smiling.grid, birds.grid) == (Grid.celeba_hq(), Grid.cub())
    assert birds.ids == ("2", "9", "11787")  # picture K.png is image K + 1
    assert birds.by_id("2").tolist() == [[40, 48], [80, 32], [40, 64], [80, 72], [0, 96]]
    assert birds.provenance["source"].startswith("github.com/wsgharvey/ps-nogs")
    assert "no licence" in birds.provenance["licence"]


def test_zip_and_folder_give_the_same_lines_and_digest(release, tmp_path):
    packed = read_release(zipped(release, tmp_path / "r.zip"))
    loose = read_release(unpacked(release, tmp_path / "r"))
    for n, (left, right) in enumerate(zip(packed, loose, strict=True)):
        save(left, tmp_path / f"left{n}")
        save(right, tmp_path / f"right{n}")
        lines = [(tmp_path / f"{side}{n}" / "sequences.jsonl").read_bytes() for side in ("left", "right")]
        assert lines[0] == lines[1]
        assert left.provenance["digest"] == right.provenance["digest"]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("optimal-sequences/birds", [("cub", None)]),
        ("optimal-sequences/celebhq", [("celeba-hq", "5_o_Clock_Shadow"), ("celeba-hq", "Smiling")]),
        ("optimal-sequences/celebhq/31", [("celeba-hq", "Smiling")]),
    ],
)
def test_any_part_of_the_release_is_enough(release, tmp_path, part, found):
    source = zipped({k: v for k, v in release.items() if k.startswith(part + "/")}, tmp_path / "part.zip")
    assert [(s.task, s.attribute) for s in read_release(source)] == found
    folder = unpacked(release, tmp_path / "r") / part
    assert [(s.task, s.attribute) for s in read_release(folder)] == found


def test_a_folder_is_read_from_inside_it(release, tmp_path, monkeypatch):
    monkeypatch.chdir(unpacked(release, tmp_path / "r") / "optimal-sequences" / "birds")
    (birds,) = read_release(Path("."))
    assert (len(birds), birds.provenance["file"]) == (3, "birds")


def test_windows_line_ends_and_blank_ends_are_read(release, tmp_path):
    name = "optimal-sequences/birds/0.txt"
    changed = release | {name: release[name].replace("\n", "\r\n") + "\r\n\r\n"}
    assert (
        read_release(zipped(changed, tmp_path / "r.zip"))[-1].locations.tolist()
        == read_release(zipped(release, tmp_path / "s.zip"))[-1].locations.tolist()
    )


TAMPERED = {
    "off the grid": (
        "celebhq/31/2.txt",
        FACE.replace("76, 160", "76, 161"),
        3,
        r"location 3 \(row 76, column 161\) is not",
    ),
    "beyond the image": (
        "celebhq/31/2.txt",
        FACE.replace("181, 21", "300, 21"),
        5,
        r"location 5 \(row 300, column 21\)",
    ),
    "a bird off its own grid": ("birds/1.txt", BIRD.format(8).replace("40, 48", "40, 49"), 1, r"location 1 .* 13 x 13"),
    "too few lines": ("celebhq/0/0.txt", FACE[: FACE.index("181")], 5, r"expected 5 lines .*, but the file has 4"),
    "too many lines": ("celebhq/0/0.txt", FACE + "0, 0\n", 6, r"expected 5 lines .*, but the file has 6"),
    "empty": ("celebhq/0/0.txt", "", 1, r"expected 5 lines .*, but the file has 0"),
    "no picture": ("birds/1.txt", BIRD[: BIRD.index("data")], 6, r"expected 6 lines .*, but the file has 5"),
    "not numbers": ("celebhq/0/0.txt", FACE.replace("92, 118", "92, x"), 2, r'expected "row, col", .* found \'92, x\''),
    "negative": ("celebhq/0/0.txt", FACE.replace("92, 118", "-4, 118"), 2, r'expected "row, col"'),
    "three numbers": ("celebhq/0/0.txt", FACE.replace("92, 118", "92, 118, 0"), 2, r'expected "row, col"'),
    "not a picture": ("birds/1.txt", BIRD.format("eight"), 6, r"expected a picture's name"),
    "no such picture": ("birds/1.txt", BIRD.format(11_788), 6, r"expected a picture's name"),
    "the same picture twice": ("birds/1.txt", BIRD.format(1), 6, r"image '2' has a sequence in .*birds/0\.txt already"),
}


@pytest.mark.parametrize(("name", "text", "line", "message"), TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_file_is_refused_with_its_path_and_line(release, tmp_path, name, text, line, message):
    changed = release | {f"optimal-sequences/{name}": text}
    with pytest.raises(InputError, match=rf"r\.zip: optimal-sequences/{name}, line {line}: {message}"):
        read_release(zipped(changed, tmp_path / "r.zip"))
    with pytest.raises(InputError, match=rf"r/optimal-sequences/{name}, line {line}: {message}"):
        read_release(unpacked(changed, tmp_path / "r"))


def test_all_tampered_files_are_counted_and_the_first_ten_listed(release, tmp_path):
    changed = release | {f"optimal-sequences/celebhq/5/{i}.txt": "1, 1\n" for i in range(12)}
    with pytest.raises(
        InputError, match=r"(?s)r\.zip has 12 problems:.*celebhq/5/9\.txt, line 1.*and 2 more\.$"
    ) as caught:
        read_release(zipped(changed, tmp_path / "r.zip"))
    assert "celebhq/5/10.txt" not in str(caught.value)


def test_an_unknown_attribute_is_refused(release, tmp_path):
    changed = release | {"optimal-sequences/celebhq/40/0.txt": FACE}
    with pytest.raises(InputError, match=r"celebhq/40/0\.txt: there is no attribute number 40; they are 0 to 39"):
        read_release(zipped(changed, tmp_path / "r.zip"))


def test_the_same_image_under_two_spellings_is_refused(release, tmp_path):
    changed = release | {"optimal-sequences/celebhq/0/00.txt": FACE}
    with pytest.raises(InputError, match=r"image '0' has a sequence in .*celebhq/0/0+\.txt already"):
        read_release(zipped(changed, tmp_path / "r.zip"))


def test_a_zip_that_was_appended_to_counts_its_last_version(release, tmp_path):
    path = zipped(release, tmp_path / "r.zip")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("optimal-sequences/birds/0.txt", BIRD.format(1).replace("40, 48", "48, 48"))
    birds = read_release(path)[-1]
    assert len(birds) == 3
    assert birds.by_id("2")[0].tolist() == [48, 48]


def test_what_is_not_the_release_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"There is no .*absent\.zip"):
        read_release(tmp_path / "absent.zip")
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(InputError, match=r"text\.zip can't be read as part of a zip file"):
        read_release(tmp_path / "text.zip")
    with pytest.raises(InputError, match=r"other\.zip holds none of the release's files \(celebhq/<attribute>"):
        read_release(zipped({"README.md": "hello"}, tmp_path / "other.zip"))
    with pytest.raises(InputError, match="holds none of the release's files"):
        read_release(tmp_path)


def test_a_damaged_zip_is_refused(release, tmp_path):
    path = zipped(release, tmp_path / "r.zip")
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("optimal-sequences/birds/0.txt")
    data = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(info.filename)
    data[start : start + info.compress_size] = b"\xff" * info.compress_size
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"r\.zip: optimal-sequences/birds/0\.txt can't be read .*; download it again"):
        read_release(path)


def test_the_text_files_come_out_as_they_went_in(release, tmp_path):
    for sequences in read_release(zipped(release, tmp_path / "r.zip")):
        assert write_release(sequences, tmp_path / "out" / "optimal-sequences") == 3
    written = {p.relative_to(tmp_path / "out").as_posix(): p.read_text() for p in (tmp_path / "out").rglob("*.txt")}
    assert written == release


def test_only_the_release_has_its_text_layout(sequences, release, tmp_path):
    from dataclasses import replace

    with pytest.raises(InputError, match=r"not for toy \(Round\); export it with --format csv"):
        write_release(sequences, tmp_path)
    birds = read_release(zipped(release, tmp_path / "r.zip"))[-1]
    for other in (
        replace(birds, ids=("2", "3", "../4")),
        replace(birds, length=2, locations=birds.locations[:, :2]),
        replace(birds, grid=Grid.spaced(image=128, glimpse=32, spacing=1)),
    ):
        with pytest.raises(InputError, match="which these sequences don't have; export them with --format csv"):
            write_release(other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_attributes_are_40_in_alphabetical_order():
    assert len(set(CELEBA_ATTRIBUTES)) == 40
    assert list(CELEBA_ATTRIBUTES) == sorted(CELEBA_ATTRIBUTES)


def test_the_real_release_has_25000_sequences(real_release, tmp_path):
    found = read_release(real_release)
    assert [s.attribute for s in found] == [*CELEBA_ATTRIBUTES, None]
    assert [len(s) for s in found] == [600] * 40 + [1000]
    for sequences in found:
        save(sequences, tmp_path / (sequences.attribute or "cub"))
        # without an observation the completions are the prior's, so all images share the first location
        assert len({tuple(place) for place in sequences.locations[:, 0].tolist()}) == 1
    lines = sum(len(p.read_bytes().splitlines()) for p in tmp_path.rglob("sequences.jsonl"))
    assert lines == 25_000
    smiling = load(tmp_path / "Smiling").by_id("0").tolist()
    assert smiling == [[156, 84], [152, 130], [135, 84], [156, 105], [118, 16]]
    birds = load(tmp_path / "cub")
    assert birds.by_id("9").tolist() == [[40, 48], [72, 48], [40, 80], [16, 64], [32, 24]]
    assert birds.ids[-1] == "11787"


def test_the_real_annotation_file_has_the_attributes_in_this_order(real_release):
    path = real_release.parent / "celeba-hq" / "CelebAMask-HQ-attribute-anno.txt"
    if not path.is_file():
        pytest.skip(f"no {path.name} beside the release")
    assert tuple(path.read_text().splitlines()[1].split()) == CELEBA_ATTRIBUTES


def test_an_export_waits_for_no_disk_file_by_file(release, tmp_path, monkeypatch):
    def fsync(_):
        raise AssertionError

    birds = read_release(zipped(release, tmp_path / "r.zip"))[-1]
    monkeypatch.setattr("os.fsync", fsync)
    assert write_release(birds, tmp_path / "out") == 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["birds"]


def test_an_export_takes_the_place_of_an_earlier_one_as_a_whole(release, tmp_path, monkeypatch):
    birds = read_release(zipped(release, tmp_path / "r.zip"))[-1]
    write_release(birds, tmp_path / "out")
    texts = {path.name: path.read_text() for path in (tmp_path / "out" / "birds").iterdir()}
    write_text = files.write_text

    def fail(path, text, **how):
        if path.name == "1.txt":
            raise InputError("no space")
        write_text(path, text, **how)

    with monkeypatch.context() as patch:
        patch.setattr("nogs.runtime.files.write_text", fail)
        with pytest.raises(InputError, match="no space"):
            write_release(birds.subset(birds.ids[1:]), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["birds"]
    assert {path.name: path.read_text() for path in (tmp_path / "out" / "birds").iterdir()} == texts

    write_release(birds.subset(birds.ids[1:]), tmp_path / "out")
    (again,) = read_release(tmp_path / "out")
    assert again.ids == birds.ids[1:]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["birds"]


def test_an_export_removes_no_files_of_others(release, tmp_path):
    birds = read_release(zipped(release, tmp_path / "r.zip"))[-1]
    (tmp_path / "out" / "birds").mkdir(parents=True)
    (tmp_path / "out" / "birds" / "notes.md").write_text("mine")
    with pytest.raises(InputError, match=r"birds holds 'notes\.md', which is not a file of the release; choose"):
        write_release(birds, tmp_path / "out")
    assert (tmp_path / "out" / "birds" / "notes.md").read_text() == "mine"


def test_a_zip_is_unpacked_only_as_far_as_the_release_could_reach(release, tmp_path, monkeypatch):
    bomb = {**release, "celebhq/3/7.txt": " " * 50_000_000}
    with pytest.raises(InputError, match=r"celebhq/3/7\.txt unpacks to more than 4,096 bytes"):
        read_release(zipped(bomb, tmp_path / "bomb.zip"))
    with pytest.raises(InputError, match=r"celebhq/3/7\.txt is not a file of the release \(larger than 4,096 bytes\)"):
        read_release(unpacked(bomb, tmp_path / "bomb"))
    monkeypatch.setattr(release_module, "_MOST_IN_ALL", 500)
    with pytest.raises(InputError, match=r"\.txt unpacks to more than 500 bytes in all"):
        read_release(zipped({f"celebhq/0/{n}.txt": " " * 100 + FACE for n in range(50)}, tmp_path / "many.zip"))


def test_an_unusual_packing_is_refused(release, tmp_path):
    with zipfile.ZipFile(tmp_path / "r.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("celebhq/0/1.txt", FACE)
    with pytest.raises(InputError, match=r"1\.txt is packed in an unusual way"):
        read_release(tmp_path / "r.zip")


@pytest.mark.parametrize("inside", [True, False])
def test_a_pipe_is_not_waited_for(release, tmp_path, inside):
    folder = unpacked(release, tmp_path / "r")
    pipe = folder / "birds" / "9.txt" if inside else tmp_path / "r.zip"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a regular file"):
        read_release(folder if inside else pipe)
