import re
import resource
import time
from dataclasses import replace

import pytest
import torch

import worlds
from nogs.data.task import LabelSpace
from nogs.posterior import store
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.labels import Head
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.rounding import pack, unpack
from nogs.posterior.store import about_posterior, load_posterior, save_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import load_tensors, save_tensors
from real_data import real_data

CONFIGS = {
    "tokens": PosteriorConfig(width=16, layers=2, heads=2, stem="conv", learning_rate=0.5),
    "cnn": PosteriorConfig(kind="cnn", backbone="resnet18"),
}


def made(task, name="tokens"):
    architecture = Architecture(CONFIGS[name], task.grid, 3, Head(task.space, attributes=2))
    network = architecture.build(seed=1)
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():
                value += 0.01
    return NetworkPosterior(network, architecture, inverse_temperature=torch.tensor([[1.0], [0.9], [0.8], [0.7]]))


def answers(posterior, task):
    pixels = task.grid.pixels[torch.arange(60).reshape(20, 3) % len(task.grid)]
    return posterior.log_probabilities(torch.from_numpy(task.images[:20]), pixels)


@pytest.mark.parametrize("name", CONFIGS)
def test_loaded_posterior_answers_as_the_saved_one(task, tmp_path, name):
    posterior, path = made(task, name), tmp_path / "p.safetensors"
    save_posterior(path, posterior, task=task, about={"note": "x"})
    loaded = load_posterior(path, task=task)
    assert torch.equal(answers(loaded, task), answers(posterior, task))
    assert loaded.grid == task.grid
    assert loaded.space == task.space
    assert about_posterior(path) == {"note": "x"}


def test_half_precision_file_is_half_as_large_and_nearly_the_same(task, tmp_path):
    posterior = made(task)
    save_posterior(tmp_path / "whole.safetensors", posterior, task=task)
    save_posterior(tmp_path / "half.safetensors", posterior, task=task, bits=16)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 0.65 * sizes[0]
    loaded = load_posterior(tmp_path / "half.safetensors", task=task)
    torch.testing.assert_close(answers(loaded, task), answers(posterior, task), rtol=0, atol=0.02)


