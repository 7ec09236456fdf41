import json

from nogs.cli import main
from nogs.runtime.files import write_json

TINY = [
    "--data.count", "200", "--data.annotated", "20", "--attention.iterations", "4", "--attention.validate-every", "2",
    "--attention.hidden", "8", "--attention.batch", "16", "--attention.trajectories", "1", "--device", "cpu",
]  # fmt: skip


def test_runs_are_compared_from_their_folders_and_again_from_the_curves(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "digits", "--out", str(run), "--seeds", "0", "1", *TINY]) == 0
    assert main(["compare", str(run), "--out", str(tmp_path / "none")]) == 0
    assert "| whole image |" not in capsys.readouterr().out
    write_json(
        run / "whole-image" / "evaluation.json",
        {"tests": {"": {"accuracy": 0.875, "balanced_accuracy": 0.75, "nll": 0.25}}},
    )
    assert main(["compare", str(run), "--out", str(tmp_path / "first")]) == 0
    out = capsys.readouterr().out
    assert "| ram | 2 |" in out
    assert "| whole image |  |  |  |  | 87.50 % |" in out
    assert "\nreached (NLL): iterations to the reference's best validation NLL\n" in out
    assert "\n… less reference: the row above less ram, of accuracies in percentage points\n" in out
    assert "less reference:" not in (tmp_path / "first" / "table.md").read_text()
    made = {path.name for path in (tmp_path / "first").iterdir()}
    assert made == {"table.md", "curves.json", "comparison.json", "curves.png", "curves.svg"}
    assert main(["compare", str(tmp_path / "first" / "curves.json"), "--out", str(tmp_path / "second")]) == 0
    numbers = [json.loads((tmp_path / name / "comparison.json").read_text()) for name in ("first", "second")]
    assert numbers[0] == numbers[1]
    assert numbers[0]["whole_image_accuracy"] == 0.875
    empty = run / "attention" / "ram" / "seed-1" / "metrics.jsonl"
    empty.write_text("")
    assert main(["compare", str(run), "--out", str(tmp_path / "third")]) == 2
    said = capsys.readouterr().err
    assert str(empty) in said
    assert said.count("\n") == 1
    assert "has changed since it was made" in said
    (empty.parent / "done.json").unlink()  # as after a crash between the evaluation and the mark
    assert main(["compare", str(run), "--out", str(tmp_path / "third")]) == 2
    assert f"{empty} holds no validations; bring it back from a copy, or delete" in capsys.readouterr().err


def test_several_attributes_have_a_table_and_a_figure_of_their_own(tmp_path):
    curves = {"nll": [0.5], "accuracy": [0.5], "balanced_accuracy": [0.5]}
    test = dict.fromkeys(("nll", "accuracy", "balanced_accuracy", "averaged_accuracy"), 0.5)
    network = {"method": "ram", "seed": 0, "rule": "nll", "iterations": [1], "curves": curves, "test": test}
    both = [{**network, "attribute": name, "majority": 0.5} for name in ("Hat", "Smile")]
    (tmp_path / "curves.json").write_text(json.dumps({"networks": both}))
    assert main(["compare", str(tmp_path / "curves.json"), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "convergence.svg").exists()
    assert "| Smile |" in (tmp_path / "out" / "attributes.md").read_text()
    (tmp_path / "curves.json").write_text(json.dumps({"networks": both[:1]}))
    assert main(["compare", str(tmp_path / "curves.json"), "--out", str(tmp_path / "out")]) == 0
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made == {"table.md", "curves.json", "comparison.json", "curves.png", "curves.svg"}  # the rest was of both


def test_no_run_and_a_reference_that_is_not_there_are_refused(tmp_path, capsys):
    assert main(["compare", "--out", str(tmp_path)]) == 2
    assert "nogs compare needs at least one RUN" in capsys.readouterr().err
    curves = {"nll": [0.5], "accuracy": [0.5], "balanced_accuracy": [0.5]}
    network = {"method": "ram", "attribute": None, "seed": 0, "rule": "nll", "iterations": [1], "curves": curves}
    (tmp_path / "curves.json").write_text(json.dumps({"networks": [{**network, "test": {}, "majority": 0.5}]}))
    assert main(["compare", str(tmp_path / "curves.json"), "--out", str(tmp_path), "--reference", "rma"]) == 2
    assert "There is no method 'rma' among these; did you mean 'ram'?" in capsys.readouterr().err


def test_a_folder_without_networks_is_refused(tmp_path, capsys):
    assert main(["compare", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "holds no trained networks; make some with nogs train" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]) == 2
    assert "nowhere; give the folder of a run." in capsys.readouterr().err
