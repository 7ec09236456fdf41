import json
from pathlib import Path

import numpy as np
import pytest

import miniature
from nogs.attention.training import Trainer
from nogs.cli import main
from nogs.data import load_task
from nogs.recipes import recipe
from nogs.runtime.device import one_thread
from nogs.sequences import Sequences, save

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module")

TINY = [
    "--data.count", "200", "--data.annotated", "20", "--attention.iterations", "12", "--attention.validate-every", "4",
    "--attention.save-every", "1", "--attention.hidden", "8", "--attention.batch", "16",
    "--attention.trajectories", "2", "--device", "cpu",
]  # fmt: skip
FACES = """
base: celeba-hq
glimpses: 3
data: {image_size: 32, glimpse: 8, grid_count: 5, grid_last: null, annotated: 12}
attention: {hidden: 8, batch: 8, iterations: 6, validate_every: 3, trajectories: 2, learning_rate: 0.001}
"""


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """A miniature CelebA-HQ: the arguments that name its recipe, data and cache."""
    root = tmp_path_factory.mktemp("faces")
    (root / "faces.yaml").write_text(FACES)
    data = miniature.celeba_hq(root / "data", count=40)
    return [str(root / "faces.yaml"), "--data", str(data), "--cache", str(root / "cache"), "--device", "cpu"]


@pytest.fixture(scope="module")
def sequences(faces, tmp_path_factory):
    """Random sequences for every other training face, made for Smiling."""
    folder = tmp_path_factory.mktemp("sequences")
    task = load_task(recipe(faces[0]).data, data=Path(faces[2]), cache=Path(faces[4]))
    ids = task.splits["train"][::2]
    chosen = np.random.default_rng(0).integers(0, len(task.grid), (len(ids), 3))
    made = Sequences(task.name, "Smiling", task.grid, 3, ids, task.grid.pixels.numpy()[chosen])
    save(made, folder / task.name / "Smiling")
    return folder


def products(run):
    names = ("evaluation.json", "metrics.jsonl", "locations.npy", "best-accuracy.safetensors", "best-nll.safetensors")
    return {path.relative_to(run): path.read_bytes() for name in names for path in run.rglob(name)}


