import json

import pytest

from nogs.cli import main

SMALL = [
    *("--data.count", "100", "--data.annotated", "10", "--data.image-size", "32", "--data.glimpse", "8"),
    *("--bank.count", "300", "--bank.components", "16", "--completion.drawn", "60", "--completion.kept", "20"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    assert main(["bank", "build", "digits", "--out", str(folder), "--device", "cpu", *SMALL]) == 0
    return folder


def test_build_writes_the_recipe_and_the_bank(run, capsys):
    assert main(["bank", "build", "digits", "--out", str(run), "--device", "cpu", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "300 images of digits; 0 near-duplicates of held-out images left out; 16 components explain" in out
    assert json.loads((run / "bank" / "done.json").read_text())["images"] == 300
    assert (run / "recipe.yaml").exists()


def test_verify_says_that_the_bank_is_whole(run, capsys):
    assert main(["bank", "verify", str(run)]) == 0
    assert f"{run / 'bank'} is intact" in capsys.readouterr().out


def test_evaluate_prints_measures_and_draws_completions(run, capsys):
    assert main(["bank", "evaluate", str(run), "--images", "4", "--shown", "2", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["0", "1", "2", "3"]
    assert (run / "bank" / "evaluation" / "completions.png").read_bytes()[:4] == b"\x89PNG"
    record = json.loads((run / "bank" / "evaluation" / "validation.json").read_text())
    assert [row["observed"] for row in record["by_glimpses"]] == [0, 1, 2, 3]
    assert all(row["images"] == 4 for row in record["by_glimpses"])


def test_picture_shows_the_images_asked_for_although_they_were_measured_before(run):
    pictures = []
    for split, shown in (("validation", "2"), ("test", "2"), ("validation", "2"), ("validation", "3")):
        words = ["--split", split, "--images", "4", "--shown", shown, "--device", "cpu"]
        assert main(["bank", "evaluate", str(run), *words]) == 0
        pictures.append((run / "bank" / "evaluation" / "completions.png").read_bytes())
    assert pictures[0] == pictures[2]
    assert len(set(pictures)) == 3


def test_verify_names_the_damage_and_fails(run, tmp_path, capsys):
    import shutil

    shutil.copytree(run, tmp_path / "copy")
    path = tmp_path / "copy" / "bank" / "images" / "00000.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert main(["bank", "verify", str(tmp_path / "copy")]) == 2
    assert f"{path} is damaged: image 299 has changed" in capsys.readouterr().err


def test_a_missing_source_is_a_sentence(tmp_path, capsys):
    flags = [*SMALL, "--bank.generator", "stylegan"]
    assert main(["bank", "build", "digits", "--out", str(tmp_path), "--device", "cpu", *flags]) == 2
    assert "The generator 'stylegan' needs its public weights; give --generator-path." in capsys.readouterr().err


def test_a_run_without_a_bank_is_named(tmp_path, capsys):
    assert main(["bank", "verify", str(tmp_path)]) == 2
    assert "holds no finished bank; run nogs bank build" in capsys.readouterr().err
