import hashlib
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import nogs
from nogs.attention.network import Networks
from nogs.model.classifier import Model
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from small_runs import GRID, LABELS, about, images, network, write_run


def model(**fields):
    return Model(network(**fields), about=about())


def mark(image):
    """The key of the random numbers of a picture's looks."""
    return hashlib.blake2b(np.asarray(image).tobytes(), digest_size=8).hexdigest()


def rollout(model, image, uniforms=None):
    """The locations (pixels) and probabilities of the same image in training and evaluation."""
    found = model.networks(image[None], torch.zeros(1, 1, dtype=torch.int64), uniforms=uniforms)
    return GRID.pixels[found.locations[0, 0]].tolist(), torch.softmax(found.logits[0, 0], -1).numpy()


def test_answer_is_that_of_the_network_in_training():
    for seed, image in enumerate(images(5)):
        asked = model()
        locations, probabilities = rollout(asked, image)
        answer = asked.classify(image.numpy(), policy="argmax")
        assert [list(place) for place in answer.locations] == locations
        assert list(answer.probabilities) == list(LABELS)
        assert list(answer.probabilities.values()) == pytest.approx(probabilities, abs=1e-6)
        assert (answer.label, answer.probability) == (
            LABELS[probabilities.argmax()],
            max(answer.probabilities.values()),
        )
        assert answer.confidence[-1] == answer.probability
        uniforms = streams.uniform(streams.key(seed, "look", mark(image)), torch.arange(3))[None, None]
        locations, probabilities = rollout(asked, image, uniforms)
        answer = asked.classify(image.numpy(), policy="sample", seed=seed)
        assert [list(place) for place in answer.locations] == locations
        assert list(answer.probabilities.values()) == pytest.approx(probabilities, abs=1e-6)


def test_locations_depend_on_what_is_seen():
    asked = model()
    assert len({asked.classify(image.numpy(), policy="argmax").locations for image in images(20)}) > 1


def test_sensor_that_reads_patch_by_patch_gets_the_same_answer():
    asked, image = model(), images(1)[0].numpy()
    expected = asked.classify(image, policy="argmax")

    def read(location):
        row, column = location
        return image[row : row + 8, column : column + 8]

    for location in asked.look(policy="argmax"):
        asked.see(read(location))
    assert asked.answer == expected
    assert asked.sense(read, policy="argmax") == expected
    assert asked.sense(read, seed=3) == asked.sense(read, seed=3)


def test_two_looks_at_once_do_not_disturb_each_other():
    asked, pair = model(), images(2).numpy()
    looks = [asked.look(policy="argmax") for _ in pair]
    for _ in range(3):
        for look, image in zip(looks, pair):
            row, column = next(look)
            look.see(image[row : row + 8, column : column + 8])
    assert [look.answer for look in looks] == [asked.classify(image, policy="argmax") for image in pair]


def test_look_ends_with_the_first_glimpse_that_makes_it_sure_enough():
    asked, early = model(glimpses=6), 0
    for image in images(20).numpy():
        whole = asked.classify(image)
        middle = sorted(whole.confidence)[3]
        answer = asked.classify(image, stop_at=middle)
        first = next(t for t, sure in enumerate(whole.confidence) if sure >= middle)
        assert answer.locations == whole.locations[: first + 1]
        assert answer.confidence == whole.confidence[: first + 1]
        assert answer.stopped_early == (first < 5)
        early += answer.stopped_early
        assert not whole.stopped_early
    assert early > 5


def test_each_picture_has_random_looks_of_its_own():
    blind = network()
    for name in ("embed_parameters", "core_parameters"):  # where it looks depends on chance alone
        for value in getattr(blind, name).values():
            value.zero_()
    asked = Model(blind, about=about())
    found = [asked.classify(image.numpy()).locations for image in images(8)]
    assert len(set(found)) > 4
    assert found == [asked.classify(image.numpy()).locations for image in images(8)]


def test_model_and_answer_are_short_in_words_and_a_picture_in_a_notebook():
    asked, image = Model(network(), about=about(), name="ram/seed-0"), images(1)[0].numpy()
    assert repr(asked) == "<Model ram/seed-0 of toy: 3 glimpses of 8 px in 24 x 24 px, 3 labels (red, green, blue)>"
    answer = asked.classify(image)
    assert repr(answer).startswith(f"<Answer '{answer.label}', {answer.probability:.1%}, 3 glimpses, ")
    assert len(repr(answer)) < 80
    with Image.open(io.BytesIO(answer._repr_png_())) as drawn:
        assert drawn.width > 300
    assert asked.sense(lambda at: image[at.row : at.row + 8, at.column : at.column + 8])._repr_png_() is None
    assert "picture" not in answer.to_json()
    json.dumps(answer.to_json())


