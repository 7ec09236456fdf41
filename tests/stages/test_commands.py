"""Every stage by its own command and through `nogs run`: the same files and the same error messages."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml

import nogs.report
from nogs.cli import main
from nogs.runtime.device import one_thread
from nogs.runtime.files import read_json
from nogs.stages import attention, posterior

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module")

TINY = {
    "base": "digits",
    "name": "tiny",
    "data": {"count": 80, "annotated": 6},
    "posterior": {"iterations": 4, "validate_every": 2, "batch": 16, "width": 16, "layers": 1, "heads": 2, "warmup": 0},
    "bank": {"count": 60, "components": 8},
    "completion": {"drawn": 20, "kept": 6},
    "design": {"images": 3},
    "whole": {"iterations": 4, "batch": 16, "width": 4},
    "attention": {"iterations": 4, "validate_every": 2, "hidden": 16, "embedding": 16, "batch": 16, "trajectories": 2},
    "plus": {"iterations": 2, "batch": 8, "candidates": 2, "validate_every": 2},
}
METHODS = ["--method", "ram", "ps-nogs", "ps-nogs+", "fixed"]
COMMANDS = {
    "data": [["data", "prepare"]],
    "posterior": [["posterior", "train"]],
    "bank": [["bank", "build"]],
    "sequences": [["annotate"]],
    "whole-image": [["whole"]],
    "attention": [["train"]],
    "report": [["report"]],
}
MORE = {"attention": [METHODS]}
TIMES = (
    "seconds",
    "seconds_per_image",
    "time",
    "training_seconds",
    "evaluation.json",
)  # the last by its digest, since it has the third
"""What differs between two runs of one command: times, and what a file with times in it is called by."""


@pytest.fixture(scope="module", autouse=True)
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the recipe; `whole/run` by nogs run, `each/run` by the commands."""
    folder = tmp_path_factory.mktemp("stages")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    before = Path.cwd()
    for way in ("whole", "each"):
        (folder / way).mkdir()

    def write_report(runs, **_):  # the page itself is tested where it is made
        (runs[0] / "report.html").write_text("a page")
        return runs[0] / "report.html"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nogs.report, "write_report", write_report)
        patch.chdir(folder / "whole")
        flags = ["--out", "run", "--device", "cpu", "--no-estimate", "--workers", "1"]
        assert main(["run", "../tiny.yaml", *flags, *METHODS]) == 0
        patch.chdir(folder / "each")
        for stage, commands in COMMANDS.items():
            for command, more in zip(commands, MORE.get(stage, [[]])):
                words = ["run"] if stage == "report" else ["../tiny.yaml", "--out", "run", *more]
                assert main([*command, *words, "--device", "cpu"]) == 0, command
    assert Path.cwd() == before
    return folder


NOT_MADE = (".lock", "local.json", "made-from.txt")
"""Files that say where and how a run was made, not what."""


def files(run):
    found = {path.relative_to(run).as_posix(): path for path in run.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if "events" not in name and path.name not in NOT_MADE}


def timeless(value):
    """JSON without the fields that differ between two runs of one command."""
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def test_a_command_leaves_the_files_of_the_run(place):
    whole, each = files(place / "whole" / "run"), files(place / "each" / "run")
    assert whole.keys() == each.keys()
    assert {"data/inspect.json", "data/contact-sheet.png", "attention/verdict.json", "run.json"} <= whole.keys()
    assert {f"attention/{method}/seed-0/accuracy-by-glimpses.json" for method in METHODS[1:]} <= whole.keys()
    for name, path in whole.items():
        if path.suffix == ".png":
            continue  # made from what is compared here
        elif path.suffix == ".json":
            assert timeless(read_json(path)) == timeless(read_json(each[name])), name
        elif path.name == "metrics.jsonl":
            lines = [
                [timeless(json.loads(line)) for line in one.read_text().splitlines()] for one in (path, each[name])
            ]
            assert lines[0] == lines[1], name
        else:
            assert path.read_bytes() == each[name].read_bytes(), name


