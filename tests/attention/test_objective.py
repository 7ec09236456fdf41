import itertools
import math

import numpy as np
import pytest
import torch

from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Member
from nogs.attention.config import AttentionConfig
from nogs.attention.network import Networks, Rollout
from nogs.attention.objective import objective
from nogs.attention.training import Trainer
from nogs.glimpse import Grid
from toy_attention import first_batch, toy_sequences, toy_task

SEQUENCES = list(itertools.product(range(4), repeat=2))


def random_rollout(*, networks=2, batch=5, glimpses=3, labels=4):
    stream = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(networks, batch, *shape, generator=stream).requires_grad_()

    locations = torch.zeros(networks, batch, glimpses, dtype=torch.int64)
    rollout = Rollout(locations, normal(glimpses), normal(glimpses), normal(labels), normal(glimpses))
    answers = torch.randint(labels, (networks, batch), generator=stream)
    supervised = torch.rand(networks, batch, generator=stream) < 0.4
    assert 0 < supervised.sum() < supervised.numel()
    return rollout, answers, supervised


@pytest.mark.parametrize("partly", [False, True])
def test_losses_are_those_of_a_loop_over_images(partly):
    rollout, labels, supervised = random_rollout()
    weight = torch.tensor([1.0, 64.0])
    losses = objective(rollout, labels, supervised=supervised if partly else None, weight=weight)
    for m in range(2):
        sums = dict.fromkeys(("classification", "reinforce", "baseline", "supervision", "reward"), 0.0)
        for b in range(5):
            logits = rollout.logits[m, b].detach().double().numpy()
            p = np.exp(logits) / np.exp(logits).sum()
            right = p[labels[m, b]]
            gain = float(p.argmax() == labels[m, b])
            sums["classification"] -= math.log(right)
            sums["reward"] += gain
            for t in range(3):
                log_probability = rollout.log_probabilities[m, b, t].item()
                baseline = rollout.baselines[m, b, t].item()
                if partly and supervised[m, b]:
                    sums["supervision"] -= log_probability
                else:
                    sums["reinforce"] -= (gain - baseline) * log_probability
                    sums["baseline"] += (gain - baseline) ** 2 / 3
        for name, value in sums.items():
            assert getattr(losses, name)[m].item() == pytest.approx(value / 5, rel=1e-5, abs=1e-6), name
        total = sums["classification"] + sums["reinforce"] + sums["baseline"] + weight[m].item() * sums["supervision"]
        assert losses.total[m].item() == pytest.approx(total / 5, rel=1e-5)


def test_without_sequences_it_is_ram():
    rollout, labels, supervised = random_rollout()
    ram = objective(rollout, labels, supervised=None, weight=64.0)
    none = objective(rollout, labels, supervised=torch.zeros_like(supervised), weight=64.0)
    assert torch.equal(ram.total, none.total)
    assert torch.equal(ram.total, ram.classification + ram.reinforce + ram.baseline)
    assert not ram.supervision.any()


def test_weight_scales_the_supervision_and_nothing_else():
    task = toy_task()
    gradients = {}
    for weight in (0.0, 1.0, 64.0):
        member = Member("ps-nogs", sequences=toy_sequences(task, task.splits["train"][::2]), weight=weight)
        trainer = Trainer(task, [member], config=AttentionConfig(batch=24), glimpses=3, device=torch.device("cpu"))
        batch = first_batch(trainer)
        assert 0 < batch.supervised.sum() < 24
        rollout = trainer.networks(
            trainer.cohort.images, batch.rows, uniforms=batch.uniforms, forced=batch.forced, flip=batch.flip
        )
        losses = objective(rollout, batch.labels, supervised=batch.supervised, weight=trainer.weight)
        part = torch.autograd.grad(
            losses.supervision.sum(),
            [*trainer.networks.policy_parameters.values()],
            retain_graph=True,
            allow_unused=True,
        )
        losses.total.sum().backward()
        gradients[weight] = ({n: p.grad.clone() for n, p in trainer.networks.named_parameters()}, part)
    none, one, many = (gradients[weight][0] for weight in (0.0, 1.0, 64.0))
    for name, supervision in zip(trainer.networks.policy_parameters, gradients[1.0][1]):
        key = f"policy_parameters.{name}"
        if supervision is None:
            assert name.startswith("baseline")
        else:
            torch.testing.assert_close(one[key] - none[key], supervision, rtol=1e-3, atol=1e-6)
            torch.testing.assert_close(many[key] - none[key], 64 * supervision, rtol=1e-3, atol=1e-5)
    for name in none:
        if "locate" not in name:
            assert torch.equal(none[name], many[name]), name


