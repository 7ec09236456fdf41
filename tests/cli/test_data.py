import json
import os

import numpy as np
import pytest
from PIL import Image

from nogs.cli import main
from nogs.recipes import recipe

SMALL = ["--data.count", "60", "--data.annotated", "5"]


def test_prepare_writes_recipe_splits_and_mark(tmp_path, capsys):
    assert main(["data", "prepare", "digits", "--out", str(tmp_path / "run"), *SMALL]) == 0
    assert "digits: 60 images ready" in capsys.readouterr().out
    written = recipe(tmp_path / "run" / "recipe.yaml")
    assert written.data == recipe("digits").data.model_copy(update={"count": 60, "annotated": 5})
    splits = json.loads((tmp_path / "run" / "data" / "splits.json").read_text())["splits"]
    assert {name: len(ids) for name, ids in splits.items()} == {
        "train": 48, "validation": 6, "test": 6, "annotate": 5, "posterior": 36,
    }  # fmt: skip
    assert splits["test"] == ["9", "19", "29", "39", "49", "59"]
    done = json.loads((tmp_path / "run" / "data" / "done.json").read_text())
    assert done["images"] == 60


def test_preparing_again_changes_nothing(tmp_path):
    command = ["data", "prepare", "digits", "--out", str(tmp_path), *SMALL]
    assert main(command) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert main(command) == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_folder_of_another_recipe_is_refused_and_kept(tmp_path, capsys):
    assert main(["data", "prepare", "digits", "--out", str(tmp_path), *SMALL]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert main(["data", "prepare", "digits", "--out", str(tmp_path), *SMALL, "--data.fragments", "1"]) == 2
    error = capsys.readouterr().err
    assert (
        f"{tmp_path} was begun with data.fragments = {recipe('digits').data.fragments}, not 1; choose another --out"
        in error
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_inspect_prints_the_numbers_and_writes_the_sheet(tmp_path, capsys):
    assert main(["data", "inspect", "digits", "--out", str(tmp_path), *SMALL]) == 0
    out = capsys.readouterr().out
    assert "digits: 60 images of 48 x 48 px, 10 classes" in out
    assert "10 x 10 of 12 px glimpses" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["train", "48"] in lines
    assert ["test", "6"] in lines
    assert "of train: 5 for sequences, 36 for the posterior" in out
    assert str(tmp_path / "data" / "contact-sheet.png") in out
    found = json.loads((tmp_path / "data" / "inspect.json").read_text())
    assert sum(found["labels"]["all"].values()) == 60
    with Image.open(tmp_path / "data" / "contact-sheet.png") as sheet:
        assert sheet.size == (1500, 960)


def test_folder_of_pictures_never_seen_before_is_inspected(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for kind in ("cats", "dogs"):
        (tmp_path / "pictures" / kind).mkdir(parents=True)
        for n in range(12):
            pixels = rng.integers(0, 256, (40 + n, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / kind / f"{n}.png")
    command = ["data", "inspect", "folder", "--data", str(tmp_path / "pictures"), "--out", str(tmp_path / "out")]
    assert main([*command, "--cache", str(tmp_path / "cache"), "--data.annotated", "4"]) == 0
    out = capsys.readouterr().out
    assert "pictures: 24 images of 128 x 128 px, 2 classes" in out
    assert any(line.split()[:2] == ["cats", "12"] for line in out.splitlines())


def test_class_that_the_font_lacks_gives_no_warning(tmp_path, capfd):
    for kind in ("猫", "犬"):
        (tmp_path / "pictures" / kind).mkdir(parents=True)
        for n in range(6):
            Image.new("RGB", (40, 40)).save(tmp_path / "pictures" / kind / f"{n}.png")
    command = ["data", "inspect", "folder", "--data", str(tmp_path / "pictures"), "--out", str(tmp_path / "out")]
    assert main([*command, "--cache", str(tmp_path / "cache"), "--data.annotated", "2"]) == 0
    assert "Glyph" not in capfd.readouterr().err
    assert (tmp_path / "out" / "data" / "contact-sheet.png").exists()


@pytest.mark.parametrize("name", ["celeba-hq", "cub", "folder"])
def test_missing_data_folder_is_named(name, tmp_path, capsys):
    assert main(["data", "inspect", name, "--data", str(tmp_path / "nowhere"), "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("nogs: error: ")
    assert str(tmp_path / "nowhere") in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["celeba-hq", "cub", "folder"])
def test_data_that_a_recipe_needs_must_be_given(name, tmp_path, capsys):
    assert main(["data", "prepare", name, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"The task {name!r} needs its pictures; give --data the folder" in error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_output_is_named(tmp_path, capsys):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert main(["data", "inspect", "digits", "--out", str(tmp_path / "locked" / "o"), *SMALL]) == 2
    assert str(tmp_path / "locked") in capsys.readouterr().err


def test_output_that_is_a_file_is_named(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert main(["data", "inspect", "digits", "--out", str(tmp_path / "taken"), *SMALL]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "taken") in error
    assert error.count("\n") == 1


def test_many_classes_are_summed_up(tmp_path, capsys):
    from nogs.cli.data import _balance

    lines = _balance({f"class {n}": n + 1 for n in range(200)}, images=20100)
    assert len(lines) == 11
    assert lines[0].split()[:3] == ["class", "199", "200"]
    assert "190 between, all in inspect.json" in lines[5]
    assert lines[-1].split()[:3] == ["class", "0", "1"]


def test_mistakes_in_a_recipe_file_are_one_line(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("base: digits\nseed: -1\ndata: {count: none, fragmnts: 3}\n")
    assert main(["data", "inspect", str(path), "--out", str(tmp_path / "o")]) == 2
    assert capsys.readouterr().err == (
        f"nogs: error: {path} has 3 mistakes: seed must be at least 0, not -1; data.count must be a whole number, "
        "not 'none'; there is no field data.fragmnts (did you mean data.fragments?).\n"
    )


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["digts", "--out", "o"], "There is no recipe or folder 'digts' (did you mean 'digits'?)"),
        (["digits", "--out", "o", "--skip-corupt"], "has no flag --skip-corupt; did you mean --skip-corrupt?"),
        (["digits", "--out", "o", "--data.count", "many"], "--data.count must be a whole number, not 'many'"),
    ],
)
def test_mistake_on_the_command_line_is_one_line(argv, sentence, capsys):
    assert main(["data", "inspect", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("nogs: error: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