def test_several_looks_are_averaged():
    asked, image = model(), images(1)[0].numpy()
    three = asked.classify(image, looks=3, seed=4)
    singles = []
    for number in range(3):
        uniforms = streams.uniform(streams.key(4, "look", mark(image), step=number), torch.arange(3))[None, None]
        singles.append(rollout(asked, torch.from_numpy(image), uniforms))
    assert list(three.probabilities.values()) == pytest.approx(np.mean([p for _, p in singles], 0), abs=1e-6)
    assert [list(place) for place in three.locations] == [place for places, _ in singles for place in places]


def test_pixels_are_counted_once():
    asked, image = model(glimpses=5), images(1)[0].numpy()
    answer = asked.classify(image)
    seen = np.zeros((24, 24), bool)
    for row, column in answer.locations:
        seen[row : row + 8, column : column + 8] = True
    assert answer.pixels_read == pytest.approx(seen.mean())


def test_before_the_first_glimpse_there_is_a_guess():
    asked = model()
    guess = asked.look().answer
    assert guess.locations == ()
    assert guess.pixels_read == 0
    assert sum(guess.probabilities.values()) == pytest.approx(1)


def test_answer_as_json():
    found = model().classify(images(1)[0].numpy()).to_json()
    assert set(found) == {
        "label", "probability", "probabilities", "locations", "confidence", "pixels_read", "stopped_early", "notes",
    }  # fmt: skip
    assert all(isinstance(place, list) for place in found["locations"])


def test_mistakes_with_a_sensor_are_explained():
    asked = model()
    with pytest.raises(InputError, match=r"There is no look yet; begin with model.look\(\)"):
        asked.see(np.zeros((8, 8, 3), np.uint8))
    look = asked.look()
    with pytest.raises(InputError, match="No location is waiting to be seen"):
        look.see(np.zeros((8, 8, 3), np.uint8))
    row, column = next(look)
    with pytest.raises(InputError, match=rf"The glimpse at row {row}, column {column} has not been seen; call see"):
        next(look)
    with pytest.raises(
        InputError, match=r"A patch must be uint8 of shape \(8, 8, 3\), not float64 of shape \(8, 8, 3\)"
    ):
        look.see(np.zeros((8, 8, 3)))
    with pytest.raises(InputError, match=r"of shape \(8, 8, 3\), not uint8 of shape \(16, 16, 3\)"):
        look.see(np.zeros((16, 16, 3), np.uint8))


@pytest.mark.parametrize("stop_at", [0, -1, 1.5, float("nan")])
def test_impossible_confidence_is_refused(stop_at):
    with pytest.raises(InputError, match="confidence to stop at must lie above 0 and be at most 1"):
        model().look(stop_at=stop_at)


def test_unknown_policy_and_number_of_looks_are_refused():
    with pytest.raises(InputError, match="There is no policy 'greedy'; choose sample or argmax"):
        model().look(policy="greedy")
    same = "With the policy argmax all 2 looks are the same; take one look, or the policy sample"
    for looks, policy, sentence in ((0, "sample", r"at least one look, not 0\.$"), (2, "argmax", same)):
        with pytest.raises(InputError, match=sentence):
            model().classify(images(1)[0].numpy(), looks=looks, policy=policy)


def test_one_image_is_looked_at_with_one_thread(monkeypatch):
    asked, threads, see = model(), [], Networks.see
    monkeypatch.setattr(Networks, "see", lambda *given: (threads.append(torch.get_num_threads()), see(*given))[1])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        asked.classify(images(1)[0].numpy())
        assert set(threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_location_is_the_pixel_of_its_index():
    asked = model()
    assert [list(asked.location(n)) for n in range(len(GRID))] == GRID.pixels.tolist()


def test_package_loads_a_run(tmp_path):
    loaded = nogs.load(write_run(tmp_path))
    image = images(1)[0].numpy()
    assert loaded.classify(image) == Model(network(), about=about()).classify(image)
    assert loaded.why == "ram/seed-0 is the only one"
