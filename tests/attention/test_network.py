import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.attention.objective import objective
from nogs.glimpse import Grid, mask
from nogs.runtime.errors import InputError
from toy_attention import PlainNetwork

GRID = Grid.spaced(image=(24, 28), glimpse=8, spacing=4)  # 5 x 6
SMALL = Architecture(GRID, glimpses=3, labels=4, hidden=10, embedding=12, location_hidden=7)
VARIANTS = {
    "paper": SMALL,
    "release": replace(SMALL, embedder="release"),
    "one glimpse, two labels": replace(SMALL, glimpses=1, labels=2),
    "odd glimpse": replace(SMALL, grid=Grid.even(image=30, glimpse=13, count=(3, 4))),
    "smallest glimpse, one location": replace(SMALL, grid=Grid.even(image=20, glimpse=7, count=1)),
    "the paper's": Architecture(Grid.celeba_hq(), glimpses=2, labels=2),
}


def world(architecture, *, networks=1, batch=6, count=9):
    """Images, the batch's rows, uniform numbers, flips and labels."""
    random = np.random.default_rng(3)
    grid = architecture.grid
    images = torch.from_numpy(random.integers(0, 256, (count, grid.height, grid.width, 3), dtype=np.uint8))
    rows = torch.from_numpy(random.integers(0, count, (networks, batch)))
    uniforms = torch.from_numpy(random.random((networks, batch, architecture.glimpses), dtype=np.float32))
    flip = torch.from_numpy(random.random((networks, batch)) < 0.5)
    labels = torch.from_numpy(random.integers(0, architecture.labels, (networks, batch)))
    return images, rows, uniforms, flip, labels


def total(rollout, labels):
    """Every loss at once, with the first half of the batch supervised."""
    supervised = torch.arange(labels.shape[1]).expand_as(labels) < labels.shape[1] // 2
    return objective(rollout, labels, supervised=supervised, weight=2.0).total.sum()


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("networks", [1, 2])
@pytest.mark.parametrize("entropies", [True, False])  # step by step, and unrolled where that is possible
def test_network_is_the_one_that_torch_layers_make(name, networks, entropies):
    architecture = VARIANTS[name]
    ours = Networks(architecture, seeds=range(networks))
    images, rows, uniforms, flip, labels = world(architecture, networks=networks)
    with torch.no_grad():
        for parameter in ours.policy_parameters.values():  # far from uniform, so that a wrong draw shows
            parameter.mul_(3)
    rollout = ours(images, rows, uniforms=uniforms, flip=flip, entropies=entropies)
    total(rollout, labels).backward()
    for m in range(networks):
        plain = PlainNetwork(ours, m)
        slow = plain(images[rows[m]].numpy(), uniforms=uniforms[m], flip=flip[m])
        assert rollout.locations[m].tolist() == slow.locations[0].tolist()
        for field in ("log_probabilities", "baselines", "logits", *(["entropies"] if entropies else [])):
            torch.testing.assert_close(getattr(rollout, field)[m], getattr(slow, field)[0], rtol=1e-4, atol=1e-5)
        total(slow, labels[m : m + 1]).backward()
        for mine, theirs in plain.pairs(ours):
            torch.testing.assert_close(mine.grad[m], theirs.grad, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["paper", "release"])
def test_stacked_networks_equal_each_alone(name):
    architecture = VARIANTS[name]
    images, rows, uniforms, flip, labels = world(architecture, networks=3)
    together = Networks(architecture, seeds=[5, 0, 9])
    rollout = together(images, rows, uniforms=uniforms, flip=flip)
    total(rollout, labels).backward()
    for m, seed in enumerate([5, 0, 9]):
        alone = Networks(architecture, seeds=[seed])
        part = slice(m, m + 1)
        single = alone(images, rows[part], uniforms=uniforms[part], flip=flip[part])
        total(single, labels[part]).backward()
        assert torch.equal(rollout.locations[part], single.locations)
        torch.testing.assert_close(rollout.logits[part], single.logits, rtol=1e-5, atol=1e-6)
        for (name, stacked), parameter in zip(together.named_parameters(), alone.parameters()):
            assert torch.equal(stacked[part], parameter), name
            torch.testing.assert_close(stacked.grad[part], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["paper", "odd glimpse", "the paper's"])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("entropies", [True, False])
