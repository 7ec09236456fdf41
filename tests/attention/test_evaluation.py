import numpy as np
import pytest
import torch

from nogs.attention import evaluation
from nogs.attention.architecture import Architecture
from nogs.attention.cohort import Cohort, Member
from nogs.attention.evaluation import Evaluation, Evaluator, collapse, coverage, pixel_locations, summaries
from nogs.attention.network import Networks
from nogs.glimpse import Grid
from toy_attention import select, toy_task

GRID = Grid.spaced(image=(24, 32), glimpse=8, spacing=8)  # 3 x 4
ATTRIBUTES = ("Round", "Red")


def looked(*, networks=2, images=7, samples=3, glimpses=4, labels=5, seed=0):
    """An evaluation of random numbers in which class 0 is never the answer."""
    stream = torch.Generator().manual_seed(seed)
    return Evaluation(
        torch.randn(networks, images, samples, labels, generator=stream).log_softmax(-1),
        torch.randint(len(GRID), (networks, images, samples, glimpses), generator=stream),
        torch.rand(networks, glimpses, generator=stream),
        torch.randint(1, labels, (networks, images), generator=stream),
    )


@pytest.fixture
def world():
    """Two networks on a small task."""
    task = toy_task(attributes=ATTRIBUTES)
    members = [Member("ram", seed=m, attribute=name) for m, name in enumerate(ATTRIBUTES)]
    cohort = Cohort(task, members, glimpses=3, batch=4, flip=True, device=torch.device("cpu"))
    networks = Networks(Architecture(task.grid, glimpses=3, labels=2, hidden=8), seeds=[0, 1])
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.mul_(3)
    return networks, cohort


@pytest.mark.parametrize("samples", [1, 3])
def test_scores_are_those_of_a_loop_over_images(samples):
    found = looked(samples=samples)
    scores = found.scores()
    for m in range(2):
        nll, right = [], {"": [], "averaged_": []}
        averaged_nll = []
        for n in range(7):
            label = int(found.labels[m, n])
            p = np.exp(found.log_probabilities[m, n].double().numpy())
            nll += [-np.log(q[label]) for q in p]
            averaged_nll.append(-np.log(p.mean(0)[label]))
            right[""].append(np.mean([q.argmax() == label for q in p]))
            right["averaged_"].append(float(p.mean(0).argmax() == label))
        expected = {"nll": np.mean(nll), "averaged_nll": np.mean(averaged_nll)}
        for prefix, hits in right.items():
            classes = {k: [h for h, y in zip(hits, found.labels[m].tolist()) if y == k] for k in range(5)}
            present = [np.mean(values) for values in classes.values() if values]
            assert len(present) < 5
            expected[f"{prefix}accuracy"] = np.mean(hits)
            expected[f"{prefix}balanced_accuracy"] = np.mean(present)
        assert {name: float(value[m]) for name, value in scores.items()} == pytest.approx(expected, rel=1e-5)


def test_network_of_nan_is_never_right():
    found = looked()
    found.log_probabilities[1, 2, 0] = torch.nan
    found.labels[:] = 0  # what argmax says of NaN
    assert all(value[0].isfinite() for value in found.scores().values())
    assert all(value[1].isnan() for value in found.scores().values())


def test_usage_is_the_share_of_trajectories_at_each_location():
    found = looked()
    usage = found.usage(len(GRID))
    torch.testing.assert_close(usage.sum(-1), torch.ones(2, 4))
    for m, t, place in np.ndindex(2, 4, len(GRID)):
        share = (found.locations[m, :, :, t] == place).float().mean()
        assert usage[m, t, place].item() == pytest.approx(share.item(), abs=1e-6)


def test_coverage_counts_pixels_once():
    found = looked(images=600, networks=1)
    shares = []
    for trajectory in found.locations[0, :, 0]:
        seen = np.zeros((24, 32), bool)
        for row, column in GRID.pixels[trajectory].tolist():
            seen[row : row + 8, column : column + 8] = True
        shares.append(seen.mean())
    assert coverage(found.locations[0], GRID) == pytest.approx(np.mean(shares), rel=1e-5)
    same_place = torch.zeros(5, 1, 3, dtype=torch.int64)
    assert coverage(same_place, GRID) == pytest.approx(64 / (24 * 32))


def policy_at(*places, share=1.0):
    """A usage in which step t looks at places[t] with this share, and at location 5 otherwise."""
    usage = torch.zeros(len(places), len(GRID))
    usage[:, 5] = 1 - share
    for t, place in enumerate(places):
        usage[t, place] += share
    return usage


def test_policy_in_a_corner_is_warned_of():
    for corner in (0, 3, 8, 11):
        warning = collapse(policy_at(5, corner, corner), GRID)
        assert "the policy has collapsed" in warning
        assert "100% of the trajectories look at a corner of the image" in warning
        assert "try another seed or more sequences" in warning
        spread_first = policy_at(5, corner, corner)
        spread_first[0] = 1 / len(GRID)  # the first glimpse does not count, whether it is fixed or not
        assert collapse(spread_first, GRID) == warning


def test_policy_in_one_place_is_warned_of():
    warning = collapse(policy_at(5, 6, 6, share=0.97), GRID)
    assert "97% of the trajectories look at one place whatever they have seen" in warning


def test_first_glimpse_may_be_fixed_and_later_ones_may_be_spread():
    assert collapse(policy_at(0, 0, 0, share=0.9), GRID) is None
    spread = policy_at(0, 0, 0)
    spread[2] = 1 / len(GRID)
    assert collapse(spread, GRID) is None
    assert collapse(policy_at(0), GRID) is None


