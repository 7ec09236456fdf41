import numpy as np
import pytest

import worlds
from exact_design import tools
from nogs.design.coarse import CoarseToFine
from nogs.design.config import DesignConfig
from nogs.design.race import Race
from nogs.design.search import GridSearch
from nogs.design.steps import annotate_images, first_step

ROWS = np.arange(0, 162, 9)
IDS = [str(row) for row in ROWS]
SEARCHES = {"grid": GridSearch(), "race": Race(tolerance=0), "coarse-to-fine": CoarseToFine(stride=2)}


def annotated(world, config, *, kind="categorical", glimpses=3, **options):
    own = tools(spacing=world.grid.rows[1], kind=kind)
    first = first_step(own, world.images[0], config=config)
    return first, annotate_images(
        own, world.images[ROWS], IDS, first=first, config=config, glimpses=glimpses, **options
    )


@pytest.mark.parametrize("search", SEARCHES)
def test_sequence_is_the_exact_greedy_one(world, search):
    _, found = annotated(world, DesignConfig(), search=SEARCHES[search])
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


def test_a_location_may_be_chosen_again_unless_overlaps_are_forbidden(world):
    _, again = annotated(world, DesignConfig(search="grid"), glimpses=6)
    _, new = annotated(world, DesignConfig(search="grid", overlap=0.9), glimpses=6)
    assert any(len(set(row)) < 6 for row in again.locations.tolist())
    assert all(len(set(row)) == 6 for row in new.locations.tolist())


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("most", [0.0, 0.5])
def test_glimpses_overlap_no_more_than_allowed_and_are_the_best_of_those(fine_world, search, most):
    config = DesignConfig(overlap=most, keep_maps=True)
    _, found = annotated(fine_world, config, glimpses=4, search=SEARCHES[search])
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


def test_least_overlap_is_taken_where_none_is_allowed(world, fine_world):
    _, found = annotated(world, DesignConfig(search="grid", overlap=0), glimpses=10)
    assert all(len(set(row[:9])) == 9 for row in found.locations.tolist())
    _, found = annotated(fine_world, DesignConfig(search="grid", overlap=0.0), glimpses=12)
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
