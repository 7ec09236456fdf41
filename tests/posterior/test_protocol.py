import math

import numpy as np
import pytest
import torch

from nogs.data.task import LabelSpace
from nogs.posterior.labels import Head
from nogs.posterior.protocol import cross_entropy, distinct, entropy

CATEGORICAL = Head(LabelSpace("categorical", ("a", "b", "c")))
BERNOULLI = Head(LabelSpace("bernoulli", ("x", "y")))


def test_entropy_is_that_of_the_probabilities():
    logits = torch.randn(5, 3)
    p = torch.softmax(logits.double(), -1).numpy()
    found = entropy(CATEGORICAL.log_probabilities(logits))
    assert found.shape == (5, 1)
    np.testing.assert_allclose(found[:, 0], -(p * np.log(p)).sum(1), rtol=1e-5)


@pytest.mark.parametrize("gap", [30.0, 120.0, 1e4, 1e30])
def test_probability_that_underflows_adds_no_entropy(gap):
    found = entropy(CATEGORICAL.log_probabilities(torch.tensor([[gap, 0.0, 0.0]])))
    assert torch.isfinite(found).all()
    assert found.item() == pytest.approx(2 * (gap + 1) * math.exp(-min(gap, 700)), abs=1e-9)


def test_bernoulli_entropy_is_right_where_one_minus_p_rounds_to_one():
    answers = BERNOULLI.log_probabilities(torch.tensor([[40.0, -40.0]]))
    expected = 41 * math.exp(-40)  # p (-log p) + (1 - p)(-log(1 - p)) to first order
    assert entropy(answers)[0].tolist() == pytest.approx([expected, expected], rel=1e-4)
    assert answers[0, 0, 1].item() == pytest.approx(-math.exp(-40), rel=1e-4)


def test_minus_infinity_is_a_probability_of_zero():
    assert entropy(torch.tensor([0.0, -math.inf])).item() == 0
    assert entropy(torch.tensor([math.log(0.5), math.log(0.5), -math.inf])).item() == pytest.approx(math.log(2))


def test_entropy_of_a_bfloat16_networks_logits_is_computed_in_float32():
    logits = torch.tensor([[4.0, 1.0, -2.0]], dtype=torch.bfloat16)  # exact in bfloat16
    answers = CATEGORICAL.log_probabilities(logits)
    assert answers.dtype == torch.float32
    p = torch.softmax(logits.double(), -1)
    assert entropy(answers).item() == pytest.approx(-(p * p.log()).sum().item(), rel=1e-5)


def test_bernoulli_answers_are_normalised_pairs():
    logits = torch.randn(4, 2)
    answers = BERNOULLI.log_probabilities(logits)
    assert answers.shape == (4, 2, 2)
    np.testing.assert_allclose(answers.exp().sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(answers[..., 1].exp(), torch.sigmoid(logits), rtol=1e-5)


def test_inverse_temperature_multiplies_the_logits():
    logits = torch.randn(4, 2)
    factor = torch.tensor([[0.5, 2.0]]).expand(4, -1)
    torch.testing.assert_close(
        BERNOULLI.log_probabilities(logits, factor), BERNOULLI.log_probabilities(logits * factor)
    )


def test_cross_entropy_picks_the_true_value():
    answers = torch.log(torch.tensor([[[0.2, 0.8], [0.5, 0.5]]]))
    assert cross_entropy(answers, torch.tensor([[0, 1]]))[0].tolist() == pytest.approx([-math.log(0.2), math.log(2)])


def test_losses_are_summed_over_label_and_attributes():
    head = Head(LabelSpace("categorical", ("a", "b")), attributes=3)
    logits, targets = torch.randn(4, 5), torch.rand(4, 3)
    labels = torch.tensor([[0], [1], [1], [0]])
    found = head.losses(logits, labels, targets)
    p = torch.sigmoid(logits[:, 2:])
    auxiliary = -(targets * p.log() + (1 - targets) * (1 - p).log()).mean(1)
    expected = -torch.log_softmax(logits[:, :2], -1)[torch.arange(4), labels[:, 0]] + auxiliary
    torch.testing.assert_close(found, expected)
    assert head.log_probabilities(logits).shape == (4, 1, 2)


def test_teachers_answer_is_learned_beside_the_label():
    logits, labels = torch.randn(4, 3), torch.tensor([[0], [1], [2], [0]])
    teacher = torch.log_softmax(torch.randn(4, 1, 3), -1)
    q = torch.log_softmax(logits, -1)
    expected = 0.25 * -q[torch.arange(4), labels[:, 0]] + 0.75 * -(teacher[:, 0].exp() * q).sum(1)
    torch.testing.assert_close(CATEGORICAL.losses(logits, labels, None, teacher=teacher, teacher_weight=0.75), expected)


def test_only_the_first_observed_glimpse_at_a_place_counts():
    pixels = torch.tensor([[[0, 0], [4, 4], [0, 0], [0, 0]], [[1, 2], [1, 2], [2, 1], [1, 2]]])
    observed = torch.tensor([[False, True, True, True], [True, True, True, True]])
    expected = [[False, True, True, False], [True, False, True, False]]
    assert distinct(pixels, observed).tolist() == expected
