import pytest

from nogs.model.finding import find
from nogs.model.loading import load
from nogs.runtime.errors import InputError
from small_runs import write_run

MANY = {"ram/seed-0": 0.5, "ram/seed-1": 0.75, "ps-nogs/seed-0": 0.625}
FACES = {"ram/Smiling/seed-0": 0.9, "ram/Male/seed-0": 0.8, "ps-nogs/Smiling/seed-0": 0.95}


def test_best_on_the_validation_images_is_taken_and_said(tmp_path):
    found = find(write_run(tmp_path, MANY))
    assert found.name == "ram/seed-1"
    assert found.path == tmp_path / "attention" / "ram" / "seed-1" / "best-accuracy.safetensors"
    assert found.why == "ram/seed-1 is the best of 3 by validation accuracy: 75.0%"


def test_lowest_nll_is_the_best_and_a_failed_network_is_not(tmp_path):
    run = write_run(tmp_path, {"ram/seed-0": 1.5, "ram/seed-1": 0.25, "ram/seed-2": None}, best="nll")
    assert find(run, best="nll").why == "ram/seed-1 is the best of 3 by validation nll: 0.250"
    with pytest.raises(InputError, match="holds no trained networks"):
        find(run)


@pytest.mark.parametrize(
    ("asked", "name"),
    [("ram/seed-0", "ram/seed-0"), ("ram", "ram/seed-1"), ("seed-0", "ps-nogs/seed-0"), ("ps-nogs/", "ps-nogs/seed-0")],
)
def test_network_is_named_in_full_or_by_words(tmp_path, asked, name):
    assert find(write_run(tmp_path, MANY), network=asked).name == name


def test_unknown_network_is_refused_with_those_there_are_or_the_one_that_was_meant(tmp_path):
    with pytest.raises(InputError, match=r"has no network 'mine'; it has ps-nogs/seed-0, ram/seed-0, ram/seed-1\."):
        find(write_run(tmp_path, MANY), network="mine")
    with pytest.raises(InputError, match=r"has no network 'rom'; did you mean 'ram'\?"):
        find(tmp_path, network="rom")


def test_of_equally_good_networks_a_plain_way_to_look_is_not_taken(tmp_path):
    run = write_run(tmp_path, {"centre-out/seed-0": 0.7, "ram/seed-0": 0.7, "random/seed-0": 0.6})
    assert find(run).name == "ram/seed-0"


def test_file_that_is_no_network_is_refused(tmp_path):
    (tmp_path / "report.html").touch()
    with pytest.raises(
        InputError, match=r"report\.html is not a network \(\.safetensors\); give the folder of its run"
    ):
        find(tmp_path / "report.html")


def test_misspelt_names_are_told_what_was_meant(tmp_path):
    with pytest.raises(InputError, match=r"has no network for 'smilling'; did you mean 'Smiling'\?"):
        find(write_run(tmp_path, FACES), attribute="smilling")
    with pytest.raises(InputError, match=r"There is no run celebahq; did you mean 'celeba-hq'\?"):
        find("celebahq")


def test_networks_of_different_attributes_are_not_compared(tmp_path):
    run = write_run(tmp_path, FACES)
    with pytest.raises(
        InputError, match=r"has networks for 2 attributes; name one with --attribute .*: Male, Smiling\."
    ):
        find(run)
    assert find(run, network="Smiling").name == "ps-nogs/Smiling/seed-0"
    assert find(run, network="ram/Smiling").name == "ram/Smiling/seed-0"
    assert load(run, network="Male").labels == ("not Male", "Male")
    with pytest.raises(InputError, match=r"has no network for 'Bald'; choose Male, Smiling\."):
        find(run, attribute="Bald")


def test_networks_for_one_label_have_no_attribute(tmp_path):
    with pytest.raises(InputError, match=r"is for one label, not for attributes; leave 'Bald' out\.$"):
        find(write_run(tmp_path, MANY), attribute="Bald")


def test_attribute_of_a_file_is_refused_by_the_same_rule(tmp_path):
    path = write_run(tmp_path, MANY) / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    with pytest.raises(InputError, match=r"safetensors is for one label, not for attributes; leave 'Bald' out\.$"):
        load(path, attribute="Bald")


def test_file_and_bare_stage_folder_can_be_named(tmp_path):
    run = write_run(tmp_path / "run", data={"fit": "pad"})
    path = run / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    assert load(path).labels == load(run).labels == load(run / "attention").labels
    assert load(path).fit == load(run / "attention").fit == "pad"


def test_fit_is_that_of_the_recipe(tmp_path):
    assert load(write_run(tmp_path / "a", data={"fit": "pad"})).fit == "pad"
    assert load(write_run(tmp_path / "b", data={"kind": "cub", "fit": "pad"})).fit == "crop"
    with pytest.raises(InputError, match="has fit 'squeeze'; it must be one of crop, pad, stretch"):
        load(write_run(tmp_path / "c", data={"fit": "squeeze"}))


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"There is no run .*nowhere; give the folder that nogs train"):
        find(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no trained networks; make some with nogs train"):
        find(tmp_path)
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(InputError, match=r"holds no trained networks; train them with nogs run .*recipe\.yaml --out "):
        find(tmp_path)
    run = write_run(tmp_path / "run")
    path = run / "attention" / "ram" / "seed-0" / "best-accuracy.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=r"best-accuracy.safetensors is not a whole safetensors file"):
        find(run)


def test_network_that_needs_a_batch_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has the release's embedder, which normalises by the batch"):
        load(write_run(tmp_path, embedder="release"))
