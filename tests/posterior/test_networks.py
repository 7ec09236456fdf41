import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from nogs.data.task import LabelSpace
from nogs.glimpse import Grid, cut, mask
from nogs.posterior import imagenet
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.imagenet import MEAN, STD
from nogs.posterior.labels import Head
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.queries import strata
from nogs.posterior.stems import VGGStem
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import save_tensors

GRID = Grid.spaced(image=(36, 40), glimpse=8, spacing=4)
HEAD = Head(LabelSpace("categorical", ("a", "b", "c")), attributes=2)
CONFIGS = {
    "linear": PosteriorConfig(width=32, layers=2, heads=4),
    "one token": PosteriorConfig(width=32, layers=2, heads=4, token=8),
    "conv": PosteriorConfig(width=32, layers=1, heads=2, stem="conv"),
    "vgg": PosteriorConfig(width=32, layers=1, heads=2, stem="vgg", stem_layers=3),
    "cnn": PosteriorConfig(kind="cnn", backbone="resnet18"),
}


def posterior(name, **options):
    architecture = Architecture(CONFIGS[name], GRID, 3, HEAD)
    network = architecture.build()
    size = 0.002 if name == "cnn" else 0.05
    for parameter in network.parameters():  # away from initial values, where much is small or zero
        parameter.data += size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    temperatures = torch.tensor([[0.5], [1.0], [1.5], [2.0]])
    return NetworkPosterior(network, architecture, inverse_temperature=temperatures, **options)


def queries(number=6, glimpses=3, seed=0):
    random = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (4, 36, 40, 3), dtype=torch.uint8, generator=random)
    pixels = torch.stack([torch.randint(0, top, (number, glimpses), generator=random) for top in (29, 33)], -1)
    return images, pixels, torch.randint(0, 4, (number,), generator=random)


@pytest.mark.parametrize("name", CONFIGS)
def test_order_and_repetition_of_glimpses_change_nothing(name):
    model = posterior(name)
    images, pixels, index = queries()
    expected = model.log_probabilities(images, pixels, index=index)
    assert expected.shape == (6, 1, 3)
    np.testing.assert_allclose(expected.exp().sum(-1), 1, rtol=1e-5)
    close = {"rtol": 0, "atol": 2e-5}
    torch.testing.assert_close(model.log_probabilities(images, pixels[:, [2, 0, 1]], index=index), expected, **close)
    twice = pixels[:, [0, 1, 1, 2, 0]]
    torch.testing.assert_close(model.log_probabilities(images, twice, index=index), expected, **close)


