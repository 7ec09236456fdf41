import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import worlds
from exact_design import ExactCompletion, ExactPosterior
from nogs.design.bayesopt import BayesOpt
from nogs.design.coarse import CoarseToFine
from nogs.design.config import DesignConfig
from nogs.design.entropies import Entropies, random_order
from nogs.design.epe import first_minimum
from nogs.design.race import Race, drawn_through, roughness, student_quantile
from nogs.design.search import GridSearch, conclude, means, neighbours
from nogs.design.steps import make_search
from nogs.glimpse import Grid
from nogs.runtime.errors import InputError
from waits import Waits

SEARCHES = {
    "grid": GridSearch(),
    "race": Race(),
    "race with a stride": Race(stride=2),
    "race that refines": Race(stride=2, refine=0.4),
    "coarse-to-fine": CoarseToFine(stride=2),
}
if importlib.util.find_spec("botorch") is not None:
    SEARCHES["bayesopt"] = BayesOpt(start=4, budget=9)
IMAGES = [3, 41, 80, 122, 160]


def asked(world, pixels, *, images=IMAGES, **options):
    """Entropies, not yet computed, of some images of the world that were seen at `pixels`."""
    pictures = torch.from_numpy(world.images[images])
    where = torch.tensor(pixels, dtype=torch.int64).reshape(1, -1, 2).expand(len(images), -1, 2)
    completions = ExactCompletion(world, **options).complete(pictures, where, ids=list(map(str, images)))
    order = torch.stack([random_order(weights, key=n) for n, weights in zip(images, completions.weights)])
    return Entropies(ExactPosterior(world), completions, where, objectives=[(0,)], order=order)


def everything(entropies):
    return torch.ones(len(entropies.used), len(entropies.candidates), dtype=torch.bool)


def exact(world, pixels):
    out = []
    for image in world.images[IMAGES]:
        glimpses = np.array([image[r : r + 4, c : c + 4] for r, c in pixels], dtype=np.uint8).reshape(-1, 4, 4, 3)
        out.append(worlds.exact_epe(world, glimpses, np.array(pixels).reshape(-1, 2)))
    return np.array(out)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("pixels", [[], [worlds.A], [worlds.H, worlds.P]])
def test_choice_is_the_exact_one(world, name, pixels):
    choice = SEARCHES[name].search(entropies := asked(world, pixels), everything(entropies))
    truth = exact(world, pixels)
    best = [int(np.flatnonzero(row <= row.min() + 1e-9)[0]) for row in truth]
    regret = truth[np.arange(len(IMAGES)), choice.location] - truth.min(1)
    assert (regret <= (0.002 if "race" in name else 1e-6)).all()
    if "race" not in name:
        assert choice.location.tolist() == best
    np.testing.assert_allclose(choice.epe, truth[np.arange(len(IMAGES)), choice.location], atol=1e-6)
    assert (choice.error >= 0).all()
    # images that have seen the same share completions
    assert choice.map.evaluations.amax(0).sum() <= entropies.evaluations <= choice.map.evaluations.sum()


def test_grid_fills_the_whole_map(world):
    choice = GridSearch().search(entropies := asked(world, [worlds.A]), everything(entropies))
    np.testing.assert_allclose(choice.map.estimate, exact(world, [worlds.A]), atol=1e-6)
    assert (choice.map.tried == torch.tensor(entropies.used)[:, None]).all()
    assert choice.map.on(world.grid, 0).shape == world.grid.shape
    second = choice.map.estimate.sort(1).values[:, 1]
    np.testing.assert_allclose(choice.margin, second - choice.epe)
    assert ((choice.sure > 0.5) & (choice.sure <= 1)).all()


def test_race_spends_less_than_grid_and_its_winner_was_tried_on_everything(fine_world):
    race, grid = (asked(fine_world, [worlds.H]) for _ in range(2))
    choice = Race().search(race, everything(race))
    GridSearch().search(grid, everything(grid))
    assert race.evaluations < 0.5 * grid.evaluations
    tried = choice.map.tried.gather(1, choice.location[:, None])[:, 0]
    assert tried.tolist() == race.used


