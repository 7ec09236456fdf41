import numpy as np
import pytest
import torch

from nogs.data.task import LabelSpace
from nogs.posterior.calibration import fit_inverse_temperature, fit_temperatures
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.evaluation import calibration_error, evaluate, figure, scores, text_table
from nogs.posterior.labels import Head, label_table
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.queries import fixed_pixels

CATEGORICAL = Head(LabelSpace("categorical", tuple("abcd")))
BERNOULLI = Head(LabelSpace("bernoulli", ("x", "y")))


def drawn(head, logits, seed=0):
    """Labels drawn from the probabilities of these logits."""
    random = torch.Generator().manual_seed(seed)
    p = head.log_probabilities(logits).exp()
    return torch.multinomial(p.flatten(0, 1), 1, generator=random).reshape(p.shape[:2])


def best_on_a_grid(head, logits, labels):
    factors = np.exp(np.linspace(np.log(0.05), np.log(20), 2001))
    losses = []
    for factor in factors:
        answers = head.log_probabilities(logits.double() * factor)
        losses.append(-answers.gather(-1, labels[..., None]).mean().item())
    return factors[int(np.argmin(losses))]


@pytest.mark.parametrize("confidence", [0.4, 1.0, 3.0])
def test_overconfident_logits_are_scaled_back(confidence):
    honest = 2 * torch.randn(20_000, 4, generator=torch.Generator().manual_seed(1))
    labels = drawn(CATEGORICAL, honest)
    found = fit_inverse_temperature(honest * confidence, labels, head=CATEGORICAL)
    assert found.item() == pytest.approx(1 / confidence, rel=0.05)


def test_temperature_is_the_minimum_of_the_cross_entropy():
    logits = torch.randn(300, 2, generator=torch.Generator().manual_seed(1)) * torch.tensor([3.0, 0.5])
    labels = drawn(BERNOULLI, logits * torch.tensor([0.5, 2.0]))
    found = fit_inverse_temperature(logits, labels, head=BERNOULLI)
    assert found.item() == pytest.approx(best_on_a_grid(BERNOULLI, logits, labels), rel=0.01)


def test_labels_that_fit_perfectly_stay_within_the_range():
    logits = torch.eye(4)[torch.arange(40) % 4]
    labels = (torch.arange(40) % 4)[:, None]
    assert 10 < fit_inverse_temperature(logits, labels, head=CATEGORICAL).item() <= 20


def overconfident(task):
    """An untrained network with large outputs, badly calibrated."""
    architecture = Architecture(PosteriorConfig(width=16, layers=1, heads=2, token=4), task.grid, 3, Head(task.space))
    network = architecture.build()
    network.head.weight.data *= 100
    return NetworkPosterior(network, architecture)


def test_calibration_improves_every_number_of_glimpses(task):
    raw = overconfident(task)
    images, labels = torch.from_numpy(task.images), torch.from_numpy(label_table(task))
    rows = torch.from_numpy(task.rows("validation"))[::4]
    table = fit_temperatures(raw, images, labels, rows, locations="grid", seed=0)
    assert table.shape == (4, 1)
    calibrated = NetworkPosterior(raw.network, raw.architecture, inverse_temperature=table)
    test = torch.from_numpy(task.rows("test"))[::4]
    options = {"glimpses": 3, "grid": task.grid, "locations": "grid", "seed": 1, "purpose": "x"}
    where = fixed_pixels(len(test), **options, device=raw.device)
    before = evaluate(raw, images, labels, test, where)
    after = evaluate(calibrated, images, labels, test, where)
    for t in range(4):
        assert after[t]["cross_entropy"] < before[t]["cross_entropy"]
        assert after[t]["accuracy"] == before[t]["accuracy"]  # a temperature does not change the ranking


def test_scores_are_those_of_a_slow_computation():
    random = torch.Generator().manual_seed(0)
    answers = torch.log_softmax(torch.randn(50, 2, 3, generator=random), -1)
    labels = torch.randint(0, 3, (50, 2), generator=random)
    found = scores(answers, labels)
    p = answers.exp().numpy().astype(float)
    flat, truth = p.reshape(-1, 3), labels.reshape(-1).numpy()
    assert found["accuracy"] == pytest.approx((flat.argmax(1) == truth).mean())
    assert found["cross_entropy"] == pytest.approx(-np.log(flat[np.arange(100), truth]).mean(), rel=1e-5)
    assert found["entropy"] == pytest.approx(-(flat * np.log(flat)).sum(1).mean(), rel=1e-5)
    gap = 0.0
    for low in np.arange(15) / 15:
        inside = (flat.max(1) >= low) & (flat.max(1) < low + 1 / 15)
        if inside.any():
            gap += inside.mean() * abs((flat.argmax(1) == truth)[inside].mean() - flat.max(1)[inside].mean())
    assert found["calibration_error"] == pytest.approx(gap, abs=1e-6)


def test_certain_and_right_has_no_calibration_error():
    answers = torch.tensor([[[0.0, -200.0]]]).expand(5, 1, 2)
    assert calibration_error(answers, torch.zeros(5, 1, dtype=torch.int64)) == 0
    assert calibration_error(answers, torch.ones(5, 1, dtype=torch.int64)) == 1


def test_numbers_can_be_of_one_attribute_alone(world):
    task = world.task(kind="bernoulli")
    model = overconfident(task)
    images, labels = torch.from_numpy(task.images), torch.from_numpy(label_table(task))
    rows = torch.arange(50)
    where = fixed_pixels(50, glimpses=3, grid=task.grid, locations="grid", seed=1, purpose="x", device=model.device)
    each = [evaluate(model, images, labels, rows, where, variables=[k]) for k in range(3)]
    together = evaluate(model, images, labels, rows, where)
    for t in range(4):
        mean = np.mean([table[t]["cross_entropy"] for table in each])
        assert together[t]["cross_entropy"] == pytest.approx(mean, rel=1e-5)


def test_table_and_plot_show_every_number_of_glimpses():
    rows = [
        {"glimpses": t, "accuracy": 0.5 + t / 10, "cross_entropy": 1.0, "entropy": 0.9, "calibration_error": 0.01}
        for t in range(3)
    ]
    text = text_table({"test": rows, "again": rows})
    assert text.splitlines()[0] == "test"
    assert "     2      70.0%" in text
    drawn_figure = figure({"test": rows}, title="x")
    assert [axis.get_title() for axis in drawn_figure.axes][:2] == ["accuracy", "cross-entropy (nats)"]
    assert list(drawn_figure.axes[0].lines[0].get_xdata()) == [0, 1, 2]
