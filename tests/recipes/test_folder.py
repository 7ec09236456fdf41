from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import miniature
from nogs.bank.generators.networks import Flow
from nogs.data.folder import LEAST, Survey, survey
from nogs.posterior.imagenet import weights_file
from nogs.posterior.stems import make_stem
from nogs.recipes import recipe
from nogs.recipes.folder import CHOSEN, chosen
from nogs.recipes.folder import choose as choose_for
from nogs.recipes.times import Expected, clock
from nogs.runtime.errors import InputError

GIB = 1 << 30


def pictures(number=3_000, side=300, classes=10, training=0.7):
    """A survey of `number` pictures, `side` px high and wider than that."""
    counts = {f"class {n}": number // classes for n in range(classes)}
    return Survey(number, counts, int(training * number), ((side + 40, side),) * 5, 5)


def choose(seen, gpu_bytes=None, features=None, share=1.0, **given):
    fields = {name.replace("__", "."): value for name, value in given.items()}
    found, choices = chosen(recipe("folder"), seen, gpu_bytes=gpu_bytes, given=fields, features=features, share=share)
    return found, {choice.field: choice for choice in choices}


def test_a_cpu_gets_small_images_and_networks():
    found, choices = choose(pictures())
    assert (found.data.image_size, found.data.glimpse, found.data.grid.shape) == (64, 16, (7, 7))
    assert choices["data.image_size"].why == "the pictures' shorter sides are 300 px at the median; a CPU manages 64 px"
    assert found.bank.generator == "training-images"
    assert found.posterior.width < recipe("folder").posterior.width
    assert found.name == found.data.kind == "folder"


@pytest.mark.parametrize(
    ("number", "side", "gpu_gib", "size"),
    [
        (3_000, 300, 80, 128),  # few pictures
        (300_000, 300, 100, 224),
        (300_000, 100, 100, 96),  # small pictures
        (300_000, 300, 20, 96),  # 300,000 images of 128 px would fill more than half of 20 GiB
    ],
)
def test_a_gpu_gets_what_pictures_and_memory_allow(number, side, gpu_gib, size):
    found, _ = choose(pictures(number, side), gpu_gib * GIB)
    assert found.data.image_size == size
    assert found.data.grid.shape == (13, 13)
    assert found.bank.generator == "trained"
    assert number * size**2 * 3 <= gpu_gib * GIB / 2


def test_no_generator_is_trained_on_few_images():
    found, choices = choose(pictures(1_000), 80 * GIB)
    assert found.bank.generator == "training-images"
    assert "too few to train a generator" in choices["bank.generator"].why


@pytest.mark.parametrize(
    ("number", "seconds", "why"),
    [(3_000, 150, "two to three minutes of training"), (300_000, 600, "ten minutes for 210,000 images")],
)
def test_a_generator_on_a_gpu_is_trained_for_minutes(number, seconds, why):
    found, choices = choose(pictures(number), 100 * GIB)
    assert found.bank.trained.seconds == seconds
    assert choices["bank.trained.seconds"].why.startswith(why)
    side = found.data.image_size // 8
    flow = Flow(channels=16, side=(side, side), width=found.bank.trained.width, depth=found.bank.trained.depth)
    assert round(sum(weight.numel() for weight in flow.parameters()) / 1e6) == 22
    assert choices["bank.trained.width"].why.startswith("22 million weights")
    asked, _ = choose(pictures(number), 100 * GIB, bank__generator="training-images")
    assert asked.bank == recipe("folder").bank.model_copy(update={"count": asked.bank.count})


def test_small_pictures_are_enlarged():
    found, choices = choose(pictures(side=20))
    assert found.data.image_size == 32
    assert "enlarged to the 32 px that glimpses need" in choices["data.image_size"].why


def test_what_the_user_gave_stays_and_the_rest_follows():
    found, choices = choose(pictures(), data__image_size="40", glimpses=2, bank__generator="trained")
    assert (found.data.image_size, found.data.glimpse, found.data.grid_spacing) == (40, 10, 5)
    assert found.posterior.token == 10
    assert found.glimpses == 2
    assert found.bank.trained.width < recipe("folder").bank.trained.width
    assert found.bank.trained.seconds is None
    assert choices["data.image_size"].why == choices["bank.generator"].why == "set by you"


def test_reasons_are_true_of_what_the_user_gave():
    _, choices = choose(pictures(124, classes=2, training=1), bank__generator="trained", posterior__iterations="5")
    told = {field: choice.why for field, choice in choices.items()}
    assert told["data.glimpse"] == "a quarter of the side, 6% of the area"
    assert (choices["posterior.batch"].value, told["posterior.batch"]) == (31, "a quarter of the training images")
    assert (choices["posterior.validate_every"].value, told["posterior.validate_every"]) == (
        1,
        "5 validations, of which the best counts",
    )
    assert told["bank.trained.width"] == "a small generator, trained in a quarter of an hour"
    _, choices = choose(pictures(), bank__generator="trained", bank__trained__seconds="6")
    assert choices["bank.trained.width"].why == "a small generator"
    assert (choices["bank.trained.seconds"].value, choices["bank.trained.seconds"].why) == (6, "set by you")


@pytest.mark.parametrize(
    ("number", "given", "images", "batch"),
    [
        (124, {}, 100, 31),  # 24 of the 124 are annotated
        (124, {"data__annotated": "4"}, 120, 31),
        (124, {"data__annotated": "100"}, 62, 31),  # at most half of them
        (124, {"posterior__folds": "4"}, 75, 31),
        (60, {"data__annotated": "5", "posterior__batch": "80"}, 55, 55),  # a batch is at most all of them
    ],
)
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_few_images_are_trained_on_until_they_are_overfitted(number, given, images, batch, share):
    found, choices = choose(pictures(number, classes=2, training=1), share=share, **given)
    iterations = min(int(share * 1500), max(200, 250 * images // batch))
    assert found.posterior.iterations == iterations
    rounds = iterations * batch // images
    assert choices["posterior.iterations"].why == f"{rounds} rounds of the images that train the posterior"
    assert found.whole.iterations == min(share * 2000, max(200, 100 * number // 64))


@pytest.mark.parametrize("gpu_bytes", [None, 80 * GIB])
@pytest.mark.parametrize(
    ("number", "given", "why"),
    [
        (40, {}, "no fewer, though it is more than a quarter of the training images"),
        (40, {"glimpses": 17}, "one image for each number of glimpses"),
        (400, {}, "a quarter of the training images"),
    ],
)
def test_size_of_a_batch_is_explained(gpu_bytes, number, given, why):
    _, choices = choose(pictures(number, classes=2, training=1), gpu_bytes, **given)
    assert choices["posterior.batch"].why == why


def test_validations_are_counted():
    _, choices = choose(pictures(), posterior__iterations="1999")
    assert (
        choices["posterior.validate_every"].why == "21 validations, of which the best counts"
    )  # every 99 and the last
    _, choices = choose(pictures(), posterior__iterations="1999", posterior__seconds="60")
    assert choices["posterior.validate_every"].why == "at most 21 validations, of which the best counts"
    _, choices = choose(pictures(), posterior__iterations="1")
    assert choices["posterior.validate_every"].why == "one validation, at the end"


def test_a_number_of_locations_places_them_evenly():
    found, _ = choose(pictures(), data__grid_count="5")
    assert found.data.grid.shape == (5, 5)
    assert found.data.grid.rows[-1] == 48


def test_a_value_that_is_no_value_of_its_field_is_left_to_who_reads_it():
    assert choose(pictures(), glimpses="two", data__nothing="3")[0].glimpses == 4


@pytest.mark.parametrize("number", [LEAST, 100, 300])
@pytest.mark.parametrize("gpu_bytes", [None, 80 * GIB])
def test_few_pictures_give_a_recipe_that_fits_them(number, gpu_bytes):
    found, _ = choose(pictures(number, classes=2), gpu_bytes)
    training = int(0.7 * number)
    assert 0 < found.data.annotated < training / 2
    longest = max(found.glimpses, found.posterior.train_glimpses or 0)
    batch = min(found.posterior.batch, training - found.data.annotated)
    assert batch > longest
    assert found.bank.components < found.bank.count


@pytest.mark.parametrize("gpu_bytes", [None, 80 * GIB])
def test_a_batch_has_an_image_for_each_number_of_glimpses(gpu_bytes):
    found, _ = choose(pictures(124, classes=2), gpu_bytes, glimpses=25)
    assert found.posterior.batch == 26
    found, _ = choose(pictures(124, classes=2), gpu_bytes, posterior__train_glimpses="30")
    assert found.posterior.batch == 31
    with pytest.raises(InputError, match=r"With --glimpses 40 a batch of the posterior needs 41 images, but 24 are"):
        choose(pictures(44, classes=2), gpu_bytes, glimpses=40)
    with pytest.raises(InputError, match=r"--posterior\.batch is 20, but 25 glimpses need 26 or more"):
        choose(pictures(124, classes=2), gpu_bytes, glimpses=25, posterior__batch=20)


def test_more_glimpses_than_locations_are_refused():
    with pytest.raises(InputError, match=r"--glimpses is 1000000, but the grid has only 49 locations"):
        choose(pictures(), glimpses=1_000_000)


@pytest.mark.parametrize("gpu_bytes", [None, 80 * GIB])
def test_few_iterations_have_a_warmup_and_validations_within_them(gpu_bytes):
    found, choices = choose(pictures(), gpu_bytes, posterior__iterations="30")
    assert choices["posterior.iterations"].value == 30
    assert found.posterior.warmup < 10
    assert found.posterior.validate_every == 1


@pytest.mark.parametrize("field", ["data__image_size", "data__glimpse", "data__grid_spacing", "posterior__batch"])
def test_a_value_out_of_range_is_left_to_who_reads_it(field):
    assert choose(pictures(), **{field: 0})[0] == choose(pictures())[0]


def test_maps_that_would_fill_the_disk_are_not_kept():
    assert choose(pictures())[0].design.keep_maps
    found, choices = choose(pictures(100_000), 80 * GIB, data__grid_spacing=1, data__annotated=5000)
    assert not found.design.keep_maps
    assert choices["design.keep_maps"].value is False
    assert "MiB" in choices["design.keep_maps"].why


def taking(seconds, seen=()):
    """A forecast in which training takes these seconds at 64 px, and more with more pixels; `seen` gets the sizes that
    were requested."""

    def forecast(found, pictures):
        list.append(seen, found.data.image_size) if isinstance(seen, list) else None
        size = (found.data.image_size / 64) ** 2
        return [Expected("data", 0, 30), Expected("posterior", seconds * size, 0)]

    return forecast


def within(tmp_path, monkeypatch, forecast, *, side=300, minutes=None, **given):
    """The choices for 3,000 pictures with limited time."""
    monkeypatch.setattr("nogs.recipes.folder.survey", lambda config, data: pictures(side=side))
    fields = {"posterior.weights": "none"} | {name.replace("__", "."): value for name, value in given.items()}
    return choose_for(recipe("folder"), tmp_path, fields, device="cpu", forecast=forecast, minutes=minutes)


@pytest.mark.parametrize(
    ("seconds", "side", "minutes", "size", "iterations"),
    [
        (50, 300, None, 224, 2461),  # 12.25 times as many pixels take 613 s
        (90, 300, None, 224, 1942),  # 1,102 s, of which 870 are there
        (100, 300, None, 128, 2461),
        (200, 300, None, 128, 2461),
        (400, 300, None, 96, 2379),
        (400, 300, 60, 128, 3320),  # 250 rounds
        (400, 70, None, 64, 2461),
        (4000, 300, None, 64, 535),
        (40_000, 300, None, 64, 246),  # a tenth, whatever it takes
        (50, 70, 60, 64, 3320),
    ],
)
def test_a_cpu_gets_the_largest_images_for_which_there_is_time(
    tmp_path, monkeypatch, seconds, side, minutes, size, iterations
):
    found, lines = within(tmp_path, monkeypatch, taking(seconds), side=side, minutes=minutes)
    assert (found.data.image_size, found.data.glimpse) == (size, size // 4)
    assert found.posterior.iterations == pytest.approx(iterations, abs=1)
    assert found.posterior.warmup == found.posterior.iterations // 20
    share = found.posterior.iterations / choose(pictures())[0].posterior.iterations
    expected = clock(30 + share * seconds * (size / 64) ** 2)
    assert lines[4].startswith(f"  time       about {expected} (data 30 s, posterior ")


def test_the_time_of_the_forecasts_is_not_trained_in(tmp_path, monkeypatch):
    clock_at, forecast = [1_000.0], taking(4_000)
    monkeypatch.setattr("nogs.recipes.folder.time.monotonic", lambda: clock_at[0])

    def slow(found, pictures):
        clock_at[0] += 20
        return forecast(found, pictures)

    found, _ = within(tmp_path, monkeypatch, slow)
    share = (900 - 4 * 20 - 30) / 4_000  # four sizes are forecast
    assert found.posterior.iterations == round(share * choose(pictures())[0].posterior.iterations)


def test_what_the_user_gave_is_measured_and_stays(tmp_path, monkeypatch):
    asked = []
    found, lines = within(tmp_path, monkeypatch, taking(40_000, asked), data__image_size="96")
    assert found.data.image_size == 96
    assert asked == [96]
    assert "96 px (set by you)" in lines[1]


def test_pictures_that_are_hardly_smaller_are_enlarged(tmp_path, monkeypatch):
    found, lines = within(tmp_path, monkeypatch, taking(1), side=120)
    assert found.data.image_size == 128
    assert "the pictures' shorter sides are 120 px at the median" in lines[1]


@pytest.mark.parametrize(("others", "share"), [(255, "under 1%"), (9, "10%")])
def test_a_few_smaller_pictures_are_said(tmp_path, monkeypatch, others, share):
    seen = replace(pictures(), sizes=((340, 300),) * others + ((40, 30),))
    monkeypatch.setattr("nogs.recipes.folder.survey", lambda config, data: seen)
    _, lines = choose_for(recipe("folder"), tmp_path, {"posterior.weights": "none"}, device="cpu")
    assert lines[1].endswith(f"; {share} are smaller, and enlarged")


def test_a_gpu_takes_the_time_that_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr("nogs.recipes.folder.pick_device", lambda name: SimpleNamespace(type="cuda"))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (80 * GIB, 80 * GIB))
    asked = []
    found, lines = within(tmp_path, monkeypatch, taking(4_000, asked))
    assert found == choose(pictures(), 80 * GIB, posterior__weights="none")[0]
    assert asked == [128]
    assert "about 4.5 hours" in lines[4]
    assert within(tmp_path, monkeypatch, taking(4_000), minutes=40)[0].data.image_size == 64


def test_a_survey_looks_at_all_names_and_at_some_headers(tmp_path):
    data = miniature.folder(tmp_path / "data", classes=("cat", "dog"), per_class=30)
    (data / "cat" / "0.png").write_bytes(b"no picture")
    Image.fromarray(np.zeros((9, 200), np.uint8)).save(data / "dog" / "1.png")
    seen = survey(miniature.FOLDER, data=data)
    assert (seen.images, seen.looked_at, len(seen.sizes)) == (60, 60, 59)
    assert seen.classes == {"cat": 30, "dog": 30}
    assert (200, 9) in seen.sizes
    assert seen.smaller_than(10) == 1
    assert 30 <= seen.side < 60
    assert survey(miniature.FOLDER, data=data, most=7).looked_at == 7


def test_a_survey_of_too_few_pictures_is_refused(tmp_path):
    data = miniature.folder(tmp_path / "data", classes=("cat", "dog"), per_class=2)
    with pytest.raises(InputError, match=r"There are 4 pictures in 2 classes, too few .* give at least 40\."):
        survey(miniature.FOLDER, data=data)


def test_the_fields_that_help_calls_chosen_are_those_that_are():
    made = {
        field
        for gpu in (None, 80 * GIB)
        for number in (1_000, 30_000)
        for features in (None, "imagenet")
        for field in choose(pictures(number), gpu, features)[1]
    }
    assert {field for field in made if not field.startswith("bank.trained.")} == CHOSEN


@pytest.mark.parametrize("gpu_bytes", [None, 80 * GIB])
@pytest.mark.parametrize("side", [20, 50, 64, 100, 300])
def test_posterior_with_features_can_be_built_for_pictures_of_any_size(gpu_bytes, side):
    found, _ = choose(pictures(side=side), gpu_bytes, "imagenet")
    assert (found.posterior.stem, found.posterior.weights) == ("vgg", "imagenet")
    assert found.posterior.pretrained_rate < 1
    make_stem(found.posterior, glimpse=found.data.glimpse)  # refuses what does not divide
    odd, _ = choose(pictures(side=side), gpu_bytes, "imagenet", data__glimpse=7)
    make_stem(odd.posterior, glimpse=7)


def test_pictures_alone_train_a_posterior_without_features():
    found, choices = choose(pictures())
    assert (found.posterior.stem, found.posterior.weights) == ("conv", "none")
    assert "posterior.weights" not in choices


@pytest.mark.parametrize(
    ("flags", "stem"),
    [({}, "vgg"), ({"posterior.weights": "none"}, "conv"), ({"posterior.stem": "linear"}, "linear")],
)
def test_features_of_the_data_folder_are_used_and_named(tmp_path, flags, stem):
    data = miniature.folder(tmp_path / "data", classes=("cat", "dog"), per_class=30)
    (data / weights_file()).touch()
    found, lines = choose_for(recipe("folder"), data, flags, device="cpu")
    assert found.posterior.stem == stem
    told = [line for line in lines if "ImageNet" in line and "starts" in line]
    assert len(told) == (stem == "vgg")
    assert not told or str(data / weights_file()) in told[0]
    assert found.posterior.weights == ("imagenet" if stem == "vgg" else "none")


def test_features_that_can_not_be_had_are_asked_for_once_and_briefly(tmp_path, monkeypatch):
    data = miniature.folder(tmp_path / "data", classes=("cat", "dog"), per_class=30)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    found, lines = choose_for(recipe("folder"), data, {}, device="cpu")
    assert found.posterior.stem == "conv"
    assert [line for line in lines if line.startswith("The posterior is trained from scratch: torchvision has no")]
