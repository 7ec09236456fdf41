import numpy as np
import torch

from nogs.completion.resampling import effective_size, resample
from nogs.runtime.streams import key


def test_frequencies_are_the_weights():
    p = np.array([0.52, 0.2, 0.13, 0.1, 0.05, 0.0])
    log_p = torch.from_numpy(np.log(p + 1e-300))
    counts = np.stack([resample(log_p, 7, key=key(0, "test", step=n)).numpy() for n in range(4000)])
    assert (counts.sum(1) == 7).all()
    assert (counts >= np.floor(7 * p)).all()  # the sure copies
    assert (counts[:, 5] == 0).all()
    assert np.allclose(counts.mean(0) / 7, p, atol=0.005)
    remainder = 7 * p - np.floor(7 * p)
    chance = remainder / remainder.sum()
    left = counts - np.floor(7 * p)
    expected = round(remainder.sum()) * chance * (1 - chance)  # the variance of a multinomial
    assert np.allclose(left.var(0), expected, atol=0.06)


def test_draws_depend_on_the_key_alone():
    log_p = torch.log_softmax(torch.randn(500, generator=torch.Generator().manual_seed(0)), 0)
    first = resample(log_p, 100, key=3)
    assert torch.equal(first, resample(log_p.clone(), 100, key=3))
    assert not torch.equal(first, resample(log_p, 100, key=4))
    assert torch.equal(first, resample(log_p + 5, 100, key=3))  # weights need no norm


def test_whole_shares_leave_nothing_to_chance():
    log_p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log()
    assert resample(log_p, 8, key=1).tolist() == [4, 2, 2]


def test_one_image_takes_all_when_the_others_are_impossible():
    assert resample(torch.tensor([-torch.inf, 0.0, -torch.inf]), 9, key=1).tolist() == [0, 9, 0]


def test_effective_size_counts_equal_weights():
    assert float(effective_size(torch.zeros(40))) == 40.0 or abs(float(effective_size(torch.zeros(40))) - 40) < 1e-3
    assert abs(float(effective_size(torch.tensor([3.0, 3.0, -200.0]))) - 2) < 1e-4
