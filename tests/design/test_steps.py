import numpy as np
import pytest
import torch

import worlds
from exact_design import tools
from nogs.design.config import DesignConfig
from nogs.design.steps import annotate_images, first_step, shortlist

ROWS = np.arange(0, 162, 9)
IDS = [str(row) for row in ROWS]


def annotated(world, config, *, kind="categorical", glimpses=3, **options):
    own = tools(spacing=world.grid.rows[1], kind=kind)
    first = first_step(own, world.images[0], config=config)
    return first, annotate_images(
        own, world.images[ROWS], IDS, first=first, config=config, glimpses=glimpses, **options
    )


@pytest.mark.parametrize("earlier", ["completion", "image"])
@pytest.mark.parametrize("search", ["grid", "race", "coarse-to-fine"])
def test_sequence_is_the_exact_greedy_one(world, search, earlier):
    config = DesignConfig(search=search, earlier=earlier, tolerance=0, stride=2 if search == "coarse-to-fine" else None)
    _, found = annotated(world, config)
    expected = np.stack([worlds.greedy_sequence(world, world.images[row], 3) for row in ROWS])
    np.testing.assert_array_equal(world.grid.pixels.numpy()[found.locations], expected)


def test_numbers_of_each_step_are_the_exact_ones(world):
    _, found = annotated(world, DesignConfig(search="grid", keep_maps=True))
    places = world.grid.pixels.numpy()
    for b, row in enumerate(ROWS[:6]):
        image = world.images[row]
        for t in range(3):
            pixels = places[found.locations[b, :t]]
            glimpses = np.array([image[r : r + 4, c : c + 4] for r, c in pixels]).reshape(-1, 4, 4, 3)
            left = worlds.entropy(worlds.exact_posterior(world, glimpses, pixels))
            assert found.entropy[b, t] == pytest.approx(left, abs=1e-6)
            epe = worlds.exact_epe(world, glimpses, pixels)
            np.testing.assert_allclose(found.maps[b, t, 0], epe, atol=1e-6)
            assert found.epe[b, t] == pytest.approx(epe.min(), abs=1e-6)
    assert np.isfinite(found.error).all()
    assert found.maps.shape == (len(ROWS), 3, 2, 9)


def test_first_step_is_one_computation_for_all_attributes(world):
    first, found = annotated(world, DesignConfig(search="grid"), kind="bernoulli", attribute=1)
    assert first.evaluations == 162 * 9
    assert first.map.estimate.shape == (3, 9)
    assert (found.locations[:, 0] == int(first.location[1])).all()
    assert (found.epe[:, 0] == float(first.map.estimate[1].min())).all()


def test_used_locations_are_not_taken_again_unless_allowed(world):
    _, again = annotated(world, DesignConfig(search="grid"), glimpses=6)
    _, new = annotated(world, DesignConfig(search="grid", revisit=False), glimpses=6)
    assert any(len(set(row)) < 6 for row in again.locations.tolist())
    assert all(len(set(row)) == 6 for row in new.locations.tolist())


@pytest.mark.parametrize("search", ["grid", "race", "coarse-to-fine"])
@pytest.mark.parametrize("most", [0.0, 0.5])
def test_glimpses_overlap_no_more_than_allowed_and_are_the_best_of_those(fine_world, search, most):
    config = DesignConfig(search=search, overlap=most, tolerance=0, keep_maps=True)
    _, found = annotated(fine_world, config, glimpses=4)
    places = fine_world.grid.pixels.numpy()
    shown = np.zeros((len(places), len(places)))
    for i, (r, c) in enumerate(places):
        for j, (row, column) in enumerate(places):
            shown[i, j] = max(0, 4 - abs(r - row)) * max(0, 4 - abs(c - column)) / 16
    for b, locations in enumerate(found.locations):
        for t in range(1, 4):
            allowed = shown[locations[:t]].max(0) <= most
            assert allowed[locations[t]]
            if search == "grid":
                assert found.epe[b, t] == pytest.approx(np.where(allowed, found.maps[b, t, 0], np.inf).min(), abs=1e-6)


