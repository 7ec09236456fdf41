"""`nogs compare RECIPE`: every method of the paper from one command, on miniature birds, stopped and continued."""

import json
import shutil

import numpy as np
import pytest
import torch

import miniature
from nogs.attention.methods import METHODS, ON_POSTERIOR
from nogs.attention.pretrainer import Pretrainer
from nogs.attention.store import load_network
from nogs.attention.trainer import Trainer
from nogs.cli import main
from nogs.data import load_task
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import save_posterior
from nogs.recipes import recipe
from nogs.runtime.device import one_thread
from nogs.runtime.files import write_sealed
from nogs.sequences import Sequences, load, save
from nogs.stages.heuristic import made_from
from nogs.supervision import Heuristic, save_heuristic

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module")

BIRDS = """
base: cub
name: birds
published: null
glimpses: 3
data: {image_size: 32, glimpse: 8, grid_spacing: 8, grid_count: null, annotated: 1000}
posterior: {width: 16, layers: 1, heads: 2, stem: linear, token: 4, precision: float32, weights: none}
design: {batch: 64}
plus: {iterations: 4, validate_every: 2, batch: 4, candidates: 2}
attention:
  {embedder: paper, hidden: 8, embedding: 8, batch: 4, iterations: 6, validate_every: 2, trajectories: 2, save_every: 1,
   learning_rate: 0.003, pretrain_epochs: 3, cache: always}
"""


@pytest.fixture(autouse=True, scope="module")
def quick():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A folder with miniature CUB, its recipe, sequences for its annotated images, and an untrained posterior."""
    root = tmp_path_factory.mktemp("birds")
    (root / "birds.yaml").write_text(BIRDS)
    miniature.cub(root / "data", per_class=16)
    found = recipe(root / "birds.yaml")
    task = load_task(found.data, data=root / "data", cache=root / "cache", workers=1)
    ids = task.splits["annotate"]
    chosen = np.random.default_rng(0).integers(0, len(task.grid), (len(ids), 3))
    save(Sequences("cub", None, task.grid, 3, ids, task.grid.pixels.numpy()[chosen]), root / "sequences" / "cub")
    architecture = Architecture.of(found.posterior, task=task, glimpses=3)
    posterior = NetworkPosterior(architecture.build(seed=0), architecture, precision="float32")
    save_posterior(root / "posterior.safetensors", posterior, task=task)
    return root


def given(root, *flags):
    data = ["--data", str(root / "data"), "--cache", str(root / "cache")]
    return [str(root / "birds.yaml"), *data, *flags]


def everything(root, run, *flags):
    more = ["--sequences", str(root / "sequences"), "--posterior", str(root / "posterior.safetensors")]
    return ["compare", *given(root, "--device", "cpu", "--out", str(run)), *more, "--seeds", "0", "1", *flags]


def products(run):
    names = (
        "evaluation.json",
        "metrics.jsonl",
        "locations.npy",
        "best-accuracy.safetensors",
        "table.md",
        "curves.json",
    )
    return {path.relative_to(run): path.read_bytes() for name in names for path in run.rglob(name)}


@pytest.fixture(scope="module")
def whole(birds, tmp_path_factory):
    """The run of all methods, without interruption."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(everything(birds, run)) == 0
    return run


def refused(argv, capsys):
    assert main(argv) == 2
    return capsys.readouterr().err


def test_all_methods_are_trained_and_compared(whole):
    rows = [line.split("|")[1].strip() for line in (whole / "comparison" / "table.md").read_text().splitlines()]
    methods = [row.partition(",")[0] for row in rows if row and "less reference" not in row]
    expected = ["ram+", *(method for method in METHODS if method != "ram+")]
    assert [name for name in methods if name in METHODS] == expected
    assert methods[-2:] == ["majority class", "whole image"]
    found = json.loads((whole / "comparison" / "comparison.json").read_text())
    assert found["reference"] == "ram+"
    assert all(method["networks"] == 2 for method in found["methods"].values())
    assert 0 <= found["whole_image_accuracy"] <= 1
    assert {path.name for path in (whole / "comparison").iterdir()} >= {"curves.png", "curves.svg", "curves.json"}
    assert (whole / "heuristic" / "heuristic.png").exists()


def test_pretraining_is_shared_and_the_frozen_parts_are_stored_once(whole):
    trunks = sorted(path.relative_to(whole / "attention").as_posix() for path in whole.rglob("network.safetensors"))
    assert trunks == [
        f"pretraining/{name}/seed-{seed}/network.safetensors" for name in ("heuristic", "uniform") for seed in (0, 1)
    ]
    uniform, _ = load_network(whole / "attention" / trunks[2])
    heuristic, _ = load_network(whole / "attention" / trunks[0])
    for method in METHODS:
        if method in ON_POSTERIOR:
            continue
        network, about = load_network(whole / "attention" / method / "seed-0" / "best-accuracy.safetensors")
        trunk = uniform if method == "ram" else heuristic
        assert about["method"] == method
        for part in ("embed_parameters", "core_parameters"):
            own, below = getattr(network, part), getattr(trunk, part)
            assert all(torch.equal(own[name], below[name]) for name in below)


