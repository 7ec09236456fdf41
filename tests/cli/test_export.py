import json
import shutil

import pytest

from nogs.attention.network import Networks
from nogs.cli import main
from nogs.model.found import Found
from nogs.recipes import digits, recipe
from nogs.runtime.device import one_thread
from small_runs import write_run

TINY = [
    "--data.count", "200", "--data.annotated", "20", "--attention.iterations", "8", "--attention.validate-every", "4",
    "--attention.hidden", "8", "--attention.batch", "16", "--attention.trajectories", "1", "--device", "cpu",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert main(["train", "digits", "--out", str(folder), *TINY]) == 0
    return folder


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def refused(argv, capsys):
    assert main(argv) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("nogs: error: ")
    return said


def test_files_agree_and_are_judged_on_the_test_images(run, capsys):
    assert main(["export", str(run)]) == 0
    said = capsys.readouterr().out
    found = json.loads((run / "export" / "export.json").read_text())
    trained = json.loads((run / "attention" / "ram" / "seed-0" / "evaluation.json").read_text())
    test = trained["best"]["accuracy"]["test"]
    exact = found["files"]["float32.onnx"]
    assert exact["difference"] < 1e-4
    assert exact["accuracy"] == {
        "argmax": pytest.approx(test["greedy_accuracy"]), "sample": pytest.approx(test["accuracy"]), "images": 20
    }  # fmt: skip
    for name, file in found["files"].items():
        assert file["bytes"] == (run / "export" / name).stat().st_size
        assert f"{file['bytes']:,}" in said
    assert found["files"]["int8.onnx"]["bytes"] < exact["bytes"]
    assert f"{found['multiply_adds']:,} for all 4" in said


def test_network_that_draws_no_locations_has_one_policy(run, capsys, monkeypatch):
    monkeypatch.setattr(Networks, "policy", "argmax")
    assert main(["export", str(run), "--precision", "float32"]) == 0
    said = capsys.readouterr().out
    (found,) = json.loads((run / "export" / "export.json").read_text())["files"].values()
    assert found["accuracy"].keys() == {"argmax", "images"}
    head, line = (line for line in said.splitlines() if line.startswith(("file ", "float32")))
    assert head.split() == ["file", "bytes", "argmax", "largest", "difference"]
    assert line.split()[2:] == [f"{found['accuracy']['argmax']:.1%}", f"{found['difference']:.1e}"]
    assert "This network draws no locations, so its only policy is argmax." in said
    assert "largest difference: between the file and torch, of a probability or a number of the state" in said


def test_data_that_are_not_at_hand_are_said(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert main(["export", str(run), "--precision", "float32", "--out", str(tmp_path / "out")]) == 0
    assert "Accuracy is not measured: give --data the folder of the run's images." in capsys.readouterr().err
    found = json.loads((tmp_path / "out" / "export.json").read_text())
    assert list(found["files"]) == ["float32.onnx"]
    assert found["files"]["float32.onnx"]["accuracy"] is None


def test_network_in_no_run_is_judged_on_its_recipes_data(run, tmp_path, capsys, monkeypatch):
    own = recipe(run / "recipe.yaml")
    monkeypatch.setattr(digits, "RECIPE", own)
    path = run / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    alone = shutil.copy(path, tmp_path / "alone.safetensors")
    assert main(["export", str(alone), "--precision", "float32", "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "export.json").read_text())
    test = json.loads((path.parent / "evaluation.json").read_text())["best"]["accuracy"]["test"]
    assert found["files"]["float32.onnx"]["accuracy"]["argmax"] == pytest.approx(test["greedy_accuracy"])
    assert f"{test['greedy_accuracy']:.1%}" in capsys.readouterr().out


def test_published_network_without_its_data_has_the_table_and_asks_for_them(tmp_path, capsys, monkeypatch):
    file = next(write_run(tmp_path / "run").rglob("*.safetensors"))
    found = Found(shutil.copy(file, tmp_path / "cub.safetensors"), "cub", {}, "cub comes with nogs")
    monkeypatch.setattr("nogs.model.finding.find", lambda *_, **__: found)
    assert main(["export", "cub", "--precision", "float32", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "Accuracy is not measured: give --data the folder of toy's images." in said.err
    assert [line.split()[0] for line in said.out.splitlines() if ".onnx" in line] == ["float32.onnx"]


def test_place_is_checked(run, tmp_path, capsys):
    path = run / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    assert "nogs export needs --out" in refused(["export", str(path)], capsys)
    file = ["export", str(run), "--out", str(tmp_path / "mine.onnx")]
    assert "--out is a folder for float32.onnx and int8.onnx; name one, such as " in refused(file, capsys)


def test_folder_that_takes_no_files_is_refused_before_the_work(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("nogs.model.exporting.export_onnx", lambda *_, **__: pytest.fail("worked before the check"))
    (tmp_path / "file").write_text("")
    assert f"Cannot write {tmp_path / 'file'}" in refused(["export", str(run), "--out", str(tmp_path / "file")], capsys)


def test_evaluate_prints_and_writes_the_curves_by_glimpses(run, capsys):
    assert main(["evaluate", str(run), "--trajectories", "2"]) == 0
    said = capsys.readouterr().out
    path = run / "attention" / "ram" / "seed-0" / "accuracy-by-glimpses.json"
    found = json.loads(path.read_text())
    trained = json.loads((path.parent / "evaluation.json").read_text())["best"]["accuracy"]["test"]
    assert found["policies"]["argmax"]["accuracy"][-1] == pytest.approx(trained["greedy_accuracy"])
    assert f"4 glimpses{found['policies']['argmax']['accuracy'][-1]:>16.1%}" in said
    assert "ram/seed-0 is the only one; 20 test images" in said
    assert main(["evaluate", str(run), "--split", "validation"]) == 0
    assert path.with_name("accuracy-by-glimpses-validation.json").exists()


def test_evaluate_prints_json_and_names_one_network(run, capsys):
    assert main(["evaluate", str(run), "--trajectories", "1", "--network", "ram", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["network"] == "ram/seed-0"
    assert found["by_glimpses"]["argmax"]["accuracy"][-1] == pytest.approx(found["scores"]["greedy_accuracy"])
    assert "has no network 'mine'; it has ram/seed-0." in refused(["evaluate", str(run), "--network", "mine"], capsys)


def test_pack_and_push(run, tmp_path, capsys, monkeypatch):
    import huggingface_hub.constants

    assert (
        main(["hub", "push", str(run), "--out", str(tmp_path / "packed"), "--licence", "mit", "--title", "Mine"]) == 0
    )
    assert f"Network written: {tmp_path / 'packed'}" in capsys.readouterr().out
    card = (tmp_path / "packed" / "README.md").read_text()
    assert "license: mit" in card
    assert "# Mine" in card
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "could not push to 'me/mine'" in refused(["hub", "push", str(run), "me/mine"], capsys)
    assert "needs USER/REPOSITORY to upload to, or --out DIR to write to" in refused(["hub", "push", str(run)], capsys)
    assert "must be USER/REPOSITORY, not 'mine'" in refused(["hub", "push", str(run), "mine"], capsys)
