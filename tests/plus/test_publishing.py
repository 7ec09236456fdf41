"""Published networks: one small file for posterior and network, which looks as the run's own does."""

import re

import numpy as np
import pytest
import torch

from nogs.attention.cohort import Member
from nogs.cli import main
from nogs.plus.config import PlusConfig
from nogs.plus.packing import packed, unpacked
from nogs.plus.publishing import publish
from nogs.plus.store import attributes_of, load_network
from nogs.plus.training import train
from nogs.posterior.crossfit import whole_task
from nogs.posterior.store import LOOKS, identity, load_posterior, trained_elsewhere
from nogs.posterior.training import train_posterior
from nogs.recipes import recipe
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import load_tensors, save_tensors
from nogs.supervision.fixed import strangers
from small_posteriors import SMALL, network

FIELDS = recipe("digits").model_dump(mode="json")


def publish_here(source, path, **how):
    return publish(source, path, fields=FIELDS, defaults=FIELDS, **how)


@pytest.fixture(scope="module")
def faces(world, tmp_path_factory):
    """A run with networks of two attributes, on a posterior."""
    folder, task = tmp_path_factory.mktemp("faces"), world.task(kind="bernoulli")
    config = SMALL.model_copy(update={"iterations": 4, "validate_every": 2, "batch": 16})
    train_posterior(task, config=config, glimpses=3, folder=folder / "posterior", device="cpu")
    train(
        task,
        [Member(method, seed=0, attribute=name) for method in ("ps-nogs+", "fixed") for name in ("red", "blue")],
        posterior=str(folder / "posterior" / "posterior.safetensors"),
        config=PlusConfig(iterations=4, batch=16, candidates=3, validate_every=2),
        how=SMALL,
        glimpses=3,
        folder=folder / "attention",
        device="cpu",
    )
    return folder, task


def looks_of(path):
    return {name.removeprefix(LOOKS): v for name, v in load_tensors(path)[0].items() if name.startswith(LOOKS)}


@pytest.mark.parametrize("bits", [16, 5])
def test_a_fixed_order_is_published_without_its_table_and_looks_the_same(faces, tmp_path, bits):
    folder, task = faces
    source = folder / "attention" / "fixed" / "seed-0.safetensors"
    out = tmp_path / "faces.safetensors"
    size = publish_here(source, out, bits=bits)
    assert set(looks_of(out)) == {"order", "inverse_temperature"}
    assert size == 4 * 2 * 3 + 4 * 2 * 4  # numbers of two attributes: three locations, four temperatures
    assert attributes_of(out) == ("red", "blue")
    images, rows = torch.from_numpy(np.array(task.images)), torch.arange(0, 60, 7)
    for n, name in enumerate(("red", "blue")):
        (before, about), (after, told) = (load_network(path, attribute=name) for path in (source, out))
        assert about == told
        which = torch.full_like(rows, n)
        (said, places, _), (again, there, _) = (one.look(images, rows, which) for one in (before, after))
        assert torch.equal(places, there)
        torch.testing.assert_close(said, again, atol=1e-2 if bits == 16 else 0.5, rtol=0)
    assert identity(out) == identity(folder / "posterior" / "posterior.safetensors") or bits < 16
    assert load_posterior(out, task=task).glimpses == 3


@pytest.mark.parametrize(("bits", "most"), [(16, 2e-3), (8, 2e-2)])
def test_a_head_is_packed_with_its_table_in_half_precision(task, bits, most):
    made, _ = network(task, variables=(0, 1))
    small = packed(made.looks.state_dict(), by_order=False, bits=bits)
    assert small["table"].dtype == torch.float16
    assert any(name.endswith(".codes") for name in small) == (bits == 8)
    found, _ = network(task, variables=(0, 1), seed=1)
    found.looks.load_state_dict(unpacked(small, found.looks))
    found.core.load_state_dict(made.core.state_dict())
    images, row = torch.from_numpy(np.array(task.images)), torch.arange(5)
    tokens = made.read(images, row, row[:, None])
    scores = [one.scores(tokens, row % 2, row[:, None]) for one in (made, found)]
    torch.testing.assert_close(*scores, atol=most, rtol=0)


