import json
import re
import zipfile
from dataclasses import replace

import pytest

import miniature
from nogs.cli import main
from nogs.data import load_task
from nogs.glimpse import Grid
from nogs.recipes import recipe
from nogs.sequences import load, save

FACE = "147, 126\n92, 118\n76, 160\n147, 76\n181, 21\n"
BIRD = "40, 48\n80, 32\n40, 64\n80, 72\n0, 96\ndata/birds/train/images/{}.png"


@pytest.fixture
def release(tmp_path):
    path = tmp_path / "release.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(3):
            archive.writestr(f"optimal-sequences/celebhq/31/{i}.txt", FACE)
            archive.writestr(f"optimal-sequences/birds/{i}.txt", BIRD.format(i))
    return path


def run(*words):
    return main(["sequences", *map(str, words)])


def test_the_release_is_imported_and_accepted(release, tmp_path, capsys):
    assert run("import", release, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/out/celeba-hq/Smiling: 3 sequences of 5 glimpses\n"
        f"{tmp_path}/out/cub: 3 sequences of 5 glimpses\n"
        f"6 sequences in 2 folders written to {tmp_path}/out\n"
    )
    assert load(tmp_path / "out" / "celeba-hq" / "Smiling").attribute == "Smiling"
    assert run("validate", tmp_path / "out") == 0
    assert capsys.readouterr().out.endswith(
        f"6 sequences in 2 folders of {tmp_path}/out checked: all are valid\n"
        "checked: each line, the recipe's grid, number of glimpses and attributes; not images and splits, which need "
        "--data\n"
    )


def test_importing_twice_changes_nothing(release, tmp_path):
    assert run("import", release, "--out", tmp_path / "out") == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json*")}
    assert run("import", release, "--out", tmp_path / "out") == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json*")} == before


def test_a_tampered_release_is_refused_in_one_sentence_and_writes_nothing(release, tmp_path, capsys):
    with zipfile.ZipFile(release, "a") as archive:
        archive.writestr("optimal-sequences/birds/3.txt", BIRD.format(3).replace("0, 96", "0, 97"))
    assert run("import", release, "--out", tmp_path / "out") == 2
    assert capsys.readouterr().err == (
        f"nogs: error: {release}: optimal-sequences/birds/3.txt, line 5: location 5 (row 0, column 97) is not on the "
        "grid of 13 x 13 locations, where the nearest is (row 0, column 96).\n"
    )
    assert not (tmp_path / "out").exists()


def test_tampered_lines_are_refused_by_validate(release, tmp_path, capsys):
    run("import", release, "--out", tmp_path / "out")
    path = tmp_path / "out" / "cub" / "sequences.jsonl"
    path.write_text(path.read_text().replace("[0, 96]", "[0, 97]", 1))
    assert run("validate", tmp_path / "out") == 2
    assert f"{path}, line 1: location 5 (row 0, column 97) is not on the grid" in capsys.readouterr().err


def test_gaze_is_imported_for_a_recipe(tmp_path, capsys):
    path = tmp_path / "gaze.csv"
    path.write_text("picture,n,x,y\n" + "".join(f"17,{n},{40 * n}.5,{-3 * n}\n" for n in range(1, 8)))
    flags = ["--recipe", "celeba-hq", "--attribute", "Male", "--image", "picture", "--step", "n", "--row", "y"]
    flags += ["--column", "x", "--anchor", "centre", "--snap"]
    assert run("import", path, "--out", tmp_path / "out", *flags) == 2
    assert "line 7: step 6 of image '17' comes after the last one, 5; --cut" in capsys.readouterr().err
    assert run("import", path, "--out", tmp_path / "out", *flags, "--cut") == 0
    found = load(tmp_path / "out" / "celeba-hq" / "Male")
    columns = [min(Grid.celeba_hq().columns, key=lambda c: abs(40 * n + 0.5 - 8 - c)) for n in range(1, 6)]
    assert found.by_id("17").tolist() == [[0, column] for column in columns]


