import json
import re
import shutil

import pytest
import torch

import nogs.report
from nogs.attention.training import Trainer
from nogs.data import load_task
from nogs.posterior import training as posterior_training
from nogs.recipes import changed, recipe
from nogs.recipes.times import clock
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, write_sealed
from nogs.sequences import load
from nogs.stages import STAGES, Settings, estimates, verdict
from nogs.stages import run as run_stages
from nogs.stages.ledger import Ledger

pytestmark = pytest.mark.usefixtures("blank_figures_in_the_module")

TINY = {
    "data": {"count": 80, "annotated": 6},
    "posterior": {"iterations": 4, "validate_every": 2, "batch": 16, "width": 16, "layers": 1, "heads": 2, "warmup": 0},
    "bank": {"count": 60, "components": 8},
    "completion": {"drawn": 20, "kept": 6},
    "design": {"images": 3},
    "whole": {"iterations": 4, "batch": 16, "width": 4},
    "attention": {"iterations": 6, "validate_every": 2, "save_every": 1, "hidden": 16, "embedding": 16, "batch": 16},
    "plus": {"iterations": 2, "batch": 8, "candidates": 2, "validate_every": 2},
}


def tiny(**changes):
    """A small version of the demo's recipe."""
    fields = {f"{part}.{name}": value for part, values in TINY.items() for name, value in values.items()}
    return changed(recipe("digits"), fields | {name.replace("__", "."): value for name, value in changes.items()})


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_page(monkeypatch):
    """A file in place of the page, which has its own tests."""

    def write_report(runs, *, task, device):
        page = runs[0] / "report.html"
        page.write_text(task.name)
        return page

    monkeypatch.setattr(nogs.report, "write_report", write_report)


def follow(run, found=None, until="report", **settings):
    """Run a recipe; the page and all lines for `tell`."""
    found, told = found or tiny(), []
    settings = {"method": ("ram", "ps-nogs"), **settings}
    return run_stages(found, run, Settings(device="cpu", **settings), until=until, tell=told.append), told


def test_without_ps_nogs_no_bank_and_no_sequences_are_made(tmp_path):
    _, told = follow(tmp_path / "run", until="attention", method=Settings().method, estimate=True)
    assert sorted(path.name for path in (tmp_path / "run" / "attention").iterdir() if path.is_dir()) == sorted(
        Settings().method
    )
    assert not (tmp_path / "run" / "bank").exists()
    assert any("sequences: skipped; only ps-nogs needs it." in line for line in told)
    assert any("5 networks: ps-nogs+, ram, fixed, centre-out, random; " in line for line in told)
    follow(tmp_path / "more", until="bank", method=Settings().method)
    assert (tmp_path / "more" / "bank" / "done.json").exists()


