"""A cross-fitted posterior in the design: the network not trained on its source evaluates each completion."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import exact_design
from nogs.bank import BankConfig, build_bank, load_bank
from nogs.completion import CompletionConfig, Completions, Retrieval
from nogs.design.confidence import confidence, evenly, of_variables, random_locations, sentence
from nogs.design.config import DesignConfig
from nogs.design.entropies import Entropies
from nogs.design.steps import Tools, annotate_images, first_step
from nogs.design.tools import check_sources
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.crossfit import fold_task
from nogs.posterior.protocol import entropy
from nogs.posterior.training import train_posterior
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_sealed

T, K = 3, 3
CONFIG = PosteriorConfig(
    width=16,
    layers=1,
    heads=2,
    token=4,
    batch=64,
    iterations=150,
    learning_rate=0.01,
    validate_every=50,
    flip=False,
    precision="float32",
    folds=K,
)


@pytest.fixture(scope="module")
def task(world):
    """The pointer world, in which the posterior may learn only a part of the bank's images."""
    whole = world.task()
    return replace(whole, splits={**whole.splits, "posterior": whole.splits["posterior"][::2]}, fingerprint="part")


@pytest.fixture(scope="module")
def tools(task, tmp_path_factory):
    """Networks trained on the pointer world, and completions from a bank of its training images."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("crossfit")
    posterior = train_posterior(task, config=CONFIG, glimpses=T, folder=folder / "posterior", device="cpu")
    # every image of this world is among the held-out ones as well
    fields = BankConfig(generator="training-images", count=1500, components=8, duplicate_rms=0, shift=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nogs.bank.generators.pictures.COLOUR", 0)
        build_bank(task, config=fields, folder=folder / "bank", device="cpu")
    bank = load_bank(folder / "bank", device="cpu")
    config = CompletionConfig(drawn=60, kept=30, prior=30, proposal_reach=0, exact_reach=0, flips=True)
    return Tools(posterior, Retrieval(bank, config=config, glimpse=task.grid.glimpse), torch.device("cpu"))


def trained_without(task, fold):
    """Ids of the images of the split 'posterior' that network `fold` has not seen."""
    seen = set(fold_task(task, fold=fold, folds=K).splits["posterior"])
    return {id for id in task.splits["posterior"] if id not in seen}


def slowly(member, picture, pixels, location):
    """The entropy of one network's answer about one picture after one set of glimpses."""
    where = torch.cat([pixels, location[None]])[None]
    return float(entropy(member.log_probabilities(picture[None], where))[0, 0])


@pytest.mark.slow
def test_every_completion_is_asked_of_the_network_that_has_not_seen_its_source(task, tools):
    rows = task.rows(task.splits["annotate"][:300:100])
    images, pixels = torch.from_numpy(task.images[rows]), task.grid.pixels[torch.tensor([[0, 4], [4, 2], [8, 1]])]
    found = tools.completion.complete(images, pixels, ids=["a", "b", "c"])
    entropies = Entropies(tools.posterior, found, pixels, objectives=[(0,)], batch=64)
    entropies.fill(torch.ones(3, len(task.grid), dtype=torch.bool))
    order = torch.argsort((found.weights == 0).to(torch.uint8), dim=1, stable=True)
    members, asked = tools.posterior.members, set()
    for b in range(3):
        for place in range(entropies.used[b]):
            n = order[b, place]
            picture = found.pool[found.index[b, n]]
            rank = int(found.sources[b, n])
            if rank >= len(task.splits["posterior"]):  # the bank has images that train no network
                fold = rank % K
            else:
                source = task.splits["posterior"][rank]
                # copies are not moved here, so that the bank's picture is its source, or that mirrored
                same = (picture.numpy() == task.images[task.position[source]]).all()
                assert same or (picture.flip(1).numpy() == task.images[task.position[source]]).all()
                (fold,) = [k for k in range(K) if source in trained_without(task, k)]
            asked.add((fold, rank < len(task.splits["posterior"])))
            picture = picture.flip(1) if found.flipped[b, n] else picture
            for location in range(len(task.grid)):
                expected = slowly(members[fold], picture, pixels[b], task.grid.pixels[location])
                assert float(entropies.values[b, place, location]) == pytest.approx(expected, abs=2e-5)
    assert asked == {(fold, known) for fold in range(K) for known in (False, True)}
    others = [slowly(member, images[0], pixels[0], task.grid.pixels[5]) for member in members]
    assert np.ptp(others) > 0.01, "the networks differ, so that asking a wrong one would show"