def test_pixels_outside_of_the_glimpses_change_nothing(name, mirrored, entropies):
    architecture = VARIANTS[name]
    grid = architecture.grid
    networks = Networks(architecture, seeds=[0, 1])
    images, rows, uniforms, _, labels = world(architecture, networks=2)
    rows[:] = torch.arange(6)
    rows[1] = 5 - rows[1]
    flip = torch.full(rows.shape, mirrored)
    before = networks(images, rows, uniforms=uniforms, flip=flip, entropies=entropies)
    seen = torch.zeros(images.shape[:3], dtype=torch.bool)
    for m, b in np.ndindex(*rows.shape):
        there = mask(grid.pixels[before.locations[m, b]], glimpse=grid.glimpse, height=grid.height, width=grid.width)
        seen[rows[m, b]] |= there.flip(1) if mirrored else there
    changed = torch.where(seen[..., None], images, 255 - images)
    assert (changed != images).any((1, 2, 3)).all()
    after = networks(changed, rows, uniforms=uniforms, flip=flip, entropies=entropies)
    for field in ("locations", "log_probabilities", "baselines", "logits", *(["entropies"] if entropies else [])):
        assert torch.equal(getattr(before, field), getattr(after, field)), field
    gradients = []
    for rollout in (before, after):
        networks.zero_grad()
        total(rollout, labels).backward()
        gradients.append([parameter.grad.clone() for parameter in networks.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients))


@pytest.mark.parametrize("mirrored", [False, True])
def test_every_pixel_inside_the_last_glimpse_matters(mirrored):
    networks = Networks(SMALL)
    with torch.no_grad():  # smooth enough that no unit is silent
        networks.core_parameters["place2_bias"].fill_(5.0)
        networks.embed_parameters["conv1_bias"].fill_(5.0)
        networks.embed_parameters["conv2_bias"].fill_(5.0)
    images, rows, uniforms, _, _ = world(SMALL, batch=1)
    flip = torch.full(rows.shape, mirrored)
    before = networks(images, rows, uniforms=uniforms, flip=flip)
    row, column = GRID.pixels[before.locations[0, 0, -1]].tolist()
    if mirrored:
        column = GRID.width - GRID.glimpse - column
    changed = []
    for r, c in np.ndindex(GRID.glimpse, GRID.glimpse):
        other = images.clone()
        other[rows[0, 0], row + r, column + c] ^= 128
        after = networks(other, rows, uniforms=uniforms, flip=flip)
        changed.append(not torch.equal(before.logits, after.logits))
    # 8 px: convolutions reach the first 7 rows and columns, of whose 2 x 2 results the pool takes the largest
    assert sum(changed) >= 7 * 7 - 14


def test_location_and_baseline_networks_send_no_gradient_into_the_state():
    networks = Networks(SMALL)
    images, rows, uniforms, _, _ = world(SMALL)
    rollout = networks(images, rows, uniforms=uniforms, entropies=True)
    (rollout.log_probabilities.sum() + rollout.baselines.sum() + rollout.entropies.sum()).backward()
    for part in (networks.embed_parameters, networks.core_parameters):
        assert all(parameter.grad is None for parameter in part.values())
    assert all(parameter.grad.abs().max() > 0 for parameter in networks.policy_parameters.values())


def test_forced_locations_are_followed_and_the_others_drawn():
    networks = Networks(SMALL)
    images, rows, uniforms, _, _ = world(SMALL)
    forced = torch.full((1, 6, 3), -1)
    forced[0, 1], forced[0, 4, 2] = torch.tensor([3, 29, 0]), 17
    free = networks(images, rows, uniforms=uniforms)
    rollout = networks(images, rows, uniforms=uniforms, forced=forced)
    assert rollout.locations[0, 1].tolist() == [3, 29, 0]
    assert rollout.locations[0, 4].tolist() == [*free.locations[0, 4, :2].tolist(), 17]
    others = [0, 2, 3, 5]
    assert torch.equal(rollout.locations[0, others], free.locations[0, others])
    slow = PlainNetwork(networks)(images[rows[0]].numpy(), uniforms=uniforms[0], forced=forced[0])
    torch.testing.assert_close(rollout.logits, slow.logits)
    torch.testing.assert_close(rollout.log_probabilities, slow.log_probabilities)


