import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw

import nogs
from nogs.cli import main
from nogs.glimpse import Grid
from nogs.model import Model
from nogs.runtime.files import write_json, write_sealed
from small_runs import images, write_run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    write_run(folder / "run", {"ram/seed-0": 0.5, "ram/seed-1": 0.75}, glimpses=4)
    for n, image in enumerate(images(3).numpy()):
        Image.fromarray(image).save(folder / f"{n}.png")
    Image.fromarray(images(1)[0].numpy()).resize((50, 40)).convert("L").save(folder / "grey.png")
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:300])
    return folder


def ask(place, capsys, *words, code=0):
    assert main(["predict", str(place / "run"), *map(str, words)]) == code
    return capsys.readouterr()


def test_each_picture_has_a_line(place, capsys):
    said = ask(place, capsys, place / "0.png", place / "grey.png")
    assert said.err == "Network: ram/seed-1 is the best of 2 by validation accuracy: 75.0%.\n"
    first, second = said.out.splitlines()
    answer = nogs.load(place / "run").classify(place / "0.png")
    places = " ".join(f"({row}, {column})" for row, column in answer.locations)
    assert first == (
        f"{place / '0.png'}: {answer.label}, {answer.probability:.1%}, 4 glimpses at {places}, "
        f"{answer.pixels_read:.1%} of the pixels"
    )
    assert second.endswith("[grey; 50 x 40 px, cropped to its middle]")


def test_json_holds_the_whole_answer(place, capsys):
    said = ask(
        place, capsys, place / "0.png", place / "1.png", "--json", "--network", "ram/seed-0", "--policy", "argmax"
    )
    found = [json.loads(line) for line in said.out.splitlines()]
    model = nogs.load(place / "run", network="ram/seed-0")
    for n, one in enumerate(found):
        path = place / f"{n}.png"
        expected = json.loads(json.dumps(model.classify(path, policy="argmax").to_json()))
        assert one == {"image": str(path), "network": "ram/seed-0", **expected}


def test_a_network_looks_its_own_way_unless_told_otherwise(place, capsys, monkeypatch):
    monkeypatch.setattr(
        "nogs.attention.looking.Looking.policy", "argmax"
    )  # as for networks with a posterior as classifier
    for words, policy in (([], "argmax"), (["--policy", "sample"], "sample")):
        (line,) = ask(place, capsys, place / "1.png", "--json", *words).out.splitlines()
        expected = nogs.load(place / "run").classify(place / "1.png", policy=policy).to_json()
        assert json.loads(line).items() >= json.loads(json.dumps(expected)).items()


def test_flags_reach_the_look(place, capsys):
    said = ask(place, capsys, place / "2.png", "--json", "--stop-at", "0.4", "--seed", "5")
    expected = nogs.load(place / "run").classify(place / "2.png", stop_at=0.4, seed=5)
    found = json.loads(said.out)
    assert (found["probability"], found["stopped_early"]) == (expected.probability, expected.stopped_early)
    twice = json.loads(ask(place, capsys, place / "2.png", "--json", "--looks", "2").out)
    assert len(twice["locations"]) == 8


def test_picture_shows_the_glimpses(place, capsys, tmp_path):
    said = ask(
        place, capsys, place / "0.png", place / "1.png", "--picture", tmp_path / "sheet.png", "--policy", "argmax"
    )
    assert f"Glimpses drawn: {tmp_path / 'sheet.png'}" in said.err
    with Image.open(tmp_path / "sheet.png") as opened:
        sheet = np.asarray(opened)
    assert sheet.shape == (320 + 44 + 24, 2 * 320 + 3 * 12, 3)
    answer = nogs.load(place / "run").classify(place / "0.png", policy="argmax")
    row, column = answer.locations[-1]
    corner = sheet[12 + row * 320 // 24 + 53, 12 + column * 320 // 24 : 12 + (column + 8) * 320 // 24]
    assert (np.abs(corner.astype(int) - (0xF0, 0xE4, 0x42)).sum(-1) == 0).any()  # the fourth glimpse's colour


def test_captions_have_other_letters_and_the_folder(place, capsys, tmp_path, monkeypatch):
    from PIL import ImageDraw

    from nogs.model import drawing

    assert bytes(drawing._font().getmask("ü")) != bytes(drawing._font().getmask("\uffff"))  # not the box
    said, draw = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw, "text", lambda self, at, text, *w, **k: (said.append(text), draw(self, at, text, *w, **k))
    )
    (tmp_path / "fish ü").mkdir()
    Image.fromarray(images(1)[0].numpy()).save(tmp_path / "fish ü" / "0.png")
    ask(place, capsys, tmp_path / "fish ü" / "0.png", "--picture", tmp_path / "sheet.png")
    assert "fish ü/0.png" in said