def refused(argv, capsys):
    """The sentence with which a command is refused."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("nogs: error: ")
    assert captured.out == ""
    return captured.err


def test_ram_on_digits_with_two_seeds(run, capsys):
    assert main(["train", "digits", "--out", str(run), "--seeds", "0", "3", *TINY]) == 0
    captured = capsys.readouterr()
    head, *lines = captured.out.splitlines()
    assert head.split() == ["network", "converged", "at", "accuracy", "balanced", "NLL", "majority"]
    rows = {line.split()[0]: line.split() for line in lines if line.startswith("ram/")}
    assert list(rows) == ["ram/seed-0", "ram/seed-3"]
    for name, row in rows.items():
        found = json.loads((run / "attention" / name / "evaluation.json").read_text())
        test = found["best"]["accuracy"]["test"]
        assert row[1] == str(found["convergence"]["iterations"])
        assert row[2:4] == [f"{test['accuracy']:.1%}", f"{test['balanced_accuracy']:.1%}"]
        assert row[4] == f"{test['nll']:.3f}"
        assert np.load(run / "attention" / name / "locations.npy").shape == (20, 2, 4, 2)
    assert lines[-1] == f"networks, curves and locations: {run / 'attention'}"
    assert "training: 12/12 it" in captured.err
    assert recipe(run / "recipe.yaml").attention.iterations == 12
    assert (run / "data" / "splits.json").exists()


def test_trained_networks_are_skipped(run, capsys):
    command = ["train", "digits", "--out", str(run), *TINY]
    assert main(command) == 0
    first, before = capsys.readouterr().out, products(run)
    assert main(command) == 0
    captured = capsys.readouterr()
    assert captured.out == first
    assert captured.err.startswith("attention: already done.\n  ram/seed-0: ")
    assert products(run) == before
    assert main([*command, "--seeds", "0", "1"]) == 0
    assert "1 of 2 networks are trained already." in capsys.readouterr().err
    assert {path: now for path, now in products(run).items() if path in before} == before


@pytest.mark.parametrize(("how", "last"), [("interrupted", 7), ("killed", 4)])
def test_stopped_run_says_where_it_goes_on_and_ends_alike(tmp_path, capsys, monkeypatch, ctrl_c, how, last):
    command = ["train", "digits", *TINY, "--out"]
    assert main([*command, str(tmp_path / "whole")]) == 0
    step = Trainer.step

    def stopped(self):
        if int(self.iteration) == 6 and how == "killed":
            raise KeyboardInterrupt
        if int(self.iteration) == 6:
            ctrl_c()
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopped)
        assert main([*command, str(tmp_path / "run")]) == 130
    capsys.readouterr()
    assert main([*command, str(tmp_path / "run")]) == 0
    assert f"Going on from iteration {last}.\n" in capsys.readouterr().err
    assert products(tmp_path / "run") == products(tmp_path / "whole")


def test_run_of_another_recipe_is_refused_with_the_field_that_differs(run, capsys):
    command = ["train", "digits", "--out", str(run), *TINY]
    assert main(command) == 0
    before = products(run)
    capsys.readouterr()
    sentence = refused([*command, "--attention.learning-rate", "0.5"], capsys)
    assert f"{run} was begun with attention.learning_rate = 0.002, not 0.5; choose another --out" in sentence
    sentence = refused([*command, "--glimpses", "2"], capsys)
    assert f"{run} was begun with glimpses = 4, not 2" in sentence
    assert products(run) == before
    assert main([*command, "--attention.save-every", "7"]) == 0  # which changes no result


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--method", "rma"], "There is no --method rma; did you mean 'ram'?"),
        (["--method", "ps-nogs"], "The method ps-nogs needs glimpse sequences: give --sequences DIR, made by nogs"),
        (["--attribute", "Smiling"], "Task 'digits' has one categorical label and no attributes; leave --attribute"),
        (["--attribute", "all"], "Task 'digits' has one categorical label and no attributes; leave --attribute out."),
        (["--seeds", "1", "1"], "--seeds must be different, but are 1, 1."),
        (["--device", "gpu"], "There is no device 'gpu'; choose auto, cpu, cuda, cuda:N or mps."),
        (["--data.glimpse", "6"], "A glimpse of 6 px is too small for the embedder; use at least 7 px."),
        (["--attention.batch", "0"], "--attention.batch must be greater than or equal to 1, not 0"),
        (["--attention.initial-state", "ones"], "must be one of 'normal', 'zeros'"),
    ],
)
def test_mistake_is_one_sentence(argv, sentence, run, capsys):
    said = refused(["train", "digits", "--out", str(run), *TINY, *argv], capsys)
    assert sentence.replace("greater than or equal to", "at least") in said
    assert not list(run.rglob("*.safetensors"))


def test_both_methods_on_an_attribute(faces, sequences, run, capsys):
    command = ["train", *faces, "--out", str(run), "--attribute", "Smiling", "--sequences", str(sequences)]
    assert main([*command, "--method", "ram", "ps-nogs"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["ram/Smiling/seed-0", "ps-nogs/Smiling/seed-0"]
    lines = (run / "attention" / "ps-nogs" / "Smiling" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["training_supervision"] > 0
    lines = (run / "attention" / "ram" / "Smiling" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["training_supervision"] == 0


def test_all_attributes_side_by_side(faces, run, capsys):
    assert main(["train", *faces, "--out", str(run), "--attribute", "all", "--attention.iterations", "2"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("ram/")]
    assert rows == [f"ram/{name}/seed-0" for name in miniature.ATTRIBUTES]
    assert len(list(run.rglob("best-nll.safetensors"))) == 40


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--attribute", "Smilng"], "has no attribute 'Smilng'; did you mean 'Smiling'?"),
        (["--attribute", "xyz"], "has no attribute 'xyz'; it has 5_o_Clock_Shadow, "),
        ([], "has 40 attributes; choose some with --attribute, or all"),
        (["--method", "ps-nogs", "--attribute", "Smiling"], "The method ps-nogs needs glimpse sequences"),
    ],
)
def test_mistake_about_attributes_is_one_sentence_before_any_picture_is_decoded(
    argv, sentence, faces, run, capsys, tmp_path
):
    said = refused(["train", *faces, "--cache", str(tmp_path / "cache"), "--out", str(run), *argv], capsys)
    assert sentence in said
    assert not (tmp_path / "cache").exists()


def test_sequences_that_do_not_fit_are_refused(faces, sequences, run, capsys):
    command = ["train", *faces, "--out", str(run), "--method", "ps-nogs", "--sequences", str(sequences)]
    assert "holds no sequences for celeba-hq / Male" in refused([*command, "--attribute", "Male"], capsys)
    said = refused([*command, "--attribute", "Smiling", "--glimpses", "5"], capsys)
    assert "the sequences have 3 glimpses, but the recipe wants 5" in said


def test_table_names_networks_wherever_the_run_lies(tmp_path, capsys):
    out = tmp_path / "attention" / "mine"
    assert main(["train", "digits", "--out", str(out), *TINY]) == 0
    assert "\nram/seed-0 " in capsys.readouterr().out


def test_refused_command_leaves_no_run_behind(faces, run, capsys):
    assert "--method needs at least one" in refused(["train", "digits", "--method", "--out", str(run)], capsys)
    assert "--seeds must not be negative" in refused(["train", "digits", "--seeds", "-1", "--out", str(run)], capsys)
    assert "has 40 attributes" in refused(["train", *faces, "--out", str(run)], capsys)
    assert not run.exists()
