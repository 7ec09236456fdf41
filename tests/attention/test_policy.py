import math

import numpy as np
import pytest
import torch

from nogs.attention.policy import choose, entropy

LAST = 1 - 2.0**-24  # the largest number that a stream gives


def logits_of(*shape, scale=2.0, seed=0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("locations", "width"), [(1, 1), (2, None), (7, 7), (13, 1), (36, 6), (97, None), (196, 14), (2500, 50)]
)
def test_frequencies_are_the_softmax(locations, width):
    logits = logits_of(locations)
    draws = 1 << 12
    uniform = (torch.arange(draws) + 0.5) / draws  # evenly spread: frequencies are right to a draw or two
    chosen, _ = choose(logits.expand(1, draws, -1), uniform[None], width=width)
    counts = torch.bincount(chosen[0], minlength=locations)
    assert (counts - draws * logits.double().softmax(0)).abs().max() <= 2


@pytest.mark.parametrize("locations", [1, 2, 7, 36, 2500])
def test_smallest_and_largest_uniform_number_draw_the_first_and_the_last_possible_location(locations):
    logits = logits_of(locations)
    logits[locations // 2 + 1 :] = -300  # e^-300 is 0 in float32
    if locations > 4:
        logits[:2] = -300
    chosen, log_probability = choose(logits.expand(1, 2, -1), torch.tensor([[0.0, LAST]]))
    assert chosen[0].tolist() == [2 if locations > 4 else 0, locations // 2]
    assert (log_probability > -100).all()


@pytest.mark.parametrize(("locations", "block"), [(2500, 50), (196, 14), (64, 8)])
def test_impossible_location_is_never_drawn(locations, block):
    """Cumulative sums round: near the end of a block a draw must not slip past its last possible location."""
    uniform = (1 - torch.arange(1, 40) * 2.0**-24).expand(1, -1)
    for seed in range(60):
        logits = torch.full((1, 39, locations), -300.0)
        logits[..., : block - 2] = logits_of(block - 2, scale=1.0, seed=seed)
        for width in (None, block):
            assert choose(logits, uniform, width=width)[0].max() < block - 2


def test_draw_is_the_inverse_of_the_cumulative_distribution():
    logits = logits_of(3, 50, 36)
    uniform = torch.rand(3, 50, generator=torch.Generator().manual_seed(1))
    chosen, _ = choose(logits, uniform, width=9)
    for m, b in np.ndindex(3, 50):
        probabilities = np.exp(logits[m, b].double().numpy())
        edges = np.cumsum(probabilities / probabilities.sum())
        assert chosen[m, b] == np.searchsorted(edges, uniform[m, b].item(), side="right")


@pytest.mark.parametrize("gap", [0.0, 5.0, 200.0])
def test_log_probability_and_gradient_are_those_of_log_softmax(gap):
    logits = logits_of(2, 8, 30)
    logits[:, ::2, 4] += gap
    forced = torch.arange(16).view(2, 8)  # one row is made to take the favoured location, others far ones
    upstream = logits_of(2, 8, seed=2)
    ours, reference = logits.clone().requires_grad_(), logits.double().requires_grad_()
    location, log_probability = choose(ours, None, forced)
    expected = torch.log_softmax(reference, -1).gather(-1, forced[..., None])[..., 0]
    assert torch.equal(location, forced)
    torch.testing.assert_close(log_probability, expected.float(), rtol=1e-6, atol=1e-5)
    (log_probability * upstream).sum().backward()
    (expected * upstream).sum().backward()
    torch.testing.assert_close(ours.grad, reference.grad.float(), rtol=1e-5, atol=1e-6)


def test_gradient_of_a_drawn_location_is_that_of_log_softmax():
    logits = logits_of(1, 64, 49).requires_grad_()
    uniform = torch.rand(1, 64, generator=torch.Generator().manual_seed(1))
    location, log_probability = choose(logits, uniform)
    (log_probability**2).sum().backward()
    reference = logits.detach().clone().requires_grad_()
    (torch.log_softmax(reference, -1).gather(-1, location[..., None]) ** 2).sum().backward()
    torch.testing.assert_close(logits.grad, reference.grad, rtol=1e-4, atol=1e-6)
    assert not location.requires_grad


def test_without_uniform_numbers_the_most_probable_location_is_taken():
    logits = logits_of(2, 9, 20)
    assert torch.equal(choose(logits, None)[0], logits.argmax(-1))


@pytest.mark.parametrize("drawn", [False, True])
def test_forced_rows_are_taken_and_only_they(drawn):
    logits = logits_of(2, 9, 20)
    uniform = torch.rand(2, 9, generator=torch.Generator().manual_seed(1)) if drawn else None
    free, _ = choose(logits, uniform)
    forced = torch.full((2, 9), -1)
    forced[0, 3], forced[1, 0] = 19, 0
    location, log_probability = choose(logits, uniform, forced)
    assert location[0, 3] == 19
    assert location[1, 0] == 0
    assert torch.equal(location[forced < 0], free[forced < 0])
    expected = torch.log_softmax(logits, -1).gather(-1, location[..., None])[..., 0]
    torch.testing.assert_close(log_probability, expected)


def test_a_policy_of_nan_still_names_a_location_of_the_grid():
    """A failed network must not crash the others with an index out of range."""
    logits = torch.full((1, 5, 36), torch.nan)
    for uniform in (None, torch.rand(1, 5)):
        location, _ = choose(logits, uniform)
        assert location.min() >= 0
        assert location.max() < 36


def test_entropy_in_nats():
    assert entropy(torch.zeros(1, 1, 8)).item() == pytest.approx(math.log(8))
    assert entropy(torch.tensor([[[0.0, -300.0, -300.0]]])).item() == 0
    logits = logits_of(2, 4, 12)
    p = logits.double().softmax(-1)
    torch.testing.assert_close(entropy(logits), -(p * p.log()).sum(-1).float())


def test_gradient_of_the_entropy_is_finite_where_a_location_is_impossible():
    logits = torch.tensor([[[0.0, 1.0, -300.0]]], requires_grad=True)
    entropy(logits).sum().backward()
    assert logits.grad.isfinite().all()