@pytest.mark.parametrize("way", ["whole", "each"])
def test_a_run_goes_on_with_what_the_other_way_made(place, tmp_path, monkeypatch, capsys, way):
    shutil.copytree(place / way / "run", tmp_path / "run")
    monkeypatch.setattr(attention, "train_networks", lambda *_, folder, **__: [])
    monkeypatch.setattr(posterior, "train_posterior", lambda *_, **__: None)
    words = [str(place / "tiny.yaml"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(["run", *words, "--no-estimate", "--until", "attention", *METHODS]) == 0
    assert capsys.readouterr().out.count("already done.") == 5
    for command in (
        ["posterior", "train"],
        ["bank", "build"],
        ["annotate"],
        ["whole"],
        ["train", "--method", "ps-nogs"],
    ):
        monkeypatch.setattr("nogs.cli.train._table", lambda rows: "")
        assert main([*command, *words] if len(command) < 3 else [command[0], *words, *command[1:]]) == 0
        assert "already done." in capsys.readouterr().err, command
    assert not (tmp_path / "run.before").exists()


def sentence(argv, capsys):
    assert main(argv) == 2, argv
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "until", "flags", "said"),
    [
        (["data", "prepare"], "data", ["--data.glimpse", "80"], "A glimpse of 80 px does not fit into an image of 48"),
        (["data", "prepare"], "data", ["--glimpses", "1000"], "--glimpses is 1000, but the grid has only 100"),
        (["data", "prepare"], "data", ["--device", "gpu"], "There is no device 'gpu'"),
        (["posterior", "train"], "posterior", ["--posterior.teacher", "nobody"], "There is no posterior 'nobody'"),
        (
            ["bank", "build"],
            "bank",
            ["--bank.generator", "stylegan"],
            "needs its public weights; give --generator-path.",
        ),
        (
            ["annotate"],
            "sequences",
            ["--glimpses", "6", "--posterior", "FILE"],
            "for up to 4 glimpses, not 6; train one",
        ),
        (["annotate"], "sequences", ["--posterior", "x.safetensors"], "There is no posterior x.safetensors; check --p"),
        (["annotate"], "sequences", ["--posterior", "nobody"], "There is no posterior 'nobody'; published are"),
        (["annotate"], "sequences", ["--data.annotated", "0"], "has no images to annotate; raise data.annotated."),
        (["annotate"], "sequences", ["--attribute", "Smiling"], "has one categorical label and no attributes"),
        (["annotate"], "sequences", ["--workers", "0"], "--workers must be at least 1, not 0."),
        (["whole"], "whole-image", ["--whole.batch", "1"], "--whole.batch must be at least 2, not 1."),
        (
            ["whole"],
            "whole-image",
            ["--posterior.stem", "vgg", "--posterior.weights", "x.safetensors"],
            "There is no file x.safetensors; check --posterior.weights.",
        ),
        (["train"], "attention", ["--method", "rma"], "There is no --method rma; did you mean 'ram'?"),
        (["train"], "attention", ["--method", "ram+"], "ram+ differs from ram in its pretraining alone"),
        (["train"], "attention", ["--method", "ps-hgs"], "ps-hgs needs labelled parts of birds, which only cub has"),
        (["train"], "attention", ["--seeds", "0", "0"], "--seeds must be different, but are 0, 0."),
        (["train"], "attention", ["--seeds", "-1"], "--seeds must not be negative, but are -1."),
    ],
)
def test_a_command_refuses_what_a_run_refuses_in_the_same_words(place, tmp_path, capsys, command, until, flags, said):
    file = place / "whole" / "run" / "posterior" / "posterior.safetensors"
    flags = [str(file) if flag == "FILE" else flag for flag in flags]
    fresh = until in ("data", "posterior", "bank") or "--data.annotated" in flags or "--glimpses" in flags
    found = []
    for way, words in (("run", ["run"]), ("command", command)):
        out = tmp_path / way / "run"
        if not fresh:
            shutil.copytree(place / "whole" / "run", out)
        argv = [*words, str(place / "tiny.yaml"), "--out", str(out), "--device", "cpu", *flags]
        found.append(sentence([*argv, "--no-estimate", "--until", until] if way == "run" else argv, capsys))
    assert said in found[0]
    assert found[0].replace(str(tmp_path / "run"), "OUT") == found[1].replace(str(tmp_path / "command"), "OUT")


@pytest.mark.parametrize("stage", ["posterior", "attention"])
def test_both_ways_train_small_networks_in_one_thread(tmp_path, monkeypatch, stage):
    class Stop(Exception):
        pass

    threads = []

    def train(*_, **__):
        threads.append(torch.get_num_threads())
        raise Stop

    if stage == "posterior":
        monkeypatch.setattr(posterior, "train_posterior", train)
    else:
        monkeypatch.setattr(attention, "train_networks", train)
        for name in ("posterior.train", "bank.build", "sequences.annotate"):
            monkeypatch.setattr(f"nogs.stages.{name}", lambda experiment: None)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    words = [str(tmp_path / "tiny.yaml"), "--device", "cpu"]
    train_command = ["posterior", "train"] if stage == "posterior" else ["train"]
    try:
        for command, more in ((train_command, []), (["run"], ["--no-estimate", "--method", "ram"])):
            more = more if command == ["run"] or stage == "posterior" else ["--method", "ram"]
            with pytest.raises(Stop):
                main([*command, *words, "--out", str(tmp_path / command[0]), *more])
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 1]
