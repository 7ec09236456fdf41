import math

import numpy as np
import pytest
import torch

import worlds
from exact_design import ExactCompletion, ExactPosterior
from nogs.completion import Completions
from nogs.data.task import LabelSpace
from nogs.design.entropies import Entropies, objective, random_order
from nogs.design.epe import estimate, first_minimum, paired, weighted
from nogs.glimpse import Grid
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.labels import Head
from nogs.posterior.network import Architecture, NetworkPosterior
from nogs.posterior.protocol import entropy


def filled(world, image, pixels, *, kind="categorical", completion=None, **options):
    """All entropies of one image of the world seen at `pixels`."""
    images = torch.from_numpy(world.images[[image]])
    where = torch.tensor(pixels, dtype=torch.int64).reshape(1, -1, 2)
    posterior = ExactPosterior(world, kind=kind)
    completions = (completion or ExactCompletion(world)).complete(images, where, ids=["one"])
    options.setdefault("objectives", [objective(posterior.space, None)])
    found = Entropies(posterior, completions, where, **options)
    found.fill(torch.ones(1, len(found.candidates), dtype=torch.bool))
    return found


def epe(entropies, number=0):
    used = entropies.used[0]
    return weighted(entropies.of(number)[0, :used], entropies.weights[0, :used])


def see(image, pixels):
    return np.array([image[r : r + 4, c : c + 4] for r, c in pixels], dtype=np.uint8).reshape(-1, 4, 4, 3)


@pytest.mark.parametrize("pixels", [[], [worlds.A], [worlds.P, worlds.H], [worlds.A, worlds.N, worlds.B]])
def test_epe_is_the_exact_one(world, pixels):
    found, _ = epe(filled(world, 41, pixels))
    exact = worlds.exact_epe(world, see(world.images[41], pixels), np.array(pixels).reshape(-1, 2))
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_every_attribute_comes_from_one_evaluation(world):
    entropies = filled(world, 41, [worlds.P], kind="bernoulli", objectives=[(0,), (1,), (2,), (0, 2)])
    assert entropies.evaluations == len(world.grid) * entropies.used[0]
    members = world.agreeing(see(world.images[41], [worlds.P]), np.array([worlds.P]))
    shares = world.counts * members / (world.counts @ members)
    codes = world.codes(world.grid.pixels.numpy())
    for attribute in range(3):
        expected = np.zeros(len(world.grid))
        for n in np.flatnonzero(members):
            for m in range(len(world.grid)):
                p = world.label_distribution(members & (codes[:, m] == codes[n, m]))[attribute]
                expected[m] += shares[n] * worlds.entropy(np.array([p, 1 - p]))
        np.testing.assert_allclose(epe(entropies, attribute)[0], expected, atol=1e-6)
    both = epe(entropies, 0)[0] + epe(entropies, 2)[0]
    np.testing.assert_allclose(epe(entropies, 3)[0], both, atol=1e-6)


def test_errors_are_the_spread_of_estimates_over_new_completions(world):
    """The mean of the squared errors is the variance of the estimates, also with importance weights.

    Completions are drawn uniformly from the images that agree, and weigh what these images weigh.
    """
    table = filled(world, 41, [worlds.H])
    values, share = table.values[0, : table.used[0]].double(), table.weights[0, : table.used[0]]
    random = np.random.default_rng(0)
    rows = torch.from_numpy(random.integers(0, len(values), (4000, 60)))
    means, errors = weighted(values[rows], share[rows])
    gaps, gap_errors = paired(values[rows], values[rows][..., [0]], share[rows])
    np.testing.assert_allclose(means.mean(0), share @ values, atol=0.004)
    for found, error, places in ((means, errors, [0, 2]), (gaps, gap_errors, [2, 4])):
        ratio = error.square().mean(0)[places] / found.var(0)[places]
        assert ((ratio > 0.9) & (ratio < 1.1)).all(), ratio
        within = ((found - found.mean(0)).abs() < 1.96 * error)[:, places].double().mean(0)
        assert ((within > 0.92) & (within < 0.97)).all(), within


def test_error_with_equal_weights_is_the_textbooks():
    values = torch.randn(30, 4, dtype=torch.float64)
    mean, error = weighted(values, torch.full((30,), 1 / 30))
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(error, values.std(0) / math.sqrt(30))


def test_paired_error_is_that_of_the_differences():
    torch.manual_seed(0)
    shared = 5 * torch.randn(50, 1, dtype=torch.float64)
    values, weights = shared + 0.1 * torch.randn(50, 3), torch.rand(50)
    gap, error = paired(values, values[:, [0]], weights)
    share = (weights.double() / weights.double().sum()).numpy()
    differences = (values - values[:, [0]]).double().numpy()
    centred = differences - share @ differences
    np.testing.assert_allclose(gap, share @ differences)
    np.testing.assert_allclose(error, np.sqrt((share[:, None] ** 2 * centred**2).sum(0) / (1 - (share**2).sum())))
    assert (error[1:] < weighted(values, weights)[1][1:] / 10).all()