@pytest.mark.parametrize("name", CONFIGS)
def test_unobserved_glimpses_and_pixels_change_nothing(name):
    model = posterior(name)
    images, pixels, index = queries()
    observed = torch.tensor([True, False, True]).expand(6, -1)
    expected = model.log_probabilities(images, pixels[:, [0, 2]], index=index)
    found = model.log_probabilities(images, pixels, index=index, observed=observed)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    seen = mask(pixels[:, [0, 2]], glimpse=8, height=36, width=40)
    others = torch.where(seen[..., None], images[index], 255 - images[index])
    torch.testing.assert_close(model.log_probabilities(others, pixels[:, [0, 2]]), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_without_glimpses_every_image_has_the_prior(name):
    model = posterior(name)
    images, pixels, index = queries()
    nothing = model.log_probabilities(images, pixels[:, :0], index=index)
    torch.testing.assert_close(nothing, nothing[:1].expand_as(nothing))
    hidden = model.log_probabilities(images, pixels, index=index, observed=torch.zeros(6, 3, dtype=torch.bool))
    torch.testing.assert_close(hidden, nothing, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_glimpse_and_its_place_matter(name):
    model = posterior(name)
    images, pixels, index = queries()
    answer = model.log_probabilities(images, pixels, index=index)
    for t in range(3):
        moved = pixels.clone()
        moved[:, t] = (moved[:, t] + 9) % 28
        assert (model.log_probabilities(images, moved, index=index) - answer).abs().amax((1, 2)).min() > 1e-6


@pytest.mark.parametrize("name", CONFIGS)
def test_flipped_query_reads_the_mirrored_image(name):
    model = posterior(name)
    images, pixels, index = queries()
    flip = torch.tensor([True, False] * 3)
    mirrored = torch.where(flip[:, None, None, None], images[index].flip(2), images[index])
    expected = model.log_probabilities(mirrored, pixels)
    torch.testing.assert_close(
        model.log_probabilities(images, pixels, index=index, flip=flip), expected, rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shared", [True, False])
def test_look_ahead_equals_asking_for_every_pair(name, shared):
    model = posterior(name, chunk=7)
    images, pixels, index = queries(number=3, glimpses=2)
    candidates = GRID.pixels[::9][:5].clone()
    candidates[0] = pixels[1, 0]  # seen before by query 1
    if not shared:
        candidates = torch.stack([candidates, candidates.flip(0), candidates.roll(1, 0)])
    observed = torch.tensor([[True, True], [True, False], [True, True]])
    found = model.look_ahead(images, pixels, candidates, index=index, observed=observed)
    assert found.shape == (3, 5, 1, 3)
    for q in range(3):
        for n in range(5):
            last = candidates[n] if shared else candidates[q, n]
            all_of_them = torch.cat([pixels[q][observed[q]], last[None]])[None]
            alone = model.log_probabilities(images, all_of_them, index=index[q : q + 1])
            torch.testing.assert_close(found[q, n], alone[0], rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_look_ahead_starts_from_nothing(name):
    model = posterior(name)
    images, _, index = queries(number=2)
    nothing = torch.zeros(2, 0, 2, dtype=torch.int64)
    found = model.look_ahead(images, nothing, GRID.pixels[:4], index=index)
    expected = model.log_probabilities(images, GRID.pixels[:4].repeat(2, 1)[:, None], index=index.repeat_interleave(4))
    torch.testing.assert_close(found.flatten(0, 1), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "cnn"])
def test_queries_grouped_by_length_answer_as_padded_ones(name):
    model = posterior(name).network.eval()
    images, pixels, index = queries(number=10)
    groups = strata(10, 3)
    assert groups == ((2, 0), (3, 1), (2, 2), (3, 3))
    t = torch.tensor([length for count, length in groups for _ in range(count)])
    observed = torch.arange(3) < t[:, None]
    seen = model.read(images, pixels, index)
    torch.testing.assert_close(model(seen, pixels, observed, groups), model(seen, pixels, observed), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["linear", "cnn"])
def test_chunks_and_their_padding_change_nothing(name):
    images, pixels, index = queries(number=7)
    whole, parts = posterior(name), posterior(name, chunk=3)
    expected = whole.log_probabilities(images, pixels, index=index)
    torch.testing.assert_close(parts.log_probabilities(images, pixels, index=index), expected, rtol=0, atol=2e-5)
    parts.compiled = True  # as for a compiled network: full chunks only
    torch.testing.assert_close(parts.log_probabilities(images, pixels, index=index), expected, rtol=0, atol=2e-5)


def test_a_cnn_is_compiled_for_one_number_of_glimpses(monkeypatch):
    shapes = set()

    def noting(function, dynamic):
        assert dynamic is False

        def call(*inputs):
            shapes.add(tuple(part.shape for part in inputs))
            return function(*inputs)

        return call

    monkeypatch.setattr(torch, "compile", noting)
    images, pixels, index = queries(number=6)
    plain, model = posterior("cnn"), posterior("cnn", chunk=6, compiled=True)
    for t in range(4):
        torch.testing.assert_close(
            model.log_probabilities(images, pixels[:, :t], index=index),
            plain.log_probabilities(images, pixels[:, :t], index=index),
            rtol=0, atol=2e-5,
        )  # fmt: skip
    for t in range(3):
        torch.testing.assert_close(
            model.look_ahead(images, pixels[:, :t], GRID.pixels[:4], index=index),
            plain.look_ahead(images, pixels[:, :t], GRID.pixels[:4], index=index),
            rtol=0, atol=2e-5,
        )  # fmt: skip
    assert len(shapes) == 1


@pytest.mark.parametrize("name", ["linear", "cnn"])
def test_bfloat16_answers_are_normalised_float32(name):
    images, pixels, index = queries()
    found = posterior(name, precision="bfloat16").log_probabilities(images, pixels, index=index)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.exp().sum(-1), 1, rtol=1e-6)
    exact = posterior(name).log_probabilities(images, pixels, index=index)
    assert (found - exact).abs().max() < 0.2
    assert (found - exact).abs().max() > 0  # it did run in bfloat16


def test_temperature_follows_the_number_of_distinct_glimpses():
    model = posterior("linear")
    images, pixels, index = queries()
    logits = model.logits(images, pixels, index=index)[:, :3]
    torch.testing.assert_close(
        model.log_probabilities(images, pixels, index=index)[:, 0], torch.log_softmax(2.0 * logits, -1)
    )
    again = pixels[:, [0, 0, 1, 1, 0]]  # two locations
    logits = model.logits(images, again, index=index)[:, :3]
    torch.testing.assert_close(
        model.log_probabilities(images, again, index=index)[:, 0], torch.log_softmax(1.5 * logits, -1)
    )


def test_cnn_sees_normalised_pixels_times_mask_and_the_mask():
    network = Architecture(CONFIGS["cnn"], GRID, 3, HEAD).build()
    given = []
    network.network.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
    images, pixels, index = queries()
    network(network.read(images, pixels, index), pixels, torch.ones(6, 3, dtype=torch.bool))
    seen = mask(pixels, glimpse=8, height=36, width=40)
    expected = (images[index] / 255 - torch.tensor(MEAN)) / torch.tensor(STD) * seen[..., None]
    torch.testing.assert_close(given[0][:, :3], expected.permute(0, 3, 1, 2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(given[0][:, 3], seen.float())
    assert (network.network.conv1.weight[:, 3] == 0).all()


def test_glimpse_tokens_read_the_patches_in_order():
    network = Architecture(CONFIGS["linear"], GRID, 3, HEAD).build()
    images, pixels, index = queries()
    glimpse = cut(images, pixels[0, :1], glimpse=8, index=index[:1])
    expected = torch.stack(
        [
            network.stem.project(
                ((glimpse[0, r : r + 4, c : c + 4] / 255 - torch.tensor(MEAN)) / torch.tensor(STD)).flatten()
            )
            for r in (0, 4)
            for c in (0, 4)
        ]
    )
    torch.testing.assert_close(network.stem(glimpse)[0], expected, rtol=1e-4, atol=1e-5)
    assert network.centres.tolist() == [[2, 2], [2, 6], [6, 2], [6, 6]]


@pytest.mark.parametrize("backbone", ["densenet121", "mobilenet_v2", "vgg11"])
def test_backbone_by_name(backbone):
    config = PosteriorConfig(kind="cnn", backbone=backbone, pooled=backbone == "vgg11")
    network = Architecture(config, GRID, 3, HEAD).build().eval()
    images, pixels, index = queries(number=2)
    assert network(network.read(images, pixels, index), pixels, torch.ones(2, 3, dtype=torch.bool)).shape == (2, 5)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"backbone": "densenet12"}, "no model 'densenet12' for posterior.backbone; did you mean 'densenet121'?"),
        ({"backbone": "vit_b_16"}, "'vit_b_16' can't read images of 36 x 40 px"),
        ({"backbone": "squeezenet1_1"}, "does not end in a linear layer"),
        ({"backbone": "resnet18", "pooled": True}, "posterior.pooled is for backbones with features"),
        ({"kind": "tokens", "token": 3}, "posterior.token must divide the glimpse of 8 px, but is 3 px"),
        ({"kind": "tokens", "stem": "vgg", "stem_layers": 10, "token": 4}, "features 8 px apart"),
    ],
)
def test_network_that_cannot_be_is_refused_with_a_sentence(fields, sentence):
    config = PosteriorConfig(**{"kind": "cnn", **fields})
    with pytest.raises(InputError) as error:
        Architecture(config, GRID, 3, HEAD).build()
    assert sentence in str(error.value)


