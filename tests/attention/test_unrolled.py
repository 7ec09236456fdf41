"""The function that trains on a CPU against the same glimpses step by step with autograd's gradients."""

from dataclasses import replace

import pytest
import torch

from nogs.attention.architecture import Architecture
from nogs.attention.network import Networks
from nogs.attention.objective import objective
from nogs.glimpse import Grid

SMALL = Architecture(
    Grid.spaced(image=(24, 28), glimpse=8, spacing=4), glimpses=3, labels=4, hidden=10, embedding=12, location_hidden=7
)
VARIANTS = {
    "small": SMALL,
    "odd glimpse": replace(SMALL, grid=Grid.even(image=30, glimpse=13, count=(3, 4))),
    "smallest glimpse, one location": replace(SMALL, grid=Grid.even(image=20, glimpse=7, count=1)),
    "one glimpse": replace(SMALL, glimpses=1, labels=2),
    "the paper's": Architecture(Grid.celeba_hq(), glimpses=5, labels=2),
}
FIELDS = ("log_probabilities", "baselines", "logits")


def networks_of(architecture, *, number=1):
    """Networks whose policies are far from uniform, so that a wrong draw is noticed."""
    networks = Networks(architecture, seeds=range(number))
    with torch.no_grad():
        for parameter in networks.policy_parameters.values():
            parameter.mul_(3)
        networks.core_parameters["initial_state"].uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return networks


def batch_of(architecture, *, networks=1, batch=6, flips=0.5):
    """Arguments of `Networks.forward`, with a supervised row, and labels."""
    stream = torch.Generator().manual_seed(0)
    grid, shape = architecture.grid, (networks, batch, architecture.glimpses)
    images = torch.randint(256, (9, grid.height, grid.width, 3), generator=stream, dtype=torch.uint8)
    forced = torch.full(shape, -1)
    forced[:, 1] = torch.randint(len(grid), shape[::2], generator=stream)
    given = {
        "rows": torch.randint(9, shape[:2], generator=stream),
        "uniforms": torch.rand(shape, generator=stream),
        "forced": forced,
        "flip": torch.rand(shape[:2], generator=stream) < flips,
    }
    return images, given, torch.randint(architecture.labels, shape[:2], generator=stream)


def losses(rollout, labels):
    return objective(rollout, labels, supervised=torch.arange(labels.shape[1]).expand_as(labels) == 1, weight=2.0)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("left_out", [(), ("flip",), ("forced",), ("uniforms",)])
def test_unrolled_looks_and_their_gradients_are_those_of_single_steps(name, number, left_out):
    images, given, labels = batch_of(VARIANTS[name], networks=number)
    given |= dict.fromkeys(left_out)
    together, apart = (networks_of(VARIANTS[name], number=number) for _ in range(2))
    assert together.can_unroll(images)
    unrolled, stepped = together(images, **given), apart(images, **given, entropies=True)
    assert unrolled.entropies is None
    assert torch.equal(unrolled.locations, stepped.locations)
    for field in FIELDS:
        torch.testing.assert_close(getattr(unrolled, field), getattr(stepped, field), rtol=1e-5, atol=2e-6)
    for rollout in (unrolled, stepped):
        losses(rollout, labels).total.sum().backward()
    for (part, mine), theirs in zip(together.named_parameters(), apart.parameters()):
        largest = theirs.grad.abs().max().item()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5 * largest + 1e-6, msg=part)


def test_each_loss_reaches_its_own_parameters_and_no_others():
    images, given, labels = batch_of(SMALL)
    networks = networks_of(SMALL)
    parts = losses(networks(images, **given), labels)
    locate = {"locate1_weight", "locate1_bias", "locate2_weight", "locate2_bias"}
    baseline = {"baseline_weight", "baseline_bias"}
    everything = {name.split(".")[1] for name, _ in networks.named_parameters()}
    expected = {"reinforce": locate, "supervision": locate, "baseline": baseline}
    for loss, reached in {**expected, "classification": everything - locate - baseline}.items():
        networks.zero_grad()
        getattr(parts, loss).sum().backward(retain_graph=True)
        found = {name.split(".")[1] for name, p in networks.named_parameters() if p.grad is not None}
        assert found == reached, loss


def test_gradients_can_be_asked_for_twice():
    images, given, labels = batch_of(SMALL)
    networks = networks_of(SMALL)
    total = losses(networks(images, **given), labels).total.sum()
    once, twice = (torch.autograd.grad(total, list(networks.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, twice))


def test_a_forced_location_that_is_all_but_impossible_has_a_finite_loss():
    images, given, labels = batch_of(SMALL)
    networks = networks_of(SMALL)
    location = 11
    given["forced"][:, 1] = location
    with torch.no_grad():
        networks.policy_parameters["locate2_bias"][0, location] = -300  # its probability rounds to zero
    rollout = networks(images, **given)
    assert (rollout.log_probabilities[0, 1] < -250).all()
    losses(rollout, labels).total.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in networks.parameters())
    assert (rollout.locations[0, [0, 2, 3, 4, 5]] != location).all()  # and is not drawn


def test_a_certain_location_is_always_drawn():
    images, given, _ = batch_of(SMALL, batch=200)
    networks = networks_of(SMALL)
    with torch.no_grad():
        networks.policy_parameters["locate2_bias"][0, 29] = 500
    given["forced"] = None
    given["uniforms"][0, :3] = torch.tensor([[0.0], [0.5], [1 - 2.0**-24]])
    rollout = networks(images, **given)
    assert (rollout.locations == 29).all()
    assert torch.equal(rollout.log_probabilities, torch.zeros(1, 200, 3))


def test_what_it_does_not_know_is_left_to_single_steps():
    images, *_ = batch_of(SMALL)
    assert not Networks(replace(SMALL, embedder="release")).can_unroll(images)
    networks = Networks(SMALL)
    assert networks.can_unroll(images)
    with torch.no_grad():
        assert not networks.can_unroll(images)
    networks.core_parameters.requires_grad_(False)
    assert not networks.can_unroll(images)
    networks = Networks(SMALL)
    networks.embed = lambda *_: torch.zeros(1, 6, 12)
    assert not networks.can_unroll(images)