def test_race_that_drops_nobody_is_the_grid(fine_world):
    race, grid = (asked(fine_world, [worlds.N]) for _ in range(2))
    found = Race(first=10_000).search(race, everything(race))
    expected = GridSearch().search(grid, everything(grid))
    assert race.evaluations == grid.evaluations
    assert (found.location == expected.location).all()
    assert torch.equal(found.map.estimate, expected.map.estimate)


@pytest.mark.parametrize("search", list(SEARCHES.values()), ids=list(SEARCHES))
def test_images_beside_an_image_do_not_matter(fine_world, search):
    together = search.search(entropies := asked(fine_world, [worlds.H], draws=60), everything(entropies))
    for b, image in enumerate(IMAGES):
        alone = search.search(one := asked(fine_world, [worlds.H], draws=60, images=[image]), everything(one))
        assert alone.location[0] == together.location[b]
        assert torch.equal(alone.map.tried[0], together.map.tried[b])
        assert torch.equal(alone.map.estimate[0].nan_to_num(), together.map.estimate[b].nan_to_num())


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "bayesopt"])
def test_summing_up_waits_for_the_device_as_often_for_many_images_as_for_one(world, name):
    counts = []
    for images in (IMAGES[:1], IMAGES):
        entropies = asked(world, [worlds.A], images=images)
        SEARCHES[name].search(entropies, everything(entropies))
        with Waits() as waits:
            winner = first_minimum(means(entropies, everything(entropies) & (entropies.tried > 0)))
            conclude(entropies, everything(entropies), winner)
        counts.append(waits.number)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", SEARCHES)
def test_used_locations_are_left_out(world, name):
    entropies = asked(world, [worlds.A])
    allowed = everything(entropies)
    allowed[:, [0, 2, 4]] = False
    choice = SEARCHES[name].search(entropies, allowed)
    assert set(choice.location.tolist()).isdisjoint({0, 2, 4})
    assert (choice.map.tried[:, [0, 2, 4]] == 0).all()
    assert choice.map.estimate[:, [0, 2, 4]].isnan().all()


@pytest.mark.parametrize("name", SEARCHES)
def test_a_single_location_is_chosen_for_sure(world, name):
    entropies = asked(world, [worlds.A])
    allowed = torch.zeros_like(everything(entropies))
    allowed[:, 5] = True
    choice = SEARCHES[name].search(entropies, allowed)
    assert choice.location.tolist() == [5] * len(IMAGES)
    assert (choice.sure == 1).all()


class Table:
    """Entropies known in advance: a smooth dip, and noise that locations share."""

    def __init__(self, values, weights, grid):
        self.full, self.weights, self.posterior = values, weights, SimpleNamespace(grid=grid)
        self.values = torch.full_like(values, torch.nan)
        self.used = (weights > 0).sum(1).tolist()
        self.tried = torch.zeros(len(values), values.shape[2], dtype=torch.int64)
        self.candidates = grid.pixels
        self.evaluations = 0

    def most(self, objective=0):
        return 0.7

    def fill(self, wanted, last=None):
        for b, used in enumerate(self.used):
            end = used if last is None else min(last, used)
            new = wanted[b] & (self.tried[b] < end)
            self.evaluations += int((end - self.tried[b, new]).sum())
            self.tried[b, new] = end
            self.values[b, :end, new] = self.full[b, :end, new]


