import csv
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import miniature
import nogs.data.archives
import nogs.report
from nogs.cli import main
from nogs.posterior import store
from nogs.posterior.store import about_posterior
from nogs.recipes import recipe
from nogs.runtime.device import one_thread
from nogs.runtime.files import read_json
from nogs.sequences import load

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module", "quick_estimates_in_the_module")

FEW = [
    *("--posterior.iterations", "4", "--posterior.validate-every", "2", "--posterior.width", "16"),
    *("--posterior.layers", "1", "--posterior.heads", "2", "--bank.count", "60", "--bank.components", "8"),
    *("--completion.drawn", "20", "--completion.kept", "6", "--design.images", "3"),
    *("--attention.iterations", "4", "--attention.validate-every", "2", "--attention.hidden", "16"),
    *("--whole.iterations", "4", "--whole.width", "4", "--data.annotated", "5", "--device", "cpu"),
    *("--method", "ram", "ps-nogs", "--workers", "1"),
]
"""Flags that make every stage short, and start no other process."""


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOGS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pictures(tmp_path):
    return miniature.folder(tmp_path / "pictures", classes=("cat", "dog", "owl"), per_class=20)


@pytest.fixture
def no_page(monkeypatch):
    def write_report(runs, *, task, device):
        (page := runs[0] / "report.html").touch()
        return page

    monkeypatch.setattr(nogs.report, "write_report", write_report)


def refused(argv, sentence, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.count("nogs: error: ") == 1
    assert sentence in error, error
    assert error.splitlines()[-1].startswith("nogs: error: ")


@pytest.mark.slow
def test_folder_of_pictures_becomes_a_network_and_a_report(pictures, capsys):
    Image.fromarray(np.full((50, 31), 90, np.uint8)).save(pictures / "cat" / "grey.png")
    (pictures / "owl" / "broken.png").write_bytes(b"no picture")
    argv = ["run", "folder", "--data", "pictures", "--out", "runs/mine", *FEW]
    assert main(argv) == 0
    told = capsys.readouterr().out
    plan = told.splitlines()[:5]
    assert plan[0] == "pictures: 62 pictures in 3 classes, from 34 x 35 to 57 x 59 px."
    assert plan[1].startswith("  pictures   32 px (the pictures' shorter sides are")
    assert plan[2] == "  glimpses   4 of 8 px at 49 locations: at most 25% of the pixels"
    assert plan[3].startswith("  training   a posterior, 4 iterations; PS-NOGS+, 4")
    assert re.match(r"  time       about .*; change it with --minutes, --data.image-size, --glimpses, ...$", plan[4])
    assert "folder" not in " ".join(word for word in told.split() if "/" not in word)
    assert "1 grey" in told
    assert "Left out 1 unreadable picture" in told
    assert told.splitlines()[-1] == "open runs/mine/report.html"
    found = recipe("runs/mine/recipe.yaml")
    assert (found.data.image_size, found.data.glimpse, found.posterior.iterations) == (32, 8, 4)
    sequences = load(Path("runs/mine/sequences"))
    assert sequences.length == found.glimpses == 4
    assert sequences.provenance["posterior_identity"] == store.identity("runs/mine/posterior/posterior.safetensors")
    assert set(os.listdir("runs/mine/attention")) >= {"ram", "ps-nogs", "verdict.json"}
    assert len(read_json(Path("runs/mine/data/splits.json"))["skipped"]) == 1

    again = ["run", "folder", "--data", "pictures", "--out", "runs/mine", "--method", "ram", "ps-nogs"]
    assert main(again) == 0  # goes on with its own recipe
    told = capsys.readouterr().out
    assert told.startswith(
        "Resuming with the sizes of runs/mine/recipe.yaml; flags change them, and another --out begins a new run.\n"
    )
    assert told.count("already done.") == 6
    assert not os.path.exists("runs/mine.before")

    for words in (["evaluate", "runs/mine"], ["report", "runs/mine"]):  # the run remembers where its pictures are
        assert main(words) == 0, (words, capsys.readouterr().err)
    capsys.readouterr()
    assert main(["data", "prepare", "runs/mine/recipe.yaml", "--data", "pictures", "--out", "runs/other"]) == 0
    assert "note: 1 unreadable picture left out." in capsys.readouterr().err
    refused([*argv, "--no-skip-corrupt"], "1 of 62 pictures can't be read", capsys)


@pytest.mark.parametrize("minutes", ["0", "nan", "inf"])
def test_a_time_that_is_none_is_refused(pictures, capsys, minutes):
    argv = ["run", "folder", "--data", "pictures", "--out", "run", "--until", "data", "--minutes", minutes]
    refused(argv, f"--minutes must be a number above 0, but is {minutes}.", capsys)


def test_minutes_are_for_pictures(tmp_path, capsys):
    argv = ["run", "digits", "--out", str(tmp_path / "run"), "--minutes", "3"]
    refused(argv, "--minutes chooses sizes for a folder of pictures; for digits set --posterior.iterations", capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("taken", "Cannot write into taken: taken is a file; choose another --out."),
        ("taken/run", "taken is a file; choose another --out."),
        ("pictures", "--out pictures lies in the folder of the pictures"),
        ("pictures/cat/run", "name one outside, such as --out runs/pictures"),
    ],
)
def test_folder_that_can_not_be_written_is_refused_before_time_is_measured(
    pictures, capsys, monkeypatch, out, sentence
):
    monkeypatch.setattr("nogs.stages.forecast.forecast", lambda *_, **__: pytest.fail("measured"))
    Path("taken").touch()
    refused(["run", "pictures", "--out", out, "--minutes", "1"], sentence, capsys)