def test_location_tried_on_some_completions_is_estimated_by_its_difference_to_the_leader():
    torch.manual_seed(1)
    full = torch.randn(400, 1) + 0.05 * torch.randn(400, 3)
    full[:, 2] += 0.3
    table = full.clone()
    table[20:, 2] = torch.nan
    table[:, 1] = torch.nan
    found, error = estimate(table, torch.full((400,), 1 / 400), leader=0)
    assert abs(found[2] - full[:, 2].mean()) < 0.05 < abs(full[:20, 2].mean() - full[:, 2].mean())
    assert found[1].isnan()
    assert error[1].isnan()
    whole, whole_error = estimate(full, torch.full((400,), 1 / 400), leader=0)
    np.testing.assert_allclose(whole, full.double().mean(0))
    np.testing.assert_allclose(whole_error, full.double().std(0) / 20)
    assert whole_error[2] < error[2] < whole_error[2] * 1.5


def test_single_completion_has_the_largest_error_there_is():
    _, error = estimate(torch.tensor([[0.2, 0.3]]), torch.ones(1), leader=0, most=math.log(3))
    np.testing.assert_allclose(error, math.log(3) / 2)
    assert weighted(torch.tensor([[0.2, 0.3]]), torch.ones(1))[1].isnan().all()


def test_ties_go_to_the_first_location():
    values = torch.tensor([[3.0, 1.0 + 5e-7, 1.0, torch.nan], [torch.inf, 2.0, 2.0, 2.1]])
    assert first_minimum(values).tolist() == [1, 1]


def test_every_call_has_the_same_number_of_evaluations(fine_world):
    entropies = filled(fine_world, 3, [worlds.H], batch=128)
    narrow = torch.zeros(1, len(fine_world.grid), dtype=torch.bool)
    narrow[0, :3] = True
    entropies.tried.zero_()
    entropies.fill(narrow, 5)
    assert {queries * width for queries, width in entropies.posterior.shapes} == {128}


def test_many_evaluations_are_listed_a_part_at_a_time(fine_world, monkeypatch):
    whole = filled(fine_world, 3, [worlds.H])
    monkeypatch.setattr("nogs.design.entropies._LISTED", 100)
    images = torch.from_numpy(fine_world.images[[3, 5, 3]])
    where = torch.tensor([[worlds.H]] * 3)
    completions = ExactCompletion(fine_world).complete(images, where, ids=["a", "b", "c"])
    parts = Entropies(ExactPosterior(fine_world), completions, where, objectives=[(0,)])
    parts.fill(torch.tensor([[True], [False], [True]]).expand(3, 25))
    assert torch.equal(parts.values[0].nan_to_num(), whole.values[0].nan_to_num())
    assert torch.equal(parts.values[2].nan_to_num(), whole.values[0].nan_to_num())
    assert parts.values[1].isnan().all()
    assert parts.evaluations == 2 * whole.evaluations


@pytest.mark.parametrize("listed", [1 << 20, 3_000])
def test_images_with_the_same_earlier_locations_share_evaluations(fine_world, monkeypatch, listed):
    monkeypatch.setattr("nogs.design.entropies._LISTED", listed)
    rows, places = [3, 5, 41, 41, 80], [worlds.H, worlds.P, worlds.H, worlds.P, worlds.H]
    images, where = torch.from_numpy(fine_world.images[rows]), torch.tensor(places)[:, None]
    completions = ExactCompletion(fine_world).complete(images, where, ids=list("abcde"))
    found = Entropies(ExactPosterior(fine_world), completions, where, objectives=[(0,)], batch=64)
    found.fill(torch.ones(5, 25, dtype=torch.bool))
    pairs = set()
    for b, (row, place) in enumerate(zip(rows, places)):
        alone = filled(fine_world, row, [place])
        used = alone.used[0]
        assert torch.equal(found.values[b, :used], alone.values[0, :used])
        members = completions.index[b, completions.weights[b] > 0].tolist()
        pairs |= {(place, member) for member in members}
    alone = sum(found.used) * 25
    if listed > alone:
        assert found.evaluations == len(pairs) * 25
    assert len(pairs) * 25 <= found.evaluations < alone


def test_what_is_known_is_not_asked_again(world):
    entropies = filled(world, 3, [worlds.A])
    before = entropies.evaluations
    entropies.fill(torch.ones(1, len(world.grid), dtype=torch.bool))
    assert entropies.evaluations == before == entropies.used[0] * len(world.grid)


