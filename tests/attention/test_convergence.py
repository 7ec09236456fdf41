import numpy as np
import pytest

from nogs.attention.convergence import iterations_to_convergence, iterations_to_reach, smoothed

STEPS = [100, 200, 300, 400, 500]


def test_first_nll_within_a_hundredth_of_the_best():
    assert iterations_to_convergence(STEPS, [0.9, 0.52, 0.509, 0.5, 0.6], rule="nll") == 300
    assert iterations_to_convergence(STEPS, [0.9, 0.51, 0.509, 0.5, 0.6], rule="nll") == 200


def test_first_accuracy_within_a_hundredth_of_the_best():
    assert iterations_to_convergence(STEPS, [0.1, 0.5, 0.78, 0.79, 0.8], rule="accuracy") == 400
    assert iterations_to_convergence(STEPS, [0.1, 0.8, 0.7, 0.79, 0.8], rule="accuracy") == 200


def test_curve_that_starts_at_its_best_has_converged_at_its_first_validation():
    assert iterations_to_convergence(STEPS, [0.1, 0.2, 0.3, 0.4, 0.5], rule="nll") == 100


def test_target_of_another_run():
    curve = [0.9, 0.7, 0.6, 0.5, 0.4]
    assert iterations_to_reach(STEPS, curve, 0.6, rule="nll") == 300
    assert iterations_to_reach(STEPS, curve, 0.3, rule="nll") is None
    assert iterations_to_reach(STEPS, [0.1, 0.2, 0.3, 0.2, 0.1], 0.3, rule="accuracy") == 300
    assert iterations_to_reach(STEPS, [0.1, 0.2, 0.3, 0.2, 0.1], 0.31, rule="accuracy") is None


def test_lucky_validation_decides_less_on_the_smoothed_curve():
    curve = [0.9, 0.3, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4]
    steps = list(range(100, 1100, 100))
    assert iterations_to_convergence(steps, curve, rule="nll") == 200
    assert iterations_to_convergence(steps, curve, rule="nll", smooth=3) == 900


@pytest.mark.parametrize("width", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("length", [1, 4, 9])
def test_smoothing_is_a_centred_mean_over_what_there_is(width, length):
    values = np.random.default_rng(0).random(length)
    found = smoothed(list(values), width)
    width = min(width, length)
    before = width // 2  # an even width reaches one further back than ahead
    for n in range(length):
        window = values[max(0, n - before) : n - before + width]
        assert found[n] == pytest.approx(window.mean())


def test_curve_with_gaps_is_judged_by_what_is_finite():
    assert iterations_to_convergence(STEPS, [0.9, 0.5, np.nan, np.nan, np.nan], rule="nll") == 200
    assert iterations_to_convergence(STEPS, [np.nan] * 5, rule="nll") is None
    assert iterations_to_convergence(STEPS, [np.nan] * 5, rule="accuracy", smooth=3) is None