def test_a_number_does_not_depend_on_what_else_is_asked(task, tools):
    rows = task.rows(task.splits["annotate"][:300:100])
    images, pixels = torch.from_numpy(task.images[rows]), task.grid.pixels[torch.tensor([[0, 4], [4, 2], [8, 1]])]
    found = tools.completion.complete(images, pixels, ids=["a", "b", "c"])
    everything, little = (Entropies(tools.posterior, found, pixels, objectives=[(0,)], batch=64) for _ in range(2))
    everything.fill(torch.ones(3, 9, dtype=torch.bool))
    wanted = torch.zeros(3, 9, dtype=torch.bool)
    wanted[1, 3] = wanted[2, 7] = True
    little.fill(wanted, last=4)
    known = ~little.values.isnan()
    assert known.sum() == sum(min(4, little.used[b]) for b in (1, 2))
    assert torch.equal(little.values[known], everything.values[known])


def test_images_beside_an_image_do_not_matter_to_it(task, tools):
    config = DesignConfig(batch=64, images=3)
    ids = list(task.splits["annotate"][:300:100])
    images = task.images[task.rows(ids)]
    first = first_step(tools, images[0], config=config)
    together = annotate_images(tools, images, ids, first=first, config=config, glimpses=T)
    alone = annotate_images(tools, images[1:2], ids[1:2], first=first, config=config, glimpses=T)
    for name in ("locations", "entropy", "epe", "error"):
        np.testing.assert_array_equal(getattr(alone, name)[0], getattr(together, name)[1])


def test_completions_without_a_source_are_anybodys():
    index = torch.arange(4)[None]
    some = {"weights": torch.full((1, 4), 0.25), "flipped": torch.zeros(1, 4, dtype=torch.bool)}
    nothing = dict.fromkeys(("effective", "proposed", "temperature"), torch.ones(1))
    pool = torch.zeros(4, 2, 2, 3, dtype=torch.uint8)
    known = Completions(pool, index, rows=index + 5, sources=torch.tensor([[7, -1, 2, -1]]), **some, **nothing)
    assert known.folds(3).tolist() == [[7 % 3, 6 % 3, 2, 8 % 3]]
    assert known.folds(1).tolist() == [[0, 0, 0, 0]]
    assert replace(known, sources=None).folds(3).tolist() == [[5 % 3, 6 % 3, 7 % 3, 8 % 3]]
    assert replace(known, sources=None, rows=torch.full((1, 4), -1)).folds(3).tolist() == [[0, 1, 2, 0]]


class Memorising:
    """The exact posterior, but overconfident on the images that it was trained on."""

    def __init__(self, world, known):
        self.exact, self.known = exact_design.ExactPosterior(world), {image.tobytes() for image in known}
        self.grid, self.space = self.exact.grid, self.exact.space

    def log_probabilities(self, images, pixels, *, index=None, observed=None, flip=None):
        answers = self.exact.log_probabilities(images, pixels, index=index, observed=observed, flip=flip)
        index = range(len(pixels)) if index is None else index.tolist()
        known = torch.tensor([images[i].numpy().tobytes() in self.known for i in index])
        return torch.where(known[:, None, None], torch.log_softmax(20 * answers.clamp(min=-20), -1), answers)


def test_overfitting_of_the_posterior_is_measured_and_reported(world):
    completion = exact_design.ExactCompletion(world, bank=np.arange(0, 162, 2))
    images = world.images[1::2]
    bank = world.images[::2]
    found = {}
    for name, known in (("honest", bank[:0]), ("overfit", bank)):
        tools = Tools(Memorising(world, known), completion, torch.device("cpu"))
        found[name] = confidence(tools, images, glimpses=2, seed=0)
    assert found["honest"]["images"] == found["overfit"]["images"]
    # the mean over the bank one by one, with the weights that its images have in the world
    weights, total = world.counts[::2] / world.counts[::2].sum(), 0.0
    where = random_locations(tools.posterior, glimpses=2, seed=0, device=torch.device("cpu"))
    exact = exact_design.ExactPosterior(world)
    for n, image in enumerate(bank):
        total += weights[n] * float(entropy(exact.log_probabilities(torch.from_numpy(image[None]), where[[n]]))[0, 0])
    assert found["honest"]["bank"]["mean"][0] == pytest.approx(total, abs=2e-6)
    lines = {}
    for name, one in found.items():
        numbers = {**of_variables(one, [0]), "glimpses": 2, "networks": one["networks"]}
        lines[name] = sentence(numbers, generator="training-images")
        assert numbers["bank"] == pytest.approx(one["bank"]["mean"][0])
        told = sentence(numbers, generator="digits").endswith(
            "easier for the posterior; consider another --bank.generator"
        )
        assert told == (name == "overfit")
        assert "overfit" not in sentence({**numbers, "networks": 4}, generator="training-images")
        assert "overfit" not in sentence({**numbers, "error_of_difference": 1.0}, generator="training-images")
    assert lines["honest"].startswith("mean entropy after 2 random glimpses (nats): ")
    assert "overfit" not in lines["honest"]
    assert lines["overfit"].endswith(
        ": the posterior overfits the bank's images, which misleads the search; train it with "
        "--posterior.folds 4, or build the bank with another --bank.generator"
    )