def test_folder_named_for_a_run_is_outside_the_pictures(pictures, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir("pictures")
    outside = tmp_path / "runs" / "pictures"
    sentence = f"--out runs/pictures lies in the folder of the pictures; name one outside, such as --out {outside}."
    refused(["run", "folder", "--data", "."], sentence, capsys)


def test_run_of_a_recipe_into_a_file_is_refused(capsys, monkeypatch):
    monkeypatch.setattr("nogs.stages.run", lambda *_, **__: pytest.fail("begun"))
    Path("afile").touch()
    for words in (["run", "digits"], ["demo"]):
        argv = [*words, "--out", "afile"]
        refused(argv, "Cannot write into afile: afile is a file; choose another --out.", capsys)


def test_flags_decide_what_is_chosen_after_them(pictures, capsys):
    argv = ["run", "folder", "--data", "pictures", "--out", "run", "--until", "data", "--no-estimate"]
    assert main([*argv, "--data.image-size", "20", "--glimpses=3"]) == 0
    found = recipe("run/recipe.yaml")
    assert (found.data.image_size, found.data.glimpse, found.data.grid_spacing, found.glimpses) == (20, 5, 2, 3)
    told = capsys.readouterr().out
    assert "  pictures   20 px (set by you)" in told
    assert "  glimpses   3 of 5 px" in told
    assert told.splitlines()[4] == "  sizes      change them with --data.image-size, --glimpses, ..."
    assert "  time " not in told


def test_fields_of_a_recipe_file_are_said_too_before_and_after_a_run_began(pictures, capsys):
    argv = ["run", "mine.yaml", "--data", "pictures", "--out", "run", "--until", "data", "--no-estimate"]
    Path("mine.yaml").write_text("base: folder\nglimpses: 2\ndata: {glimpse: 12}\n")
    assert main(argv) == 0
    found = recipe("run/recipe.yaml")
    assert (found.name, found.glimpses, found.data.image_size, found.data.glimpse) == ("mine", 2, 32, 12)
    Path("mine.yaml").write_text("base: folder\nglimpses: 3\ndata: {glimpse: 12}\n")
    assert main(argv) == 0
    assert recipe("run/recipe.yaml") == found.model_copy(update={"glimpses": 3})


def test_images_with_a_csv_and_splits_of_their_own(pictures, capsys):
    ids = [path.relative_to(pictures).as_posix() for path in sorted(pictures.rglob("*.png"))]
    splits = ["train", "train", "train", "validation", "test"]
    with (pictures / "what.csv").open("w", newline="") as file:
        rows = [(id, id.partition("/")[0], splits[n % 5]) for n, id in enumerate(ids)]
        csv.writer(file).writerows([("file", "kind", "split"), *rows])
    flags = ["--data.labels", "what.csv", "--data.image-column", "file", "--data.label-column", "kind"]
    assert main(["run", "folder", "--data", "pictures", "--out", "run", "--until", "data", *flags]) == 0
    assert "60 images of 32 px, 3 classes (36 train, 12 validation, 12 test)" in capsys.readouterr().out


def test_fewer_images_annotated_than_asked_for_are_said(pictures, capsys):
    argv = ["run", "folder", "--data", "pictures", "--out", "run", "--until", "data", "--data.annotated", "100000"]
    assert main(argv) == 0
    assert "note: Only 21 images are annotated, not 100000" in capsys.readouterr().out


def test_uneven_classes_are_said(tmp_path, capsys):
    miniature.folder(tmp_path / "pictures", classes=("cat", "dog"), per_class=30)
    for n in range(6, 30):
        (tmp_path / "pictures" / "dog" / f"{n}.png").unlink()
    miniature.folder(tmp_path / "more", classes=("cat",), per_class=20)
    for path in (tmp_path / "more" / "cat").iterdir():
        path.rename(tmp_path / "pictures" / "cat" / f"more-{path.name}")
    assert main(["run", "folder", "--data", "pictures", "--out", "run", "--until", "data"]) == 0
    said = capsys.readouterr().out
    assert "note: The classes are imbalanced: " in said
    assert "; look at the balanced accuracies too." in said


def test_pictures_smaller_than_what_they_are_prepared_at_are_enlarged_and_said(tmp_path, capsys):
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for n in range(25):
            Image.fromarray(np.full((6, 7, 3), 10 * n, np.uint8)).save(tmp_path / "pictures" / name / f"{n}.png")
    assert main(["run", "folder", "--data", "pictures", "--out", "run", "--until", "data"]) == 0
    told = capsys.readouterr().out
    assert "; 100% are smaller, and enlarged" in told
    assert "shorter sides are 6 px at the median, enlarged to the 32 px that glimpses need" in told


def test_bad_folders_are_refused_in_one_sentence(pictures, tmp_path, capsys):
    def run(folder, *flags):
        return ["run", "folder", "--data", str(folder), "--out", "run", *flags]

    refused(run("nowhere"), "There is no folder nowhere; check --data.", capsys)
    refused(["run", "folder", "--out", "run"], "needs its pictures; give --data the folder that holds them", capsys)
    refused(run("pictures", "--data.glimpse", "80"), "A glimpse of 80 px does not fit into an image of 32", capsys)
    refused(run("pictures", "--data.glimse", "8"), "has no flag --data.glimse; did you mean --data.glimpse?", capsys)
    refused(run("pictures", "--glimpses", "two"), "--glimpses must be a whole number, not 'two'", capsys)
    refused(run("pictures", "--seeds", "-1"), "--seeds", capsys)
    refused(run("pictures", "--seeds", "0", "0"), "--seeds must be different, but are 0, 0.", capsys)
    refused(run("pictures", "--workers", "0"), "--workers must be at least 1, not 0.", capsys)
    refused(run("pictures", "--data.image-size", "0"), "--data.image-size must be at least 1, not 0.", capsys)
    refused(run("pictures", "--glimpses", "1000000"), "--glimpses is 1000000, but the grid has only 49", capsys)
    refused(run("pictures", "--data.image-size", "100000"), "needs 27.94 GiB, more than the limit of 1.00 GiB", capsys)
    assert not (tmp_path / "cache").exists()
    (tmp_path / "empty").mkdir()
    refused(["run", "empty"], "There is no picture in empty (.jpg, .jpeg, ", capsys)
    refused(run("empty"), "; give a folder that has some.", capsys)
    one = miniature.folder(tmp_path / "one", classes=("cat",), per_class=45)
    refused(run(one), "have only one class, 'cat'; a task needs at least 2.", capsys)
    few = miniature.folder(tmp_path / "few", classes=("cat", "dog"), per_class=10)
    refused(run(few), "There are 20 pictures in 2 classes, too few to train", capsys)
    five = miniature.folder(tmp_path / "five", classes=("a", "b"), per_class=2)
    Image.new("RGB", (20, 20)).save(five / "a" / "5.png")
    refused(run(five), "There are 5 pictures in 2 classes, too few to train", capsys)
    for path in pictures.rglob("*.png"):
        path.write_bytes(b"no picture")
    refused(run("pictures"), "None of the 60 pictures looked at in pictures can be read, such as", capsys)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--method", "psnogs+"], "There is no --method psnogs+; did you mean 'ps-nogs+'?"),
        (["--method", "ram+"], "The method ram+ differs from ram in its pretraining alone"),
        (["--method", "ps-hgs"], "The method ps-hgs needs labelled parts of birds, which only cub has; leave it out."),
        (["--attribute", "cat"], "Task 'pictures' has one categorical label and no attributes; leave --attribute out."),
        (["--posterior", "celeba"], "There is no posterior 'celeba'; did you mean 'celeba-hq'?"),
        (["--posterior", "x.safetensors"], "There is no posterior x.safetensors; check --posterior."),
        (["--seeds", "0", "0"], "--seeds must be different, but are 0, 0."),
        (["--glimpses", "0"], "has a mistake: --glimpses must be at least 1, not 0."),
        (["--data.glimpse", "0"], "has a mistake: --data.glimpse must be at least 1, not 0."),
        (["--plus.iterations", "two"], "--plus.iterations must be a whole number, not 'two'"),
        (["--posterior.dropout", "2", "--glimpses", "0"], "has 2 mistakes: --glimpses must be at least 1, not 0; --po"),
    ],
)
def test_settings_that_no_run_can_have_are_refused_before_anything_is_measured(
    pictures, capsys, monkeypatch, flags, sentence
):
    for name in ("obtain", "survey"):
        monkeypatch.setattr(f"nogs.recipes.folder.{name}", None)  # not even looked at
    refused(["run", "pictures", *flags], sentence, capsys)
    assert not Path("runs").exists()