def test_way_to_look_that_is_given_is_no_collapsed_policy():
    places = torch.tensor([0, 6, 8]).expand(2, 5, 1, 3)
    found = Evaluation(torch.zeros(2, 5, 1, 2), places, torch.zeros(2, 3), torch.zeros(2, 5, dtype=torch.int64))
    assert "the policy has collapsed" in summaries(found, found, GRID)[0]["warning"]
    assert summaries(found, found, GRID, given=True)[0]["warning"] is None


def test_evaluator_looks_at_the_split_in_order(world):
    networks, cohort = world
    found = Evaluator(networks, cohort, "validation", trajectories=4)()
    rows = torch.from_numpy(cohort.task.rows("validation"))
    assert found.locations.shape == (2, 8, 4, 3)
    assert torch.equal(found.labels, cohort.labels[:, rows])
    for sample in range(4):  # following the recorded locations gives the recorded predictions
        again = networks(cohort.images, rows.expand(2, -1), forced=found.locations[:, :, sample], entropies=True)
        torch.testing.assert_close(again.logits.log_softmax(-1), found.log_probabilities[:, :, sample])
    assert (found.locations[:, :, 0] != found.locations[:, :, 1]).any()


def test_evaluator_draws_from_the_policy(world):
    networks, cohort = world
    found = Evaluator(networks, cohort, "validation", trajectories=400)()
    first = networks.location_logits(networks.start(1)).softmax(-1)[:, 0]
    draws = 8 * 400
    error = (first * (1 - first) / draws).sqrt()
    assert ((found.usage(len(cohort.task.grid))[:, 0] - first).abs() < 4.5 * error + 1e-6).all()
    expected = -(first * first.log()).sum(-1)
    torch.testing.assert_close(found.entropies[:, 0], expected)


def test_greedy_evaluator_takes_the_most_probable_location(world):
    networks, cohort = world
    found = Evaluator(networks, cohort, "test", trajectories=5, greedy=True)()
    rows = torch.from_numpy(cohort.task.rows("test"))
    assert found.locations.shape == (2, 8, 1, 3)
    assert torch.equal(found.locations[:, :, 0], networks(cohort.images, rows.expand(2, -1)).locations)


def test_evaluation_repeats_exactly_and_follows_the_networks(world):
    networks, cohort = world
    evaluator = Evaluator(networks, cohort, "validation", trajectories=3)
    first, second = evaluator(), evaluator()
    assert torch.equal(first.log_probabilities, second.log_probabilities)
    with torch.no_grad():
        networks.core_parameters["classify_bias"][:, 0] += 1
    assert not torch.equal(evaluator().log_probabilities, first.log_probabilities)


@pytest.mark.parametrize("chunk", [1, 5, 7, 24, 1000])
def test_chunks_change_nothing(world, monkeypatch, chunk):
    networks, cohort = world
    whole = Evaluator(networks, cohort, "validation", trajectories=3)()
    monkeypatch.setitem(evaluation.LIMIT, "cpu", 2 * chunk)
    parts = Evaluator(networks, cohort, "validation", trajectories=3)()
    assert torch.equal(whole.locations, parts.locations)
    torch.testing.assert_close(whole.log_probabilities, parts.log_probabilities, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.entropies, parts.entropies)


def test_network_is_evaluated_alike_alone_and_among_others(world):
    networks, cohort = world
    together = Evaluator(networks, cohort, "validation", trajectories=3)()
    for m, member in enumerate(cohort.members):
        alone = Cohort(cohort.task, [member], glimpses=3, batch=4, flip=True, device=torch.device("cpu"))
        found = Evaluator(select(networks, [m]), alone, "validation", trajectories=3)()
        assert torch.equal(found.locations[0], together.locations[m])
        torch.testing.assert_close(found.log_probabilities[0], together.log_probabilities[m], rtol=1e-5, atol=1e-6)


def test_summaries_are_plain_numbers_of_each_network(world):
    networks, cohort = world
    sampled = Evaluator(networks, cohort, "test", trajectories=5)()
    greedy = Evaluator(networks, cohort, "test", trajectories=1, greedy=True)()
    grid = cohort.task.grid
    for m, found in enumerate(summaries(sampled, greedy, grid)):
        assert found["accuracy"] == pytest.approx(sampled.scores()["accuracy"][m].item())
        assert found["averaged_nll"] == pytest.approx(sampled.scores()["averaged_nll"][m].item())
        assert found["greedy_accuracy"] == pytest.approx(greedy.scores()["accuracy"][m].item())
        distinct = [len(set(sampled.locations[m, :, :, t].flatten().tolist())) for t in range(3)]
        assert found["distinct_locations"] == distinct
        assert found["pixels_seen"] == pytest.approx(coverage(sampled.locations[m], grid))
        assert "greedy_averaged_accuracy" not in found


def test_saved_locations_are_pixels_in_the_order_of_the_split(world):
    networks, cohort = world
    found = Evaluator(networks, cohort, "test", trajectories=2)()
    pixels = pixel_locations(found, cohort.task.grid, 1)
    assert pixels.shape == (8, 2, 3, 2)
    assert pixels.dtype == np.uint16
    assert pixels[3, 1, 2].tolist() == cohort.task.grid.pixels[found.locations[1, 3, 1, 2]].tolist()
