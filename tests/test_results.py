"""Tables of the README and the manual are made from `results/summary.json`; its numbers are in the files it names."""

import json
import math
import re
import statistics
import subprocess
from pathlib import Path

import pytest
import scipy.stats

import tables

ROOT = Path(__file__).parents[1]
RECORDS = tables.load()
NAMES = {"accuracy": "test accuracy (%)", "balanced_accuracy": "test balanced accuracy (%)", "nll": "test NLL (nats)"}
NAMES["converged"] = "iterations to convergence"


def records(task, method, **more):
    return [one for one in RECORDS if (one["task"], one["method"]) == (task, method) and more.items() <= one.items()]


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_tables_of_the_page_are_made_from_the_records(page):
    assert tables.filled(page.read_text(), RECORDS) == page.read_text(), "run python results/tables.py --write"


def test_every_table_stands_in_a_page():
    named = re.findall(r"<!-- table: (\S+) -->", "".join(page.read_text() for page in tables.PAGES))
    assert set(named) == set(tables.TABLES)


def test_another_number_is_another_table():
    other = [record | {"value": 50.04} if record["value"] == 48.3259 else record for record in RECORDS]
    page = (ROOT / "docs" / "cub.md").read_text()
    assert tables.filled(page, other) == page.replace("| 48.3 % [", "| 50.0 % [") != page


def test_a_table_without_an_end_is_refused():
    with pytest.raises(ValueError, match="cub has no"):
        tables.filled("<!-- table: cub -->\n\ntext\n\n<!-- table: export -->\n\n<!-- end of table -->\n", RECORDS)


def test_a_row_without_a_record_is_refused():
    with pytest.raises(KeyError, match="PS-H5"):
        tables.rendered(tables.TABLES["cub"], [one for one in RECORDS if "ps-h5" not in one["method"]])


def test_file_is_a_record_a_line_and_no_key_is_twice():
    lines = tables.SUMMARY.read_text().splitlines()
    assert [json.loads(line.rstrip(",")) for line in lines[1:-1]] == RECORDS
    keys = [tuple(record[name] for name in ("task", "method", "metric")) for record in RECORDS]
    assert len(set(keys)) == len(keys)


def test_records_say_where_their_numbers_come_from():
    for record in RECORDS:
        assert tuple(record) == tables.FIELDS
        assert all(isinstance(record[name], str) for name in ("task", "method", "metric", "source")), record
        low, high = record["interval"] or (record["value"], record["value"])
        assert low <= record["value"] <= high, record
        assert record["commit"] is None or re.fullmatch(r"[0-9a-f]{7,40}\+?", record["commit"]), record
        if record["method"].startswith("the paper's "):
            assert record["source"].startswith("arXiv:1906.05462"), record
            continue
        assert (ROOT / record["source"]).is_file(), record
        if record["method"] != "majority class":
            assert record["hardware"], record
            assert record["command"].startswith(("nogs ", "python benchmarks/")), record


@pytest.mark.parametrize("source", sorted({one["source"] for one in RECORDS if "comparison" in one["source"]}))
def test_records_of_a_comparison_are_its_means_and_differences(source):
    found = json.loads((ROOT / source).read_text())
    own = [one for one in RECORDS if one["source"] == source]
    here = {(one["method"].removesuffix(", the paper's network"), one["metric"]): one for one in own}
    for method, scores in found["methods"].items():
        for name, metric in NAMES.items():
            for less, numbers in (("", scores["mean"]), (f", less {found['reference']}", scores["difference"])):
                record = here.get((method, metric + less))
                if record is None:
                    assert name == "converged" or numbers is None
                    continue
                times = 100 if metric.endswith("(%)") else 1
                low, high = (min(max(end, 0), found["horizon"]) for end in numbers[name][1:])
                ends = (low, high) if name == "converged" and not less else numbers[name][1:]
                assert record["value"] == pytest.approx(times * numbers[name][0], rel=1e-5)
                assert record["interval"] == pytest.approx([times * end for end in ends], rel=1e-5, abs=1e-5)


def test_records_of_single_attributes_are_those_of_their_files():
    own = [one for one in RECORDS if one["source"].startswith("results/sequences/")]
    assert own
    for record in own:
        assert record["task"].removeprefix("celeba-hq, ") in record["source"]
        (scores,) = json.loads((ROOT / record["source"]).read_text())["methods"].values()
        (name,) = (name for name, metric in NAMES.items() if metric == record["metric"])
        times = 100 if record["metric"].endswith("(%)") else 1
        assert record["value"] == pytest.approx(times * scores["mean"][name][0], rel=1e-5)


@pytest.mark.parametrize("task", ["digits", "digits, demo", "celeba-hq", "cub"])
def test_records_of_networks_on_a_posterior_are_means_over_them(task):
    """Over seeds, and on CelebA-HQ over attributes; with Student's intervals, differences paired."""
    networks = json.loads((ROOT / "results/plus/networks.json").read_text())[task]
    by = {}
    for one in networks:
        by.setdefault(one["method"], {})[one["attribute"], one["seed"]] = one["test"]
    own = [one for one in RECORDS if (one["source"], one["task"]) == ("results/plus/networks.json", task)]
    assert own
    for record in own:
        if record["method"] == "majority class":
            assert record["value"] == pytest.approx(100 * networks[0]["majority"])
            continue
        metric, _, less = record["metric"].partition(", less ")
        (name,) = (name for name, known in NAMES.items() if known == metric)
        times = 100 if metric.endswith("(%)") else 1
        numbers = [
            times * (test[name] - (by[less][key][name] if less else 0))
            for key, test in by[record["method"].removesuffix(", weight 16")].items()
        ]
        assert record["value"] == pytest.approx(statistics.mean(numbers), rel=1e-4, abs=1e-9)
        if len(numbers) < 3:
            continue
        half = scipy.stats.t.ppf(0.975, len(numbers) - 1) * statistics.stdev(numbers) / math.sqrt(len(numbers))
        ends = [record["value"] - half, record["value"] + half]
        assert record["interval"] == pytest.approx(ends, rel=1e-3, abs=1e-4)


