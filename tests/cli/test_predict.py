import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import nogs
from nogs.cli import main
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


def test_all_that_are_no_pictures_are_named_after_the_answers(place, capsys):
    said = ask(place, capsys, place / "broken.png", place / "0.png", place / "none.png", place / "run", code=2)
    assert len(said.out.splitlines()) == 1
    _, broken, none, folder = said.err.splitlines()
    assert broken.startswith(f"nogs: error: The picture {place / 'broken.png'} can't be read")
    assert none == f"nogs: error: There is no file {place / 'none.png'}; check its path."
    run = place / "run"
    assert folder == f"nogs: error: {run} is a folder, not a picture; give the pictures in it, such as {run}/*.png."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "nogs predict needs pictures after the run"),
        (
            ["x.png", "--picture", "sheet.jpg"],
            "--picture writes PNG files, so its name must end in .png, not 'sheet.jpg'",
        ),
        (["x.png", "--network", "rom"], "has no network 'rom'; it has ram/seed-0, ram/seed-1."),
        (["x.png"], "There is no file x.png; check its path."),
    ],
)
def test_mistakes_are_one_sentence(place, capsys, words, sentence):
    error = ask(place, capsys, *words, code=2).err.splitlines()[-1]
    assert error.startswith("nogs: error: ")
    assert sentence in error


def test_impossible_confidence_is_one_sentence(place, capsys):
    said = ask(place, capsys, place / "0.png", "--stop-at", "2", code=2)
    assert "confidence to stop at must lie above 0 and be at most 1, not 2.0" in said.err


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
