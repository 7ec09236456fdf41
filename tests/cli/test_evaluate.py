import json
import shutil

import numpy as np
import pytest
import torch

import miniature
from nogs.attention.store import splits_mark
from nogs.cli import evaluate, main, train, whole
from nogs.data import load_task
from nogs.plus.store import save_network
from nogs.posterior.store import find_posterior
from nogs.report import tables
from nogs.runtime.device import one_thread
from nogs.runtime.tensors import tensor_header
from nogs.stages import whole as stage
from small_posteriors import network

TINY = [
    "--data.count", "200", "--data.annotated", "20", "--attention.iterations", "8", "--attention.validate-every", "4",
    "--attention.hidden", "8", "--attention.batch", "16",  "--attention.trajectories", "3",
    "--device", "cpu",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", "digits", "--out", str(folder), "--seeds", "0", "1", *TINY]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.parametrize("best", ["accuracy", "balanced_accuracy", "nll"])
def test_scores_are_those_that_training_wrote(run, capsys, best):
    assert main(["evaluate", str(run), "--trajectories", "3", "--best", best, "--device", "cpu"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["network", "accuracy", "averaged", "greedy", "balanced", "NLL", "pixels"]
    assert sum("averaged: of 3 looks together" in line for line in lines) == 1
    rows = [line.split() for line in lines if line.startswith("ram/")]
    assert [row[0] for row in rows] == ["ram/seed-0", "ram/seed-1"]
    for row in rows:
        folder = run / "attention" / row[0]
        at_training = json.loads((folder / "evaluation.json").read_text())["best"][best]["test"]
        kind = "test" if best == "accuracy" else f"test-{best}"
        now = json.loads((folder / f"evaluation-{kind}.json").read_text())
        assert (now["split"], now["best"], now["method"]) == ("test", best, "ram")
        for name, value in at_training.items():
            found = now["scores"][name]
            assert found == (None if value is None else pytest.approx(value, rel=1e-5, abs=1e-6)), name
        assert row[1:4] == [f"{now['scores'][f'{kind}accuracy']:.1%}" for kind in ("", "averaged_", "greedy_")]
        if best == "accuracy":
            locations = np.load(folder / "locations-test.npy")
            assert np.array_equal(locations, np.load(folder / "locations.npy"))


def test_other_split_and_number_of_trajectories(run):
    assert main(["evaluate", str(run), "--split", "train", "--trajectories", "2", "--device", "cpu"]) == 0
    locations = np.load(run / "attention" / "ram" / "seed-1" / "locations-train.npy")
    assert locations.shape == (160, 2, 4, 2)
    assert set(np.unique(locations)) <= set(range(0, 53, 4))
    assert json.loads((run / "attention" / "ram" / "seed-1" / "evaluation-train.json").read_text())["split"] == "train"


def test_network_in_no_run_is_judged_on_its_recipes_data(tmp_path, capsys, monkeypatch):
    import nogs.recipes.digits as digits

    few = digits.RECIPE.model_copy(
        update={"data": digits.RECIPE.data.model_copy(update={"count": 120, "annotated": 9})}
    )
    monkeypatch.setattr(digits, "RECIPE", few)
    task = load_task(few.data)
    made, posterior = network(task)
    about = {"task": "digits", "labels": list(task.space.names), "method": "ps-nogs+", "attribute": None, "seed": 0}
    about |= {"best": "accuracy", "iteration": 1, "splits": splits_mark(task.splits)}
    file = tmp_path / "network.safetensors"
    save_network(file, made, posterior, task=task, about={"": about}, trained={})
    assert main(["evaluate", str(file), "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = torch.from_numpy(task.rows("test"))
    said, _, _ = made.look(torch.from_numpy(np.array(task.images)), rows, torch.zeros_like(rows))
    right = (said[:, -1].argmax(-1).numpy() == task.labels[rows.numpy()]).mean()
    assert found["scores"]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert main(["evaluate", str(file), "--device", "cpu"]) == 0
    _, row, *_, legend = capsys.readouterr().out.splitlines()
    assert row.split()[1:4] == [f"{right:.1%}", "-", "-"]  # it draws nothing
    assert legend.endswith("-: nothing is drawn")
    assert "is for one label, not for attributes; leave 'red' out" in refused(
        ["evaluate", str(file), "--attribute", "red"], capsys
    )
    assert "--attribute is for a published network" in refused(["evaluate", ".", "--attribute", "red"], capsys)
    if "looks" not in tensor_header(find_posterior("cub"))[0]:
        assert "is a posterior, which does not say where" in refused(["evaluate", "cub"], capsys)


def test_policies_that_are_the_same_share_a_column():
    one = {"accuracy": [0.25, 0.5], "stopping": [{"stop_at": 0.5, "accuracy": 0.5, "mean_glimpses": 1.5}]}
    other = {"accuracy": [0.25, 0.75], "stopping": [{"stop_at": 0.5, "accuracy": 0.75, "mean_glimpses": 1.0}]}
    same, differ = ({"glimpses": [1, 2], "policies": {"argmax": one, "sample": each}} for each in (one, other))
    assert [line.split() for line in evaluate._curves(same).splitlines()] == [
        ["stop", "after", "accuracy"], ["1", "glimpse", "25.0%"], ["2", "glimpses", "50.0%"], [],
        ["stop", "when", "sure", "accuracy", "glimpses"], ["0.5", "50.0%", "1.50"],
    ]  # fmt: skip
    assert [line.split() for line in evaluate._curves(differ).splitlines()] == [
        ["stop", "after", "argmax", "sample"], ["1", "glimpse", "25.0%", "25.0%"], ["2", "glimpses", "50.0%", "75.0%"],
        [], ["stop", "when", "sure", "argmax", "glimpses", "sample", "glimpses"],
        ["0.5", "50.0%", "1.50", "75.0%", "1.00"],
    ]  # fmt: skip


def refused(argv, capsys):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("nogs: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_folder_without_networks_is_refused(tmp_path, capsys):
    assert f"{tmp_path} holds no trained networks; make some with nogs train" in refused(
        ["evaluate", str(tmp_path)], capsys
    )


def test_folder_that_does_not_exist_is_said(capsys):
    assert "There is no folder nowhere; give the folder of a run." in refused(["evaluate", "nowhere"], capsys)
    assert "There is no folder celeba; did you mean 'celeba-hq'?" in refused(["evaluate", "celeba"], capsys)


def test_no_trajectories_are_refused(run, capsys):
    said = refused(["evaluate", str(run), "--trajectories", "0"], capsys)
    assert "--trajectories must be at least 1, not 0." in said


def test_unknown_split_is_refused(run, capsys):
    assert "--split" in refused(["evaluate", str(run), "--split", "tset"], capsys)


def test_network_of_another_grid_is_refused(run, capsys):
    path = run / "recipe.yaml"
    path.write_text(path.read_text().replace("grid_spacing: 4", "grid_spacing: 8"))
    said = refused(["evaluate", str(run)], capsys)
    assert (
        "best-accuracy.safetensors was trained on task 'digits' with another grid, or other labels, than this data has"
        in said
    )


def test_run_is_judged_on_its_own_splits(tmp_path, capsys):
    """An added picture would change the splits, and a missing one can't be tested on."""
    data = miniature.folder(tmp_path / "data")
    small = ["--data.image-size", "32", "--data.glimpse", "8", "--attention.iterations", "2", "--attention.hidden", "8"]
    common = ["--data", str(data), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    run = tmp_path / "run"
    assert main(["train", "folder", "--out", str(run), *common, *small]) == 0
    assert main(["evaluate", str(run), *common]) == 0
    first = next(run.rglob("evaluation-test.json")).read_text()
    picture = sorted(data.rglob("*.png"))[0]
    shutil.copy(picture, picture.with_name("a new one.png"))
    assert main(["evaluate", str(run), *common]) == 0
    assert next(run.rglob("evaluation-test.json")).read_text() == first
    tested = json.loads((run / "data" / "splits.json").read_text())["splits"]["test"][0]
    (data / tested).unlink()
    capsys.readouterr()
    assert main(["evaluate", str(run), *common]) == 2
    said = capsys.readouterr().err
    assert repr(tested) in said
    assert "check that --data is the folder that the run was made from" in said


def test_network_that_can_not_be_read_is_named(run, capsys):
    path = run / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    path.write_bytes(b"nothing")
    assert str(path) in refused(["evaluate", str(run)], capsys)


@pytest.mark.parametrize("command", [["evaluate"], ["export", "--precision", "float32"]])
def test_networks_of_other_splits_are_refused(run, capsys, command):
    path = run / "data" / "splits.json"
    record = json.loads(path.read_text())
    splits = record["splits"]
    splits["test"], splits["validation"] = splits["validation"], splits["test"]
    path.write_text(json.dumps(record))
    path.with_name("done.json").unlink()  # as if the data had been prepared anew
    said = refused([command[0], str(run), *command[1:]], capsys)
    assert "was trained on other splits of this data than the run's data/splits.json has" in said


def test_numbers_are_printed_where_they_can_not_be_written(run, capsys):
    for seed in (0, 1):
        (run / "attention" / "ram" / f"seed-{seed}" / "evaluation-test.json").mkdir()
    assert main(["evaluate", str(run), "--trajectories", "1", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines() if line.startswith("ram")] == ["ram/seed-0", "ram/seed-1"]
    assert "seed-0/evaluation-test.json" in said.err


def test_an_nll_that_is_rounded_to_zero_has_no_sign():
    scores = dict.fromkeys(("accuracy", "averaged_accuracy", "greedy_accuracy", "balanced_accuracy"), 1.0)
    scores |= {"nll": -1e-9, "pixels_seen": 0.5, "warning": None, "majority": 0.5, "converged_at": 4}
    texts = [evaluate._line("ram", scores, drawn=True), train._table({"ram": scores}), whole._table({"": scores})]
    for text in [*texts, stage._scores({"tests": {"": scores}}), tables._measure("nll", -1e-9)]:
        assert "0.000" in text
        assert "-0.000" not in text