@pytest.mark.parametrize(("field", "kind"), [({"posterior__kind": "cnn"}, "a CNN"), ({"posterior__folds": 2}, "cross")])
def test_a_posterior_that_can_not_look_is_refused_before_it_is_trained(tmp_path, field, kind):
    with pytest.raises(InputError, match=f"The methods ps-nogs\\+ can't use this posterior, which is {kind}"):
        follow(tmp_path / "run", tiny(**field), method=("ram", "ps-nogs+"))
    assert not (tmp_path / "run" / "posterior").exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of all stages but the last, with estimates."""
    run = tmp_path_factory.mktemp("runs") / "tiny"
    return run, follow(run, estimate=True, until="attention")[1]


def copied(finished, place):
    shutil.copytree(finished[0], place)
    return place


def test_every_stage_leaves_its_product(finished):
    run, _ = finished
    for name in (
        "recipe.yaml", "data/splits.json", "data/inspect.json", "data/contact-sheet.png",
        "posterior/posterior.safetensors", "posterior/evaluation.json", "bank/codes", "bank/evaluation/validation.json",
        "bank/evaluation/completions.png", "sequences/sequences.jsonl", "sequences/maps.safetensors",
        "whole-image/network.safetensors", "whole-image/evaluation.json", "whole-image/metrics.jsonl",
        "attention/ram/seed-0/evaluation.json", "attention/ps-nogs/seed-0/evaluation.json",
        "attention/ram/seed-0/accuracy-by-glimpses.json", "attention/ps-nogs/seed-0/accuracy-by-glimpses.json",
    ):  # fmt: skip
        assert (run / name).exists(), name
    assert recipe(run / "recipe.yaml") == tiny()
    sequences = load(run / "sequences")
    assert sequences.ids == load_task(tiny().data).splits["annotate"]
    assert sequences.locations.shape == (6, 4, 2)


def test_accuracy_after_the_last_glimpse_is_that_of_the_evaluation(finished):
    for method in ("ram", "ps-nogs"):
        folder = finished[0] / "attention" / method / "seed-0"
        test = read_json(folder / "evaluation.json")["best"]["accuracy"]["test"]
        found = read_json(folder / "accuracy-by-glimpses.json")["policies"]
        assert found["sample"]["accuracy"][-1] == pytest.approx(test["accuracy"], abs=1e-6)
        assert found["argmax"]["accuracy"][-1] == pytest.approx(test["greedy_accuracy"], abs=1e-6)


def test_a_stage_names_the_device_that_it_was_made_on(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "nogs.runtime.device.pick_device", lambda name: torch.device("meta")
    )  # the best of this machine
    follow(tmp_path, until="attention", method=("ps-nogs+", "ram", "ps-nogs"))
    made = {path.parent.relative_to(tmp_path).as_posix(): read_json(path) for path in tmp_path.rglob("done.json")}
    found = {stage: done["versions"]["device"].partition(" ")[0] for stage, done in made.items()}
    assert len(found) == 8
    assert found == {stage: "meta" if stage == "data" else "cpu" for stage in found}


def test_a_stage_is_announced_with_its_time(finished):
    _, told = finished
    for number, stage in enumerate(STAGES[1:6], start=2):
        (line,) = [line for line in told if line.startswith(f"{number}/7 {stage}: ")]
        assert re.search(r"; (a few seconds|about \d+ s|about [\d.]+ minutes)\.$", line), line


def test_what_is_done_is_not_done_again(finished, tmp_path, monkeypatch):
    run = copied(finished, tmp_path / "run")
    monkeypatch.setattr(Trainer, "__init__", None)
    monkeypatch.setattr(posterior_training.Trainer, "__init__", None)
    before = (run / "sequences" / "sequences.jsonl").stat().st_mtime_ns
    page, told = follow(run)
    assert page == run / "report.html"
    assert page.read_text() == "digits"
    assert [line for line in told if "already done" in line] == [
        f"{n}/7 {stage}: already done." for n, stage in enumerate(STAGES[1:6], start=2)
    ]
    assert (run / "sequences" / "sequences.jsonl").stat().st_mtime_ns == before


def test_the_report_is_drawn_again_where_what_it_shows_has_changed(finished, tmp_path):
    run, done = copied(finished, tmp_path / "run"), "7/7 report: already done."
    assert done not in follow(run)[1]
    assert done in follow(run)[1]
    later = run / "bank" / "evaluation" / "test.json"
    later.write_bytes((run / "bank" / "evaluation" / "validation.json").read_bytes())
    assert done not in follow(run)[1]
    assert done not in follow(run, tiny(attention__save_every=2))[1]  # the page shows the recipe
    same = tiny(attention__save_every=2)
    (run / "report.html").write_text("a page that nogs report wrote")
    assert done not in follow(run, same)[1]
    assert done in follow(run, same)[1]
    (run / "report.html").unlink()
    page, told = follow(run, same)
    assert page.is_file()
    assert done not in told


def test_only_what_depends_on_a_changed_field_is_done_again_and_the_former_is_kept(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    old = (run / "attention" / "ps-nogs" / "seed-0" / "evaluation.json").read_text()
    _, told = follow(run, tiny(design__overlap=0.5))
    again = [line for line in told if "made again" in line]
    assert len(again) == 2
    assert again[0].startswith("sequences: design.overlap was 1.0 and is 0.5; made again, the old one is kept in ")
    assert again[1].startswith("attention/ps-nogs: made from the sequences that changed; made again")
    assert "2/7 posterior: already done." in told
    assert "3/7 bank: already done." in told
    (kept,) = (tmp_path / "run.before" / "attention").iterdir()
    assert (kept / "seed-0" / "evaluation.json").read_text() == old
    assert (run / "attention" / "ps-nogs" / "seed-0" / "done.json").exists()


def test_completions_are_measured_again_after_other_numbers_of_glimpses(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    _, told = follow(run, tiny(glimpses=3), until="bank")
    assert "3/7 bank: already done." in told
    found = read_json(run / "bank" / "evaluation" / "validation.json")["by_glimpses"]
    assert [row["observed"] for row in found] == [0, 1, 2]


def test_the_whole_image_reference_is_trained_again_where_its_own_fields_change(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    old = (run / "whole-image" / "evaluation.json").read_text()
    _, told = follow(run, tiny(whole__width=6))
    (again,) = [line for line in told if "made again" in line]
    assert again.startswith("whole-image: whole.width was 4 and is 6; made again, the old one is kept in ")
    assert "6/7 attention: already done." in told
    (kept,) = (tmp_path / "run.before").iterdir()
    assert (kept / "evaluation.json").read_text() == old
    assert read_json(run / "whole-image" / "evaluation.json")["parameters"] != json.loads(old)["parameters"]
    _, told = follow(run, tiny(whole__width=6, glimpses=3), until="whole-image")
    assert "5/7 whole-image: already done." in told  # it sees no glimpses


@pytest.mark.parametrize("stage", ["posterior", "attention"])
def test_an_interrupted_stage_goes_on_to_the_same_result(finished, tmp_path, monkeypatch, capsys, ctrl_c, stage):
    trainer = posterior_training.Trainer if stage == "posterior" else Trainer
    step, found = trainer.step, tiny()

    def interrupted(self):
        if int(self.iteration) == 2:
            ctrl_c()
        step(self)

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            follow(run, found)
    capsys.readouterr()
    follow(run, found)
    assert "Going on from iteration 3." in capsys.readouterr().err
    for method in ("ram", "ps-nogs"):
        name = f"attention/{method}/seed-0/evaluation.json"
        assert read_json(run / name)["best"] == read_json(finished[0] / name)["best"]


def test_a_run_stops_after_the_stage_that_is_asked_for(tmp_path):
    end, _ = follow(tmp_path / "run", until="data")
    assert end == tmp_path / "run" / "data"
    assert not (tmp_path / "run" / "posterior").exists()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"until": "never"},
            "There is no stage 'never'; choose data, posterior, bank, sequences, whole-image, attention, report.",
        ),
        ({"workers": 0}, "--workers must be at least 1, not 0."),
        ({"attribute": ("Smiling",)}, "has one categorical label and no attributes"),
        ({"posterior": "nothing.safetensors"}, "There is no posterior nothing.safetensors; check --posterior."),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path, settings, sentence):
    with pytest.raises(InputError) as error:
        follow(tmp_path / "run", **settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("settings", "changes", "sentence"),
    [
        ({"method": ("ram+",)}, {}, "The method ram+ differs from ram in its pretraining alone"),
        ({"method": ("ram", "ps-hgs")}, {}, "The method ps-hgs needs labelled parts of birds"),
        (
            {"method": ("fixed",)},
            {"posterior__kind": "cnn"},
            "The methods fixed can't use this posterior, which is a CNN",
        ),
    ],
)
def test_methods_that_can_not_be_trained_are_refused_before_any_stage(tmp_path, settings, changes, sentence):
    with pytest.raises(InputError, match=sentence.replace("+", r"\+")):
        follow(tmp_path / "run", tiny(**changes), **settings)
    assert not (tmp_path / "run").exists()


def test_a_run_without_images_to_annotate_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has no images to annotate; raise data\.annotated"):
        follow(tmp_path / "run", tiny(data__annotated=0))


def test_a_posterior_of_ones_own_is_used(finished, tmp_path):
    file = finished[0] / "posterior" / "posterior.safetensors"
    _, told = follow(tmp_path / "run", posterior=str(file), until="sequences")
    assert f"2/7 posterior: {file}, already trained." in told
    own, other = (load(run / "sequences").locations.tolist() for run in (finished[0], tmp_path / "run"))
    assert own == other


def test_a_ledger_names_the_field_that_changed(tmp_path):
    ledger = Ledger(tmp_path / "run")
    assert ledger.enter("bank", {"bank": {"count": 3, "seed": 0}, "from data": "a"}, redo=False) is None
    (tmp_path / "run" / "bank").mkdir()
    again, other = Ledger(tmp_path / "run"), {"bank": {"count": 4, "seed": 1}, "from data": "a"}
    assert again.enter("bank", {"bank": {"count": 3, "seed": 0}, "from data": "a"}, redo=False) is None
    with pytest.raises(InputError) as error:
        again.enter("bank", other, redo=False)
    assert str(error.value) == (
        f"{tmp_path / 'run' / 'bank'} was made with another recipe or other inputs (bank.count was 3 and is 4 and 1 "
        "more field differs); choose another --out, delete it, or use nogs run, which makes it again and keeps the old "
        "one."
    )
    why = again.enter("bank", other, redo=True)
    assert why is not None
    assert why.startswith(
        "bank: bank.count was 3 and is 4 and 1 more field differs; made again, the old one is kept in"
    )
    assert not (tmp_path / "run" / "bank").exists()
    # there is nothing that would be done again
    assert again.enter("bank", other | {"from data": "b"}, redo=True) == "bank: made from data that changed."


def test_products_of_the_same_inputs_are_all_kept(tmp_path):
    folder, fields = tmp_path / "run" / "attention" / "ram", ({"rate": 1}, {"rate": 2})
    for number in range(6):
        Ledger(tmp_path / "run").enter("attention/ram", fields[number % 2], redo=True)
        folder.mkdir(parents=True)
        (folder / "number").write_text(str(number))
    kept = sorted((tmp_path / "run.before" / "attention").glob("ram-*/number"))
    assert sorted(path.read_text() for path in kept) == ["0", "1", "2", "3", "4"]
    assert sorted(path.parent.name.count("-") for path in kept) == [1, 1, 2, 2, 2]


def test_a_damaged_record_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InputError, match=r"run\.json has no field 'seal'; bring it back from a copy, or delete"):
        Ledger(tmp_path)
    write_sealed(tmp_path / "run.json", {"bank": 3})
    with pytest.raises(InputError, match=r"run\.json is not the record of a run; delete it, or choose another --out"):
        Ledger(tmp_path)


def test_run_ends_with_the_verdict_and_keeps_it(finished):
    run, told = finished
    kept = read_json(run / "attention" / "verdict.json")
    lines = told[-1].strip().splitlines()
    assert lines[0] == kept["sentence"]
    assert re.match(r"With \d+ % of the pixels (RAM|PS-NOGS) is right on \d+ of 100 test pictures; ", kept["sentence"])
    assert [row["method"] for row in kept["rows"]] == ["ps-nogs", "ram", "random", "whole image"]
    for row in kept["rows"][:2]:
        scores = read_json(run / "attention" / row["method"] / "seed-0" / "evaluation.json")["best"]["accuracy"]["test"]
        assert (row["accuracy"], row["pixels"]) == (scores["accuracy"], scores["pixels_seen"])
    table = read_json(run / "posterior" / "evaluation.json")["tables"]["test, calibrated"]
    assert kept["rows"][2]["accuracy"] == table[4]["accuracy"]


def test_what_is_damaged_elsewhere_takes_nothing_from_what_was_trained(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    (run / "posterior" / "evaluation.json").write_text("[]")
    (line,) = verdict.write(run)
    assert line.startswith("There is no verdict: ")
    assert "evaluation.json" in line


def test_time_of_a_generator_is_known_where_its_training_has_a_limit(tmp_path):
    small = {"autoencoder_width": 8, "width": 32, "depth": 1, "batch": 8, "steps": 2}
    few = {"autoencoder_iterations": 2, "iterations": 2}
    found = tiny(bank__generator="trained", bank__trained=small | few | {"seconds": 100})
    task = load_task(found.data)
    seconds = estimates.bank_seconds(found, task, device=torch.device("cpu"), path=None)
    assert 100 < seconds < 130
    unlimited = tiny(bank__generator="trained", bank__trained=small | few)
    assert estimates.bank_seconds(unlimited, task, device=torch.device("cpu"), path=None) is None
    _, told = follow(tmp_path / "run", found, estimate=True, until="bank")
    (line,) = [line for line in told if line.startswith("3/7 bank: ")]
    assert line.startswith(
        "3/7 bank: 60 images to complete glimpses with, from a generator that is trained for at most 100 s; about "
    )


def test_time_of_a_generator_is_that_of_encoding_its_images_too(monkeypatch):
    fields = {"autoencoder_width": 8, "width": 32, "depth": 1, "steps": 2, "seconds": 100}
    found = tiny(bank__generator="trained", bank__trained=fields)
    task = load_task(found.data)
    images = len(task.splits["train"]) - len(task.splits["annotate"])
    batch, made = min(64, images), min(found.bank.batch, found.bank.count)
    monkeypatch.setattr(estimates, "_seconds", lambda work, device: (work(), 1.0)[1])
    seconds = estimates.bank_seconds(found, task, device=torch.device("cpu"), path=None)
    assert seconds == pytest.approx(100 + 2 * images / batch + (1 + 10) * found.bank.count / made)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (2, "a few seconds"),
        (41, "50 s"),
        (142, "2.5 minutes"),
        (200, "3.5 minutes"),
        (299, "5 minutes"),
        (330, "6 minutes"),
        (9000, "2.5 hours"),
    ],
)
def test_times_are_said_in_words(seconds, words):
    assert clock(seconds) == words