def test_a_view_publishes_the_network_of_all_attributes_with_a_card(faces, tmp_path):
    folder, _ = faces
    out = tmp_path / "faces.safetensors"
    publish_here(folder / "attention" / "fixed" / "blue" / "seed-0" / "best-accuracy.safetensors", out)
    card = out.with_suffix(".md").read_text()
    assert card.startswith("# Network faces\n")
    assert "One order of locations for all images, by greedy selection on images that did not train" in card
    assert re.search(r"nogs train .+ --data DATA --posterior POSTERIOR --method fixed --attribute all --seed 0 ", card)
    _, about = load_network(out, attribute="blue")
    assert f"| blue | {about['test']['accuracy']:.1%} | {about['test']['nll']:.3f} |" in card
    assert "| mean of 2 attributes |" in card
    assert "Not trained on any image to annotate, to validate or to test." in card


def test_a_core_that_was_trained_on_says_so_and_can_not_annotate(task, tmp_path):
    posterior = tmp_path / "run" / "posterior" / "posterior.safetensors"
    train_posterior(
        task,
        config=SMALL.model_copy(update={"iterations": 4, "validate_every": 2, "batch": 16}),
        glimpses=3,
        folder=posterior.parent,
        device="cpu",
    )
    whole = whole_task(task)
    for rate, seen in ((1e-2, [whole.fingerprint]), (0, [])):
        (made,) = train(
            task,
            [Member("ps-nogs+")],
            posterior=str(posterior),
            config=PlusConfig(
                iterations=10, batch=64, candidates=3, learning_rate=1e-2, core_rate=rate, validate_every=10
            ),
            how=SMALL,
            glimpses=3,
            folder=tmp_path / str(rate),
            device="cpu",
        )
        source, out = made / "best-accuracy.safetensors", tmp_path / f"{rate}.safetensors"
        assert load_network(source)[1]["iteration"] > 0 or not rate
        publish_here(source, out, bits=8)
        for path in (source, out):
            assert trained_elsewhere(path, task) == seen
            assert set(strangers(task, str(path))) >= set(task.splits["annotate"]) or seen
            assert (set(strangers(task, str(path))) == set(task.splits["validation"])) == bool(seen)
        went_on = "Trained further on all training images, including those to annotate, so it must not annotate them"
        assert (went_on in out.with_suffix(".md").read_text()) == bool(seen)


def test_a_posterior_alone_has_no_looks(faces, tmp_path):
    folder, _ = faces
    assert publish_here(folder / "posterior" / "posterior.safetensors", tmp_path / "p.safetensors") == 0
    with pytest.raises(InputError, match="is a posterior, which does not say where to look"):
        load_network(tmp_path / "p.safetensors")


@pytest.mark.parametrize("wrong", ["outside", "shape", "missing", "stranger"])
def test_a_published_network_that_does_not_fit_is_refused(faces, tmp_path, wrong):
    out = tmp_path / "faces.safetensors"
    publish_here(faces[0] / "attention" / "fixed" / "seed-0.safetensors", out)
    tensors, metadata = load_tensors(out)
    order = tensors.pop(LOOKS + "order")
    if wrong == "outside":
        tensors[LOOKS + "order"] = order + 10_000
    elif wrong == "shape":
        tensors[LOOKS + "order"] = order[:, :2].contiguous()
    elif wrong == "stranger":
        tensors |= {LOOKS + "order": order, LOOKS + "more": torch.zeros(2)}
    save_tensors(out, tensors, metadata)
    with pytest.raises(InputError, match=r"is not a network of this version: its (order|tensors)"):
        load_network(out, attribute="red")


def test_publishing_by_command_says_the_size_and_refuses_what_it_can_not(faces, tmp_path, capsys):
    folder, _ = faces
    source, out = folder / "attention" / "fixed" / "seed-0.safetensors", tmp_path / "x.safetensors"
    assert main(["posterior", "publish", str(source), "--out", str(out), "--bits", "5"]) == 2
    assert "is not in a run, whose recipe the card needs" in capsys.readouterr().err
    recipe("digits").to_yaml(folder / "recipe.yaml")
    assert main(["posterior", "publish", str(source), "--out", str(out), "--bits", "5"]) == 0
    assert re.search(
        r"x.safetensors \(\d+\.\d MiB, \d+\.\d of them for where it looks\) and x.md", capsys.readouterr().out
    )
    assert main(["posterior", "publish", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert "none is not there" in capsys.readouterr().err
