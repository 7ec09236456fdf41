import numpy as np
import pytest
import torch

import worlds
from exact_design import ExactPosterior
from nogs.design.baselines import any_of, apart, centre_out, others, random_locations, salient_first
from nogs.design.scoring import MEASURES, Judged, compare, follow, text_table
from nogs.glimpse import Grid


def judged(world, sequences):
    pixels = torch.from_numpy(np.stack(sequences))[None]
    images, labels = torch.from_numpy(world.images), torch.from_numpy(world.labels)[:, None]
    return follow(ExactPosterior(world), images, labels, pixels, variables=(0,))


def test_numbers_along_a_sequence_are_the_exact_ones(world):
    sequences = [worlds.greedy_sequence(world, image, 2) for image in world.images]
    numbers = judged(world, sequences).numbers
    for n in range(0, 162, 20):
        for t in range(3):
            pixels = sequences[n][:t]
            shown = np.array([world.images[n][r : r + 4, c : c + 4] for r, c in pixels]).reshape(-1, 4, 4, 3)
            p = worlds.exact_posterior(world, shown, pixels)
            assert numbers[n, t, 0] == pytest.approx(worlds.entropy(p), abs=1e-6)
            assert numbers[n, t, 1] == pytest.approx(-np.log(p[world.labels[n]]), abs=1e-6)
            assert numbers[n, t, 2] == (p.argmax() == world.labels[n])


def test_several_draws_count_as_their_mean(world):
    grid = world.grid.pixels
    routes = torch.stack([grid[[0, 4]].expand(162, 2, 2), grid[[8, 6]].expand(162, 2, 2)])
    images, labels = torch.from_numpy(world.images), torch.from_numpy(world.labels)[:, None]
    done = []
    both = follow(ExactPosterior(world), images, labels, routes, variables=(0,), advance=done.append).numbers
    assert sum(done) == 2 * 162 * 3
    assert len(done) > 2
    one, two = (judged(world, list(route.numpy())).numbers for route in routes)
    np.testing.assert_allclose(both, (one + two) / 2)


def test_best_policy_scores_better_than_greedy_and_greedy_better_than_noise(world):
    ways = {
        "best": judged(world, worlds.best_policy(world, 2)[1]),
        "greedy": judged(world, [worlds.greedy_sequence(world, image, 2) for image in world.images]),
        "noise": judged(world, [np.array([worlds.N, (0, 4)])] * 162),
    }
    found = compare(ways)
    left = [found[name]["measures"]["entropy"]["mean"][2] for name in ways]
    assert left == sorted(left)
    assert left[0] == pytest.approx(0, abs=1e-6)
    gap = found["noise"]["minus best"]["entropy"]
    assert gap["low"][2] > 0
    assert gap["mean"][2] == pytest.approx(left[2] - left[0])
    lines = text_table(found).splitlines()
    assert lines[0].startswith("after 2 glimpses")
    assert [line.split("  ")[0] for line in lines[1:6]] == ["best", "greedy", "noise", "greedy - best", "noise - best"]
    assert lines[5].split()[3:6] == [f"{gap['mean'][2]:.4f}", f"[{gap['low'][2]:.4f},", f"{gap['high'][2]:.4f}]"]
    assert any(line.split() == ["accuracy", "t=0", "t=1", "t=2"] for line in lines)


def test_intervals_cover_and_differences_are_paired():
    random = np.random.default_rng(0)
    inside = 0
    for seed in range(200):
        level = random.normal(0, 1, (80, 1, 1))
        first = level + random.normal(0, 0.05, (80, 1, len(MEASURES)))
        second = level + 0.1 + random.normal(0, 0.05, (80, 1, len(MEASURES)))
        found = compare({"a": Judged(first), "b": Judged(second)}, draws=400, seed=seed)
        own, gap = found["b"]["measures"]["entropy"], found["b"]["minus a"]["entropy"]
        inside += own["low"][0] <= 0.1 <= own["high"][0]
        assert gap["high"][0] - gap["low"][0] < 0.2 * (own["high"][0] - own["low"][0])
    assert 180 <= inside <= 198


def test_what_is_rounded_to_zero_has_no_sign():
    text = text_table(compare({"sure": Judged(np.full((5, 2, len(MEASURES)), -1e-7))}, draws=10))
    assert "0.0000 [0.0000, 0.0000]" in text
    assert "-0.0" not in text


def test_centre_out_starts_in_the_middle_and_does_not_overlap():
    grid = Grid.spaced(image=40, glimpse=8, spacing=4)
    pixels = grid.pixels[centre_out(grid, glimpses=5)]
    assert pixels[0].tolist() == [16, 16]
    for one in range(5):
        for other in range(one):
            assert (pixels[one] - pixels[other]).abs().max() >= 8


def test_salient_first_is_the_order_of_the_map():
    grid = Grid.spaced(image=12, glimpse=4, spacing=4)
    epe = torch.tensor([5.0, 1, 9, 2, 8, 7, 3, 6, 4])
    assert salient_first(grid, epe, glimpses=4).tolist() == [1, 3, 6, 8]


def test_more_glimpses_than_fit_apart_may_overlap_and_repeat():
    grid = Grid.spaced(image=6, glimpse=4, spacing=1)
    chosen = apart(grid, torch.arange(9.0), glimpses=12).tolist()
    assert chosen[0] == 0
    assert sorted(chosen[:9]) == list(range(9))


def test_another_image_is_any_but_itself_and_a_sequence_any_of_them():
    ids = [str(n) for n in range(5)]
    for image, drawn in enumerate(others(ids, draws=4000, seed=1).T):
        counts = torch.bincount(drawn, minlength=5)
        assert counts[image] == 0
        assert (counts[counts > 0] / 1000 - 1).abs().max() < 0.12  # four standard errors
        assert (counts > 0).sum() == 4
    found = any_of(3, ids, draws=3000, seed=1)
    assert (torch.bincount(found[:, 2]) / 1000 - 1).abs().max() < 0.12
    assert torch.equal(any_of(3, ids[2:3], draws=3000, seed=1)[:, 0], found[:, 2])


def test_random_locations_are_uniform_and_the_images_own():
    grid = Grid.spaced(image=12, glimpse=4, spacing=4)
    ids = [str(n) for n in range(300)]
    found = random_locations(grid, ids, glimpses=3, draws=10, seed=1)
    assert found.shape == (10, 300, 3)
    counts = torch.bincount(found.flatten(), minlength=9)
    assert (counts - 1000).abs().max() < 150
    alone = random_locations(grid, ids[7:8], glimpses=3, draws=10, seed=1)
    assert torch.equal(alone[:, 0], found[:, 7])
