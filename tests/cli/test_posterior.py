import re
import shlex

import numpy as np
import pytest
import torch

import miniature
from nogs.cli import main
from nogs.cli.flags import parse_with_recipe
from nogs.cli.posterior import TrainArgs
from nogs.data import load_task
from nogs.posterior.store import identity, load_posterior
from nogs.recipes import recipe
from nogs.runtime.files import read_json
from nogs.runtime.tensors import load_tensors
from nogs.sequences import Sequences, save

FIELDS = {"width": 16, "layers": 1, "heads": 2, "iterations": 6, "batch": 16}
TINY = [word for name, value in FIELDS.items() for word in (f"--posterior.{name}", str(value))]
RECIPE = """
base: celeba-hq
name: tiny
data: {image_size: 32, glimpse: 8, grid_count: 5, grid_last: null, annotated: 600}
glimpses: 3
posterior: {warmup: 0, validate_every: 3, token: 4, precision: float32}
"""


@pytest.fixture
def faces(tmp_path):
    torch.set_num_threads(1)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return miniature.celeba_hq(tmp_path / "data")


def places(tmp_path, data):
    return [
        str(tmp_path / "tiny.yaml"),
        *["--data", str(data), "--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run"), *TINY],
        *["--device", "cpu"],
    ]


def test_posterior_is_trained_and_evaluated_by_command(faces, tmp_path, capsys):
    arguments = places(tmp_path, faces)
    assert main(["posterior", "train", *arguments]) == 0
    out = capsys.readouterr().out
    assert "test, calibrated\n  glimpses   accuracy  cross-entropy   entropy  calibration\n         0" in out
    assert "posterior, tables and plot" in out
    folder = tmp_path / "run" / "posterior"
    made = {path.name for path in folder.iterdir() if not path.name.startswith("events")}
    assert made == {
        "posterior.safetensors",
        "evaluation.json",
        "posterior.png",
        "metrics.jsonl",
        "done.json",
        "stage.json",
    }
    found = read_json(folder / "evaluation.json")
    assert [row["glimpses"] for row in found["tables"]["test, calibrated"]] == [0, 1, 2, 3]
    assert main(["posterior", "evaluate", *arguments, "--split", "validation"]) == 0
    out = capsys.readouterr().out
    assert "validation, random locations, calibrated" in out
    tables = read_json(folder / "evaluation-validation.json")["tables"]
    for name in ("before calibration", "calibrated"):
        again, first = tables[f"validation, random locations, {name}"], found["tables"][f"validation, {name}"]
        for one, other in zip(again, first):
            assert one == pytest.approx(other, abs=1e-5)
    assert (folder / "evaluation-validation.png").stat().st_size > 1000


@pytest.mark.usefixtures("blank_figures")
def test_posterior_is_evaluated_along_sequences(faces, tmp_path, capsys):
    arguments = places(tmp_path, faces)
    assert main(["posterior", "train", *arguments]) == 0

    config = recipe(str(tmp_path / "tiny.yaml")).data
    task = load_task(config, data=faces, cache=tmp_path / "cache")
    ids = task.splits["annotate"]
    random = np.random.default_rng(0)
    pixels = task.grid.pixels.numpy()[random.integers(0, len(task.grid), (len(ids), 3))]
    save(Sequences(task.name, "Smiling", task.grid, 3, ids, pixels), tmp_path / "sequences")
    capsys.readouterr()
    extra = ["--split", "annotate", "--sequences", str(tmp_path / "sequences"), "--attribute", "Smiling"]
    assert main(["posterior", "evaluate", *arguments, *extra]) == 0
    assert "along the sequences, before calibration" in capsys.readouterr().out