def test_pictures_in_place_of_their_run_are_refused_with_its_name(pictures, capsys):
    Path("runs/pictures").mkdir(parents=True)
    for argv in (
        ["predict", "pictures", "pictures"],
        ["evaluate", "pictures"],
        ["report", "pictures"],
        ["open", "pictures"],
    ):
        refused(argv, "; did you mean runs/pictures?", capsys)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("picturs", "There is no recipe or folder 'picturs' (did you mean 'pictures'?); choose digits, celeba-hq, cub"),
        ("nothing", "There is no recipe or folder 'nothing'; choose digits, celeba-hq, cub or folder, or a .yaml file"),
        ("all.zip", "all.zip is neither a recipe (.yaml) nor a folder of pictures; unpack it if it holds some."),
    ],
)
def test_what_is_no_folder_of_pictures_is_refused(pictures, capsys, name, sentence):
    Path("all.zip").touch()
    refused(["run", name], sentence, capsys)


def test_minutes_of_a_run_that_was_begun_are_said_to_change_nothing(pictures, capsys):
    argv = ["run", "pictures", "--until", "data", "--no-estimate"]
    assert main(argv) == 0
    capsys.readouterr()
    assert main([*argv, "--minutes", "30"]) == 0
    told = capsys.readouterr().out
    assert "Resuming with the sizes of runs/pictures/recipe.yaml; --minutes only counts for a new run" in told