@pytest.mark.parametrize("revisit", [True, False])
def test_least_overlap_is_taken_where_none_is_allowed(world, fine_world, revisit):
    _, found = annotated(world, DesignConfig(search="grid", overlap=0, revisit=revisit), glimpses=10)
    assert all(len(set(row[:9])) == 9 for row in found.locations.tolist())
    _, found = annotated(fine_world, DesignConfig(search="grid", overlap=0.0, revisit=revisit), glimpses=12)
    places = fine_world.grid.pixels.numpy()
    for row in found.locations:
        for t in range(1, 12):
            gaps = np.abs(places[:, None] - places[row[:t]][None])
            shown = (np.clip(4 - gaps, 0, None).prod(-1) / 16).max(1)
            assert shown[row[t]] == shown.min()
            assert shown[row[t]] < 1  # nothing is looked at twice before everything was


def test_block_of_one_is_annotated_as_among_many(world):
    config = DesignConfig(images=32)
    own = tools(draws=50)
    first = first_step(own, world.images[0], config=config)
    many = annotate_images(own, world.images[ROWS], IDS, first=first, config=config, glimpses=3)
    for b in (0, 7, 17):
        one = annotate_images(own, world.images[ROWS[[b]]], IDS[b : b + 1], first=first, config=config, glimpses=3)
        for name in ("locations", "entropy", "epe", "error"):
            np.testing.assert_array_equal(getattr(one, name)[0], getattr(many, name)[b])


@pytest.mark.parametrize("number", [1, 4, 9, 24])
def test_shortlist_is_the_best_locations_that_lie_apart(fine_world, number):
    grid = fine_world.grid
    epe = torch.rand(len(grid), generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    found, places = shortlist(grid, epe, number).tolist(), grid.pixels.tolist()

    def shown(a, b):
        ours, theirs = ({(r + i, c + j) for i in range(grid.glimpse) for j in range(grid.glimpse)} for r, c in (a, b))
        return len(ours & theirs) / grid.glimpse**2

    assert len(set(found)) == len(found) == min(number, len(found))
    assert epe[found].tolist() == sorted(epe[found].tolist())
    for place in range(len(grid)):
        rivals = [one for one in found if epe[one] <= epe[place]]
        near = any(shown(places[place], places[one]) > 0.5 for one in rivals if one != place)
        assert (place in found) == (not near and len([one for one in rivals if one != place]) < number)


@pytest.mark.parametrize("options", [{"search": "grid"}, {"search": "race", "tolerance": 0, "stride": 2}])
def test_chosen_locations_are_the_best_of_the_shortlist(fine_world, options):
    config = DesignConfig(shortlist=4, keep_maps=True, revisit=False, **options)
    first, found = annotated(fine_world, config)
    _, free = annotated(fine_world, DesignConfig(search="grid", keep_maps=True, revisit=False))
    listed = shortlist(fine_world.grid, first.map.estimate[0], 4).tolist()
    assert (found.locations != free.locations).any()
    for b, row in enumerate(found.locations.tolist()):
        assert set(row) <= set(listed)
        left = [place for place in listed if place != row[0]]
        assert row[1] == min(left, key=lambda place: (round(float(free.maps[b, 1, 0, place]), 6), place))


def test_shortlist_as_long_as_the_grid_is_the_grid(fine_world):
    assert sorted(shortlist(fine_world.grid, torch.rand(25).double(), 25).tolist()) == list(range(25))


def test_shortlist_that_is_used_up_is_taken_from_again(fine_world):
    _, found = annotated(fine_world, DesignConfig(search="grid", shortlist=2, revisit=False, overlap=0), glimpses=5)
    assert all(len(set(row)) == 2 for row in found.locations.tolist())


def test_shortlist_of_another_search_is_refused():
    with pytest.raises(ValueError, match="a shortlist is for the searches grid and race, not for bayesopt"):
        DesignConfig(search="bayesopt", shortlist=4)
