"""Pretrained networks: the VGG embedder, the table of embeddings, and location networks on frozen ones."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torchvision.models import vgg16, vgg19

from nogs.attention.architecture import Architecture
from nogs.attention.bounds import whole_image
from nogs.attention.cohort import Cohort, Member
from nogs.attention.config import AttentionConfig
from nogs.attention.embedders import VGGEmbedder
from nogs.attention.frozen import Direct, Table, worth_a_table
from nogs.attention.network import Networks
from nogs.attention.trainer import Trainer
from nogs.attention.trunks import Frozen, trunks_of
from nogs.glimpse import Grid, cut
from nogs.posterior.imagenet import find_weights, weights_file
from nogs.recipes import recipe, validated
from nogs.runtime.errors import InputError
from nogs.runtime.tensors import save_tensors
from nogs.supervision import LocationDistribution
from toy_attention import advance, toy_sequences, toy_task

CPU = torch.device("cpu")
CONFIG = AttentionConfig(
    hidden=12, embedding=16, batch=8, iterations=24, validate_every=4, trajectories=2,
    learning_rate=3e-3, pretrain_epochs=3, cache="always",
)  # fmt: skip


def members(task, glimpses=3):
    """Four networks on two trunks of one seed and one of another."""
    uniform = LocationDistribution.uniform(task.grid)
    heuristic = LocationDistribution.heuristic(np.linspace(0, 1, len(task.grid)), inverse_temperature=2.0)
    sequences = toy_sequences(task, task.splits["train"][:10], glimpses=glimpses)
    return [
        Member("ram", pretraining=uniform),
        Member("ps-nogs", sequences=sequences, pretraining=heuristic),
        Member("ram+", pretraining=heuristic),
        Member("ram+", seed=1, pretraining=heuristic),
    ]


def frozen_for(task, networks, config=CONFIG):
    """Untrained trunks, one for each pretraining."""
    trunks, numbers = trunks_of(networks)
    labels = len(task.space.names)
    architecture = Architecture.of(config, grid=task.grid, glimpses=3, labels=labels)
    made = [Networks(architecture, seeds=[10 + n]).requires_grad_(False) for n in range(len(trunks))]
    return Frozen(trunks, numbers, made)


def trainer(cache, task, config=CONFIG):
    config = config.model_copy(update={"cache": cache})
    networks = members(task)
    return Trainer(task, networks, config=config, glimpses=3, device=CPU, frozen=frozen_for(task, networks, config))


def whole(made, m):
    """Network m with all its parts, as a network of its own."""
    out = Networks(made.networks.architecture)
    trunk = made.frozen.networks[made.frozen.numbers[m]].state_dict()
    below = {name: value for name, value in trunk.items() if not name.startswith("policy_parameters")}
    own = {name: p[m : m + 1] for name, p in made.networks.state_dict().items() if name.startswith("policy_parameters")}
    out.load_state_dict({**below, **own})
    return out


@pytest.mark.parametrize("embedder", ["paper", "vgg"])
def test_cached_direct_and_plain_networks_have_the_same_logits(embedder):
    config = CONFIG.model_copy(update={"embedder": embedder})
    task = toy_task(count=20, size=32, glimpse=16, spacing=16)
    cached, direct = trainer("always", task, config), trainer("never", task, config)
    assert isinstance(cached.networks.embed, Table)
    assert isinstance(direct.networks.embed, Direct)
    cached.cohort.start_epoch(0)
    batch = cached.cohort.draw(torch.tensor(0))
    assert batch.flip.any()
    assert not batch.flip.all()
    assert batch.supervised.any()
    given = {"uniforms": batch.uniforms, "forced": batch.forced, "flip": batch.flip, "entropies": True}
    one = cached.networks(cached.cohort.images, batch.rows, **given)
    other = direct.networks(cached.cohort.images, batch.rows, **given)
    for name in ("locations", "log_probabilities", "logits", "baselines", "entropies"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-4, atol=1e-5)
    for m in range(len(cached.members)):
        parts = {name: value[m : m + 1] if torch.is_tensor(value) else value for name, value in given.items()}
        alone = whole(cached, m)(cached.cohort.images, batch.rows[m : m + 1], **parts)
        assert torch.equal(alone.locations[0], one.locations[m])
        torch.testing.assert_close(alone.logits[0], one.logits[m], rtol=1e-4, atol=1e-5)


def test_training_with_and_without_the_table_is_the_same_and_leaves_the_trunk_alone():
    task = toy_task()
    cached, direct = trainer("always", task), trainer("never", task)
    before = {name: p.clone() for name, p in cached.networks.core_parameters.items()}
    advance(cached, 5)
    advance(direct, 5)
    assert all(torch.equal(p, before[name]) for name, p in cached.networks.core_parameters.items())
    assert set(cached.learned) == {f"policy_parameters.{name}" for name in cached.networks.policy_parameters}
    for name, parameter in cached.learned.items():
        torch.testing.assert_close(parameter, direct.learned[name], rtol=1e-3, atol=1e-5)
    moved = (
        cached.networks.policy_parameters["locate2_bias"]
        - trainer("always", task).networks.policy_parameters["locate2_bias"]
    )
    learns = moved.abs().amax(1) > 0
    assert learns.all()


def test_table_holds_every_glimpse_of_every_image_plain_and_mirrored():
    task = toy_task(count=20)
    made = trainer("always", task)
    table, trunk = made.networks.embed, made.frozen.networks[0]
    assert table.table.shape == (3, 20 + 12, len(task.grid), 16)
    for row, flip in ((3, False), (3, True), (15, False)):
        for location in (0, 4):
            image = made.cohort.images[row][None]
            shown = image.flip(2) if flip else image
            glimpse = cut(shown, task.grid.pixels[location][None], glimpse=task.grid.glimpse)
            expected = trunk.embedder(trunk.embed_parameters, glimpse[None])[0, 0]
            found = table(None, torch.full((4, 1), row), torch.full((4, 1), location), torch.full((4, 1), flip))[0, 0]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_table_is_made_where_it_saves_work():
    task = toy_task()
    cohort = Cohort(task, members(task), glimpses=3, batch=8, flip=True, device=CPU)

    def decide(**fields):
        config = CONFIG.model_copy(update=fields)
        return worth_a_table(config, cohort, trunks=3, width=16)

    assert decide(cache="always", iterations=1)
    assert not decide(cache="never", iterations=10_000)
    assert decide(cache="auto", iterations=10_000)
    assert not decide(cache="auto", iterations=1)
    assert not worth_a_table(
        CONFIG.model_copy(update={"cache": "auto", "iterations": 10**6}), cohort, trunks=3, width=10**9
    )


def test_location_rate_is_the_step_size_of_all_that_learns_on_frozen_parts():
    task = toy_task()
    made = trainer("always", task, CONFIG.model_copy(update={"location_rate": 4.0}))
    before = {name: value.detach().clone() for name, value in made.networks.named_parameters()}
    advance(made, 1)
    moved = {name: (value - before[name]).abs().max().item() for name, value in made.networks.named_parameters()}
    for name, distance in moved.items():
        expected = 4 * 3e-3 if name.startswith("policy_parameters.") else 0
        assert distance == pytest.approx(expected, rel=1e-3), name


def test_whole_image_is_told_by_features_that_show_the_class():
    task = toy_task(count=60)
    cohort = Cohort(task, members(task), glimpses=3, batch=8, flip=True, device=CPU)
    slots = torch.zeros(2, 60, dtype=torch.int64)
    slots[0, task.rows("train")] = torch.arange(36)
    slots[0, task.rows("validation")] = 36 + torch.arange(12)
    slots[0, task.rows("test")] = 48 + torch.arange(12)
    labels = torch.from_numpy(task.labels)
    order = torch.cat([torch.from_numpy(task.rows(split)) for split in ("train", "validation", "test", "train")])
    noise = torch.randn(len(order), len(task.grid), 3, generator=torch.Generator().manual_seed(0))
    clear = 2 * torch.nn.functional.one_hot(labels[order], 3)[:, None] + 0.1 * noise
    for features, expected in ((clear, True), (noise, False)):
        table = Table(features[None].contiguous(), slots=slots, trunk_of=torch.zeros(6, dtype=torch.int64))
        found = whole_image(table, cohort, 0, labels=labels)
        assert (found["test_accuracy"] == 1) == expected


def vgg_architecture(glimpse=32, network="vgg16", layers=12):
    grid = Grid.spaced(image=64, glimpse=glimpse, spacing=16)
    small = Architecture(grid, glimpses=2, labels=3, embedder="vgg", hidden=4, embedding=5)
    return replace(small, embedder_network=network, embedder_layers=layers)


@pytest.mark.parametrize(
    ("network", "make", "layers", "end"), [("vgg16", vgg16, 10, 24), ("vgg16", vgg16, 12, 28), ("vgg19", vgg19, 12, 28)]
)
def test_vgg_embedder_is_torchvisions_first_layers(tmp_path, network, make, layers, end):
    torch.manual_seed(0)
    theirs = make(weights=None).features[:end]
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in theirs) == layers
    assert sum(isinstance(layer, torch.nn.MaxPool2d) for layer in theirs) == 4
    path = tmp_path / weights_file(network)
    save_tensors(path, {f"features.{name}": value.half() for name, value in theirs.state_dict().items()})
    networks = Networks(vgg_architecture(network=network, layers=layers), seeds=[0, 1])
    assert isinstance(networks.embedder, VGGEmbedder)
    for name, value in networks.embedder.pretrained(str(path)).items():
        networks.embed_parameters[name].data.copy_(value)
    theirs.load_state_dict({name: value.half().float() for name, value in theirs.state_dict().items()})
    glimpses = torch.randint(0, 256, (2, 3, 32, 32, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    found = networks.embedder(networks.embed_parameters, glimpses)
    for m in range(2):
        pixels = ((glimpses[m] / 255 - mean) / std).permute(0, 3, 1, 2)
        features = theirs(pixels)
        assert features.shape[1:] == (512, 2, 2)
        p = networks.embed_parameters
        expected = torch.nn.functional.linear(features.flatten(1), p["project_weight"][m], p["project_bias"][m])
        torch.testing.assert_close(found[m], expected, rtol=1e-3, atol=1e-4)


def test_half_precision_of_the_convolutions_changes_little():
    networks = Networks(vgg_architecture())
    glimpses = torch.randint(0, 256, (1, 4, 32, 32, 3), dtype=torch.uint8)
    exact = networks.embedder(networks.embed_parameters, glimpses)
    networks.embedder.dtype = torch.bfloat16
    rough = networks.embedder(networks.embed_parameters, glimpses)
    assert rough.dtype == torch.float32
    assert (rough - exact).norm() < 0.05 * exact.norm()


def test_a_signal_survives_twelve_layers_of_initial_weights():
    networks = Networks(vgg_architecture())
    glimpses = torch.randint(0, 256, (1, 8, 32, 32, 3), dtype=torch.uint8)
    found = networks.embedder(networks.embed_parameters, glimpses)
    assert 0.01 < found.std(1).mean() < 10


def test_weights_that_are_not_vgg_are_refused(tmp_path):
    embedder = Networks(vgg_architecture()).embedder
    save_tensors(tmp_path / "other.safetensors", {"features.0.weight": torch.zeros(2, 3, 3, 3)})
    with pytest.raises(InputError, match=r"does not hold VGG-16: 'features.0.weight' is missing or misshapen"):
        embedder.pretrained(str(tmp_path / "other.safetensors"))
    sixteen = {f"features.{name}": value for name, value in vgg16().features.state_dict().items()}
    save_tensors(tmp_path / "vgg16.safetensors", sixteen)
    embedder.pretrained(str(tmp_path / "vgg16.safetensors"))
    nineteen = Networks(vgg_architecture(network="vgg19")).embedder
    with pytest.raises(
        InputError, match=r"not hold VGG-19: 'features.16.weight' is missing .* --attention.embedder-net"
    ):
        nineteen.pretrained(str(tmp_path / "vgg16.safetensors"))
    with pytest.raises(InputError, match="too small for the vgg embedder; use at least 16 px"):
        Networks(vgg_architecture(glimpse=8))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"embedder": "vgg", "embedder_network": "vgg19", "embedder_layers": 10}, "10 ends inside a block of VGG-19"),
        ({"embedder_layers": 10}, "are for the vgg embedder, but attention.embedder is paper"),
        ({"embedder": "release", "embedder_network": "vgg19"}, "but attention.embedder is release; set it to vgg"),
    ],
)
def test_layers_that_an_embedder_lacks_are_refused(fields, said):
    with pytest.raises(InputError, match=said):
        validated({**recipe("cub").model_dump(), "attention": {"hidden": 8, **fields}}, source="The recipe")


def test_imagenet_weights_are_those_of_the_data_folder_where_it_has_them(tmp_path):
    assert find_weights("imagenet", tmp_path) == "imagenet"
    (tmp_path / weights_file()).write_bytes(b"")
    assert find_weights("imagenet", tmp_path) == str(tmp_path / "vgg16-imagenet-conv1-12.safetensors")
    assert find_weights("imagenet", tmp_path, network="vgg19") == "imagenet"
    assert find_weights("none", tmp_path) == "none"
    assert find_weights("mine.safetensors", tmp_path) == "mine.safetensors"
    assert find_weights("imagenet", None) == "imagenet"