def test_each_loss_reaches_its_own_parameters_and_no_others():
    task = toy_task()
    member = Member("ps-nogs", sequences=toy_sequences(task, task.splits["train"][::2]))
    trainer = Trainer(task, [member], config=AttentionConfig(batch=24), glimpses=3, device=torch.device("cpu"))
    batch = first_batch(trainer)
    rollout = trainer.networks(trainer.cohort.images, batch.rows, uniforms=batch.uniforms, forced=batch.forced)
    losses = objective(rollout, batch.labels, supervised=batch.supervised)
    reached = {}
    for name in ("classification", "reinforce", "supervision", "baseline"):
        trainer.networks.zero_grad()
        getattr(losses, name).sum().backward(retain_graph=True)
        found = {n.split(".")[1] for n, p in trainer.networks.named_parameters() if p.grad is not None and p.grad.any()}
        reached[name] = found
    locate = {"locate1_weight", "locate1_bias", "locate2_weight", "locate2_bias"}
    assert reached["reinforce"] == reached["supervision"] == locate
    assert reached["baseline"] == {"baseline_weight", "baseline_bias"}
    everything = {n.split(".")[1] for n, _ in trainer.networks.named_parameters()}
    assert reached["classification"] == everything - locate - reached["baseline"]
    assert not losses.reward.requires_grad


@pytest.fixture
def tiny():
    """A network on 2 x 2 locations with two glimpses, where all 16 sequences can be tried. All images are the same."""
    grid = Grid.even(image=16, glimpse=8, count=2)
    networks = Networks(Architecture(grid, glimpses=2, labels=2, hidden=6, embedding=8, location_hidden=5), seeds=[4])
    with (
        torch.no_grad()
    ):  # a policy that is not uniform, predictions that depend on the sequence, a baseline that varies
        for parameter in networks.parameters():
            parameter.mul_(2.5)
        networks.core_parameters["initial_state"].uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    random = np.random.default_rng(0)
    image = torch.from_numpy(random.integers(0, 256, (1, 16, 16, 3), dtype=np.uint8))
    every = networks(image, torch.zeros(1, 16, dtype=torch.int64), forced=torch.tensor([SEQUENCES]))
    with torch.no_grad():  # half of the sequences lead to label 1
        margin = (every.logits[..., 1] - every.logits[..., 0]).median()
        networks.core_parameters["classify_bias"][0, 1] -= margin
    return networks, image


def policy_gradient(networks, loss):
    parameters = [p for n, p in networks.policy_parameters.items() if n.startswith("locate")]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)]).double()


def exact(networks, image):
    """Probability and reward of all 16 sequences, and the gradient of the expected reward."""
    rollout = networks(image, torch.zeros(1, 16, dtype=torch.int64), forced=torch.tensor([SEQUENCES]))
    probability = rollout.log_probabilities.sum(-1).exp()[0]
    gain = (rollout.logits[0, :, 1] > rollout.logits[0, :, 0]).float()
    assert probability.sum().item() == pytest.approx(1, abs=1e-5)
    assert gain.std() > 0.01
    return rollout, probability.detach().double(), policy_gradient(networks, (probability * gain).sum())


@pytest.mark.parametrize("baseline", [0.0, 1.0, 5.0])
def test_expected_gradient_over_all_sequences_is_that_of_the_expected_reward(tiny, baseline):
    networks, image = tiny
    with torch.no_grad():
        networks.policy_parameters["baseline_weight"].mul_(baseline)
        networks.policy_parameters["baseline_bias"].mul_(baseline)
    rollout, probability, gradient = exact(networks, image)
    expected = torch.zeros_like(gradient)
    for n, p in enumerate(probability):
        one = Rollout(
            *(x[:, n : n + 1] for x in (rollout.locations, rollout.log_probabilities)),
            *(x[:, n : n + 1] for x in (rollout.baselines, rollout.logits)),
        )
        losses = objective(one, torch.ones(1, 1, dtype=torch.int64), supervised=None)
        expected -= p * policy_gradient(networks, losses.reinforce.sum())
    assert gradient.abs().max() > 1e-3
    torch.testing.assert_close(expected, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("baseline", [0.0, 1.0])
def test_sampled_gradient_estimates_average_to_that_of_the_expected_reward(tiny, baseline):
    networks, image = tiny
    with torch.no_grad():
        networks.policy_parameters["baseline_weight"].mul_(baseline)
        networks.policy_parameters["baseline_bias"].mul_(baseline)
    _, probability, gradient = exact(networks, image)
    batch, repeats = 500, 60
    stream = torch.Generator().manual_seed(1)
    estimates, counts = [], torch.zeros(16)
    for _ in range(repeats):
        uniforms = torch.rand(1, batch, 2, generator=stream)
        rollout = networks(image, torch.zeros(1, batch, dtype=torch.int64), uniforms=uniforms)
        losses = objective(rollout, torch.ones(1, batch, dtype=torch.int64), supervised=None)
        estimates.append(-policy_gradient(networks, losses.reinforce.sum()))
        counts += torch.bincount(rollout.locations[0] @ torch.tensor([4, 1]), minlength=16)
    spread = (probability * (1 - probability) / (batch * repeats)).sqrt()
    assert ((counts / (batch * repeats) - probability).abs() < 4.5 * spread + 1e-6).all()
    mean, error = torch.stack(estimates).mean(0), torch.stack(estimates).std(0) / repeats**0.5
    assert ((mean - gradient).abs() <= 4.5 * error + 1e-7).all()
    assert (error[gradient.abs() > 0.02] < 0.2 * gradient.abs()[gradient.abs() > 0.02]).all()  # the test has power