@pytest.mark.parametrize(
    ("label", "shown"),
    [("017.Cardinal", "017.Cardinal"), ("Little tern (Sternula albifrons)", "Little tern …a albifrons)")],
)
def test_what_is_said_of_a_long_name_fits_below_its_tile_with_its_numbers(label, shown, monkeypatch):
    from nogs.model import drawing

    said, draw = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw, "text", lambda self, at, text, *w, **k: (said.append(text), draw(self, at, text, *w, **k))
    )
    answer = SimpleNamespace(label=label, probability=0.609, locations=(), pixels_read=0.27)
    image, grid = np.zeros((8, 8, 3), np.uint8), Grid(8, 8, 4, (0,), (0,))
    drawing.glimpses_sheet([image], [answer], grid=grid, names=["bird.jpg"])
    assert said == ["bird.jpg", f"{shown} (60.9%), 27.0% of the pixels"]


def test_number_of_a_glimpse_at_the_bottom_stays_in_the_picture(monkeypatch):
    from nogs.model import drawing

    places, draw = [], ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw, "text", lambda self, at, text, *w, **k: (places.append(at), draw(self, at, text, *w, **k))
    )
    drawing.tile(np.zeros((224, 224, 3), np.uint8), [(208, 0), (0, 0)], Grid(224, 224, 16, (0, 208), (0,)), (160, 160))
    assert [place[1] for place in places] == [140, 3]


def test_all_that_are_no_pictures_are_named_after_the_answers(place, capsys):
    said = ask(place, capsys, place / "broken.png", place / "0.png", place / "none.png", code=2)
    assert len(said.out.splitlines()) == 1
    _, broken, none = said.err.splitlines()
    assert broken.startswith(f"nogs: error: The picture {place / 'broken.png'} can't be read")
    assert none == f"nogs: error: There is no file {place / 'none.png'}; check its path."
    (place / "empty").mkdir()
    said = ask(place, capsys, place / "empty", code=2)
    assert said.err.splitlines()[-1].startswith(f"nogs: error: There is no picture in {place / 'empty'} (.jpg, ")


@pytest.fixture
def classes(tmp_path):
    """A folder for each class, with a run that was trained on half of the pictures."""
    folder = tmp_path / "pictures"
    for n, image in enumerate(images(12, seed=4).numpy()):
        home = folder / ("red", "green", "other")[n % 3]
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(home / f"{n}.png")
    run = write_run(tmp_path / "run", glimpses=4)
    ids = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))
    splits = {"train": ids[::2], "validation": [], "test": ids[1::2]}
    write_json(run / "data" / "splits.json", {"splits": splits})
    write_sealed(run / "local.json", {"data": str(folder)})
    return run, folder