def test_a_slow_start_is_not_silent(pictures, capsys, monkeypatch):
    def slow(folder):
        time.sleep(1)
        return check_pictures(folder)

    check_pictures = nogs.data.archives.check_pictures
    monkeypatch.setattr(nogs.data.archives, "check_pictures", slow)
    monkeypatch.setattr("nogs.runtime.progress._EVERY", 0.3)
    assert main(["run", "pictures", "--until", "data", "--no-estimate"]) == 0
    assert capsys.readouterr().err.startswith("Starting: 0:0")


def test_run_without_its_recipe_is_no_folder_of_pictures(pictures, capsys):
    assert main(["run", "pictures", "--until", "data", "--no-estimate"]) == 0
    Path("runs/pictures/recipe.yaml").unlink()
    Path("runs/pictures/attention").mkdir()
    sentence = "{0} is the folder of a run, not of pictures; to resume the run give its original command, with --out "
    sentence += "{0}."
    ways = (["runs/pictures"], ["folder", "--data", "runs/pictures", "--out", "other"])
    for words in ways:
        refused(["run", *words], sentence.format("runs/pictures"), capsys)
    Path("runs/pictures/run.json").unlink()
    for words in ways:
        refused(["run", *words], sentence.format("runs/pictures"), capsys)
    assert not Path("other").exists()