@pytest.fixture(scope="module")
def dips():
    """40 maps of 26 x 26 locations on 100 completions, whose dip moves from completion to completion."""
    random, grid = np.random.default_rng(0), Grid.even(image=64, glimpse=8, count=26)
    rows, columns = np.mgrid[:26, :26]
    centre = random.uniform(5, 20, (40, 1, 2)) + random.normal(0, 1.5, (40, 100, 2))
    far = (rows - centre[..., 0, None, None]) ** 2 + (columns - centre[..., 1, None, None]) ** 2
    gain = random.uniform(0, 0.3, (40, 100, 1, 1)) * np.exp(-far / 18)
    level = random.normal(0.5, 0.1, (40, 100, 1, 1))
    values = level - gain + random.normal(0, 0.02, (40, 100, 26, 26))
    weights = random.dirichlet(np.full(100, 4.0), 40)
    order = np.argsort(random.exponential(size=weights.shape) / weights, 1)  # by weight, at random
    values = np.take_along_axis(values.reshape(40, 100, -1), order[..., None], 1)
    return values, np.take_along_axis(weights, order, 1), grid


@pytest.mark.parametrize(
    ("search", "share"),
    [
        (Race(), 0.15),
        (Race(stride=2), 0.1),
        (Race(stride=4), 0.05),
        (Race(stride=3, refine=0.1), 0.06),
        (CoarseToFine(), 0.2),
    ],
    ids=["race", "race with a stride of 2", "race with a stride of 4", "race that refines", "coarse-to-fine"],
)
def test_winner_is_within_tolerance_of_the_grids_and_costs_a_fraction(dips, search, share):
    values, weights, grid = dips
    table = Table(torch.from_numpy(values), torch.from_numpy(weights), grid)
    choice = search.search(table, everything(table))
    means = np.einsum("bn,bnl->bl", weights, values)
    regret = means[np.arange(40), choice.location] - means.min(1)
    assert (regret <= 0.002).mean() >= 0.95
    assert table.evaluations <= share * values.size
    assert choice.map.evaluations.sum() == table.evaluations


def faces(number, *, side=50, completions=200, seed=1):
    """Maps of the size of CelebA-HQ's: an attribute is visible in a few places, with varying strength by completion.

    On each completion an entropy falls around every place by its own amount, and the place is a little elsewhere; small
    ripples are nobody's else. The whole is in nats of one attribute.
    """
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    values = np.repeat(random.uniform(0.3, 0.69, (number, completions, 1, 1)), side, 2).repeat(side, 3)
    for _ in range(4):
        centre = random.uniform(5, side - 5, (number, 1, 2)) + random.normal(0, 1.5, (number, completions, 2))
        width = random.uniform(3, 7, (number, 1, 1, 1))
        far = (rows - centre[..., 0, None, None]) ** 2 + (columns - centre[..., 1, None, None]) ** 2
        depth = random.uniform(0, 0.25, (number, 1, 1, 1)) * random.uniform(0, 2, (number, completions, 1, 1))
        values -= depth * np.exp(-far / (2 * width**2))
    values += random.normal(0, 0.01, values.shape)
    return values.clip(0, 0.693).reshape(number, completions, -1), Grid.even(image=224, glimpse=16, count=side)


def test_race_at_the_size_of_celeba_hq_costs_a_tenth_of_the_grid():
    values, grid = faces(20)
    weights = np.full(values.shape[:2], 1 / 200)
    table = Table(torch.from_numpy(values), torch.from_numpy(weights), grid)
    choice = Race(stride=4, share=0.1).search(table, everything(table))
    means = values.mean(1)
    regret = means[np.arange(20), choice.location] - means.min(1)
    assert (regret <= 0.002).mean() >= 0.95
    assert table.evaluations <= 0.07 * values.size
    assert (choice.map.evaluations <= 0.1 * values[0].size).all()