def test_folder_is_judged_where_folders_are_classes(classes, capsys, tmp_path):
    run, folder = classes
    assert main(["predict", str(run), str(folder), "--csv", str(tmp_path / "a.csv"), "--seed", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    model = nogs.load(run)
    assert len(rows) == 12
    for row in rows:
        name = Path(row["image"]).parent.name
        answer = model.classify(row["image"], seed=1)
        assert (row["label"], row["true"]) == (answer.label, "" if name == "other" else name)
        assert row["right"] == ("" if name == "other" else str(int(answer.label == name)))
        assert float(row["pixels_read"]) == pytest.approx(answer.pixels_read, abs=1e-4)
    known = [row for row in rows if row["true"]]
    new = [row for row in known if row["split"] == "test"]
    right, fair = (sum(row["right"] == "1" for row in part) for part in (known, new))
    assert 0 < len(new) < len(known) == 8
    assert f"Accuracy {right / 8:.1%}: {right} of the 8 pictures in folders named like classes are right" in said
    assert said[-1] == "Not scored: 4 of 12 pictures, in folders that are no class: other"
    trained = f"  the network was trained or chosen on {8 - len(new)} of them; of the others {fair} of {len(new)} right"
    assert any(line.startswith(trained) for line in said)


def test_other_pictures_of_the_same_names_are_not_taken_for_the_runs_own(classes, capsys, tmp_path):
    run, folder = classes
    moved = folder.rename(tmp_path / "elsewhere")
    assert main(["predict", str(run), str(moved), "--json"]) == 0
    said = capsys.readouterr()
    assert "trained or chosen on" not in said.err
    assert "of the 8 pictures in folders named like classes are right" in said.err
    assert [json.loads(line).get("true") for line in said.out.splitlines()] == ["green"] * 4 + [None] * 4 + ["red"] * 4


def test_the_folder_of_one_class_is_enough(classes, capsys):
    run, folder = classes
    assert main(["predict", str(run), str(folder / "red")]) == 0
    said = capsys.readouterr().out
    assert "of the 4 pictures in folders named like classes are right" in said
    assert "Not scored" not in said


def test_misspelt_folder_is_named_with_the_class_that_was_meant(classes, capsys):
    run, folder = classes
    (folder / "green").rename(folder / "Gren")
    meant = "of 12 pictures, in folders that are no class: Gren (did you mean 'green'?), other"
    assert main(["predict", str(run), str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"Not scored: 8 {meant}"
    assert main(["predict", str(run), str(folder / "Gren")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Not scored: 4 of 4 pictures")
    assert main(["predict", str(run), str(folder / "other")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_interrupted_command_writes_the_answers_so_far(classes, capsys, tmp_path, monkeypatch):
    run, folder = classes
    taken, classify = [], Model.classify_picture

    def interrupted(*given, **how):
        if len(taken) == 3:
            raise KeyboardInterrupt
        taken.append(classify(*given, **how))
        return taken[-1]

    monkeypatch.setattr(Model, "classify_picture", interrupted)
    assert main(["predict", str(run), str(folder), "--csv", str(tmp_path / "a.csv")]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [
        f"Answers written: {tmp_path / 'a.csv'}, for the first 3 of 12 pictures",
        "nogs: interrupted; finished work is kept.",
    ]
    with (tmp_path / "a.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [answer.label for answer in taken]


def test_refused_command_keeps_the_answers_of_an_earlier_one(place, capsys, tmp_path):
    (tmp_path / "a.csv").write_text("earlier")
    ask(place, capsys, place / "0.png", "--csv", tmp_path / "a.csv", "--looks", "0", code=2)
    assert (tmp_path / "a.csv").read_text() == "earlier"


def test_json_has_letters_as_they_are_and_no_control_characters(place, capsys, tmp_path):
    path = tmp_path / "grün \x9b.png"
    path.write_bytes((place / "0.png").read_bytes())
    said = ask(place, capsys, path, "--json").out
    assert "grün \\u009b.png" in said
    assert json.loads(said)["image"] == str(path)


def test_sheet_of_many_pictures_shows_some(classes, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("nogs.cli.predict._DRAWN", 5)
    run, folder = classes
    assert main(["predict", str(run), str(folder), "--picture", str(tmp_path / "sheet.png")]) == 0
    assert (
        f"Glimpses drawn: {tmp_path / 'sheet.png'}, of 5 of the 12 pictures, evenly chosen: it has at most 5 tiles"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("flag", ["--csv", "--picture"])
def test_file_that_can_not_be_written_is_refused_before_any_picture_is_classified(place, tmp_path, capsys, flag):
    (tmp_path / "taken").touch()
    file = tmp_path / "taken" / f"answers.{'csv' if flag == '--csv' else 'png'}"
    Image.new("RGB", (64, 64)).save(tmp_path / "x.png")
    assert main(["predict", str(place), str(tmp_path / "x.png"), flag, str(file)]) == 2
    out, err = capsys.readouterr()
    assert f"Cannot write into {file.parent}: {file.parent} is a file; choose another {flag}." in err
    assert not out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "nogs predict needs pictures after the run"),
        (["x.png", "--csv", "answers.txt"], "--csv writes CSV files, so its name must end in .csv, not 'answers.txt'"),
        (
            ["x.png", "--picture", "sheet.jpg"],
            "--picture writes PNG files, so its name must end in .png, not 'sheet.jpg'",
        ),
        (["x.png", "--network", "mine"], "has no network 'mine'; it has ram/seed-0, ram/seed-1."),
        (["x.png"], "There is no file x.png; check its path."),
    ],
)
def test_mistakes_are_one_sentence(place, capsys, words, sentence):
    error = ask(place, capsys, *words, code=2).err.splitlines()[-1]
    assert error.startswith("nogs: error: ")
    assert sentence in error


def test_impossible_confidence_is_one_sentence(place, capsys):
    said = ask(place, capsys, place / "0.png", "--stop-at", "2", code=2)
    assert "--stop-at must lie above 0 and be at most 1, such as 0.95, not 2." in said.err


def test_fresh_process_imports_only_what_it_needs(place):
    code = (
        "import sys; from nogs.cli import main; code = main(sys.argv[1:]);"
        "heavy = {'torchvision', 'matplotlib', 'sklearn', 'tensorboard', 'datasets', 'onnx', 'scipy', 'pandas'};"
        "print(sorted(heavy & set(sys.modules))); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "predict", str(place / "run"), str(place / "0.png")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