@pytest.mark.parametrize("bits", [4, 5, 8])
def test_packed_weights_are_those_that_a_slow_reader_finds(bits):
    torch.manual_seed(0)
    weights = torch.randn(3, 25, 3, 1) * torch.tensor([1.0, 1e-3, 0.0])[:, None, None, None]
    codes, scales = pack(weights, bits)
    found = unpack(codes, scales, weights.shape)
    for row in range(3):
        stream = "".join(format(byte, "08b")[::-1] for byte in codes[row].tolist())
        for place in range(75):
            code = int(stream[place * bits : (place + 1) * bits][::-1], 2) - 2 ** (bits - 1)
            assert found[row].flatten()[place] == code * float(scales[row, place // 64])
    assert codes.shape == (3, -(-75 * bits // 8))


@pytest.mark.parametrize(("bits", "most"), [(8, 0.007), (5, 0.055), (4, 0.11)])
def test_packing_loses_little_and_never_more_than_plain_rounding(bits, most):
    torch.manual_seed(0)
    weights = torch.randn(40, 256)
    found = unpack(*pack(weights, bits), weights.shape)
    top = 2 ** (bits - 1) - 1
    step = weights.reshape(40, 4, 64).abs().amax(-1, keepdim=True) / top
    plain = ((weights.reshape(40, 4, 64) / step).round() * step).reshape(40, 256)
    lost = [(one - weights).square().mean().sqrt().item() for one in (found, plain)]
    assert lost[0] <= 1.01 * lost[1]  # scales are in float16
    assert lost[0] < most


@pytest.mark.parametrize(("bits", "most"), [(8, 0.002), (5, 0.03)])
def test_packed_posterior_is_small_and_answers_nearly_the_same(task, tmp_path, bits, most):
    config = PosteriorConfig(width=128, layers=2, heads=2, stem="conv")
    architecture = Architecture(config, task.grid, 3, Head(task.space))
    posterior, path = NetworkPosterior(architecture.build(seed=1), architecture), tmp_path / "p.safetensors"
    save_posterior(path, posterior, task=task, bits=bits)
    number = sum(value.numel() for value in posterior.network.parameters())
    assert path.stat().st_size < 1.2 * number * bits / 8
    loaded, before = answers(load_posterior(path, task=task), task), answers(posterior, task)
    assert not torch.equal(loaded, before)
    assert (before.exp() * (before - loaded)).sum(-1).mean() < most
    tensors, header = load_tensors(path)
    save_tensors(tmp_path / "again.safetensors", store.smaller(tensors, bits), header)
    assert torch.equal(answers(load_posterior(tmp_path / "again.safetensors", task=task), task), loaded)


@pytest.mark.parametrize("damage", ["shape", "type", "scales", "missing"])
def test_packed_weights_that_fit_no_network_are_refused(task, tmp_path, damage):
    config = PosteriorConfig(width=128, layers=1, heads=2)
    architecture = Architecture(config, task.grid, 3, Head(task.space))
    path = tmp_path / "p.safetensors"
    save_posterior(path, NetworkPosterior(architecture.build(), architecture), task=task, bits=5)
    tensors, header = load_tensors(path)
    name = "blocks.0.out.weight"
    match damage:
        case "shape":
            tensors[f"{name}.codes"] = tensors[f"{name}.codes"][:, :-1]
        case "type":
            tensors[f"{name}.codes"] = tensors[f"{name}.codes"].float()
        case "scales":
            tensors[f"{name}.scales"] = tensors[f"{name}.scales"] * torch.nan
        case "missing":
            del tensors[f"{name}.scales"]
    save_tensors(path, tensors, header)
    with pytest.raises(InputError, match=re.escape(str(path))):
        load_posterior(path)


def test_posterior_of_another_task_is_refused(task, tmp_path):
    save_posterior(tmp_path / "p.safetensors", made(task), task=task)
    other = replace(task, name="other", title="other")
    with pytest.raises(InputError) as error:
        load_posterior(tmp_path / "p.safetensors", task=other)
    assert str(error.value).endswith(
        "is a posterior of the task 'pointer world' with 3 classes, not of 'other' with 3 classes; give one that was "
        "trained on it."
    )
    renamed = replace(task, space=LabelSpace("categorical", ("red", "green", "black")))
    with pytest.raises(InputError, match="is a posterior of the task"):
        load_posterior(tmp_path / "p.safetensors", task=renamed)


def test_posterior_of_another_grid_is_refused(task, tmp_path):
    save_posterior(tmp_path / "p.safetensors", made(task), task=task)
    finer = worlds.pointer_world(spacing=2).task()
    with pytest.raises(InputError) as error:
        load_posterior(tmp_path / "p.safetensors", task=finer)
    assert str(error.value).endswith(
        "was trained for 3 x 3 locations of 4 px glimpses on 12 x 12 px, but the task 'pointer world' has 5 x 5 "
        "locations of 4 px glimpses on 12 x 12 px; train one for it with nogs posterior train."
    )


def test_file_that_is_no_posterior_or_is_damaged_is_refused(task, tmp_path):
    path = tmp_path / "p.safetensors"
    save_tensors(path, {"x": torch.zeros(1)})
    with pytest.raises(InputError, match="is not a posterior of this version"):
        load_posterior(path)
    save_posterior(path, made(task), task=task)
    tensors, metadata = load_tensors(path)
    tensors.pop("head.bias")
    save_tensors(path, tensors, metadata)
    with pytest.raises(InputError, match=r"does not fit its own architecture: tensor 'head.bias' is missing"):
        load_posterior(path)


def test_published_posterior_is_found_by_its_name(task, tmp_path, monkeypatch):
    folder = tmp_path / "nogs" / "pretrained"
    monkeypatch.setattr(store, "__file__", str(tmp_path / "nogs" / "posterior" / "store.py"))
    with pytest.raises(InputError, match="There is no posterior 'faces'; none is published with this version"):
        load_posterior("faces")
    save_posterior(folder / "faces.safetensors", made(task), task=task)
    assert load_posterior("faces", task=task).glimpses == 3
    with pytest.raises(InputError, match="no posterior 'birds'; published are faces; or give"):
        load_posterior("birds")


def test_metadata_is_plain_json(task, tmp_path):
    save_posterior(tmp_path / "p.safetensors", made(task), task=task)
    _, metadata = load_tensors(tmp_path / "p.safetensors")
    assert metadata["architecture"]["config"]["width"] == 16
    assert metadata["task"] == "pointer world"


def test_vgg_weights_of_the_paper_start_both_kinds():
    path = str(real_data("vgg16-imagenet-conv1-12.safetensors") / "vgg16-imagenet-conv1-12.safetensors")
    weights, _ = load_tensors(path)
    grid = worlds.Grid.cub()
    head = Head(LabelSpace("categorical", ("a", "b")))
    stem = Architecture(PosteriorConfig(stem="vgg", token=16, width=64, layers=1), grid, 5, head).build()
    loaded = stem.load(path)
    assert len(loaded) == 20
    torch.testing.assert_close(stem.stem.features[21].weight, weights["features.21.weight"].float())
    config = PosteriorConfig(kind="cnn", backbone="vgg16", pooled=True, partial=True)
    cnn = Architecture(config, grid, 5, head).build()
    loaded = cnn.load(path)
    assert len(loaded) == 24
    torch.testing.assert_close(cnn.network.features[26].weight, weights["features.26.weight"].float())
    torch.testing.assert_close(cnn.network.features[0].weight[:, :3], weights["features.0.weight"].float())
    assert (cnn.network.features[0].weight[:, 3] == 0).all()


def changed(value, path, new):
    """A copy of nested dictionaries with another value at a path; `...` leaves the field out."""
    name, *rest = path
    if not rest and new is ...:
        return {key: item for key, item in value.items() if key != name}
    return {**value, name: changed(value[name], rest, new) if rest else new}


HOSTILE = {
    "no architecture": (["architecture"], ...),
    "architecture in a string": (["architecture"], "{}"),
    "no config": (["architecture", "config"], ...),
    "config of another type": (["architecture", "config"], [1]),
    "unknown kind": (["architecture", "config", "kind"], "recurrent"),
    "unknown field": (["architecture", "config", "nodes"], 3),
    "a thousand million layers": (["architecture", "config", "layers"], 10**9),
    "more layers than tensors": (["architecture", "config", "layers"], 5_000),
    "fewer layers": (["architecture", "config", "layers"], 1),
    "ten million wide": (["architecture", "config", "width"], 10**7),
    "a million wide": (["architecture", "config", "width"], 2**20),
    "heads that don't divide": (["architecture", "config", "heads"], 5),
    "no grid": (["architecture", "grid"], ...),
    "fractional grid": (["architecture", "grid", "height"], 12.5),
    "huge grid": (["architecture", "grid", "height"], 10**9),
    "rows of text": (["architecture", "grid", "rows"], "024"),
    "many locations": (["architecture", "grid", "rows"], list(range(10**6))),
    "glimpses in words": (["architecture", "glimpses"], "three"),
    "no end of glimpses": (["architecture", "glimpses"], 10**9),
    "more glimpses than calibrated": (["architecture", "glimpses"], 4),
    "no head": (["architecture", "head"], None),
    "unknown labels": (["architecture", "head", "kind"], "gaussian"),
    "no labels": (["architecture", "head", "names"], []),
    "numbers for labels": (["architecture", "head", "names"], [1, 2, 3]),
    "more labels": (["architecture", "head", "names"], ["a", "b", "c", "d"]),
    "more attributes": (["architecture", "head", "attributes"], 10**6),
    "folds in words": (["folds"], "x"),
    "folds without end": (["folds"], 10**6),
    "folds that are not there": (["folds"], 2),
    "no task": (["task"], ...),
    "no images": (["images"], ...),
    "about as a list": (["about"], []),
    "fingerprint of a number": (["about", "task_fingerprint"], 3),
    "tables of text": (["about", "tables"], {"test, calibrated": ["a"]}),
    "a row without scores": (["about", "tables"], {"test, calibrated": [{"glimpses": 0}]}),
    "an unknown field": (["trust"], True),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_header_of_a_stranger_is_refused_before_anything_is_built(task, tmp_path, case):
    path = tmp_path / "p.safetensors"
    save_posterior(path, made(task), task=task, about={"task_fingerprint": "x"})
    tensors, header = load_tensors(path)
    save_tensors(path, tensors, changed(header, *HOSTILE[case]))
    began = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError) as refused:
        load_posterior(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB"


@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 100_000, '{"a": ' * 100_000, "1" * 5_000, "NaN", "{}"])
def test_header_that_is_no_object_is_refused(task, tmp_path, text):
    from safetensors.torch import save_file

    path = tmp_path / "p.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"nogs": text})
    for read in (load_posterior, about_posterior, store.identity):
        with pytest.raises(InputError, match=re.escape(str(path))):
            read(path)


def test_weights_that_are_not_finite_are_refused(task, tmp_path):
    path = tmp_path / "p.safetensors"
    save_posterior(path, made(task), task=task)
    tensors, header = load_tensors(path)
    tensors["head.bias"][0] = torch.nan
    save_tensors(path, tensors, header)
    with pytest.raises(InputError, match=r"holds numbers that are not finite \(tensor 'head.bias'\)"):
        load_posterior(path)


def test_flipped_bit_of_a_weight_is_refused(task, tmp_path):
    path = tmp_path / "p.safetensors"
    save_posterior(path, made(task), task=task)
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"p\.safetensors has changed since it was written; bring it back from a copy"):
        load_posterior(path)