@pytest.mark.usefixtures("blank_figures")
def test_kind_of_posterior_is_kept_by_its_run(faces, tmp_path, capsys):
    arguments = [*places(tmp_path, faces), "--posterior.backbone", "shufflenet_v2_x0_5"]
    assert main(["posterior", "train", *arguments, "--posterior.kind", "cnn"]) == 0
    assert "kind: cnn" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert main(["posterior", "train", *arguments, "--posterior.kind", "tokens"]) == 2
    assert (
        "was made with another recipe or other inputs (posterior.kind was 'cnn' and is 'tokens'); choose another --out"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("blank_figures")
def test_auxiliary_attributes_of_birds_are_learned_too(tmp_path, capsys):
    torch.set_num_threads(1)
    data = miniature.cub(tmp_path / "data", per_class=12)
    text = RECIPE.replace("base: celeba-hq", "base: cub").replace("grid_last: null, annotated: 600", "annotated: 1000")
    (tmp_path / "tiny.yaml").write_text(text.replace("token: 4,", "token: 4, stem: conv, attributes: true, batch: 4,"))
    arguments = places(tmp_path, data)
    arguments[arguments.index("--posterior.batch") + 1] = "5"
    assert main(["posterior", "train", *arguments]) == 0
    head = load_posterior(tmp_path / "run" / "posterior" / "posterior.safetensors").architecture.head
    assert head.attributes == 312
    assert head.outputs == 312 + len(head.space.names)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--posterior.width", "17"], "width 17 must be a multiple of heads 2"),
        (["--posterior.batch", "2"], "posterior.batch is 2"),
        (["--posterior.token", "5"], "posterior.token must divide the glimpse of 8 px, but is 5 px"),
        (["--posterior.teacher", "nobody"], "There is no posterior 'nobody'"),
        (["--posterior.augment.move", "inf"], "--posterior.augment.move must be a finite number, not inf"),
        (["--posterior.augment.move", "4000"], "posterior.augment.move is 4000 px, which moves an image of"),
    ],
)
def test_mistake_is_one_sentence(faces, tmp_path, capsys, extra, sentence):
    assert main(["posterior", "train", *places(tmp_path, faces), *extra]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert "Traceback" not in err


def test_run_without_a_posterior_is_refused(faces, tmp_path, capsys):
    assert main(["posterior", "evaluate", *places(tmp_path, faces)]) == 2
    err = capsys.readouterr().err
    assert "The published posterior celeba-hq can't be used: it is for 50 x 50 locations of 16 px glimpses" in err
    assert "train one with nogs posterior train or give --posterior" in err
    assert main(["posterior", "evaluate", *places(tmp_path, faces), "--published", "None"]) == 2
    assert "holds no posterior; train one with nogs posterior train" in capsys.readouterr().err


@pytest.mark.usefixtures("blank_figures")
def test_posterior_is_published_with_a_card(faces, tmp_path, capsys):
    assert main(["posterior", "train", *places(tmp_path, faces), "--posterior.no-flip", "--seed", "3"]) == 0
    file = tmp_path / "passed-on.safetensors"
    assert main(["posterior", "publish", str(tmp_path / "run"), "--out", str(file), "--notes", "Research only."]) == 0
    assert "passed-on.md" in capsys.readouterr().out
    card = file.with_suffix(".md").read_text()
    own = tmp_path / "run" / "posterior"
    test = read_json(own / "evaluation.json")["tables"]["test, calibrated"][1]
    assert f"| 1 | {test['accuracy']:.1%} | {test['cross_entropy']:.4f} |" in card
    (command,) = re.findall("Command: `nogs posterior train (.*)`", card)
    assert "--glimpses 3 --data.image-size 32 --data.glimpse 8 --data.grid-count 5 --data.grid-last None" in command
    _, told = parse_with_recipe(TrainArgs, shlex.split(command), prog="nogs posterior train", description="")
    used = recipe(tmp_path / "run" / "recipe.yaml")
    assert (told.data, told.glimpses, told.seed, told.posterior) == (used.data, 3, 3, used.posterior)
    assert "Research only." in card
    tensors, _ = load_tensors(file)
    assert all(
        value.dtype == torch.float16
        for name, value in tensors.items()
        if value.is_floating_point() and not name.startswith("calibration.")
    )
    assert identity(file) == identity(own / "posterior.safetensors")
    packed = tmp_path / "packed.safetensors"
    assert main(["posterior", "publish", str(tmp_path / "run"), "--out", str(packed), "--bits", "5"]) == 0
    assert "weights (5 bits, " in packed.with_suffix(".md").read_text()
    assert packed.stat().st_size < file.stat().st_size
    for one in (file, packed):
        arguments = [*places(tmp_path, faces), "--posterior", str(one), "--split", "validation"]
        assert main(["posterior", "evaluate", *arguments]) == 0


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("split", ["posterior", "train"])
def test_card_says_what_the_posterior_has_seen(faces, tmp_path, split):
    assert main(["posterior", "train", *places(tmp_path, faces), "--posterior.split", split]) == 0
    assert main(["posterior", "publish", str(tmp_path / "run"), "--out", str(tmp_path / "x.safetensors")]) == 0
    card = (tmp_path / "x.md").read_text()
    assert ("Not trained on any image to annotate, to validate or to test." in card) == (split == "posterior")
    assert ("Trained on images to annotate, so it must not annotate them." in card) == (split == "train")


def test_publishing_needs_a_run_with_a_posterior(tmp_path, capsys):
    assert main(["posterior", "publish", str(tmp_path), "--out", str(tmp_path / "x.safetensors")]) == 2
    assert "holds no posterior; train one" in capsys.readouterr().err
