from itertools import product

import numpy as np
import pytest

import worlds


def brute_posterior(world, image, pixels):
    """By counting, image by image."""
    mass = np.zeros(len(world.names))
    for other, count, label in zip(world.images, world.counts, world.labels):
        if all((other[r : r + 4, c : c + 4] == image[r : r + 4, c : c + 4]).all() for r, c in pixels):
            mass[label] += count
    return mass / mass.sum()


def see(image, pixels):
    return np.array([image[r : r + 4, c : c + 4] for r, c in pixels], dtype=np.uint8).reshape(-1, 4, 4, 3)


@pytest.mark.parametrize("pixels", [(), (worlds.A,), (worlds.P, worlds.B), ((2, 3), (7, 1)), (worlds.N, worlds.H)])
def test_exact_posterior_counts_the_images_that_agree(world, pixels):
    for image in world.images[::20]:
        found = worlds.exact_posterior(world, see(image, pixels), np.array(pixels).reshape(-1, 2))
        np.testing.assert_allclose(found, brute_posterior(world, image, pixels))


def test_exact_epe_is_the_mean_entropy_over_agreeing_images(world):
    image, seen = world.images[40], [worlds.A]
    agreeing = world.agreeing(see(image, seen), np.array(seen))
    expected = []
    for location in world.grid.pixels.tolist():
        left = [
            count * worlds.entropy(brute_posterior(world, other, [*seen, location]))
            for other, count, agrees in zip(world.images, world.counts, agreeing)
            if agrees
        ]
        expected.append(sum(left) / world.counts[agreeing].sum())
    np.testing.assert_allclose(worlds.exact_epe(world, see(image, seen), np.array(seen)), expected)


def test_stories_of_the_world_hold(world):
    nothing = np.zeros((0, 4, 4, 3), np.uint8), np.zeros((0, 2), int)
    epe = dict(zip(map(tuple, world.grid.pixels.tolist()), worlds.exact_epe(world, *nothing)))
    prior = worlds.entropy(world.prior)
    assert min(epe, key=epe.get) == worlds.A
    assert epe[worlds.N] == pytest.approx(prior)
    assert epe[worlds.P] == pytest.approx(prior)
    assert epe[worlds.A] < epe[worlds.H] < epe[worlds.B] < prior


def test_greedy_and_best_policy_part_ways_at_two_glimpses(world):
    greedy = [worlds.greedy_sequence(world, image, 2) for image in world.images]
    value, best = worlds.best_policy(world, 2)
    assert all(tuple(sequence[0]) == worlds.A for sequence in greedy)
    assert all(tuple(sequence[0]) == worlds.P for sequence in best)
    assert value == pytest.approx(0, abs=1e-12)
    assert worlds.expected_entropy_of(world, best) == pytest.approx(value, abs=1e-12)
    assert worlds.expected_entropy_of(world, greedy) > 0.3


def test_best_single_glimpse_is_the_greedy_one(world):
    value, best = worlds.best_policy(world, 1)
    nothing = np.zeros((0, 4, 4, 3), np.uint8), np.zeros((0, 2), int)
    assert value == pytest.approx(worlds.exact_epe(world, *nothing).min())
    assert tuple(best[0][0]) == worlds.A


def test_best_policy_beats_every_fixed_pair(world):
    value, _ = worlds.best_policy(world, 2)
    grid = world.grid.pixels.numpy()
    fixed = [
        worlds.expected_entropy_of(world, [grid[[a, b]]] * len(world.images)) for a, b in product((0, 2, 4), (2, 6, 8))
    ]
    assert value < min(fixed)


def test_every_split_of_the_task_has_the_worlds_distribution(world, task):
    for split in ("posterior", "annotate", "validation", "test"):
        rows = task.rows(split)
        assert len(rows) == world.counts.sum()
        np.testing.assert_allclose(np.bincount(task.labels[rows]) / len(rows), world.prior)
    attributes = world.task(kind="bernoulli")
    assert (attributes.labels.argmax(1) == task.labels).all()
