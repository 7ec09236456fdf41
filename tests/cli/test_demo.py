import pytest

import nogs.recipes.digits
from nogs.attention.training import Trainer
from nogs.cli import main
from nogs.recipes import recipe
from nogs.runtime.device import one_thread

pytestmark = pytest.mark.usefixtures("quick_estimates_in_the_module")

SMALL = {
    "data": {"count": 80, "annotated": 6},
    "posterior": {"iterations": 4, "validate_every": 2, "batch": 16, "width": 16, "layers": 1, "heads": 2, "warmup": 0},
    "bank": {"count": 60, "components": 8},
    "completion": {"drawn": 20, "kept": 6},
    "design": {"images": 3},
    "whole": {"iterations": 4, "batch": 16, "width": 4},
    "plus": {"iterations": 4, "validate_every": 2, "batch": 8, "candidates": 2},
    "attention": {"iterations": 8, "validate_every": 4, "save_every": 1, "hidden": 16, "batch": 16, "trajectories": 2},
}


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small demo: a few images, a few iterations, in the current folder."""
    whole = recipe("digits")
    parts = {part: getattr(whole, part).model_copy(update=fields) for part, fields in SMALL.items()}
    monkeypatch.setattr(nogs.recipes.digits, "RECIPE", whole.model_copy(update=parts))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "demo"


@pytest.mark.slow
def test_demo_ends_with_the_report_and_does_nothing_twice(small, capsys, monkeypatch):
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "open runs/demo/report.html"
    assert "PS-NOGS " in told
    page = (small / "report.html").read_text()
    assert "<html" in page
    assert "ps-nogs" in page
    assert recipe(small / "recipe.yaml") == recipe("digits")

    monkeypatch.setattr(Trainer, "__init__", None)  # nothing is left to train
    monkeypatch.setattr("nogs.runtime.figures.Figure.draw", None)  # or to draw
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.count("already done.") == 6
    assert main(["demo", "--quiet"]) == 0  # shows the result alone
    quiet = capsys.readouterr()
    assert "of 100 test pictures" in quiet.out.splitlines()[1]
    assert (quiet.out.splitlines()[-1], quiet.err) == ("open runs/demo/report.html", "")


@pytest.mark.slow
@pytest.mark.usefixtures("blank_figures")
def test_interrupted_demo_goes_on(small, capsys, monkeypatch, ctrl_c):
    step = Trainer.step  # of which the estimate does fewer

    def interrupted(self):
        if int(self.iteration) == 6:
            ctrl_c()
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert main(["demo"]) == 130
    assert not (small / "report.html").exists()
    capsys.readouterr()
    assert main(["demo"]) == 0
    captured = capsys.readouterr()
    assert "Going on from iteration 7." in captured.err
    assert captured.out.count("already done.") == 4


def test_demo_is_the_recipe_digits(tmp_path):
    """About four minutes on two cores, of which annotation and the posterior have a minute each."""
    demo = recipe("digits")
    assert demo.bank.generator == "digits"
    assert demo.design.keep_maps
    assert demo.data.grid.shape == (10, 10)


def test_misspelt_flag_is_one_sentence(capsys):
    assert main(["demo", "--ouy", "x"]) == 2
    assert capsys.readouterr().err == "nogs: error: nogs demo has no flag --ouy; did you mean --out?\n"