def test_share_is_kept_to_where_locations_hardly_differ():
    random, grid = np.random.default_rng(0), Grid.even(image=64, glimpse=8, count=20)
    values = torch.from_numpy(random.normal(0.5, 0.1, (6, 60, 400)))
    weights = torch.full((6, 60), 1 / 60, dtype=torch.float64)
    free, bound = (Table(values, weights, grid) for _ in range(2))
    Race().search(free, everything(free))
    choice = Race(share=0.25).search(bound, everything(bound))
    assert free.evaluations > 0.35 * values.numel()
    assert (choice.map.evaluations <= 0.25 * 60 * 400).all()
    assert (choice.map.evaluations > 0.15 * 60 * 400).all()
    picked = values.mean(1).gather(1, choice.location[:, None])[:, 0]
    assert (picked < values.mean(1).quantile(0.05, dim=1)).all()


def test_roughness_is_the_largest_difference_to_a_neighbour_that_is_known():
    nan = torch.nan
    mean = torch.tensor([[0.0, nan, 3.0, nan, nan, nan, 1.0, nan, 7.0]], dtype=torch.float64)  # 3 x 3, every second
    before = torch.full((1, 9), 0.5, dtype=torch.float64)
    found = roughness(mean, (3, 3), 2, before=before)
    assert found[0, [0, 2, 6, 8]].tolist() == [7, 4, 6, 7]
    assert found[0, 4] == 0.5
    mean[0, 8] = nan
    assert roughness(mean, (3, 3), 2, before=before)[0, 0] == 0.5  # two neighbours are too few


