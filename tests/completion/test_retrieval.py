import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import worlds
from nogs.bank.bank import Bank, make_bank
from nogs.bank.pca import fit_pca
from nogs.bank.store import ResidentImages, Shards
from nogs.completion import CompletionConfig, Retrieval
from nogs.completion.proposal import CodeSpace
from nogs.glimpse import cut
from nogs.runtime.errors import InputError
from small_banks import bank as small_bank
from small_banks import normalised, pictures, rebuilt, slow_log_likelihood
from waits import Waits

PLAIN = {"proposal_reach": 0, "exact_reach": 0, "temperatures": (30.0, 20.0, 12.0)}
PIXELS = torch.tensor([[0, 0], [4, 7], [8, 10]])


@pytest.fixture(scope="module")
def bank():
    return small_bank(300, components=80)


def queries(number=2):
    return torch.from_numpy(pictures(number, seed=70))


def places(number=2, observed=3):
    return PIXELS[None, :observed].expand(number, observed, 2)


def frequencies(retrieval, image, pixels, *, repeats):
    """Mean weight of every bank entry [2, N] over many independent runs."""
    out = torch.zeros(2, len(retrieval.bank))
    for n in range(repeats):
        found = retrieval.complete(image[None], pixels[None], ids=[f"run {n}"])
        used = found.weights[0] > 0
        out[found.flipped[0, used].long(), found.rows[0, used]] += found.weights[0, used]
    return out.numpy() / repeats


def test_drawn_often_enough_every_image_has_the_weight_of_its_likelihood(bank):
    """The slow truth: exp(log p) over all images and mirror images, normalised. The proposal must not bias it."""
    image = pictures(1, seed=70)[0]
    glimpses = np.stack([image[r : r + 4, c : c + 4] for r, c in PIXELS.tolist()])
    slow = slow_log_likelihood(
        normalised(bank.images.pixels.numpy()), normalised(glimpses), PIXELS.numpy(), shifts=[(0, 0)], v=12.0
    )
    truth = np.exp(slow - slow.max())
    truth /= truth.sum()
    config = CompletionConfig(drawn=400, kept=100, **PLAIN)
    found = frequencies(Retrieval(bank, config=config, glimpse=4), torch.from_numpy(image), PIXELS, repeats=60)
    assert 0.5 * np.abs(found - truth).sum() < 0.08
    assert np.corrcoef(found.ravel(), truth.ravel())[0, 1] > 0.99


def test_weights_correct_the_proposal_exactly(bank):
    """With more draws than entries that matter: w = p / q x count, computed anew here for one image."""
    image, pixels = queries(1), places(1)
    retrieval = Retrieval(bank, config=CompletionConfig(drawn=5000, kept=4000, **PLAIN), glimpse=4)
    found = retrieval.complete(image, pixels, ids=["a"])
    patches = normalised(cut(image, pixels, glimpse=4)[0].numpy())
    code = retrieval.bank.pca.encode(image)
    seen = retrieval.bank.pca.decode(code)[0].numpy()
    reconstruction = np.stack([seen[r : r + 4, c : c + 4] for r, c in PIXELS.tolist()])
    log_q = slow_log_likelihood(rebuilt(bank), reconstruction, PIXELS.numpy(), shifts=[(0, 0)], v=12.0)
    q = np.exp(log_q - log_q.max())
    q /= q.sum()
    log_p = slow_log_likelihood(
        normalised(bank.images.pixels.numpy()), patches, PIXELS.numpy(), shifts=[(0, 0)], v=12.0
    )
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert float(found.proposed[0]) == pytest.approx(1 / np.sum(q**2), rel=1e-2)
    assert float(found.effective[0]) == pytest.approx(1 / np.sum(p**2), rel=0.05)
    weights = np.zeros((2, len(bank)))
    used = found.weights[0] > 0
    weights[found.flipped[0, used].int(), found.rows[0, used]] = found.weights[0, used]
    assert 0.5 * np.abs(weights - p).sum() < 0.05