def test_plain_ways_to_look_have_their_locations_and_no_curve(whole):
    routes = np.load(whole / "attention" / "centre-out" / "seed-0" / "locations.npy")
    assert (routes == routes[:1, :1]).all()
    assert routes[0, 0, 0].tolist() == [8, 8]
    lines = (whole / "attention" / "random" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert len(np.unique(np.load(whole / "attention" / "random" / "seed-0" / "locations.npy"))) > 2


@pytest.mark.parametrize("where", ["pretraining", "training"])
def test_stopped_comparison_goes_on_to_the_same_result(birds, whole, tmp_path, monkeypatch, capsys, where):
    owner = Pretrainer if where == "pretraining" else Trainer
    step, count = owner.step, []

    def stop(self):
        count.append(None)
        if len(count) == (14 if where == "pretraining" else 5):
            raise KeyboardInterrupt
        step(self)

    command = everything(birds, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(owner, "step", stop)
        assert main(command) == 130
    capsys.readouterr()
    assert main(command) == 0
    assert "Going on from" in capsys.readouterr().err
    assert products(tmp_path / "run") == products(whole)


def test_finished_comparison_is_only_printed_again(birds, whole, capsys, monkeypatch):
    before = products(whole)
    monkeypatch.setattr(Trainer, "step", None)
    monkeypatch.setattr(Pretrainer, "step", None)
    assert main(everything(birds, whole)) == 0
    assert "attention: already done." in capsys.readouterr().err
    assert products(whole) == before


def test_some_of_the_methods_are_compared(birds, whole, capsys):
    assert main(everything(birds, whole, "--method", "ps-hgs", "random", "--reference", "random")) == 0
    out = capsys.readouterr().out
    assert "| ps-hgs, weight 1 | 2 |" in out
    assert "| ram" not in out
    assert main(everything(birds, whole)) == 0  # all of them again, as the other tests expect them


def test_weights_of_supervision_are_compared(birds, whole, capsys):
    assert main(everything(birds, whole, "--method", "ps-nogs", "ram+", "--weights", "1", "64")) == 0
    out = capsys.readouterr().out
    assert all(f"| ps-nogs, weight {weight} | 2 |" in out for weight in (1, 64))
    assert out.count("| ram+ | 2 |") == 1
    folders = [whole / "attention" / name / "seed-0" for name in ("ps-nogs", "ps-nogs-weight-64")]
    weights = [json.loads((folder / "evaluation.json").read_text())["member"]["weight"] for folder in folders]
    assert weights == [1, 64]
    curves = [(folder / "metrics.jsonl").read_text() for folder in folders]
    assert curves[0] != curves[1]
    assert main(["evaluate", str(whole), "--device", "cpu", "--trajectories", "1", *given(birds)[1:]]) == 0
    assert "ps-nogs-weight-64/seed-0 " in capsys.readouterr().out
    shutil.rmtree(whole / "attention" / "ps-nogs-weight-64")  # the other tests expect eight methods
    assert main(everything(birds, whole)) == 0


def test_networks_on_disk_do_without_the_table_what_they_did_with_it(birds, whole, capsys):
    flags = ["--device", "cpu", "--trajectories", "2"]
    assert main(["evaluate", str(whole), *flags, *given(birds)[1:]]) == 0
    assert "centre-out/seed-1" in capsys.readouterr().out
    for method in METHODS:
        folder = whole / "attention" / method / "seed-1"
        test = json.loads((folder / "evaluation.json").read_text())["best"]["accuracy"]["test"]
        again = json.loads((folder / "evaluation-test.json").read_text())["scores"]
        assert again["nll"] == pytest.approx(test["nll"], rel=1e-4)
        assert (np.load(folder / "locations-test.npy") == np.load(folder / "locations.npy")).all()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--method", "ps-nogs"], "The method ps-nogs needs glimpse sequences: give --sequences DIR"),
        (
            ["--method", "ram+"],
            "The method ram+ needs the heuristic's map: train a posterior with nogs posterior train",
        ),
        (
            ["--method", "ram", "ram+", "ps-h1"],
            "The methods ram+, ps-h1 need the heuristic's map (ram can do without): train a posterior",
        ),
        (
            ["--method", "ram+", "--published", "cub"],
            "The published posterior cub can't be used: it predicts 200 classes",
        ),
        (["--method", "ps-h5"], "make the map with nogs sequences heuristic, and give --heuristic DIR."),
        (["--method", "ram+", "--attention.pretrain-epochs", "0"], "ram+ differs from ram in its pretraining alone"),
        (["--method", "ram", "--attention.embedder", "release"], "The release embedder normalises by the batch"),
        (["--method", "ram", "--reference", "rma"], "There is no method 'rma' among these"),
        (["--method", "ram", "--seeds", "-1"], "--seeds must not be negative"),
        (["--method", "ram", "--weights", "1", "64"], "--weights is for methods with supervision"),
        (["--method", "ps-h1", "--weights", "1", "1.0000001"], "--weights must differ in six digits"),
        (
            ["--method", "ps-h1", "--weights", "2", "1", "2"],
            "--weights must differ in six digits, but are 2.0, 1.0, 2.0",
        ),
        (["--method", "ps-h1", "--weights", "1", "a"], "--weights must be numbers, not '1', 'a'; see nogs compare"),
        (["--method", "ps-h1", "--weights", "-1"], "--weights must be 0 or more, but are -1.0."),
        (["--method", "ps-h1", "--weights", "nan"], "--weights must be 0 or more, but are nan."),
        (
            ["--method", "ram", "--seeds", "0", "1.5"],
            "--seeds must be whole numbers, not '0', '1.5'; see nogs compare",
        ),
        (["--method", "ram", "--heuristic", "nowhere", "--method", "ram+"], "nowhere"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(birds, tmp_path, capsys, flags, sentence):
    said = refused(["compare", *given(birds, "--device", "cpu", "--out", str(tmp_path / "run")), *flags], capsys)
    assert sentence in said
    assert said.splitlines()[-1].startswith("nogs: error: ")


def test_a_reference_that_is_not_trained_is_refused_before_the_training(birds, tmp_path, capsys):
    flags = ["--device", "cpu", "--out", str(tmp_path / "run"), "--method", "ram", "random", "--reference"]
    said = refused(["compare", *given(birds, *flags), "rma"], capsys)
    assert "There is no method 'rma' among these; did you mean 'ram'?" in said
    assert not (tmp_path / "run").exists()


def test_hand_crafted_sequences_need_parts(tmp_path, capsys):
    flags = ["--data.count", "60", "--data.annotated", "6", "--device", "cpu", "--out", str(tmp_path / "run")]
    said = refused(["train", "digits", "--method", "ps-hgs", *flags], capsys)
    assert "The method ps-hgs needs labelled parts of birds, which only cub has; leave it out." in said


def test_sequences_of_the_baselines_are_written_by_command(birds, tmp_path, capsys):
    made = tmp_path / "made"
    command = ["sequences", "heuristic", *given(birds, "--device", "cpu", "--out", str(made))]
    assert "The heuristic needs a posterior: train one with nogs posterior train birds" in refused(command, capsys)
    assert main([*command, "--posterior", str(birds / "posterior.safetensors")]) == 0
    for kind in ("h1", "h5"):
        sequences = load(made / kind)
        assert len(sequences) == len(load(birds / "sequences" / "cub")) >= 3
        assert sequences.provenance["inverse_temperature"] == float(kind[1])
        assert sequences.provenance["map"]["over"] == "validation images"
    assert {path.name for path in made.iterdir()} >= {"heuristic.png", "heuristic.json", "heuristic.safetensors"}
    again = ["sequences", "heuristic", *given(birds, "--out", str(tmp_path / "again"), "--heuristic", str(made))]
    assert main(again) == 0
    assert (load(tmp_path / "again" / "h5").locations == load(made / "h5").locations).all()
    assert "--heuristic reads an existing map" in refused([*again, "--posterior", "x.safetensors"], capsys)
    assert main(["sequences", "handcrafted", *given(birds, "--out", str(tmp_path / "hands"))]) == 0
    assert load(tmp_path / "hands").provenance["parts"] == ["beak", "eye", "forehead", "belly", "feet"]


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def other_posterior(birds):
    """A second untrained posterior."""
    found = recipe(birds / "birds.yaml")
    task = load_task(found.data, data=birds / "data", cache=birds / "cache", workers=1)
    architecture = Architecture.of(found.posterior, task=task, glimpses=3)
    posterior = NetworkPosterior(architecture.build(seed=1), architecture, precision="float32")
    save_posterior(birds / "other.safetensors", posterior, task=task)
    return birds / "other.safetensors"


def test_sequences_of_another_map_are_refused_before_anything_is_written(birds, other_posterior, tmp_path, capsys):
    command = ["sequences", "heuristic", *given(birds, "--device", "cpu", "--out", str(tmp_path / "made"))]
    assert main([*command, "--posterior", str(birds / "posterior.safetensors")]) == 0
    shutil.rmtree(tmp_path / "made" / "h1")  # which would be written, and comes before the one that is refused
    before, made = snapshot(tmp_path), tmp_path / "made"
    said = refused([*command, "--posterior", str(other_posterior)], capsys)
    assert f"{made / 'h5'} holds other sequences already; choose another folder or pass --overwrite." in said
    assert snapshot(tmp_path) == before
    assert main([*command, "--posterior", str(birds / "posterior.safetensors")]) == 0
    assert load(made / "h1").provenance["map"] == load(made / "h5").provenance["map"]
    assert snapshot(made / "h5").items() <= before.items()
    assert main([*command, "--posterior", str(other_posterior), "--overwrite"]) == 0
    assert not snapshot(made / "h5").items() & before.items()


def test_kept_map_of_another_posterior_or_bank_is_refused(birds, other_posterior, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    command = ["compare", *given(birds, "--device", "cpu", "--out", str(run), "--method", "ps-h1", "--seeds", "0")]
    asked = [*command, "--posterior", str(birds / "posterior.safetensors")]
    assert main(asked) == 0
    before = snapshot(run / "heuristic")
    monkeypatch.setattr("nogs.stages.heuristic.make_map", None)  # never made again below
    kept = run / "heuristic"
    remedy = f"delete that folder, choose another --out, or take the map as it is with --heuristic {kept}."
    said = refused([*command, "--posterior", str(other_posterior)], capsys)
    assert f"{kept} holds a map that was made with another posterior than this command would use; {remedy}" in said
    (tmp_path / "bank").mkdir()
    write_sealed(tmp_path / "bank" / "done.json", {"stage": "bank", "fingerprint": "b"})
    said = refused([*asked, "--bank", str(tmp_path / "bank")], capsys)
    assert f"{kept} holds a map that was made with other images than this command would use; {remedy}" in said
    assert "There is no posterior 'nope'" in refused([*command, "--posterior", "nope"], capsys)
    for words in (asked, command, [*command, "--posterior", str(other_posterior), "--heuristic", str(kept)]):
        assert main(words) == 0
    assert snapshot(kept) == before


def test_map_of_another_bank_is_refused(birds, tmp_path, capsys):
    found = recipe(birds / "birds.yaml")
    task = load_task(found.data, data=birds / "data", cache=birds / "cache", workers=1)
    made = made_from(str(birds / "posterior.safetensors"), None) | {"over": "bank", "bank": "a"}
    epe = np.zeros((1, len(task.grid)))
    save_heuristic(Heuristic(epe, epe, made), tmp_path / "run" / "heuristic", task=task)
    (tmp_path / "bank").mkdir()
    write_sealed(tmp_path / "bank" / "done.json", {"stage": "bank", "fingerprint": "b"})
    command = ["compare", *given(birds, "--device", "cpu", "--out", str(tmp_path / "run"), "--method", "ps-h1")]
    command += ["--posterior", str(birds / "posterior.safetensors"), "--bank", str(tmp_path / "bank")]
    assert "holds a map that was made with another bank than this command would use" in refused(command, capsys)


def test_methods_of_a_task_without_pretraining(tmp_path, capsys):
    flags = [
        *["--data.count", "200", "--data.annotated", "20", "--attention.iterations", "4", "--attention.hidden", "8"],
        *["--attention.validate-every", "2", "--attention.batch", "16", "--attention.trajectories", "1"],
        *["--attention.supervision-weight", "1"],
    ]
    np.save(tmp_path / "map.npy", np.linspace(2.0, 2.3, len(recipe("digits").data.grid)))
    command = ["compare", "digits", *flags, "--device", "cpu", "--out", str(tmp_path / "run"), "--seeds", "0"]
    methods = ["--method", "ram", "ps-h1", "ps-h5"]
    assert main([*command, *methods, "--heuristic", str(tmp_path / "map.npy")]) == 0
    out = capsys.readouterr().out
    assert "whole image" not in out
    assert all(f"| {row} | 1 |" in out for row in ("ram", "ps-h1, weight 1", "ps-h5, weight 1"))
    assert not (tmp_path / "run" / "attention" / "pretraining").exists()
    supervised = (tmp_path / "run" / "attention" / "ps-h1" / "seed-0" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(supervised[0])["training_supervision"] > 0


def test_missing_file_of_weights_is_named(birds, tmp_path, capsys):
    run = ["--device", "cpu", "--out", str(tmp_path / "run"), "--method", "ram", "--seeds", "0"]
    vgg = [
        "--data.glimpse",
        "16",
        "--attention.embedder",
        "vgg",
        "--attention.weights",
        str(tmp_path / "vgg.safetensors"),
    ]
    said = refused(["compare", *given(birds, *run), *vgg], capsys)
    assert f"There is no file {tmp_path / 'vgg.safetensors'}; check --attention.weights." in said
    assert not list((tmp_path / "run").rglob("*.safetensors"))
