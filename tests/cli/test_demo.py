import numpy as np
import pytest
from PIL import Image

import nogs.recipes.digits
from nogs.attention.training import Trainer
from nogs.cli import main
from nogs.cli.demo import one_thread
from nogs.recipes import recipe


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The demo in little: a few images, a few iterations, in the current folder."""
    whole = recipe("digits")
    attention = {"iterations": 8, "validate_every": 4, "save_every": 1, "hidden": 16, "batch": 16, "trajectories": 2}
    update = {
        "data": whole.data.model_copy(update={"count": 200, "annotated": 20}),
        "attention": whole.attention.model_copy(update=attention),
    }
    monkeypatch.setattr(nogs.recipes.digits, "RECIPE", whole.model_copy(update=update))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def test_demo_ends_with_the_files_to_open_and_does_nothing_twice(small, capsys, monkeypatch):
    assert main(["demo"]) == 0
    first = capsys.readouterr().out
    lines = first.splitlines()
    assert lines[-2:] == ["open runs/demo/data/contact-sheet.png", "open runs/demo/glimpses.png"]
    assert any(line.startswith("ram/seed-0 ") for line in lines)
    for name, size in (("data/contact-sheet.png", (1500, 960)), ("glimpses.png", (1500, 1030))):
        with Image.open(small / name) as picture:
            assert picture.size == size
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 100
    assert recipe(small / "recipe.yaml") == recipe("digits")
    assert (small / "attention" / "ram" / "seed-0" / "done.json").exists()

    before = pixels(small / "glimpses.png")
    monkeypatch.setattr(Trainer, "__init__", None)  # nothing is left to train
    assert main(["demo"]) == 0
    captured = capsys.readouterr()
    assert captured.out == first
    assert "1 of 1 networks are trained already." in captured.err
    # the layout's solver moves a line by a fraction of a pixel now and then
    assert np.mean(pixels(small / "glimpses.png") != before) < 1e-3


def test_interrupted_demo_goes_on(small, capsys, monkeypatch):
    step = Trainer.step

    def interrupted(self):
        if int(self.iteration) == 6:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert main(["demo"]) == 130
    assert not (small / "glimpses.png").exists()
    capsys.readouterr()
    assert main(["demo"]) == 0
    assert "Going on from iteration 4." in capsys.readouterr().err


def test_misspelt_flag_is_one_sentence(capsys):
    assert main(["demo", "--ouy", "x"]) == 2
    assert capsys.readouterr().err == "nogs: error: nogs demo has no flag --ouy; did you mean --out?\n"