def test_recipe_of_a_run_that_was_cut_at_a_line_is_refused(pictures, capsys):
    argv = ["run", "pictures", "--until", "data", "--no-estimate"]
    assert main(argv) == 0
    path = Path("runs/pictures/recipe.yaml")
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    last = whole.splitlines()[-1].split(":")[0].strip()
    sentence = f"{path} is incomplete: it lacks plus.{last}; bring it back from a copy, or delete it and give the run's"
    ways = (argv, ["run", "runs/pictures", *argv[2:]])
    for words in ways:
        refused(words, f"{sentence} original command, with --out runs/pictures.", capsys)
    path.write_text(whole[: whole.index("posterior:")])
    for words in ways:
        refused(words, f"{path} is incomplete: it lacks posterior.kind and ", capsys)
    path.write_text(whole)
    for words in ways:
        assert main(words) == 0
        assert "made again" not in capsys.readouterr().out


def test_csv_with_unknown_files_is_refused(pictures, capsys):
    miniature.labels_csv(pictures, [("cat/0.png", "cat"), ("cat/gone.png", "cat")])
    argv = ["run", "folder", "--data", "pictures", "--out", "run", "--data.labels", "labels.csv"]
    refused(argv, "names 1 picture that is not in pictures, the first is 'cat/gone.png'", capsys)


def test_attributes_of_faces_each_have_sequences_and_networks(tmp_path, capsys, no_page):
    miniature.celeba_hq(tmp_path / "DATA")
    argv = ["run", "celeba-hq", "--data", "DATA", "--out", "run", *FEW]
    argv += ["--data.image-size", "32", "--data.glimpse", "8", "--data.grid-count", "4", "--data.grid-last", "24"]
    argv += ["--posterior.batch", "8", "--posterior.warmup", "0", "--glimpses", "2", "--attention.batch", "4"]
    refused(argv, "has 40 attributes; choose some with --attribute", capsys)
    assert main([*argv, "--attribute", "Smiling", "Male", "--no-estimate"]) == 0
    for name in ("Smiling", "Male"):
        assert load(Path("run/sequences", name)).attribute == name
        assert os.path.exists(f"run/attention/ps-nogs/{name}/seed-0/evaluation.json")
    assert capsys.readouterr().out.count("PS-NOGS ") == 2


@pytest.mark.slow
def test_published_posterior_of_a_recipe_is_used_where_it_fits(tmp_path, capsys, monkeypatch):
    (tmp_path / "few.yaml").write_text(
        "{base: digits, name: few, glimpses: 2, published: few, data: {count: 80, annotated: 5}, "
        "posterior: {iterations: 4, validate_every: 2, width: 16, layers: 1, heads: 2}}"
    )
    argv = ["run", "few.yaml", "--no-estimate", "--device", "cpu", "--until", "posterior", "--out"]
    refused([*argv, "run"], "There is no posterior 'few'; published are", capsys)
    assert main([*argv, "trained", "--published", "None"]) == 0
    assert "2/7 posterior: training the classifier of glimpses" in capsys.readouterr().out
    monkeypatch.setattr(store, "__file__", str(tmp_path / "nogs" / "posterior" / "store.py"))
    published = tmp_path / "nogs" / "pretrained" / "few.safetensors"
    assert main(["posterior", "publish", "trained", "--out", str(published)]) == 0
    capsys.readouterr()
    for told in ("few, already trained; --published None trains one here.", "already done."):
        assert main([*argv, "run"]) == 0
        assert f"2/7 posterior: {told}" in capsys.readouterr().out
    assert Path("run/posterior/posterior.safetensors").read_bytes() == published.read_bytes()
    assert read_json(Path("run/posterior/evaluation.json")) == about_posterior("few")
    assert main([*argv, "trained"]) == 0  # with its own, which was trained by this recipe
    assert "2/7 posterior: already done." in capsys.readouterr().out
    for flags, why in (
        (["--glimpses", "3"], "The published posterior few is not used: it was trained for up to 2 glimpses, not 3."),
        (["--data.fragments", "3"], "The published posterior few is not used: it was trained on other images."),
        (["--published", "None"], None),
    ):
        monkeypatch.setattr("nogs.stages.posterior.train_posterior", stop)
        with pytest.raises(Stopped):
            main([*argv, f"other-{flags[1]}", *flags])
        told = capsys.readouterr().out
        assert "2/7 posterior: training the classifier of glimpses" in told
        assert why is None or why in told