def test_completions_are_unique_weighted_and_reported_with_their_pixels(bank):
    config = CompletionConfig(drawn=200, kept=50, **PLAIN)
    found = Retrieval(bank, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    assert found.index.shape == found.weights.shape == (2, 50)
    assert torch.allclose(found.weights.sum(1), torch.ones(2))
    for b in range(2):
        used = found.weights[b] > 0
        entries = list(zip(found.rows[b, used].tolist(), found.flipped[b, used].tolist()))
        assert len(set(entries)) == len(entries)
        assert torch.equal(found.weights_of(b) * 50, (found.weights_of(b) * 50).round())
        shown = found.images(b)
        for picture, (row, flip) in zip(shown, entries):
            original = bank.images.pixels[row]
            assert torch.equal(picture, original.flip(1) if flip else original)
        assert (found.rows[b, ~used] == -1).all()
    assert (found.effective <= 200).all()


def test_outcome_depends_on_seed_id_and_step_and_not_on_the_batch(bank):
    config = CompletionConfig(drawn=100, kept=30, temperatures=(20.0,), exact_reach=2)
    retrieval = Retrieval(bank, config=config, glimpse=4, seed=1)
    images = queries(3)
    together = retrieval.complete(images, places(3), ids=["a", "b", "c"])
    order = [2, 0, 1]
    other = retrieval.complete(images[order], places(3), ids=["c", "a", "b"])
    alone = retrieval.complete(images[1:2], places(1), ids=["b"])
    for name in ("rows", "flipped", "weights", "effective", "proposed"):
        whole = getattr(together, name)
        assert torch.equal(whole[order], getattr(other, name)), name
        assert torch.equal(whole[1], getattr(alone, name)[0]), name
    another = retrieval.complete(images[1:2], places(1), ids=["z"])
    assert not torch.equal(another.rows, alone.rows)
    seeded = Retrieval(bank, config=config, glimpse=4, seed=2).complete(images[1:2], places(1), ids=["b"])
    assert not torch.equal(seeded.rows, alone.rows)


def test_images_that_are_completed_together_wait_for_the_device_together(bank):
    config = CompletionConfig(drawn=100, kept=30, temperatures=(20.0,), least_effective=8.0)
    retrieval = Retrieval(bank, config=config, glimpse=4)
    retrieval.together = 4
    counts = []
    for number in (1, 4):
        with Waits() as waits:
            retrieval.complete(queries(number), places(number), ids=list("abcd")[:number])
        counts.append(waits.number)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("where", ["in memory", "on disk"])
@pytest.mark.parametrize("reach", [0, 2])
def test_images_that_are_completed_together_do_not_matter_to_each_other(bank, tmp_path, reach, where):
    """As on a GPU, always so many: the last ones are repeated, and draws that nobody needs are of no weight."""
    if where == "on disk":
        store = Shards.create(tmp_path, size=(12, 14))
        store.append(bank.images.pixels.numpy())
        bank = Bank(Shards.open(tmp_path), bank.pca, bank.codes, bank.about)
    config = CompletionConfig(
        drawn=100, kept=30, proposal="tuned", temperatures=(0.2,), least_effective=8.0, proposal_reach=reach,
        exact_reach=reach,
    )  # fmt: skip
    alone, together = (Retrieval(bank, config=config, glimpse=4) for _ in range(2))
    together.together = 3
    one, many = (one.complete(queries(4), places(4), ids=list("abcd")) for one in (alone, together))
    for name in ("rows", "flipped", "weights", "temperature"):
        assert torch.equal(getattr(one, name), getattr(many, name)), name
    torch.testing.assert_close(one.effective, many.effective)
    for b in range(4):
        assert torch.equal(one.images(b), many.images(b))


def test_images_on_disk_give_the_same_completions_as_resident_ones(bank, tmp_path):
    store = Shards.create(tmp_path, size=(12, 14))
    for part in bank.images.pixels.numpy().reshape(3, 100, 12, 14, 3):
        store.append(part)
    config = CompletionConfig(drawn=100, kept=30, **PLAIN)
    here = Retrieval(bank, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    mapped = Bank(Shards.open(tmp_path), bank.pca, bank.codes, bank.about)
    there = Retrieval(mapped, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    assert torch.equal(here.rows, there.rows)
    assert torch.equal(here.weights, there.weights)
    assert len(there.pool) <= 60
    for b in range(2):
        assert torch.equal(here.images(b), there.images(b))


def test_completions_know_the_training_images_that_they_show(bank):
    sources = torch.randperm(len(bank), generator=torch.Generator().manual_seed(0)) - 5  # some have none
    known = replace(bank, sources=sources.clamp(min=-1))
    retrieval = Retrieval(known, config=CompletionConfig(drawn=100, kept=30, **PLAIN), glimpse=4)
    for pixels in (places(), places()[:, :0]):
        found = retrieval.complete(queries(), pixels, ids=["a", "b"])
        for b in range(2):
            for row, source in zip(found.rows[b].tolist(), found.sources[b].tolist(), strict=True):
                assert source == (-1 if row < 0 else max(-1, int(sources[row])))
    assert Retrieval(bank, config=retrieval.config, glimpse=4).complete(queries(), places(), ids="ab").sources is None


@pytest.mark.parametrize("reach", [0, 2])
def test_tuned_temperature_reaches_the_wanted_effective_size(bank, reach):
    config = CompletionConfig(
        drawn=100, kept=30, proposal="tuned", temperatures=(60.0,), proposal_reach=reach, exact_reach=0
    )
    found = Retrieval(bank, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    assert ((found.proposed >= 79.9) & (found.proposed <= 100.1)).all()
    assert (found.temperature > 0).all()


def test_a_small_bank_bounds_the_search(bank):
    tiny = small_bank(20)
    config = CompletionConfig(drawn=1000, kept=30, proposal="tuned", temperatures=(60.0,), proposal_reach=0)
    found = Retrieval(tiny, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    assert (found.proposed >= 0.8 * 40).all()


def test_before_the_first_glimpse_images_come_from_the_bank_itself(bank):
    retrieval = Retrieval(bank, config=CompletionConfig(drawn=100, kept=20, prior=50), glimpse=4)
    found = retrieval.complete(queries(), torch.empty(2, 0, 2, dtype=torch.int64), ids=["a", "b"])
    assert torch.equal(found.rows[0], found.rows[1])  # one computation a task
    assert len(set(found.rows[0].tolist())) == 50
    assert torch.allclose(found.weights, torch.full((2, 50), 1 / 50))
    assert 5 < int(found.flipped[0].sum()) < 45
    assert found.effective.tolist() == [50.0, 50.0]


def test_wrong_sizes_are_refused_by_name(bank):
    retrieval = Retrieval(bank, config=CompletionConfig(), glimpse=4)
    with pytest.raises(InputError, match=r"images are \(9, 9\) px, but the bank's are \(12, 14\) px"):
        retrieval.complete(torch.zeros(1, 9, 9, 3, dtype=torch.uint8), places(1), ids=["a"])
    with pytest.raises(InputError, match="glimpse of 20 px does not fit"):
        Retrieval(bank, config=CompletionConfig(), glimpse=20)


def test_fingerprint_follows_the_fields(bank):
    first = Retrieval(bank, config=CompletionConfig(), glimpse=4).fingerprint
    assert first == Retrieval(bank, config=CompletionConfig(), glimpse=4).fingerprint
    assert first != Retrieval(bank, config=CompletionConfig(kept=100), glimpse=4).fingerprint
    assert first != Retrieval(bank, config=CompletionConfig(), glimpse=4, seed=1).fingerprint


def distance_to_truth(world, *, size, drawn, seed):
    """Total variation between completions and the world's true conditional, averaged over three images."""
    rng = np.random.default_rng(seed)
    share = world.counts / world.counts.sum()
    drawn_from = rng.choice(len(world.images), size, p=share)
    pixels = torch.from_numpy(world.images[drawn_from])
    pca = fit_pca(ResidentImages(pixels), components=20, centre=(0.5,) * 3, scale=(0.25,) * 3)
    bank = make_bank(pixels, pca=pca)
    config = CompletionConfig(
        drawn=drawn, kept=drawn, temperatures=(2.0,), flips=False, proposal_reach=0, exact_reach=0
    )
    retrieval = Retrieval(bank, config=config, glimpse=4, seed=seed)
    places = np.array([worlds.P, worlds.H])
    total = 0.0
    for n in rng.choice(len(world.images), 3, p=share):
        image = torch.from_numpy(world.images[n : n + 1])
        found = retrieval.complete(image, torch.from_numpy(places)[None], ids=[str(n)])
        estimate = np.zeros(len(world.images))
        used = found.weights[0] > 0
        np.add.at(estimate, drawn_from[found.rows[0, used].numpy()], found.weights[0, used].numpy())
        glimpses = cut(image, torch.from_numpy(places)[None], glimpse=4)[0].numpy()
        truth = world.agreeing(glimpses, places) * world.counts
        total += 0.5 * np.abs(estimate - truth / truth.sum()).sum()
    return total / 3


def test_completions_converge_to_the_true_conditional():
    """In the exact world, as bank and K1 grow together; the error falls like a sample's, 1 / sqrt of its size."""
    world = worlds.pointer_world()
    errors = [
        np.mean([distance_to_truth(world, size=size, drawn=size // 4, seed=seed) for seed in range(3)])
        for size in (400, 6400)
    ]
    assert errors[1] < 0.5 * errors[0]
    # a conditional on about 18 images, from the share (about 1/6) of the bank that agrees: E[TV] <= sqrt(18 / n) / 2
    assert errors[1] < math.sqrt(18 / (6400 / 6)) / 2 + math.sqrt(18 / (6400 / 4)) / 2


@pytest.mark.parametrize("reach", [0, 1])
def test_temperature_is_raised_until_enough_completions_count(bank, reach):
    cold = {**PLAIN, "temperatures": (0.2,), "proposal": "tuned", "exact_reach": reach}
    sizes = {}
    for least in (0.0, 8.0, 20.0):
        config = CompletionConfig(drawn=120, kept=60, least_effective=least, **cold)
        found = Retrieval(bank, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
        sizes[least] = found.effective
    assert (sizes[0.0] < 4).all()
    assert ((sizes[8.0] >= 8) & (sizes[8.0] < 12)).all()
    assert ((sizes[20.0] >= 20) & (sizes[20.0] < 30)).all()


def test_temperature_stays_where_enough_completions_count_already(bank):
    config = CompletionConfig(drawn=120, kept=60, **PLAIN)
    low = Retrieval(bank, config=config, glimpse=4).complete(queries(), places(), ids=["a", "b"])
    least = float(low.effective.min()) * 0.99
    again = Retrieval(bank, config=config.model_copy(update={"least_effective": least}), glimpse=4)
    assert torch.equal(again.complete(queries(), places(), ids=["a", "b"]).weights, low.weights)


@pytest.mark.parametrize(("reach", "steps"), [(0, [0]), (1, [0]), (2, [-2, 0, 2]), (5, [-4, -2, 0, 2, 4])])
def test_every_second_shift_of_the_proposal_is_tried_and_none_at_all_is_one_of_them(reach, steps):
    found = CompletionConfig(proposal_reach=reach, exact_reach=1)
    assert found.proposal_shifts == [(row, column) for row in steps for column in steps]
    assert found.exact_shifts == [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]


@pytest.mark.parametrize(
    ("fields", "shifts", "join"),
    [
        (
            {"exact_reach": 1, "exact_range": "one-sided"},
            [(row, column) for row in range(3) for column in range(3)],
            "product",
        ),
        ({"exact_join": "sum"}, [(0, 0)], "sum"),
    ],
)
def test_exact_comparison_of_the_release(bank, fields, shifts, join):
    image, pixels = queries(1), places(1)
    how = {**PLAIN, "temperatures": (60.0,), "drawn": 60_000, "kept": 20_000}
    patches = normalised(cut(image, pixels, glimpse=4)[0].numpy())
    images = normalised(bank.images.pixels.numpy())
    log_p = slow_log_likelihood(images, patches, PIXELS.numpy(), shifts=shifts, v=60.0, join=join)
    truth = np.exp(log_p - log_p.max())
    truth /= truth.sum()
    found = []
    for own in (fields, {}):
        completed = Retrieval(bank, config=CompletionConfig(**how | own), glimpse=4).complete(image, pixels, ids=["a"])
        weights, used = np.zeros((2, len(bank))), completed.weights[0] > 0
        weights[completed.flipped[0, used].int(), completed.rows[0, used]] = completed.weights[0, used]
        found.append(0.5 * np.abs(weights - truth).sum())
    assert found[0] < 0.03
    assert found[1] > 0.1  # the paper's comparison gives other weights


def test_proposal_of_the_release_moves_flipped_patches(bank):
    found = []
    for content in ("mirrored", "moved"):
        retrieval = Retrieval(bank, config=CompletionConfig(**PLAIN, flipped_content=content), glimpse=4)
        query = retrieval.query(queries(1), places(1))
        found.append(retrieval.space.log_likelihood(query, places(1), temperature=12.0))
        alike = CodeSpace(bank, glimpse=4, mirrored=content == "mirrored")
        assert torch.equal(found[-1], alike.log_likelihood(query, places(1), temperature=12.0))
    assert torch.equal(found[0][:, 0], found[1][:, 0])
    assert not torch.isclose(found[0][:, 1], found[1][:, 1]).any()
