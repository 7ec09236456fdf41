"""`nogs annotate` and `nogs bank compare` with every kind of completion, on small digits."""

import pytest
import torch

from nogs.cli import main
from nogs.data import load_task
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.store import save_posterior
from nogs.recipes import recipe as read_recipe
from nogs.runtime.files import read_json
from nogs.sequences import load

RECIPE = """
base: digits
name: tiny
glimpses: 3
data: {image_size: 32, glimpse: 8, grid_spacing: 8, count: 100, annotated: 4}
posterior: {width: 16, layers: 1, heads: 2, token: 4, stem: linear, precision: float32}
bank:
  generator: trained
  count: 60
  components: 8
  trained: {autoencoder_width: 8, autoencoder_iterations: 3, width: 32, depth: 1, iterations: 3, batch: 8, steps: 2}
completion:
  drawn: 20
  kept: 4
  prior: 10
  network: {width: 8, iterations: 3, batch: 8, steps: 2}
  hmc: {steps: 3, chains: 2, warmup: 1}
design: {images: 2, batch: 64}
"""
KINDS = ["retrieval", "corrected", "cgan", "flow", "hmc"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A bank of a generator trained here, the networks of the learned completions, and two untrained posteriors."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("completions")
    (root / "tiny.yaml").write_text(RECIPE)
    for kind in ("cgan", "flow"):
        assert main(["bank", "build", *flags(root, kind)]) == 0
    recipe = read_recipe(root / "tiny.yaml")
    task = load_task(recipe.data)
    for name, seed in (("maker", 0), ("judge", 1)):
        architecture = Architecture.of(recipe.posterior, task=task, glimpses=3)
        network = architecture.build(seed=seed)
        with torch.no_grad():
            network.head.weight.mul_(2)
        posterior = NetworkPosterior(network, architecture, precision="float32")
        about = {"task_fingerprint": task.fingerprint}
        save_posterior(root / f"{name}.safetensors", posterior, task=task, about=about)
    return root


def flags(root, kind, out="run"):
    return [str(root / "tiny.yaml"), "--out", str(root / out), "--device", "cpu", "--completion.kind", kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_annotates_digits(place, kind):
    if kind == "hmc":
        pytest.importorskip("pyro")
    more = ["--posterior", str(place / "maker.safetensors"), "--bank", str(place / "run")]
    assert main(["annotate", *flags(place, kind, out=kind), *more]) == 0
    found = load(place / kind / "sequences")
    assert found.locations.shape == (4, 3, 2)
    assert found.provenance["completion"]["kind"] == kind
    assert ("completion_digest" in found.provenance) == (kind in ("cgan", "flow", "hmc"))


def test_a_bank_without_the_network_is_a_sentence(place, tmp_path, capsys):
    plain = ["bank", "build", "digits", "--out", str(tmp_path), "--device", "cpu", "--bank.count", "40"]
    plain += ["--bank.components", "8", "--data.count", "100", "--data.annotated", "4", "--data.image-size", "32"]
    assert main([*plain, "--data.glimpse", "8"]) == 0
    more = ["--posterior", str(place / "maker.safetensors"), "--bank", str(tmp_path), "--unchecked"]
    assert main(["annotate", *flags(place, "cgan", out="none"), *more]) == 2
    assert "holds no trained network; run nogs bank build with --completion.kind cgan" in capsys.readouterr().err
    assert main(["annotate", *flags(place, "hmc", out="none"), *more]) == 2
    assert "needs a generator with a gradient (trained, stylegan, finegan), but" in capsys.readouterr().err


def test_a_network_of_other_fields_is_a_sentence(place, capsys):
    assert main(["bank", "build", *flags(place, "cgan"), "--completion.network.mask"]) == 2
    assert "network.mask = False, not True" in capsys.readouterr().err


def test_each_networks_training_is_noted_beside_the_bank(place):
    for kind in ("cgan", "flow"):
        done = read_json(place / "run" / "bank" / kind / "done.json")
        assert done["stage"] == kind
        assert done["iterations"] == 3
        assert set(done["files"]) == {"network.safetensors"}


def test_compare_shows_all_kinds_on_the_same_glimpses(place, capsys):
    pytest.importorskip("pyro")
    command = ["bank", "compare", str(place / "tiny.yaml"), "--out", str(place / "run"), "--device", "cpu"]
    command += ["--images", "2", "--shown", "1", "--sequences", "3"]
    posteriors = {name: str(place / f"{name}.safetensors") for name in ("maker", "judge")}
    assert main([*command, "--posterior", posteriors["maker"], "--judge", posteriors["judge"]]) == 0
    out = capsys.readouterr().out
    table = [line.split()[0] for line in out.splitlines()[2:7]]
    assert table == KINDS
    assert "hmc: acceptance" in out
    found = read_json(place / "run" / "bank" / "evaluation" / "compare.json")
    assert list(found["kinds"]) == KINDS
    for rows in found["kinds"].values():
        assert [row["observed"] for row in rows] == [0, 1, 2]
        assert rows[0] == {**found["kinds"]["retrieval"][0], "seconds_per_image": rows[0]["seconds_per_image"]}
        assert all(row["seconds_per_image"] > 0 for row in rows)
    ways = found["sequences"]["ways"]
    assert list(ways) == [*KINDS, "random"]
    start = ways["retrieval"]["measures"]["entropy"]["mean"]
    for kind in KINDS:  # before the first glimpse, and after the one that all have in common
        assert ways[kind]["measures"]["entropy"]["mean"][:2] == start[:2]
    picture = place / "run" / "bank" / "evaluation" / "compare.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_compare_refuses_what_it_cannot_do(place, capsys):
    command = ["bank", "compare", str(place / "tiny.yaml"), "--out", str(place / "run"), "--device", "cpu"]
    maker = str(place / "maker.safetensors")
    assert main([*command, "--posterior", maker, "--judge", maker]) == 2
    assert "is the posterior that makes the sequences; give another --judge." in capsys.readouterr().err
    (place / "run" / "bank" / "flow" / "done.json").rename(place / "aside.json")
    try:
        assert main([*command, "--kinds", "flow", "--images", "1", "--shown", "1"]) == 2
        assert "flow holds no trained network; run nogs bank build" in capsys.readouterr().err
        assert main([*command, "--images", "1", "--shown", "1", "--completion.hmc.steps", "1"]) == 0
        told = capsys.readouterr()
        assert "flow is left out" in told.err
        assert "cgan" in told.out
    finally:
        (place / "aside.json").rename(place / "run" / "bank" / "flow" / "done.json")