def test_images_that_are_left_out_are_counted(tmp_path, capsys):
    path = tmp_path / "gaze.csv"
    path.write_text("image,step,row,column\n2,0,0,0\n" + "".join(f"4,{n},0,{8 * n}\n" for n in range(5)))
    assert run("import", path, "--recipe", "cub", "--drop-short", "--out", tmp_path / "out") == 0
    assert "left out for having fewer glimpses: 1 image\n" in capsys.readouterr().out
    assert load(tmp_path / "out" / "cub").ids == ("4",)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "gaze.csv needs --recipe"),
        (["--recipe", "cub", "--attribute", "Male"], "The task 'cub' has no attribute 'Male'"),
        (["--recipe", "celeba"], "There is no recipe 'celeba'"),
    ],
)
def test_a_table_needs_a_recipe_that_it_fits(tmp_path, capsys, flags, message):
    (tmp_path / "gaze.csv").write_text("image,step,row,column\n1,0,0,0\n")
    assert run("import", tmp_path / "gaze.csv", "--out", tmp_path / "out", *flags) == 2
    assert message in capsys.readouterr().err


def test_a_recipe_has_no_meaning_for_the_release(release, tmp_path, capsys):
    assert run("import", release, "--out", tmp_path / "out", "--recipe", "cub") == 2
    assert "release.zip is not a table (.csv or .tsv), so it takes no --recipe" in capsys.readouterr().err


def test_an_export_can_be_imported_again(release, tmp_path):
    run("import", release, "--out", tmp_path / "out")
    cub = tmp_path / "out" / "cub" / "sequences.jsonl"
    assert run("export", tmp_path / "out" / "cub", "--out", tmp_path / "cub.csv") == 0
    assert run("import", tmp_path / "cub.csv", "--recipe", "cub", "--out", tmp_path / "again") == 0
    assert (tmp_path / "again" / "cub" / "sequences.jsonl").read_bytes() == cub.read_bytes()

    assert run("export", tmp_path / "out", "--out", tmp_path / "tables") == 0
    tables = {path.relative_to(tmp_path / "tables").as_posix() for path in (tmp_path / "tables").rglob("*.csv")}
    assert tables == {"celeba-hq/Smiling.csv", "cub.csv"}

    assert run("export", tmp_path / "out", "--format", "text", "--out", tmp_path / "text") == 0
    assert run("import", tmp_path / "text", "--out", tmp_path / "third") == 0
    assert (tmp_path / "third" / "cub" / "sequences.jsonl").read_bytes() == cub.read_bytes()


def test_nothing_to_export_is_said(tmp_path, capsys):
    assert run("export", tmp_path, "--out", tmp_path / "x.csv") == 2
    assert "holds no sequences" in capsys.readouterr().err


def test_validate_checks_images_and_splits_against_the_data(release, tmp_path, capsys):
    miniature.celeba_hq(tmp_path / "data", count=60)
    run("import", release, "--out", tmp_path / "out")
    faces = tmp_path / "out" / "celeba-hq"
    capsys.readouterr()
    assert run("validate", faces, "--data", tmp_path / "data") == 0
    assert capsys.readouterr().out.endswith("and attributes, the data's images and splits\n")
    path = faces / "Smiling" / "sequences.jsonl"
    path.write_text(path.read_text().replace('"1"', '"59"').replace('"2"', '"60"'))
    capsys.readouterr()
    assert run("validate", faces, "--data", tmp_path / "data") == 2
    assert capsys.readouterr().err == (
        f"nogs: error: {faces} has 2 problems:\n"
        f"  {path}, line 2: image '59' is in the test split of 'celeba-hq'; only training images may have sequences.\n"
        f"  {path}, line 3: the task 'celeba-hq' has no image '60'.\n"
    )


