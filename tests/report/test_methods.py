"""Methods side by side in the first table of the report."""

from dataclasses import replace
from pathlib import Path

from nogs.attention.comparison import Learned
from nogs.report.contents import Network, Run
from nogs.report.methods import compared, learned_in
from nogs.report.tables import results_table, runs_table
from nogs.runtime.files import write_json


def network(method, *, iterations, nll, rule="nll"):
    """A network that was validated after these iterations."""
    learned = Learned(
        method=method,
        attribute=None,
        seed=0,
        rule=rule,
        iterations=iterations,
        curves={name: (0.5,) * len(iterations) for name in ("nll", "accuracy", "balanced_accuracy")},
        test={"accuracy": 0.75, "averaged_accuracy": 0.75, "balanced_accuracy": 0.625, "nll": nll},
        majority=0.25,
    )
    best = {"validation": 0.75, "test": {"pixels_seen": 0.25}}
    member = {"method": method, "attribute": None, "seed": 0}
    return Network(Path(method), {"member": member, "best": {"accuracy": best}}, learned)


def run_of(*networks, folder=Path("run")):
    nothing = dict.fromkeys(("data", "inspection", "posterior", "bank", "kinds"))
    empty = {"recipe": {}, "completions": {}, "scores": {}, "stages": {}}
    return Run(folder=folder, sequences=(), networks=networks, **nothing, **empty)


def table(*networks, folder=Path("run")):
    """The rows of the table "Methods", by their names."""
    run = run_of(*networks, folder=folder)
    comparison = compared(learned_in([run]), alike=True)
    found = results_table(run, comparison, link=str, comparison_file=Path("comparison.json"))
    texts = {row[0].text: [cell.text for cell in row] for row in found.rows}
    return {name: dict(zip(found.columns, cells)) for name, cells in texts.items()}


def test_networks_on_a_posterior_have_all_scores_though_they_were_not_trained_as_long():
    rows = table(
        network("ps-nogs+", iterations=(0, 20, 40), nll=0.5, rule=None),
        network("fixed", iterations=(0,), nll=0.625, rule=None),
        network("ram", iterations=(100, 200), nll=0.875),
        network("ps-nogs", iterations=(100,), nll=0.375),
    )
    scores = {name: (row["balanced accuracy"], row["NLL (nats)"], row["converged at"]) for name, row in rows.items()}
    assert scores["PS-NOGS+"] == ("62.5\N{NO-BREAK SPACE}%", "0.500", "-")
    assert scores["one fixed order"] == ("62.5\N{NO-BREAK SPACE}%", "0.625", "-")
    assert scores["RAM"] == ("62.5\N{NO-BREAK SPACE}%", "0.875", "100")
    assert scores["PS-NOGS"] == ("-", "-", "-")  # of another horizon


def test_networks_on_a_posterior_have_scores_where_no_other_was_trained():
    rows = table(
        network("ps-nogs+", iterations=(0, 20), nll=0.5, rule=None),
        network("fixed", iterations=(0,), nll=1.0, rule=None),
    )
    assert [row["NLL (nats)"] for row in rows.values()] == ["0.500", "1.000"]


def test_methods_that_learn_are_compared_though_one_on_a_posterior_comes_first():
    rows = table(
        network("ps-nogs+", iterations=(0, 20), nll=0.5, rule=None), network("ps-nogs", iterations=(100, 200), nll=0.25)
    )
    assert rows["PS-NOGS"]["NLL (nats)"] == "0.250"


def test_the_whole_image_has_all_scores_too(tmp_path):
    scores = {"accuracy": 0.875, "balanced_accuracy": 0.75, "nll": 0.25}
    write_json(tmp_path / "whole-image" / "evaluation.json", {"tests": {"": scores}})
    known = network("ram", iterations=(100, 200), nll=0.875)
    row = table(replace(known, learned=replace(known.learned, whole=0.875)), folder=tmp_path)["the whole image"]
    assert (row["balanced accuracy"], row["NLL (nats)"]) == ("75.0\N{NO-BREAK SPACE}%", "0.250")


def test_runs_side_by_side_are_compared_by_the_network_that_is_best_on_the_validation_images():
    lucky = network("ram", iterations=(100,), nll=1.0)
    lucky = replace(lucky, learned=replace(lucky.learned, test={**lucky.learned.test, "accuracy": 0.875}))
    lucky.evaluation["best"]["accuracy"]["validation"] = 0.5
    found = runs_table([run_of(lucky, network("ps-nogs", iterations=(100,), nll=1.0))], ["#run"], link=str)
    assert found.rows[0][found.columns.index("best network")].text == "ps-nogs"