def weights_of(network):
    return {name: value.clone() + 1 for name, value in network.network.state_dict().items()}


def original(network):
    """As torchvision would store it: three input channels."""
    weights = weights_of(network)
    weights["conv1.weight"] = weights["conv1.weight"][:, :3]
    weights["fc.weight"], weights["fc.bias"] = torch.zeros(1000, 512), torch.zeros(1000)
    return weights


def test_cnn_starts_from_a_file_with_torchvisions_names(tmp_path):
    network = Architecture(CONFIGS["cnn"], GRID, 3, HEAD).build()
    weights = original(network)
    save_tensors(tmp_path / "w.safetensors", {name: value.half() for name, value in weights.items()})
    head = network.network.fc.weight.clone()
    loaded = network.load(str(tmp_path / "w.safetensors"))
    torch.testing.assert_close(network.network.conv1.weight[:, :3], weights["conv1.weight"].half().float())
    assert (network.network.conv1.weight[:, 3] == 0).all()
    torch.testing.assert_close(network.network.fc.weight, head)  # the last layer stays new
    assert "network.conv1.weight" in loaded
    assert "network.fc.weight" not in loaded


def test_partial_file_is_taken_only_where_said(tmp_path):
    path = tmp_path / "w.safetensors"
    network = Architecture(CONFIGS["cnn"], GRID, 3, HEAD).build()
    weights = {name: value for name, value in original(network).items() if not name.startswith("layer4")}
    save_tensors(path, weights)
    with pytest.raises(InputError, match=r"lacks 'layer4.*--posterior.partial"):
        network.load(str(path))
    config = CONFIGS["cnn"].model_copy(update={"partial": True})
    partly = Architecture(config, GRID, 3, HEAD).build()
    before = partly.network.layer4[0].conv1.weight.clone()
    loaded = partly.load(str(path))
    torch.testing.assert_close(partly.network.layer3[0].conv1.weight, weights["layer3.0.conv1.weight"])
    torch.testing.assert_close(partly.network.layer4[0].conv1.weight, before)
    assert not any("layer4" in name for name in loaded)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("layer1.0.conv1.weight", torch.zeros(2, 2), r"'layer1.0.conv1.weight' has the shape \[2, 2\]"),
        ("layer9.weight", torch.zeros(1), "holds 'layer9.weight', which is not a weight of this network"),
    ],
)
def test_strange_weights_are_refused_by_name(tmp_path, name, value, sentence):
    network = Architecture(CONFIGS["cnn"], GRID, 3, HEAD).build()
    save_tensors(tmp_path / "w.safetensors", {**original(network), name: value})
    with pytest.raises(InputError, match=sentence):
        network.load(str(tmp_path / "w.safetensors"))