def test_validate_takes_a_recipe_of_ones_own(sequences, tmp_path, capsys):
    (tmp_path / "few.yaml").write_text("base: digits\nglimpses: 2\ndata: {count: 60, annotated: 6}\n")
    grid = recipe("digits").data.grid
    mine = replace(sequences, task="digits", attribute=None, grid=grid, locations=grid.pixels.numpy()[[[0, 1]] * 3])
    ids = load_task(recipe(tmp_path / "few.yaml").data).splits["train"][:3]
    save(replace(mine, ids=ids), tmp_path / "digits")
    assert run("validate", tmp_path / "digits", "--data", tmp_path, "--recipe", tmp_path / "few.yaml") == 0
    (tmp_path / "few.yaml").write_text("base: digits\nglimpses: 3\ndata: {count: 60, annotated: 6}\n")
    assert run("validate", tmp_path / "digits", "--data", tmp_path, "--recipe", tmp_path / "few.yaml") == 2
    assert "the sequences have 2 glimpses, but the recipe wants 3" in capsys.readouterr().err


def test_validate_says_what_it_lacks(folder, tmp_path, capsys):
    assert run("validate", folder, "--data", tmp_path) == 2
    assert "the sequences are for the task 'toy'" in capsys.readouterr().err
    assert run("validate", folder, "--recipe", "cub") == 2
    assert "the sequences are for the task 'toy', but the recipe is for 'cub'" in capsys.readouterr().err
    assert run("validate", folder) == 0
    assert "\nchecked: each line alone; give --recipe for grid" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "celeba-hq"}, "13 x 13 locations .* but the task 'celeba-hq' has a grid of 50 x 50 locations"),
        ({"grid": Grid.spaced(image=128, glimpse=32, spacing=4).to_json()}, "25 x 25 .* a grid of 13 x 13"),
        ({"attribute": "Smiling"}, "the task 'cub' has no attribute 'Smiling'"),
    ],
    ids=["task", "grid", "attribute"],
)
def test_built_in_tasks_are_known_without_their_data(release, tmp_path, capsys, fields, message):
    run("import", release, "--out", tmp_path / "out")
    path = tmp_path / "out" / "cub" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    assert run("validate", tmp_path / "out") == 2
    assert re.search(f"{path}: .*{message}", capsys.readouterr().err)


def test_without_data_a_recipe_of_ones_own_says_what_is_right(release, tmp_path, capsys):
    table = tmp_path / "few.csv"
    table.write_text("image,step,row,column\n2,0,0,0\n2,1,8,8\n")
    (tmp_path / "few.yaml").write_text("base: cub\nglimpses: 2\n")
    assert run("import", table, "--recipe", tmp_path / "few.yaml", "--out", tmp_path / "out") == 0
    assert run("validate", tmp_path / "out") == 2
    assert "have 2 glimpses, but the recipe wants 5; name another recipe with --recipe." in capsys.readouterr().err
    assert run("validate", tmp_path / "out", "--recipe", tmp_path / "few.yaml") == 0


def test_the_real_release_fits_the_real_data(real_release, tmp_path, capsys):
    data = real_release.parent
    if not ((data / "celeba-hq").is_dir() and (data / "cub-200-2011").is_dir()):
        pytest.skip("no pictures beside the release")
    assert run("import", real_release, "--out", tmp_path) == 0
    assert run("validate", tmp_path, "--data", data) == 0
    assert f"25,000 sequences in 41 folders of {tmp_path} checked: all are valid" in capsys.readouterr().out
    path = tmp_path / "celeba-hq" / "Smiling" / "sequences.jsonl"
    lines = path.read_text().splitlines()
    lines[4] = json.dumps(json.loads(lines[4]) | {"image": "27000"})
    path.write_text("\n".join(lines) + "\n")
    assert run("validate", path.parent, "--data", data) == 2
    assert f"{path}, line 5: image '27000' is in the validation split of 'celeba-hq'" in capsys.readouterr().err