def test_forced_locations_need_no_uniform_numbers_and_the_rest_is_then_greedy():
    networks = Networks(SMALL)
    images, rows, _, _, _ = world(SMALL)
    forced = torch.full((1, 6, 3), -1)
    forced[0, 2] = torch.tensor([3, 29, 0])
    greedy = networks(images, rows)
    mixed = networks(images, rows, forced=forced)
    assert mixed.locations[0, 2].tolist() == [3, 29, 0]
    others = [0, 1, 3, 4, 5]
    assert torch.equal(mixed.locations[0, others], greedy.locations[0, others])
    torch.testing.assert_close(greedy.logits, PlainNetwork(networks)(images[rows[0]].numpy(), uniforms=None).logits)


@pytest.mark.parametrize("embedder", ["paper", "release"])
def test_initial_weights_have_the_spread_of_torch_layers_and_depend_on_the_seed_alone(embedder):
    architecture = Architecture(Grid.celeba_hq(), glimpses=5, labels=2, embedder=embedder)
    networks = Networks(architecture, seeds=[1, 2, 1])
    torch.manual_seed(0)
    fresh = PlainNetwork(networks)
    for module in fresh.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for ours, plain in fresh.pairs(networks):
        assert torch.equal(ours[0], ours[2])
        if plain is fresh.initial or ours[0].numel() < 2 or ours[0].std() == 0:
            continue
        assert not torch.equal(ours[0], ours[1])
        bound, theirs = ours[0].abs().max(), plain.detach().abs().max()
        slack = 1.5 if ours[0].numel() < 64 else 1.2
        assert theirs / slack < bound < theirs * slack


def test_first_state_is_one_standard_normal_draw_for_each_seed_or_zeros_by_choice():
    large = Architecture(GRID, glimpses=3, labels=4, hidden=4000)
    ordered = Networks(large, seeds=[1, 2]).core_parameters["initial_state"].detach().sort(-1).values
    quantiles = torch.special.ndtri((torch.arange(4000) + 0.5) / 4000)
    assert (ordered - quantiles)[:, 200:-200].abs().max() < 0.12
    small = Architecture(GRID, glimpses=3, labels=4, hidden=40)
    first = Networks(small, seeds=[1, 2, 1]).core_parameters["initial_state"]
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1:2], Networks(small, seeds=[2]).core_parameters["initial_state"])
    assert not torch.allclose(first[0], first[1], atol=0.1)
    zeros = Networks(small, seeds=[1, 2], initial_state="zeros")
    assert torch.equal(zeros.core_parameters["initial_state"], torch.zeros(2, 40))
    assert torch.equal(
        zeros.core_parameters["input_weight"], Networks(small, seeds=[1, 2]).core_parameters["input_weight"]
    )


@pytest.mark.parametrize(("start", "least", "most"), [("normal", 0.9, 1.0), ("zeros", 0.0, 0.02)])
def test_first_location_learns_from_a_normal_first_state_and_hardly_from_zeros(start, least, most):
    """One constant target with the paper's CUB sizes and step size, 640 iterations."""
    birds = Grid.spaced(image=128, glimpse=32, spacing=8)
    networks = Networks(Architecture(birds, glimpses=5, labels=2, hidden=1024), initial_state=start)
    optimizer = torch.optim.Adam(networks.policy_parameters.parameters(), lr=5e-5)
    for _ in range(640):
        log_probabilities = networks.location_logits(networks.start(1)).log_softmax(-1)
        optimizer.zero_grad()
        (-log_probabilities[0, 0, 84]).backward()
        optimizer.step()
    assert least <= log_probabilities[0, 0, 84].exp().item() <= most


def test_too_small_glimpse_is_refused():
    grid = Grid.spaced(image=24, glimpse=6, spacing=6)
    with pytest.raises(InputError, match=r"A glimpse of 6 px is too small .* at least 7 px"):
        Networks(replace(SMALL, grid=grid))


@pytest.mark.parametrize("name", VARIANTS)
def test_architecture_survives_json(name):
    assert Architecture.from_json(json.loads(json.dumps(VARIANTS[name].to_json()))) == VARIANTS[name]
