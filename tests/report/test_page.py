import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import miniature
import nogs
from nogs.cli import main
from nogs.data import load_task
from nogs.report import page, write_report
from nogs.report.classes import confusion, confusion_figure
from nogs.report.gallery import LINES, Shown, drawn, gallery
from nogs.report.headlines import commands
from nogs.report.lookers import looker
from nogs.report.methods import compared, learned_in
from nogs.report.plates import NetworkPlates, learning_plates
from nogs.report.results import best_network
from nogs.report.tables import methods_table
from nogs.report.verdict import verdict
from nogs.report.words import about, absent
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_json, write_sealed
from nogs.sequences import load as load_sequences
from nogs.sequences import save as save_sequences
from toy_attention import toy_sequences


class Found(HTMLParser):
    """Links, ids, headings and the gallery of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.words, self.looks, self._inside = [], [], [], None, ""
        self.feed(path.read_text())
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self._inside = "looks" if given.get("id") == "looks" else tag
        self.links += [given["href"]] if tag == "a" else []
        self.ids += [given["id"]] if "id" in given else []

    def handle_data(self, data):
        if self._inside == "looks" and data.strip():
            self.looks = json.loads(data)
        elif self._inside not in ("style", "script"):
            self.words.append(data)


@pytest.fixture(scope="module")
def report(whole_run, tmp_path_factory):
    """The page of the whole run, in a folder of its own."""
    out = tmp_path_factory.mktemp("page") / "about.html"
    return write_report([whole_run], out=out, task=lambda config: load_task(config), images=4, device="cpu")


def test_every_link_leads_to_a_file_or_a_place_of_the_page(report):
    found = Found(report)
    assert len(found.ids) == len(set(found.ids))
    for link in found.links:
        if link.startswith("#"):
            assert link[1:] in found.ids, link
        else:
            assert (report.parent / unquote(link)).exists(), link


def test_results_come_first_with_the_numbers_of_the_files(report, whole_run):
    found = Found(report)
    order = ["results", "gallery", "scores", "figures", "tables", "reproduce"]
    assert [id for id in found.ids if id in order] == order
    means = {}
    for method in ("ram", "ps-nogs"):
        scores = [
            read_json(whole_run / "attention" / method / f"seed-{seed}" / "evaluation.json")["best"]["accuracy"]["test"]
            for seed in (0, 1)
        ]
        means[method] = np.mean([score["accuracy"] for score in scores])
        for score in scores:
            assert f"{100 * score['accuracy']:.1f} %" in found.text
    first = found.text[: found.text.index("Gallery 6 pictures")]
    for mean in means.values():
        assert f"{100 * mean:.1f} %" in first
    sentence = verdict(page.read_run(whole_run)).sentence
    assert re.match(r"With \d+ % of the pixels (RAM|PS-NOGS) is right on \d+ of 100 test pictures; ", sentence)
    assert first.index(sentence) < first.index("test accuracy of ")


def test_words_are_explained_before_they_are_used(report):
    text = Found(report).text
    assert text.index("NLL") == text.index("NLL is the negative log-likelihood")
    assert text.index("nats") == text.index("nats, the natural unit of information")


def test_classes_are_judged_one_by_one(whole_run, load):
    run = page.read_run(whole_run)
    task = load(run.data)
    found = looker(best_network(run), task)
    table = confusion(found)
    assert table.images == len(task.splits["test"])
    locations = np.load(found.network.folder / "locations.npy")[:, 0]
    counts = np.zeros((10, 10), int)
    for n, id in enumerate(task.splits["test"]):
        model = nogs.load(whole_run, network="/".join(found.network.folder.parts[-2:]))
        look, image = model.look(), task.images[task.position[id]]
        state = look.state
        for row, column in locations[n]:
            index = int(task.grid.index(torch.tensor([row, column], dtype=torch.int64)))
            state = model.update(state, image[row : row + 12, column : column + 12], index)
        counts[task.labels[task.position[id]], model.belief(state).argmax()] += 1
    assert table.counts.tolist() == counts.tolist()
    shown = table.most_confused(3)
    assert shown.counts.shape == (3, 3)
    figure = confusion_figure(table)
    numbers = sorted(int(text.get_text()) for text in figure.axes[0].texts)
    assert numbers == sorted(counts[counts > 0].tolist())


def test_accuracy_against_pixels_is_judged_on_all_test_pictures(whole_run, load):
    run = page.read_run(whole_run)
    (plate,) = NetworkPlates(run, load(run.data), device="cpu")._pixels()
    tests = len(load(run.data).splits["test"])
    assert f"glimpses of all {tests} test pictures" in plate.caption
    # networks that learned so little may have equal curves, which share a label
    lines = {name: line.get_xydata() for line in plate.figure.axes[0].lines for name in line.get_label().split(" = ")}
    for method, name in (("ram", "RAM"), ("ps-nogs", "PS-NOGS")):
        kept = [
            read_json(whole_run / "attention" / method / f"seed-{seed}" / "accuracy-by-glimpses.json")["policies"]
            for seed in (0, 1)
        ]
        for column, measure in enumerate(("pixels_read", "accuracy")):
            expected = 100 * np.mean([one["sample"][measure] for one in kept], 0)
            np.testing.assert_allclose(lines[name][:, column], expected)
    table = read_json(whole_run / "posterior" / "evaluation.json")["tables"]["test, calibrated"]
    known = lines["random locations (posterior)"]
    np.testing.assert_allclose(known[:, 1], [100 * row["accuracy"] for row in table])
    assert known[1, 0] == pytest.approx(100 / 16)  # one glimpse of 12 px in 48 px
    assert known[2, 0] < 200 / 16  # overlaps count once


def test_accuracy_against_pixels_is_that_of_the_locations_which_a_network_takes(networks_alone):
    path = networks_alone / "attention" / "ram" / "seed-0" / "accuracy-by-glimpses.json"
    kept = read_json(path)
    kept["own"], kept["policies"]["argmax"]["accuracy"] = "argmax", [0.25, 0.5, 0.75]
    path.write_text(json.dumps(kept))
    shutil.rmtree(networks_alone / "attention" / "ram" / "seed-1")
    (plate,) = NetworkPlates(page.read_run(networks_alone), None, device="cpu")._pixels()
    (line,) = [line for line in plate.figure.axes[0].lines if line.get_label() == "RAM"]
    np.testing.assert_allclose(line.get_ydata(), [25, 50, 75])


def test_entropy_of_the_policy_is_shown_of_networks_that_draw_their_locations(whole_run):
    run = page.read_run(whole_run)
    fixed = [
        replace(
            network, evaluation={**network.evaluation, "member": {**network.evaluation["member"], "method": "fixed"}}
        )
        for network in run.networks
    ]
    assert list(NetworkPlates(run, None)._policy())
    assert not list(NetworkPlates(replace(run, networks=tuple(fixed)), None)._policy())


def test_parts_that_no_method_of_the_run_needs_are_not_missed(networks_alone):
    run = page.read_run(networks_alone)
    assert "bank (nogs bank build)" in absent(run, None)[0]
    ram = tuple(network for network in run.networks if network.method == "ram")
    assert absent(replace(run, networks=ram), None)[0] == "Not in this run: posterior (nogs posterior train)."


def test_words_about_a_run_name_its_methods_as_the_verdict_does(whole_run):
    text = about(page.read_run(whole_run), None)
    assert text.endswith("3 glimpses of 12 px, each 6.2 % of the image, at 100 locations; 4 networks (PS-NOGS, RAM).")


def test_figures_lie_beside_the_page_as_png_and_svg(report):
    names = {path.stem for path in (report.parent / "about").glob("*.png")}
    assert names == {
        *("curves", "where", "pixels", "policy-entropy", "sequences", "epe", "walk-through", "posterior"),
        *("completions", "effective", "stopping", "confusion"),
    }
    for name in names:
        with Image.open(report.parent / "about" / f"{name}.png") as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10
        assert "<svg" in (report.parent / "about" / f"{name}.svg").read_text()
        assert f"figure-{name}" in Found(report).ids


def test_page_asks_for_nothing_and_is_small(report):
    text = report.read_text()
    assert report.stat().st_size < 15_000_000
    outside = re.findall(r"(?:src|srcset|href)=\"(?!data:|#)([a-z]+:[^\"]*)", text)
    assert [address for address in outside if not address.startswith("http://www.w3.org")] == []
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttp", text)


def test_gallery_holds_the_rollouts_the_sequences_their_maps_and_completions(report, whole_run):
    looks = Found(report).looks
    sequences = load_sequences(whole_run / "sequences")
    task = load_task(page.read_run(whole_run).data)
    tests = [image for image in looks["images"] if image["split"] == "test picture"]
    taught = [image for image in looks["images"] if image["id"] in sequences.position]
    assert len(tests) == 4
    assert len(taught) == 2
    assert tests[0]["looks"][0]["who"] in ("PS-NOGS", "RAM")
    for image in tests:
        assert image["id"] in task.splits["test"]
        for look in image["looks"]:
            # a test image is shown with the trajectory that its evaluation kept
            seed = re.search(r"seed-\d", look["source"])[0]
            kept = np.load(whole_run / "attention" / look["who"].lower() / seed / "locations.npy")
            assert look["pixels"] == kept[task.splits["test"].index(image["id"]), 0].tolist()
            assert look["truth"] == look["names"][0] == image["label"]  # the true class is always listed
            assert look["names"] == image["looks"][0]["names"]  # so that a class keeps its colour
            assert look["names"][-1] == "all others"
            assert look["answers"][-1][0] in look["names"]
            np.testing.assert_allclose(np.sum(look["beliefs"], 1), 1, atol=0.01)
            assert len(look["beliefs"]) == len(look["answers"]) == 4  # before the first glimpse, and after each
        right = image["looks"][0]["answers"][-1][0] == image["label"]
        assert image["right"] is right
    for image in taught:
        look = image["looks"][-1]
        place = sequences.position[image["id"]]
        assert look["who"] == "near-optimal sequence"
        assert look["pixels"] == sequences.locations[place].tolist()
        assert look["epe"] == pytest.approx(sequences.epe[place], abs=1e-4)
        assert all(one["maps"][step] for one in image["looks"] for step in range(3))
        assert all(strip.startswith("data:image/jpeg") for strip in look["completions"])
        assert len(set(look["completions"])) == 3


@pytest.mark.parametrize("classes", [2, 7, 8, 9, 200])
def test_chart_of_probabilities_leaves_no_class_out(rng, classes):
    names = [f"class {k}" for k in range(classes)]
    looks = [{"kind": "sequence"}]
    for answer in (1, classes - 1):
        beliefs = rng.dirichlet(np.ones(classes), 5) / 2
        beliefs[:, answer] += 0.5
        looks.append({"names": names, "truth": "class 0", "beliefs": beliefs, "answers": [[names[answer], 0.5]]})
    found = drawn(looks)
    assert found[0] == looks[0]
    assert found[1]["names"] == found[2]["names"]
    assert found[1]["names"][0] == "class 0"
    assert len(found[1]["names"]) == min(classes, LINES)
    assert (found[1]["names"][-1] == "all others") == (classes > LINES)
    for look, before in zip(found[1:], looks[1:]):
        assert look["answers"][0][0] in look["names"]
        np.testing.assert_allclose(np.sum(look["beliefs"], 1), 1, atol=0.01)
        column = before["beliefs"][:, names.index(look["names"][1])]
        np.testing.assert_allclose(np.array(look["beliefs"])[:, 1], column, atol=0.001)


def test_caption_of_the_curves_names_bands_tasks_and_dotted_lines_only_where_there_are_any(whole_run):
    run = page.read_run(whole_run)
    one = replace(run, networks=run.networks[:1])
    dotted = replace(run.networks[1], learned=replace(run.networks[1].learned, rule=None, method="fixed"))
    several = replace(dotted, learned=replace(dotted.learned, attribute="Male"))
    captions = [
        next(learning_plates([found])).caption
        for found in (
            run,
            one,
            replace(one, networks=(*one.networks, dotted)),
            replace(one, networks=(*one.networks, several)),
        )
    ]
    for words, expected in (
        ("the band is the range over seeds", [True, False, False, False]),
        ("averaged over tasks", [False, False, False, True]),
        ("Dotted:", [False, False, True, True]),
    ):
        assert [words in caption for caption in captions] == expected


def test_gallery_opens_on_a_test_picture_that_is_right_if_there_is_one(report):
    looks = Found(report).looks
    image = looks["images"][looks["opening"]]
    assert image["split"] == "test picture"
    assert image["right"] or not any(one["right"] for one in looks["images"])


def test_gallery_has_every_class_by_default(whole_run, load, tmp_path):
    run = page.read_run(whole_run)
    task = load(run.data)
    found = gallery([Shown(run, task, None, looker(best_network(run), task))], images=None, link=str)
    tests = [image for image in found["images"] if image["split"] == "test picture"]
    present = {task.space.names[task.labels[task.position[id]]] for id in task.splits["test"]}
    assert {image["label"] for image in tests} == present
    # in the order of the ids, as it was before, classes are missing where there are fewer places than images
    few = gallery([Shown(run, task, None, looker(best_network(run), task))], images=len(present), link=str)
    shown = [image["label"] for image in few["images"] if image["split"] == "test picture"]
    assert sorted(shown) == sorted(present)


@pytest.mark.usefixtures("blank_figures")
def test_command_that_was_typed_is_shown(networks_alone):
    write_sealed(networks_alone / "local.json", {"command": "nogs run digits --seeds 0 1"})
    text = Found(write_report([networks_alone])).text
    assert "This command made the run: nogs run digits --seeds 0 1" in text


@pytest.mark.usefixtures("blank_figures")
def test_accuracy_by_glimpses_is_shown_where_it_was_measured(whole_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    assert main(["evaluate", str(run), "--network", "ps-nogs/seed-1", "--trajectories", "1"]) == 0
    found = Found(write_report([run], out=tmp_path / "page.html", device="cpu"))
    assert "figure-stopping" in found.ids
    assert any(link.endswith("ps-nogs/seed-1/accuracy-by-glimpses.json") for link in found.links)


def test_commands_of_the_page_name_what_was_done(report, whole_run):
    text = Found(report).text
    assert f"nogs annotate {whole_run}/recipe.yaml --subset 0:4 --out AGAIN" in text
    train = "--method ram ps-nogs --seeds 0 1 --sequences AGAIN/sequences --out AGAIN"
    assert f"nogs train {whole_run}/recipe.yaml {train}" in text
    assert "nogs report AGAIN --out AGAIN/report.html" in text  # nothing is written into the old run


def test_commands_of_the_page_train_the_whole_image_where_the_run_has_it(networks_alone):
    assert not any("nogs whole" in line for line in commands(page.read_run(networks_alone), report=[networks_alone]))
    scores = {"accuracy": 0.875, "balanced_accuracy": 0.75, "nll": 0.25}
    write_json(networks_alone / "whole-image" / "evaluation.json", {"tests": {"": scores}})
    lines = commands(page.read_run(networks_alone), report=[networks_alone])
    assert lines[0] == f"nogs whole {networks_alone}/recipe.yaml --out AGAIN"


@pytest.mark.parametrize(("never", "cell"), [(0, "4"), (1, "> 4 (1 of 2 never)"), (2, "never within 6")])
def test_table_of_methods_does_not_take_never_for_the_horizon(whole_run, never, cell):
    comparison = compared(learned_in([page.read_run(whole_run)]))
    comparison["methods"]["ps-nogs"]["mean"]["reached"] = (4.0, 4.0, 4.0)
    comparison["methods"]["ps-nogs"]["never_reached"] = never
    table = methods_table(comparison, "")
    assert table.columns[-1] == "reached ram's best validation NLL at"
    assert table.rows[0][-1].text == cell


def test_tables_say_at_which_best_an_nll_was_measured(report):
    text = Found(report).text
    assert "Each test score is of the checkpoint that was best by that measure on the validation pictures" in text
    assert "NLL at best accuracy (nats)" in text


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize(
    "part", ["posterior/posterior.safetensors", "bank/pca.safetensors", "bank/codes/00000.npy", "bank/images/00000.npy"]
)
def test_file_that_can_not_be_read_is_named(whole_run, tmp_path, load, capsys, part):
    run = shutil.copytree(whole_run, tmp_path / "run", ignore=shutil.ignore_patterns("attention", "report*"))
    (run / part).write_bytes(b"damaged")
    found = Found(write_report([run], task=load, images=0, device="cpu"))
    head = "A figure is missing:" if "images" in part else "There are no completions and no walk-through of the design:"
    said = f"{head} {run / part}"
    assert said in found.text
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("blank_figures")
def test_networks_of_other_splits_are_named(networks_alone, capsys):
    path = networks_alone / "data" / "splits.json"
    record = read_json(path)
    splits = record["splits"]
    splits["test"], splits["validation"] = splits["validation"], splits["test"]
    path.write_text(json.dumps(record))
    path.with_name("done.json").unlink()  # as if the data had been prepared anew
    found = Found(write_report([networks_alone]))
    said = "The network ps-nogs/seed-0 (and 3 more) was trained on other splits of this data"
    assert said in found.text
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("part", ["posterior", "bank", "sequences", "attention"])
def test_run_with_one_part_alone_has_its_report(whole_run, tmp_path, load, part):
    run = tmp_path / part
    run.mkdir()
    shutil.copy(whole_run / "recipe.yaml", run)
    shutil.copytree(whole_run / "data", run / "data")
    shutil.copytree(whole_run / part, run / part)
    out = write_report([run], task=load, images=1, device="cpu")
    assert out == run / "report.html"
    found = Found(out)
    missing = re.search(r"Not in this run: (.*?\))\.", found.text)[1]
    here = {"attention": "networks"}.get(part, part)
    assert set(re.findall(r"(\w+) \(", missing)) == {"posterior", "bank", "sequences", "networks"} - {here}
    assert ("gallery" in found.ids) == (part in ("sequences", "attention"))
    for section in re.findall(r"<section.*?</section>", out.read_text(), re.DOTALL):
        assert re.search("<h3>|<canvas|<pre|<li>", section), section


@pytest.mark.usefixtures("blank_figures")
def test_without_images_the_page_says_so_and_shows_the_rest(whole_run, tmp_path):
    found = Found(write_report([whole_run], out=tmp_path / "page.html", device="cpu"))
    assert "The images were not found, so there is no gallery" in found.text
    assert "gallery" not in found.ids
    assert {"figure-curves", "figure-where", "figure-posterior", "figure-effective"} <= set(found.ids)
    assert not {"figure-epe", "figure-sequences"} & set(found.ids)


@pytest.mark.usefixtures("blank_figures")
def test_maps_that_were_not_kept_are_named(whole_run, tmp_path, load):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run, ignore=shutil.ignore_patterns("attention", "bank", "maps.safetensors"))
    found = Found(write_report([run], task=load, images=2))
    assert "Of the maps of expected posterior entropy only the first was kept" in found.text
    maps = found.looks["images"][0]["looks"][0]["maps"]
    assert maps[0] is not None
    assert maps[1:] == [None, None]


@pytest.fixture
def networks_alone(whole_run, tmp_path):
    """The run without posterior, bank and sequences, which leaves little to draw."""
    ignore = shutil.ignore_patterns("posterior", "bank", "sequences", "report*")
    return shutil.copytree(whole_run, tmp_path / "tiny", ignore=ignore)


def test_weights_of_supervision_are_told_apart(whole_run, tmp_path, load):
    run, recipe = tmp_path / "weights", f"{whole_run}/recipe.yaml"
    words = ["compare", recipe, "--method", "ram", "ps-nogs", "--weights", "1", "64", "--seeds", "0"]
    assert main([*words, "--sequences", f"{whole_run}/sequences", "--out", str(run), "--device", "cpu"]) == 0
    text = Found(write_report([run], task=load, device="cpu")).text
    assert f"nogs compare {run}/recipe.yaml --method ram ps-nogs --weights 1 64 --seeds 0 " in text
    for name in ("where", "pixels", "policy-entropy"):
        drawn = (run / "report" / f"{name}.svg").read_text()
        assert all(f"PS-NOGS (weight {weight})" in drawn for weight in (1, 64)), name


@pytest.mark.usefixtures("blank_figures")
def test_several_runs_are_compared(networks_alone, tmp_path, load):
    other = shutil.copytree(networks_alone, tmp_path / "other")
    shutil.rmtree(other / "attention" / "ps-nogs")
    out = write_report([networks_alone, other], out=tmp_path / "both.html", task=load, images=1, device="cpu")
    found = Found(out)
    assert [id for id in found.ids if id in ("comparison", "run-tiny", "run-other")] == [
        *("comparison", "run-tiny", "run-other")
    ]
    comparison = read_json(tmp_path / "both" / "comparison.json")
    assert list(comparison["methods"]) == ["ps-nogs", "ram (tiny)", "ram (other)"]
    who = [look["who"] for look in found.looks["images"][0]["looks"]]
    assert "tiny: RAM" in who
    assert "other: RAM" in who
    assert (tmp_path / "both" / "all-curves.svg").exists()
    assert (tmp_path / "both" / "other-curves.svg").exists()


@pytest.mark.usefixtures("blank_figures")
def test_runs_of_different_horizons_are_shown_but_not_compared(networks_alone, tmp_path):
    other = shutil.copytree(networks_alone, tmp_path / "shorter")
    for path in (other / "attention").glob("**/metrics.jsonl"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines[:-1]) + "\n")
        path.with_name("done.json").unlink()
    found = Found(write_report([networks_alone, other], out=tmp_path / "both.html"))
    assert "trained for different numbers of iterations" in found.text
    assert "gallery" not in found.ids


@pytest.mark.usefixtures("blank_figures")
def test_names_of_users_are_shown_and_never_run(tmp_path):
    data = miniature.folder(tmp_path / "pictures", classes=("<b>cat", "<script>dog"))
    recipe = {
        "base": "folder",
        "name": "own",
        "data": {"image_size": 32, "glimpse": 8, "grid_spacing": 8, "annotated": 4},
        "attention": {"iterations": 2, "validate_every": 1, "batch": 4, "hidden": 8, "trajectories": 1},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe))
    run = tmp_path / "<i>run"
    places = ["--data", str(data), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    assert main(["train", str(tmp_path / "own.yaml"), *places, "--out", str(run)]) == 0
    out = write_report([run], task=lambda c: load_task(c, data=data, cache=tmp_path / "cache"), images=4)
    text, found = out.read_text(), Found(out)
    assert "<i>run" not in text
    assert "<b>cat" not in text
    assert "<script>dog" not in text
    assert text.count("</script>") == 2  # the gallery's and the page's own
    assert {image["label"] for image in found.looks["images"]} <= {"<b>cat", "<script>dog"}


def test_page_that_grows_too_large_loses_images(networks_alone, tmp_path, load, monkeypatch):
    made = [write_report([networks_alone], out=tmp_path / "a.html", task=load, images=3, device="cpu")]
    monkeypatch.setattr(page, "LARGEST", made[0].stat().st_size - 1000)
    made.append(write_report([networks_alone], out=tmp_path / "b.html", task=load, images=3, device="cpu"))
    counts = [len(Found(path).looks["images"]) for path in made]
    assert counts == [3, 1]


@pytest.mark.usefixtures("blank_figures")
def test_default_page_that_grows_too_large_never_gains_images(networks_alone, tmp_path, load, monkeypatch):
    counts, make = [], page.gallery

    def gallery(*args, **how):
        found = make(*args, **how)
        counts.append(len(found["images"]))
        return found

    monkeypatch.setattr(page, "gallery", gallery)
    monkeypatch.setattr(page, "LARGEST", 0)
    task = load_task(page.read_run(networks_alone).data)
    monkeypatch.setattr("nogs.report.gallery.IMAGES", len(task.splits["test"]) - 2)
    write_report([networks_alone], out=tmp_path / "page.html", task=load, device="cpu")
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts) > 3


@pytest.mark.usefixtures("blank_figures")
def test_attributes_have_their_own_networks_and_sequences(tmp_path):
    data = miniature.celeba_hq(tmp_path / "data", count=60)
    recipe = {
        "base": "celeba-hq",
        "name": "faces",
        "glimpses": 2,
        "data": {"image_size": 32, "glimpse": 8, "grid_count": 5, "grid_last": None, "annotated": 600},
        "attention": {"iterations": 2, "validate_every": 1, "batch": 4, "hidden": 8, "trajectories": 1},
    }
    (tmp_path / "faces.yaml").write_text(yaml.safe_dump(recipe))
    run, places = tmp_path / "run", ["--data", str(data), "--cache", str(tmp_path / "cache"), "--device", "cpu"]
    names = ("Smiling", "Male")
    words = ["--attribute", *names, "--seeds", "0", "1", "--out", str(run)]
    assert main(["train", str(tmp_path / "faces.yaml"), *places, *words]) == 0
    task = load_task(page.read_run(run).data, data=data, cache=tmp_path / "cache")
    for seed, name in enumerate(names):
        found = toy_sequences(task, task.splits["annotate"], glimpses=2, attribute=name, seed=seed)
        save_sequences(found, run / "sequences" / name)
    found = Found(write_report([run], task=task, images=1))
    assert "figure-convergence" in found.ids
    who = [look["who"] for look in found.looks["images"][-1]["looks"]]
    assert sorted(who) == sorted(f"{what} for {name}" for name in names for what in ("given sequence", "RAM"))
    assert "--method ram --seeds 0 1 --attribute Male Smiling --data DATA --out AGAIN" in found.text


def test_data_that_was_only_inspected_has_a_page(tmp_path, capsys):
    assert (
        main(
            [
                "data",
                "inspect",
                "digits",
                "--data.count",
                "60",
                "--data.annotated",
                "6",
                "--out",
                str(tmp_path / "look"),
            ]
        )
        == 0
    )
    (tmp_path / "look" / "recipe.yaml").unlink()  # as in a folder that is no run
    found = Found(write_report([tmp_path / "look"]))
    assert re.search(r"digits 60 images of \d+ px with 10 classes\.", found.text)
    assert "data" in found.ids
    assert "only the page can be reproduced" in found.text


@pytest.mark.parametrize(
    ("runs", "given", "sentence"),
    [
        ([], {}, "A report needs at least one RUN"),
        (["nowhere"], {}, "There is no folder .*nowhere; give the folder of a run"),
        (["empty"], {}, "empty holds nothing that nogs made"),
        (["tiny", "tiny"], {}, "A run was given twice"),
        (["tiny"], {"images": -1}, "The number of images must not be negative, but is -1"),
        (["tiny"], {"out": "page"}, r"The page .*page needs a name that ends in \.html"),
    ],
)
def test_mistakes_are_one_sentence(whole_run, tmp_path, runs, given, sentence):
    (tmp_path / "empty").mkdir()
    folders = [whole_run if name == "tiny" else tmp_path / name for name in runs]
    given = {**given, **({"out": tmp_path / given["out"]} if "out" in given else {})}
    with pytest.raises(InputError, match=sentence):
        write_report(folders, **given)


def test_kinds_of_completion_that_were_compared_are_shown(whole_run, tmp_path, load):
    run = tmp_path / "run"
    shutil.copytree(whole_run / "bank", run / "bank")
    shutil.copy(whole_run / "recipe.yaml", run)
    command = ["bank", "compare", str(run), "--device", "cpu", "--kinds", "retrieval", "corrected"]
    assert main([*command, "--images", "2", "--shown", "1"]) == 0
    measured = read_json(run / "bank" / "evaluation" / "compare.json")["kinds"]
    found = Found(write_report([run], out=tmp_path / "report.html", task=load, images=0, device="cpu"))
    assert "figure-kinds" in found.ids
    table = found.text[found.text.index("Kinds of completion kind s an image") :]
    for kind, rows in measured.items():
        assert f"{kind} " in table
        assert f" {rows[-1]['log_likelihood_per_number']:.3f} {rows[-1]['error_of_mean']:.1f} " in table