def test_random_order_prefers_weight_and_leaves_unused_ones_last():
    weights = torch.tensor([0.0, 0.7, 0.1, 0.2, 0.0])
    orders = torch.stack([random_order(weights, key=key) for key in range(3000)])
    assert set(orders[:, 3:].flatten().tolist()) == {0, 4}
    share = (orders[:, 0] == 1).double().mean()
    assert abs(share - 0.7) < 0.03
    assert (random_order(weights, key=5) == random_order(weights, key=5)).all()


@pytest.fixture(scope="module", params=["tokens", "cnn"])
def network(request):
    """A small untrained network on pictures that are not symmetric."""
    grid = Grid.spaced(image=16, glimpse=4, spacing=4)
    config = PosteriorConfig(kind=request.param, backbone="resnet18", width=16, layers=1, heads=2, token=2)
    architecture = Architecture(config, grid, 3, Head(LabelSpace("categorical", ("a", "b", "c"))))
    built = architecture.build(seed=1)
    with torch.no_grad():
        if request.param == "tokens":
            built.head.weight.mul_(4)
        else:
            built.network.fc.weight.mul_(30)  # answers that differ
    pictures = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8))
    return NetworkPosterior(built, architecture, precision="float32"), pictures


class Plain:
    """A user's own posterior, without `prepare`."""

    def __init__(self, posterior):
        self.grid, self.space = posterior.grid, posterior.space
        self.log_probabilities, self.look_ahead = posterior.log_probabilities, posterior.look_ahead


def completions_of(pictures, flipped):
    number = len(pictures)
    index, nothing = torch.arange(number)[None], torch.full((1,), torch.nan)
    weights = torch.full((1, number), 1 / number)
    return Completions(pictures, index, flipped[None], weights, index, torch.tensor([5.0]), nothing, nothing)


def test_bank_image_is_asked_about_once_wherever_it_lies(network):
    """Two images with four completions each: bank rows 7, 4, 2 and nothing; rows 7, 4 mirrored, 0 and nothing."""
    posterior, pictures = network
    rows = torch.tensor([[7, 4, 2, -1], [7, 4, 0, -1]])
    place = {7: 1, 4: 2, 2: 3, 0: 0, -1: 0}  # an unused place points at row 0's picture
    index = torch.tensor([[place[int(row)] for row in line] for line in rows])
    flipped = torch.tensor([[False] * 4, [False, True, False, False]])
    weights = torch.tensor([[0.5, 0.25, 0.25, 0], [0.5, 0.25, 0.25, 0]])
    pixels, nothing = torch.tensor([[[0, 4]], [[0, 4]]]), torch.full((2,), torch.nan)
    options = {"objectives": [(0,)], "batch": 64}
    # in one pool, and as where each image's completions are read from a disk
    for pool, where in ((pictures, index), (torch.cat([pictures, pictures]), index + torch.tensor([[0], [5]]))):
        parts = (where, flipped, weights, rows, nothing, nothing, nothing)
        found = Entropies(posterior, Completions(pool, *parts), pixels, **options)
        found.fill(torch.ones(2, len(posterior.grid), dtype=torch.bool))
        assert found.evaluations == (3 + 2) * len(posterior.grid)  # row 7 is the same for both
        for b in range(2):
            one = Completions(pool, *(part[[b]] for part in parts))
            alone = Entropies(posterior, one, pixels[:1], **options)
            alone.fill(torch.ones(1, len(posterior.grid), dtype=torch.bool))
            torch.testing.assert_close(found.values[b, :3], alone.values[0, :3], atol=1e-6, rtol=0)


def test_flipped_completion_is_read_mirrored(network):
    posterior, pictures = network
    flipped = torch.tensor([True, False, True, True, False])
    pixels = torch.tensor([[[0, 4], [8, 12]]])
    entropies = Entropies(posterior, completions_of(pictures, flipped), pixels, objectives=[(0,)], batch=64)
    entropies.fill(torch.ones(1, len(posterior.grid), dtype=torch.bool))
    shown = torch.where(flipped[:, None, None, None], pictures.flip(2), pictures)
    for n in range(5):
        where = torch.cat([pixels[0].expand(16, 2, 2), posterior.grid.pixels[:, None]], 1)
        answers = posterior.log_probabilities(shown[[n]], where, index=torch.zeros(16, dtype=torch.int64))
        np.testing.assert_allclose(entropies.values[0, n], entropy(answers)[:, 0], atol=5e-6)


def test_a_posterior_that_prepares_nothing_is_asked_the_same(network):
    posterior, pictures = network
    pixels, flipped = torch.tensor([[[0, 4], [2, 6]]]), torch.tensor([True, False, False, True, False])
    found = []
    for one in (posterior, Plain(posterior)):
        entropies = Entropies(one, completions_of(pictures, flipped), pixels, objectives=[(0,)])
        entropies.fill(torch.ones(1, len(posterior.grid), dtype=torch.bool))
        found.append(entropies.values)
    np.testing.assert_allclose(found[0], found[1], atol=5e-6)
    assert found[0].std() > 0.01