def test_medians_of_celeba_hq_are_those_of_its_curves():
    """Iterations until a network's validation NLL is as low as RAM's least for its attribute and seed."""
    curves = json.loads((ROOT / "results/celeba-hq-released-sequences/curves.json").read_text())["networks"]
    least = {(one["attribute"], one["seed"]): min(one["curves"]["nll"]) for one in curves if one["method"] == "ram"}
    for method in {one["method"] for one in curves}:
        took = []
        for one in curves:
            if one["method"] == method:
                steps = zip(one["iterations"], one["curves"]["nll"])
                low = [step for step, nll in steps if nll <= least[one["attribute"], one["seed"]]]
                took.append(low[0] if low else 30_000)
        (record,) = records("celeba-hq", method, metric="iterations to RAM's best validation NLL, median")
        assert record["value"] == statistics.median(took)


def test_page_of_celeba_hq_has_the_horizons_and_entropies_of_its_files():
    folder = ROOT / "results/celeba-hq-released-sequences"
    page = (folder / "README.md").read_text()
    horizons = json.loads((folder / "comparison.json").read_text())["converged_by_horizon"]
    entropies = json.loads((folder / "policy-entropies.json").read_text())
    for method in ("ram", "ps-nogs, weight 1", "ps-nogs, weight 64"):
        networks = [values for seeds in entropies[method].values() for values in seeds.values()]
        assert len(networks) == 80
        medians = [f"{statistics.median(values):.2f}" for values in zip(*networks)]
        for cells in ([f"{mean:,.0f}" for mean in horizons[method]], medians):
            assert f"| {' | '.join([method.replace('ram', 'RAM').replace('ps-nogs', 'PS-NOGS'), *cells])} |\n" in page


def test_comparisons_are_added_in_place_of_their_former_records(tmp_path, monkeypatch, capsys):
    summary, comparison = tmp_path / "summary.json", tmp_path / "comparison.json"
    monkeypatch.setattr(tables, "SUMMARY", summary)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    tables.write(RECORDS)
    scores = {"accuracy": [0.9, 0.8, 1.0], "nll": [0.5, 0.4, 0.6], "converged": [80.0, -3.0, 900.0]}
    never = scores | {"converged": [float("nan")] * 3}
    less = {"accuracy": [0.1, -0.1, 0.2], "nll": [0.0, 0.0, 0.0], "converged": [5.0, -3.0, 900.0]}
    methods = {"ram": {"mean": scores, "difference": None}, "fixed": {"mean": scores, "difference": less}}
    methods["ps-nogs+"] = {"mean": never, "difference": None}  # stands on a posterior: no iterations to convergence
    comparison.write_text(json.dumps({"reference": "ram", "horizon": 800, "methods": methods}))
    for task, variant in (("cub", None), ("cub", "ten layers")):
        words = ["tables.py", "--add", str(comparison), "--task", task, "--seeds", "4", *["--commit", "abc1234"]]
        monkeypatch.setattr("sys.argv", words + (["--variant", variant] if variant else []))
        assert tables.main() == 0
    new = {(one["method"], one["metric"]): one for one in tables.load() if one["commit"] == "abc1234"}
    known = {(one["method"], one["metric"]) for one in RECORDS if one["task"] == "cub"}
    assert ("ram", "test NLL (nats)") in known
    assert len(tables.load()) == len(RECORDS) + len(new.keys() - known)
    ram = new["ram, ten layers", "iterations to convergence"]
    assert (ram["value"], ram["interval"], ram["seeds"], ram["hardware"]) == (80, [0, 800], [4], None)
    assert new["fixed", "test accuracy (%), less ram"]["interval"] == [-10, 20]
    assert ("fixed", "iterations to convergence") not in new
    assert ("ps-nogs+", "test NLL (nats)") in new
    assert ("ps-nogs+", "iterations to convergence") not in new


def test_every_commit_that_is_named_is_in_the_history_or_said_to_be_merged():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs git and the whole history")
    (sentence,) = re.findall(r"^- Commits (.*?) were merged into", (ROOT / "results/README.md").read_text(), re.M)
    merged = tuple(re.findall(r"[0-9a-f]{7}", sentence))
    named = {}
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("results/**/*.md")]:
        found = re.findall(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7}\b", page.read_text())
        named |= dict.fromkeys(found, page)
    for file in ROOT.glob("results/**/*.json"):
        named |= dict.fromkeys(re.findall(r'"commit": ?"([0-9a-f]{7,40})\+?"', file.read_text()), file)
    assert len(named) > 20
    for commit, place in named.items():
        known = git("cat-file", "-t", commit).stdout.strip() == "commit"
        assert known != commit.startswith(merged), f"{place} names {commit}"