def test_map_is_drawn_through_what_is_known_as_a_gaussian_process_has_it():
    random, shape, scale = np.random.default_rng(0), (5, 7), 2.5
    places = [0, 6, 16, 24, 30, 34]
    heights = random.normal(0.3, 0.1, len(places))

    def correlation(one, other):
        far = np.hypot(one // 7 - other // 7, one % 7 - other % 7) * np.sqrt(5) / scale
        return (1 + far + far**2 / 3) * np.exp(-far)

    between = np.array([[correlation(a, b) + 1e-3 * (a == b) for b in places] for a in places])
    found = drawn_through(torch.from_numpy(heights), torch.tensor(places), shape, scale=scale).numpy()
    for place in set(range(35)) - set(places):
        to = np.array([correlation(place, known) for known in places])
        expected = heights.mean() + to @ np.linalg.inv(between) @ (heights - heights.mean())
        assert found[place] == pytest.approx(expected, abs=1e-9)
    assert found[places].tolist() == heights.tolist()


def test_refined_race_goes_where_the_map_falls_between_coarse_locations():
    """The lowest coarse location stands alone; between four others that are a little higher lies the minimum."""
    rows, columns = np.mgrid[:13, :13]
    valley = 0.3 * np.exp(-((rows - 4.8) ** 2 + (columns - 4.8) ** 2) / 8)
    hole = np.where((rows == 12) & (columns == 12), 0.24, 0.0)
    random, grid = np.random.default_rng(0), Grid.even(image=128, glimpse=32, count=13)
    values = torch.from_numpy((1 - valley - hole).reshape(1, 1, -1) + random.normal(0, 0.002, (3, 40, 169)))
    weights = torch.full((3, 40), 1 / 40, dtype=torch.float64)
    plain, refined = (Table(values, weights, grid) for _ in range(2))
    narrow = Race(stride=3, slack=0.0).search(plain, everything(plain)).location
    choice = Race(stride=3, refine=0.1).search(refined, everything(refined))
    assert narrow.tolist() == [168] * 3
    assert choice.location.tolist() == values.mean(1).argmin(1).tolist()
    fine = torch.from_numpy(rows % 3 + columns % 3 != 0).flatten()
    fine[168] = True  # a single coarse location is allowed: nothing to draw a map through
    alone = Table(values, weights, grid)
    found = Race(stride=3, refine=0.1).search(alone, everything(alone) & fine).location
    assert found.tolist() == values.mean(1).where(fine, torch.inf).argmin(1).tolist()


@pytest.mark.parametrize("stride", [None, 1])
def test_refine_without_a_stride_is_refused(stride):
    with pytest.raises(ValueError, match="refine is for a race with a stride"):
        DesignConfig(refine=0.2, stride=stride)


def test_posterior_that_answers_nan_is_refused(world, monkeypatch):
    entropies = asked(world, [worlds.A])
    monkeypatch.setattr("nogs.design.entropies.entropy", lambda said: torch.full(said.shape[:-1], torch.nan))
    with pytest.raises(InputError, match="The posterior answers with NaN"):
        GridSearch().search(entropies, everything(entropies))


def test_tighter_confidence_costs_more(dips):
    values, weights, grid = dips
    spent = []
    for confidence in (0.8, 0.99, 0.9999):
        table = Table(torch.from_numpy(values), torch.from_numpy(weights), grid)
        Race(confidence=confidence, tolerance=0).search(table, everything(table))
        spent.append(table.evaluations)
    assert spent == sorted(spent)
    assert spent[0] < spent[2]


def test_quantile_is_students():
    stats = pytest.importorskip("scipy.stats")
    freedom = torch.tensor([1.0, 3.0, 7.0, 30.0, 500.0], dtype=torch.float64)
    ratio = student_quantile(0.99, freedom=freedom, parts=5).numpy() / stats.t.ppf(1 - 0.01 / 5, freedom.numpy())
    assert (ratio >= 1).all()  # careful where it is not exact
    np.testing.assert_allclose(ratio[2:], 1, rtol=0.01)


def test_rounds_grow_to_all_completions():
    assert Race(first=8, growth=1.5).rounds(40) == [8, 12, 18, 27, 40]
    assert Race(first=8).rounds(5) == [5]
    assert Race(first=2, growth=1.01).rounds(5) == [2, 3, 4, 5]


def test_neighbours_stop_at_the_edge():
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[0, 0] = True
    assert neighbours(mask, (3, 4), 2).nonzero()[:, 1].tolist() == [0, 2, 8, 10]


@pytest.mark.parametrize(
    ("name", "kind"), [("grid", GridSearch), ("race", Race), ("coarse-to-fine", CoarseToFine), ("bayesopt", BayesOpt)]
)
def test_recipe_names_the_search(name, kind):
    assert type(make_search(DesignConfig(search=name))) is kind


@pytest.mark.skipif(importlib.util.find_spec("botorch") is None, reason="BoTorch is not installed")
def test_bayesopt_finds_the_dip_with_few_locations(dips):
    """Better also than as many evenly spread locations."""
    values, weights, grid = dips
    table, plain = (Table(torch.from_numpy(values[:3]), torch.from_numpy(weights[:3]), grid) for _ in range(2))
    choice = BayesOpt(start=16, budget=40).search(table, everything(table))
    spread = BayesOpt(start=40, budget=40).search(plain, everything(plain))
    means = np.einsum("bn,bnl->bl", weights[:3], values[:3])
    regret, other = (means[np.arange(3), found.location] - means.min(1) for found in (choice, spread))
    assert (regret <= 0.002).all()
    assert regret.sum() < other.sum()
    assert table.evaluations == 40 * 3 * 100


@pytest.mark.skipif(importlib.util.find_spec("botorch") is None, reason="BoTorch is not installed")
def test_bayesopt_finds_the_exact_minimum_in_two_thirds_of_the_locations(fine_world):
    choice = BayesOpt(start=8, budget=16).search(entropies := asked(fine_world, [worlds.A]), everything(entropies))
    truth = exact(fine_world, [worlds.A])
    np.testing.assert_allclose(truth[np.arange(len(IMAGES)), choice.location], truth.min(1), atol=1e-6)
    assert ((choice.map.tried > 0).sum(1) == 16).all()


def test_bayesopt_says_what_to_install(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "botorch.fit", None)
    entropies = asked(world, [worlds.A])
    with pytest.raises(InputError, match=r'needs BoTorch; install it with pip install "nogs\[bayesopt\]"'):
        BayesOpt().search(entropies, everything(entropies))