def test_scaled_stem_sees_the_glimpse_as_pillow_enlarges_it():
    plain = VGGStem(16, 16, layers=3)
    scaled = VGGStem(8, 16, layers=3, scale=2)
    scaled.load_state_dict(plain.state_dict())
    glimpses = torch.randint(256, (2, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pictures = [Image.fromarray(glimpse.numpy()) for glimpse in glimpses]
    large = np.stack([np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR)) for picture in pictures])
    tokens = scaled(glimpses)
    assert tokens.shape == (2, 4, 16)
    assert torch.allclose(tokens, plain(torch.from_numpy(large)), atol=0.02)  # Pillow rounds to whole grey levels
    assert not torch.allclose(tokens, plain(torch.from_numpy(large[:, ::-1].copy())), atol=0.02)


def test_stem_starts_from_the_first_layers_of_a_vgg_file(tmp_path):
    network = Architecture(CONFIGS["vgg"], GRID, 3, HEAD).build()
    weights = {f"features.{n}.weight": torch.randn(s) for n, s in ((0, (64, 3, 3, 3)), (2, (64, 64, 3, 3)))}
    weights |= {"features.5.weight": torch.randn(128, 64, 3, 3), "features.7.weight": torch.randn(128, 128, 3, 3)}
    weights |= {f"features.{n}.bias": torch.randn(size) for n, size in ((0, 64), (2, 64), (5, 128), (7, 128))}
    save_tensors(tmp_path / "vgg.safetensors", weights)
    loaded = network.load(str(tmp_path / "vgg.safetensors"))
    torch.testing.assert_close(network.stem.features[5].weight, weights["features.5.weight"])
    assert loaded == {f"stem.features.{n}.{part}" for n in (0, 2, 5) for part in ("weight", "bias")}
    assert len(network.stem.features) == 7  # conv, relu, conv, relu, pool, conv, relu


GRAPH = """
import torch
from nogs.data.task import LabelSpace
from nogs.glimpse import Grid
from nogs.posterior import imagenet
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.labels import Head
from nogs.posterior.network import Architecture
from nogs.posterior.queries import strata
from nogs.posterior.stems import VGGStem

torch.set_num_threads(1)
grid, head = Grid.spaced(image=36, glimpse=8, spacing=4), Head(LabelSpace("categorical", ("a", "b")))
for fields in ({"width": 32, "layers": 2}, {"kind": "cnn", "backbone": "resnet18"}):
    network = Architecture(PosteriorConfig(**fields), grid, 3, head).build().eval()
    images = torch.randint(0, 256, (8, 36, 36, 3), dtype=torch.uint8)
    pixels, index = torch.randint(0, 28, (8, 3, 2)), torch.arange(8)
    observed, seen = torch.ones(8, 3, dtype=torch.bool), network.read(images, pixels, index)
    prepared, last = network.prepare(images, pixels[:, :2], index), network.read(images, pixels[:, 2:], index)
    options = {"backend": "eager", "fullgraph": True, "dynamic": False}
    with torch.no_grad():
        for function, given in (
            (network, (seen, pixels, observed, strata(8, 3))),
            (network.extend, (prepared, last, pixels, observed)),
        ):
            torch.testing.assert_close(torch.compile(function, **options)(*given), function(*given))
print("one graph")
"""


def test_networks_are_one_graph_for_the_compiler():
    # a separate process, since the compiler can't handle the run-time checks of shapes
    run = subprocess.run([sys.executable, "-c", GRAPH], capture_output=True, text=True, check=False)
    assert run.stdout == "one graph\n", run.stderr[-2000:]


def test_a_server_that_does_not_answer_is_given_up_soon(monkeypatch):
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        began = time.monotonic()
        assert not imagenet.reachable(address, seconds=0.3)
        assert time.monotonic() - began < 2
    assert not imagenet.reachable("http://127.0.0.1:9/file", seconds=2)


def test_stored_weights_are_found_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert not imagenet.obtain(tmp_path)[0]
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    (tmp_path / "hub" / "checkpoints" / "vgg16-397923af.pth").touch()
    there, line = imagenet.obtain(tmp_path)
    assert there
    assert line.startswith("The posterior starts from ImageNet's features (vgg16 of torchvision)")