def test_posterior_that_was_trained_for_a_run_is_its_own(tmp_path, capsys, monkeypatch):
    fields = "posterior: {iterations: 2, validate_every: 1, width: 16, layers: 1, heads: 2}"
    (tmp_path / "few.yaml").write_text(
        f"{{base: digits, name: few, glimpses: 2, data: {{count: 80, annotated: 5}}, {fields}}}"
    )
    words = ["few.yaml", "--device", "cpu", "--out", "run", "--posterior.width", "32"]
    assert main(["posterior", "train", *words]) == 0
    before = Path("run/posterior/posterior.safetensors").read_bytes()
    assert main(["run", *words, "--published", "celeba-hq", "--until", "posterior", "--no-estimate"]) == 0
    assert "2/7 posterior: already done." in capsys.readouterr().out
    assert Path("run/posterior/posterior.safetensors").read_bytes() == before


@pytest.mark.parametrize("way", ["flag", "file"])
def test_fields_of_a_posterior_say_that_one_is_trained(tmp_path, capsys, monkeypatch, way):
    miniature.celeba_hq(tmp_path / "DATA")
    (tmp_path / "wide.yaml").write_text("{base: celeba-hq, posterior: {width: 64}}")
    words = ["celeba-hq", "--posterior.width", "64"] if way == "flag" else ["wide.yaml"]
    monkeypatch.setattr("nogs.stages.order.Experiment", stop)
    with pytest.raises(Stopped):
        main(["run", *words, "--data", "DATA", "--out", "run", "--attribute", "Male", "--no-estimate"])
    assert (
        "posterior.width is 64, unlike the published posterior's, so a new one is trained." in capsys.readouterr().out
    )


class Stopped(Exception):
    pass


def stop(*_, **__):
    raise Stopped


def test_birds_are_pretrained_with_the_heuristic_of_the_first_step(tmp_path, capsys, no_page):
    miniature.cub(tmp_path / "DATA")
    argv = ["run", "cub", "--data", "DATA", "--out", "run", *FEW, "--data.image-size", "32", "--data.glimpse", "8"]
    argv += ["--data.grid-count", "4", "--posterior.stem", "linear", "--posterior.token", "4", "--posterior.batch", "8"]
    argv += ["--posterior.warmup", "0", "--attention.embedder", "paper", "--attention.embedding", "16"]
    argv += ["--attention.pretrain-epochs", "1", "--attention.batch", "4", "--glimpses", "2"]
    assert main(argv) == 0
    told = capsys.readouterr().out
    assert "6/7 attention: 2 networks: ram, ps-nogs; its progress will show the time." in told
    assert Path("run/attention/ps-nogs/seed-0/done.json").exists()


@pytest.mark.slow
def test_killed_run_goes_on_to_the_same_sequences(tmp_path):
    flags = ["--data.count", "80", "--posterior.batch", "16", "--posterior.warmup", "0"]
    flags += [*FEW, "--data.annotated", "12", "--no-estimate", "--until", "sequences"]
    command = [sys.executable, "-m", "nogs", "run", "digits", *flags, "--workers", "2", "--out"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "killed"], env=environment, stdout=-3, stderr=-3) as process:
        end = time.monotonic() + 120
        while not list(tmp_path.glob("killed/sequences/blocks/*.json")) and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert main(["run", "digits", *flags, "--out", "killed"]) == 0
    assert main(["run", "digits", *flags, "--out", "whole"]) == 0
    killed, whole = ((tmp_path / run / "sequences" / "sequences.jsonl").read_bytes() for run in ("killed", "whole"))
    assert killed == whole
