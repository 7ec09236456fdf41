import math

import numpy as np
import pytest
import torch

from nogs.completion.picture import completion_sheet
from nogs.completion.protocol import Completions
from nogs.completion.quality import WIDTHS, _measure, evaluate_completion, random_locations
from nogs.data import DataConfig, load_task


@pytest.fixture(scope="module")
def task():
    return load_task(
        DataConfig(kind="digits", image_size=32, glimpse=8, grid_spacing=4, count=60, annotated=5, fragments=2)
    )


def completions(pool, weights, flipped=None):
    number = len(weights)
    nothing = torch.tensor([math.nan])
    return Completions(
        pool,
        torch.arange(number)[None],
        torch.zeros(1, number, dtype=torch.bool) if flipped is None else flipped[None],
        torch.tensor(weights)[None],
        torch.arange(number)[None],
        torch.tensor([1 / sum(w * w for w in weights)]),
        nothing,
        nothing,
    )


class Fixed:
    """Completes every image with the same pictures."""

    fingerprint = "fixed"

    def __init__(self, pool):
        self.pool = pool

    def complete(self, images, pixels, *, ids):
        one = completions(self.pool, [1 / len(self.pool)] * len(self.pool))
        shape = (len(images), len(self.pool))
        many = {name: getattr(one, name).expand(shape) for name in ("index", "flipped", "weights", "rows")}
        singles = {name: getattr(one, name).expand(len(images)) for name in ("effective", "proposed", "temperature")}
        return Completions(self.pool, **many, **singles)


def test_measures_agree_with_a_slow_computation():
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 256, (5, 12, 12, 3), dtype=np.uint8)
    truth = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
    weights = [0.4, 0.3, 0.1, 0.1, 0.1]
    flipped = torch.tensor([False, True, False, False, True])
    seen, judged = torch.tensor([[0, 0]]), torch.tensor([[2, 2], [6, 5]])
    found = _measure(completions(torch.from_numpy(pool), weights, flipped), 0, torch.from_numpy(truth), seen, judged, 4)
    shown = np.stack([image[:, ::-1] if flip else image for image, flip in zip(pool, flipped)]).astype(float)
    inside, central, spread, error, likelihood = [], [], [], [], []
    for row, column in judged.tolist():
        hidden_squares, numbers = np.zeros(5), 0
        for r in range(row, row + 4):
            for c in range(column, column + 4):
                if r < 4 and c < 4:
                    continue  # seen
                for k in range(3):
                    values, target = shown[:, r, c, k], float(truth[r, c, k])
                    inside.append(values.min() <= target <= values.max())
                    order = np.argsort(values)
                    steps = np.cumsum(np.array(weights)[order])
                    low = values[order][np.argmax(steps >= 0.05 - 1e-9)]
                    high = values[order][np.argmax(steps >= 0.95 - 1e-9)]
                    central.append(low <= target <= high)
                    mean = np.dot(weights, values)
                    spread.append(np.dot(weights, (values - mean) ** 2))
                    error.append((mean - target) ** 2)
                    hidden_squares += (values - target) ** 2
                    numbers += 1
        width = WIDTHS[-1]
        density = np.exp(-hidden_squares / (2 * width**2)) / (2 * np.pi * width**2) ** (numbers / 2)
        likelihood.append(np.log(np.dot(weights, density)) / numbers)
    assert found["range"] == pytest.approx(np.mean(inside))
    assert found["central"] == pytest.approx(np.mean(central))
    assert found["diversity"] == pytest.approx(np.sqrt(np.mean(spread)))
    assert found["error"] == pytest.approx(np.sqrt(np.mean(error)))
    assert found["likelihoods"][-1] == pytest.approx(np.mean(likelihood))
    assert found["unique"] == 5
    edges = []
    for image in (truth.astype(float), *shown):
        patches = [image[row : row + 4, column : column + 4] for row, column in judged.tolist()]
        edges.append(np.mean([np.abs(np.diff(p, axis=0)).mean() + np.abs(np.diff(p, axis=1)).mean() for p in patches]))
    assert found["sharpness"] == pytest.approx(np.dot(weights, edges[1:]) / edges[0])
    assert found["effective"] == pytest.approx(1 / 0.28)


def test_the_truth_among_the_samples_is_covered_and_likely(task):
    ids = task.splits["validation"][:2]
    everything = torch.from_numpy(task.images.copy())
    good = evaluate_completion(Fixed(everything), task, ids, glimpses=3)
    assert [row["observed"] for row in good] == [0, 1, 2]
    assert all(row["coverage_of_range"] == 1 for row in good)
    wrong = evaluate_completion(Fixed(255 - everything[:10]), task, ids, glimpses=1)
    assert wrong[0]["coverage_of_range"] < 0.3
    assert wrong[0]["log_likelihood_per_number"] < good[0]["log_likelihood_per_number"]
    single = evaluate_completion(Fixed(everything[:1]), task, ids, glimpses=1)
    assert single[0]["diversity"] == 0


def test_locations_are_an_images_own(task):
    first = random_locations(task, ["8", "18"], 4, seed=0)
    assert torch.equal(first[1], random_locations(task, ["18"], 4, seed=0)[0])
    assert len({tuple(place) for place in first[0].tolist()}) == 4


def test_the_picture_has_a_row_an_image(task):
    pool = torch.from_numpy(task.images[:6].copy())
    ids = task.splits["validation"][:2]
    figure = completion_sheet(Fixed(pool), task, ids, random_locations(task, ids, 2, seed=0), samples=4)
    assert len(figure.axes) == 2 * 5
    assert figure.axes[0].get_title() == f"image {ids[0]}"
    assert len(figure.axes[1].patches) == 2