def test_confidence_asks_each_image_of_one_network_that_has_not_seen_it(task, tools):
    images = task.images[task.rows(task.splits["annotate"][:40])]
    found = confidence(tools, images, glimpses=T, seed=0)
    assert found["networks"] == K
    nothing = torch.zeros(1, 0, 2, dtype=torch.int64)
    prior = tools.completion.complete(torch.from_numpy(images[:1]), nothing, ids=[""])
    where = random_locations(tools.posterior, glimpses=T, seed=0, device=torch.device("cpu"))

    def left(fold, picture, n):
        answer = tools.posterior.members[fold].log_probabilities(picture[None], where[[n]])
        return float(entropy(answer)[0, 0])

    bank = []
    for n in range(prior.index.shape[1]):
        picture = prior.pool[prior.index[0, n]]
        rank = int(prior.sources[0, n])
        bank.append(left(rank % K, picture.flip(1) if prior.flipped[0, n] else picture, n))
    own = [left(n % K, torch.from_numpy(image), n) for n, image in enumerate(images)]
    for name, values in (("bank", bank), ("images", own)):
        assert found[name]["mean"][0] == pytest.approx(np.mean(values), abs=1e-5)
        assert found[name]["error"][0] == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5, abs=1e-5)


def test_places_at_equal_distances_are_looked_at():
    assert evenly(5, 256).tolist() == [0, 1, 2, 3, 4]
    assert evenly(1000, 4).tolist() == [0, 333, 666, 999]
    assert len(set(evenly(257, 256).tolist())) == 256


def test_bank_that_does_not_say_what_it_shows_is_refused(task, tools, tmp_path):
    fields = BankConfig(generator="training-images", count=60, components=8, duplicate_rms=0)
    build_bank(task, config=fields, folder=tmp_path, device="cpu")
    check_sources(tools.posterior, bank=tmp_path)
    about = read_json(tmp_path / "done.json")
    write_sealed(tmp_path / "done.json", {**about, "task": "another"})
    with pytest.raises(InputError, match=r"is cross-fitted on other data or splits than those of .*part, not another"):
        check_sources(tools.posterior, bank=tmp_path)
    write_sealed(tmp_path / "done.json", about)
    (tmp_path / "sources.npy").unlink()
    with pytest.raises(InputError, match=r"sources.npy is missing; bring it back from a copy, or build the bank again"):
        check_sources(tools.posterior, bank=tmp_path)
    check_sources(tools.posterior.members[0], bank=tmp_path)
    write_sealed(tmp_path / "done.json", {**about, "generator": "digits"})
    check_sources(tools.posterior, bank=tmp_path)


def test_a_posterior_of_somebodys_own_is_asked_as_before(world):
    """Members need no `prepare`, and the class that joins them need not be ours."""
    exact = exact_design.ExactPosterior(world)

    class Together(exact_design.ExactPosterior):
        members, splits = (exact, exact), None

    together = Together(world)
    found = exact_design.ExactCompletion(world).complete(
        torch.from_numpy(world.images[:1]), torch.zeros(1, 0, 2, dtype=torch.int64), ids=["a"]
    )
    tables = []
    for posterior in (exact, together):
        entropies = Entropies(posterior, found, torch.zeros(1, 0, 2, dtype=torch.int64), objectives=[(0,)], batch=64)
        entropies.fill(torch.ones(1, len(world.grid), dtype=torch.bool))
        tables.append(entropies.values)
    assert torch.equal(*tables)
    assert exact.shapes == {(64, 1), (32, 1)}  # each of two networks is asked half as much at once
