import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import cluster
import miniature
from nogs.cli import main
from nogs.data import load_task
from nogs.design.baselines import others
from nogs.posterior.crossfit import whole_task
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import load_posterior, save_posterior, smaller
from nogs.recipes import recipe as read_recipe
from nogs.runtime.files import read_json, write_sealed
from nogs.runtime.streams import key, uniform
from nogs.runtime.tensors import load_tensors, save_tensors
from nogs.sequences import Sequences, load, save

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module")

RECIPE = """
base: celeba-hq
name: tiny
data: {image_size: 32, glimpse: 8, grid_count: 5, grid_last: null, annotated: 600}
glimpses: 3
posterior: {width: 16, layers: 1, heads: 2, token: 4, precision: float32}
bank: {count: 40, components: 8, shift: 2}
completion: {drawn: 12, kept: 6, proposal_reach: 0, exact_reach: 0}
design: {images: 2, batch: 64}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Data of 150 faces, a bank of 40 images, and two untrained posteriors of them."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("annotate")
    miniature.celeba_hq(root / "data", count=150)
    (root / "tiny.yaml").write_text(RECIPE)
    assert main(["bank", "build", *arguments(root, root / "made")]) == 0
    recipe = read_recipe(root / "tiny.yaml")
    task = load_task(recipe.data, data=root / "data", cache=root / "cache")
    for name, seed in (("maker", 0), ("judge", 1)):
        posterior(root / f"{name}.safetensors", recipe, task, seed=seed)
    return root


def posterior(path, recipe, task, *, seed=0, **about):
    architecture = Architecture.of(recipe.posterior, task=task, glimpses=3)
    network = architecture.build(seed=seed)
    with torch.no_grad():
        network.head.weight.mul_(20)
    about = {"task_fingerprint": task.fingerprint, **about}
    save_posterior(path, NetworkPosterior(network, architecture, precision="float32"), task=task, about=about)


def arguments(root, out):
    return [
        *[str(root / "tiny.yaml"), "--data", str(root / "data"), "--cache", str(root / "cache")],
        *["--out", str(out), "--device", "cpu"],
    ]


def annotate(root, out, *extra, name="maker", attribute=("--attribute", "Smiling")):
    given = ["--bank", str(root / "made"), "--posterior", str(root / f"{name}.safetensors"), "--workers", "1"]
    return main(["annotate", *arguments(root, out), *given, *attribute, *extra])


def test_sequences_are_made_and_scored_by_command(place, tmp_path, capsys):
    run = tmp_path / "run"
    assert annotate(place, run, attribute=("--attribute", "Smiling", "Male")) == 0
    said = capsys.readouterr()
    assert re.search(r"Smiling: 3 sequences of 3 glimpses, [\d,]+ evaluations in \d+ s", said.out)
    assert re.search(r"the first location: (\d+)/\1 evaluations, .* done\n", said.err)
    folder = run / "sequences" / "Smiling"
    sequences = load(folder)
    assert sequences.ids == ("0", "1", "2")
    assert sequences.attribute == "Smiling"
    assert sequences.provenance["posterior"] == "maker"
    assert (run / "sequences" / "first.safetensors").exists()
    assert "/" not in str(sequences.provenance)

    theirs = np.zeros((3, 3, 2), dtype=np.int64)
    other_sequences = Sequences("celeba-hq", "Smiling", sequences.grid, 3, sequences.ids, theirs)
    save(other_sequences, tmp_path / "theirs")
    score = [
        *["sequences", "score", str(place / "tiny.yaml"), "--data", str(place / "data")],
        *["--cache", str(place / "cache"), "--device", "cpu", "--attribute", "Smiling", "--sequences"],
        *[f"ours={run / 'sequences'}", str(tmp_path / "theirs"), "--out", str(tmp_path / "score.json")],
    ]
    assert main([*score, "--judge", str(place / "judge.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "3 images of celeba-hq, Smiling" in out
    for name in ("ours", "theirs", "random", "centre-out", "most salient first"):
        assert re.search(rf"^{name}  .*\[", out, re.MULTILINE), name
    ways = read_json(tmp_path / "score.json")["ways"]
    assert list(ways) == ["ours", "theirs", "random", "centre-out", "most salient first"]
    assert len(ways["theirs"]["minus ours"]["cross_entropy"]["low"]) == 4
    elsewhere = [*score, "--judge", str(place / "judge.safetensors"), "--elsewhere"]
    assert main([*elsewhere, "test", "--draws", "2"]) == 0
    task = load_task(read_recipe(place / "tiny.yaml").data, data=place / "data", cache=place / "cache")
    rows = task.rows("test")
    assert f"{len(rows)} images of celeba-hq, Smiling (test)" in capsys.readouterr().out
    found, judge = read_json(tmp_path / "score.json"), load_posterior(place / "judge.safetensors", task=task)
    assert (found["elsewhere"], found["images"]) == ("test", len(rows))
    smiling, expected = task.attribute("Smiling"), []
    for row in rows:  # one by one, with the draws of its id
        numbers = uniform(key(0, "design/drawn sequences", task.ids[row]), torch.arange(2))
        for drawn in (numbers * 3).long().tolist():
            where = torch.from_numpy(sequences.locations[drawn])[None]
            answer = judge.log_probabilities(torch.from_numpy(task.images[row : row + 1].copy()), where)[0, smiling]
            expected.append(-answer[int(task.labels[row, smiling])].item())
    assert found["ways"]["ours"]["measures"]["cross_entropy"]["mean"][-1] == pytest.approx(np.mean(expected), abs=1e-5)
    assert main([*elsewhere, "swapped", "--draws", "1"]) == 0
    exchanged = others(sequences.ids, draws=1, seed=0)[0]
    where = torch.from_numpy(sequences.locations[exchanged])
    answers = judge.log_probabilities(torch.from_numpy(task.images[:3].copy()), where)[:, smiling]
    expected = -answers[torch.arange(3), torch.from_numpy(task.labels[:3, smiling]).long()].mean().item()
    swapped = read_json(tmp_path / "score.json")["ways"]["ours"]["measures"]
    assert swapped["cross_entropy"]["mean"][-1] == pytest.approx(expected, abs=1e-5)
    capsys.readouterr()
    alone = replace(other_sequences, ids=("3",), locations=theirs[:1])
    save(alone, tmp_path / "alone")
    folders = ["--sequences", str(tmp_path / "theirs"), str(tmp_path / "alone")]
    for words, sentence in (
        (["train"], "--elsewhere must be one of"),
        (["test", "--draws", "0"], "--draws must be at least 1, not 0"),
        (["swapped", *folders], "No image has a sequence in all of the folders; score each folder alone"),
        (["swapped", "--sequences", str(tmp_path / "alone")], "nothing to swap; leave --elsewhere out"),
        (["test", "--sequences", f"random={tmp_path / 'theirs'}"], "'random' is the name of a baseline"),
    ):
        assert main([*elsewhere, *words]) == 2
        assert sentence in capsys.readouterr().err, words
    assert main([*elsewhere, "test", *folders]) == 0
    capsys.readouterr()

    assert main([*score, "--judge", str(place / "maker.safetensors")]) == 2
    assert "made the sequences 'ours' itself; give another one, or pass --own" in capsys.readouterr().err
    assert main([*score, "--judge", str(place / "maker.safetensors"), "--own"]) == 0
    tensors, metadata = load_tensors(place / "maker.safetensors")
    copy = tmp_path / "published.safetensors"
    save_tensors(copy, smaller(tensors), {**metadata, "about": {}})
    assert main([*score, "--judge", str(copy)]) == 2
    assert "published.safetensors made the sequences 'ours' itself" in capsys.readouterr().err


@pytest.mark.slow
def test_cross_fitted_posterior_annotates_the_same_bytes_with_one_and_two_workers(place, tmp_path, capsys):
    short = ["--posterior.iterations", "4", "--posterior.batch", "8", "--posterior.warmup", "0"]
    assert main(["posterior", "train", *arguments(place, tmp_path / "run"), *short, "--posterior.folds", "2"]) == 0
    assert "Network 2 of 2" in capsys.readouterr().err
    file = tmp_path / "run" / "posterior" / "posterior.safetensors"
    found = {}
    for workers in ("1", "2"):
        out = tmp_path / workers
        given = ["--posterior", str(file), "--workers", workers, "--posterior.folds", "2"]
        assert annotate(place, out, *given, *short) == 0, capsys.readouterr().err
        said = capsys.readouterr().err
        assert re.search(r"after 3 random glimpses \(nats\): 0\.\d+ on images of the bank, 0\.\d+ on images to", said)
        assert "overfits" not in said
        found[workers] = (out / "sequences" / "Smiling" / "sequences.jsonl").read_bytes()
        assert read_json(out / "sequences" / "Smiling" / "done.json")["posterior_entropy"]["networks"] == 2
    assert found["1"] == found["2"]
    for split in ("validation", "annotate"):
        given = ["--posterior", str(file), "--split", split]
        assert main(["posterior", "evaluate", *arguments(place, tmp_path / "run"), *short, *given]) == 0
    assert main(["posterior", "publish", str(tmp_path / "run"), "--out", str(tmp_path / "half.safetensors")]) == 0
    assert "--posterior.folds 2" in (tmp_path / "half.md").read_text()
    shutil.copytree(place / "made" / "bank", tmp_path / "bank")
    (tmp_path / "bank" / "sources.npy").unlink()
    capsys.readouterr()
    given = ["--posterior", str(file), "--bank", str(tmp_path / "bank")]
    assert annotate(place, tmp_path / "refused", *given, *short) == 2
    assert "sources.npy is missing; bring it back from a copy, or build the bank again." in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


class Memorising:
    """A posterior that is sure of some pictures."""

    def __init__(self, posterior, pictures):
        self.posterior, self.known = posterior, {picture.tobytes() for picture in pictures}
        self.grid, self.space, self.device = posterior.grid, posterior.space, posterior.device

    def log_probabilities(self, images, pixels, *, index=None, observed=None, flip=None):
        answers = self.posterior.log_probabilities(images, pixels, index=index, observed=observed, flip=flip)
        index = range(len(pixels)) if index is None else index.tolist()
        known = torch.tensor([images[row].numpy().tobytes() in self.known for row in index])
        return torch.where(known[:, None, None], torch.log_softmax(200 * answers, -1), answers)

    def look_ahead(self, *args, **options):
        return self.posterior.look_ahead(*args, **options)


def test_posterior_that_overfits_the_bank_is_reported(place, tmp_path, capsys, monkeypatch):
    from nogs.design.tools import Files

    male = ("--attribute", "Male")
    assert annotate(place, tmp_path / "honest", attribute=male) == 0
    assert "overfits" not in capsys.readouterr().err
    recipe = read_recipe(place / "tiny.yaml")
    task = load_task(recipe.data, data=place / "data", cache=place / "cache")
    open_posterior = Files.open_posterior
    monkeypatch.setattr(
        Files,
        "open_posterior",
        lambda self, path, *, device: Memorising(open_posterior(self, path, device=device), task.images[3:]),
    )
    assert annotate(place, tmp_path / "run", attribute=male) == 0
    out = capsys.readouterr().err
    assert out.count("the posterior overfits the bank's images") == 1
    assert out.count("train it with --posterior.folds 4, or build the bank with another --bank.generator") == 1
    numbers = read_json(tmp_path / "run" / "sequences" / "Male" / "done.json")["posterior_entropy"]
    assert numbers["bank"] < 0.5 * numbers["images"]
    assert (
        f"{numbers['bank']:.3f} on images of the bank, {numbers['images']:.3f} on images to annotate (standard" in out
    )
    assert "): the posterior overfits the bank's images" in out
    assert annotate(place, tmp_path / "run", attribute=male) == 0, "it is said again"
    assert "overfits" in capsys.readouterr().err
    found, honest = (load(tmp_path / name / "sequences" / "Male") for name in ("run", "honest"))
    np.testing.assert_array_equal(found.entropy_before, honest.entropy_before)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_ray_cluster_leaves_the_bytes_of_one_process(place, tmp_path):
    both = ("--attribute", "Smiling", "Male")
    assert annotate(place, tmp_path / "local", attribute=both) == 0
    given = ["--bank", str(place / "made"), "--posterior", str(place / "maker.safetensors")]
    with cluster.running() as nodes:
        command = [sys.executable, "-m", "nogs", "annotate", *arguments(place, tmp_path / "ray"), *given, *both]
        command += ["--executor", "ray", "--address", nodes.address]
        found = subprocess.run(command, env=nodes.environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert "sharing the bank: 40/40 images" in found.stderr
    for attribute in both[1:]:
        one, two = (tmp_path / way / "sequences" / attribute / "sequences.jsonl" for way in ("local", "ray"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--workers", "2"], "--workers is for --executor local"),
        (["--device", "cuda:0"], "--device cuda:0 is not available with --executor ray; choose auto, cpu or cuda"),
        (["--address", "127.0.0.1:1"], "There is no Ray cluster at '127.0.0.1:1' ([Errno 111] Connection refused)"),
        (["--address", "ray://somewhere:1"], "(an address is auto, or HOST:PORT as ray start printed it)"),
    ],
)
def test_mistake_about_the_cluster_is_one_sentence(place, tmp_path, capsys, extra, sentence):
    given = ["--bank", str(place / "made"), "--posterior", str(place / "maker.safetensors"), "--attribute", "Smiling"]
    assert main(["annotate", *arguments(place, tmp_path / "run"), *given, "--executor", "ray", *extra]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_part_of_the_images_can_be_chosen(place, tmp_path):
    assert annotate(place, tmp_path / "a", "--subset", "1:3") == 0
    assert annotate(place, tmp_path / "b", "--subset", "2,1") == 0
    assert load(tmp_path / "a" / "sequences" / "Smiling").ids == ("1", "2")
    one, two = (load(tmp_path / name / "sequences" / "Smiling") for name in "ab")
    assert two.ids == ("2", "1")
    np.testing.assert_array_equal(one.locations, two.locations[::-1])


def test_test_images_are_searched_to_score_the_search_and_train_nothing(place, tmp_path, capsys):
    run, task = tmp_path / "run", load_task(read_recipe(place / "tiny.yaml").data, data=place / "data")
    assert annotate(place, run, "--split", "test", "--subset", "0:9:3") == 0
    folder = run / "sequences-test" / "Smiling"
    found = load(folder)
    assert found.ids == tuple(task.splits["test"][:9:3])
    assert not (run / "sequences").exists()
    scored = ["sequences", "score", str(place / "tiny.yaml"), "--data", str(place / "data"), "--attribute", "Smiling"]
    scored += ["--cache", str(place / "cache"), "--device", "cpu", "--judge", str(place / "maker.safetensors"), "--own"]
    assert main([*scored, "--sequences", f"search={run / 'sequences-test'}", "--out", str(tmp_path / "s.json")]) == 0
    judge, smiling = load_posterior(place / "maker.safetensors", task=task), task.attribute("Smiling")
    rows = task.rows(found.ids)
    answers = judge.log_probabilities(torch.from_numpy(task.images[rows].copy()), torch.from_numpy(found.locations))
    right = (answers[:, smiling].argmax(-1).numpy() == task.labels[rows, smiling]).mean()
    ways = read_json(tmp_path / "s.json")["ways"]
    assert ways["search"]["measures"]["accuracy"]["mean"][-1] == pytest.approx(right, abs=1e-6)
    train = ["train", *arguments(place, tmp_path / "trained"), "--method", "ps-nogs", "--attribute", "Smiling"]
    capsys.readouterr()
    assert main([*train, "--sequences", str(run / "sequences-test")]) == 2
    assert "is in the test split of 'celeba-hq'; only training images may have sequences" in capsys.readouterr().err
    for words, sentence in (
        (["--subset", "77"], "Image '77' (of the split 'posterior') is not among the test images"),
        (["--subset", "0:9:0"], "--subset 0:9:0 does not fit the"),
    ):
        assert annotate(place, tmp_path / "other", "--split", "test", *words) == 2
        assert sentence in capsys.readouterr().err
    assert annotate(place, tmp_path / "other", "--subset", found.ids[0]) == 2
    assert "(of the split 'test') is not among the images to annotate" in capsys.readouterr().err


def test_posterior_of_all_training_images_may_search_on_test_images_alone(place, tmp_path, capsys):
    found = read_recipe(place / "tiny.yaml")
    task = load_task(found.data, data=place / "data", cache=place / "cache")
    posterior(place / "all.safetensors", found, whole_task(task))
    assert annotate(place, tmp_path / "a", name="all") == 2
    assert "may have seen the images to annotate" in capsys.readouterr().err
    assert annotate(place, tmp_path / "a", "--split", "test", "--subset", "0:2", name="all") == 0
    fewer = replace(task, splits={**task.splits, "posterior": task.splits["posterior"][1:]})
    posterior(place / "stranger.safetensors", found, fewer, task_fingerprint="0123456789abcdef")
    assert annotate(place, tmp_path / "b", "--split", "test", "--subset", "0:2", name="stranger") == 2


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--subset", "0:600"], "--subset 0:600 does not fit the 3 images to annotate of task 'celeba-hq'"),
        (["--subset", "1,77"], "Image '77' (of the split 'posterior') is not among the images to annotate"),
        (["--subset", "1,140,141"], "and 1 more images are not among the images to annotate"),
        (["--subset", "4000"], "has no image with the id '4000'"),
        (["--bank", "nowhere"], "nowhere holds no finished bank; build one with nogs bank build"),
        (["--workers", "0"], "--workers must be at least 1"),
    ],
)
def test_mistake_is_one_sentence_and_nothing_is_written(place, tmp_path, capsys, extra, sentence):
    assert annotate(place, tmp_path / "run", *extra) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_attributes_are_asked_for_and_checked(place, tmp_path, capsys):
    assert annotate(place, tmp_path, attribute=()) == 2
    assert "has 40 attributes; choose some with --attribute" in capsys.readouterr().err
    assert annotate(place, tmp_path, attribute=("--attribute", "Smilin")) == 2
    assert "has no attribute 'Smilin'" in capsys.readouterr().err


def test_posterior_of_another_task_is_refused(place, tmp_path, capsys):
    miniature.folder(tmp_path / "pictures")
    (tmp_path / "pictures.yaml").write_text(
        RECIPE.replace("base: celeba-hq", "base: folder").replace("grid_last: null, ", "grid_spacing: null, ")
    )
    recipe = read_recipe(tmp_path / "pictures.yaml")
    task = load_task(recipe.data, data=tmp_path / "pictures", cache=tmp_path / "cache")
    posterior(place / "stranger.safetensors", recipe, task)
    assert annotate(place, tmp_path / "run", name="stranger") == 2
    assert "is a posterior of the task 'folder' with 2 classes, not of 'celeba-hq'" in capsys.readouterr().err


def test_posterior_and_bank_of_other_splits_are_refused(place, tmp_path, capsys):
    recipe = read_recipe(place / "tiny.yaml")
    task = load_task(recipe.data, data=place / "data", cache=place / "cache")
    fewer = replace(task, splits={**task.splits, "posterior": task.splits["posterior"][1:]})
    posterior(place / "older.safetensors", recipe, fewer, task_fingerprint="0123456789abcdef")
    assert annotate(place, tmp_path / "run", name="older") == 2
    err = capsys.readouterr().err
    assert "older.safetensors was made for other data or splits than these (0123456789abcdef, not" in err
    assert "train it again, or pass --unchecked if it has not" in err
    assert annotate(place, tmp_path / "run", "--unchecked", name="older") == 0
    about = {"task_fingerprint": task.fingerprint, "started_from": ["0123456789abcdef"]}
    posterior(place / "started.safetensors", recipe, task, **about)
    assert annotate(place, tmp_path / "other", name="started") == 2
    err = capsys.readouterr().err
    assert "started.safetensors was made for other data or splits than these (0123456789abcdef, not" in err


def test_posterior_that_is_not_finished_or_knows_fewer_glimpses_is_refused(place, tmp_path, capsys):
    (tmp_path / "run" / "posterior").mkdir(parents=True)
    write_sealed(tmp_path / "run" / "posterior" / "stage.json", {})
    words = ["annotate", *arguments(place, tmp_path / "run"), "--bank", str(place / "made"), "--attribute", "Male"]
    assert main(words) == 2
    assert "is not finished; resume it with nogs posterior train, or give --posterior." in capsys.readouterr().err
    assert annotate(place, tmp_path / "other", "--glimpses", "4") == 2
    assert "was trained for up to 3 glimpses, not 4; train one with --glimpses 4" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_corrupt_shard_stops_with_a_sentence(place, tmp_path, capsys):
    shutil.copytree(place / "made" / "bank", tmp_path / "bank")
    shard = tmp_path / "bank" / "images" / "00000.npy"
    shard.write_bytes(shard.read_bytes()[:-50_000] + bytes(50_000))
    assert annotate(place, tmp_path / "run", "--bank", str(tmp_path / "bank")) == 2
    assert re.search(r"00000\.npy is damaged: image \d+ has changed since the bank was built", capsys.readouterr().err)


def test_changed_recipe_is_refused_in_the_same_run(place, tmp_path, capsys):
    assert annotate(place, tmp_path / "run") == 0
    before = (tmp_path / "run" / "sequences" / "Smiling" / "sequences.jsonl").read_bytes()
    assert annotate(place, tmp_path / "run", "--design.search", "grid") == 2
    assert "another recipe or other inputs (design.search = 'race', not 'grid'); choose" in capsys.readouterr().err
    assert read_recipe(tmp_path / "run" / "recipe.yaml").design.search == "race"
    assert annotate(place, tmp_path / "run", "--subset", "0:2") == 2
    assert re.search(r"another recipe or other inputs \(images = \d+, not 2\); choose", capsys.readouterr().err)
    assert annotate(place, tmp_path / "run") == 0
    assert (tmp_path / "run" / "sequences" / "Smiling" / "sequences.jsonl").read_bytes() == before


def test_every_command_goes_on_without_unreadable_pictures_unless_asked_not_to(tmp_path, capsys):
    torch.set_num_threads(1)
    miniature.celeba_hq(tmp_path / "data", count=150)
    (tmp_path / "data" / "CelebAMask-HQ" / "CelebA-HQ-img" / "149.jpg").write_bytes(b"torn")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    recipe, run = read_recipe(tmp_path / "tiny.yaml"), tmp_path / "run"
    task = load_task(recipe.data, data=tmp_path / "data", cache=tmp_path / "cache", skip_corrupt=True)
    posterior(tmp_path / "maker.safetensors", recipe, task)
    places = ["--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    maker = str(tmp_path / "maker.safetensors")
    short = ["--posterior.iterations", "2", "--posterior.batch", "8", "--posterior.warmup", "0"]
    named = [str(tmp_path / "tiny.yaml"), *places]
    commands = [
        ["bank", "build", *named, "--out", str(run)],
        ["bank", "evaluate", str(run), *places, "--images", "2", "--shown", "1"],
        ["annotate", *named, "--out", str(run), "--posterior", maker, "--attribute", "Smiling", "--workers", "1"],
        ["sequences", "score", *named, "--sequences", str(run / "sequences"), "--judge", maker, "--own"],
        ["posterior", "train", *named, "--out", str(tmp_path / "other"), *short],
        ["posterior", "evaluate", *named, "--out", str(tmp_path / "other"), *short],
    ]
    commands[3] += ["--attribute", "Smiling"]
    for words in commands:
        assert main([*words, "--no-skip-corrupt"]) == 2
        assert "149.jpg" in capsys.readouterr().err
        assert main(words) == 0, (words, capsys.readouterr().err)
        remembered = words[:2] == ["bank", "evaluate"]  # by the run, which was made without the picture
        assert ("1 unreadable picture left out" in capsys.readouterr().err) == remembered
