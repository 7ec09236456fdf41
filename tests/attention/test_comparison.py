from dataclasses import replace

import numpy as np
import pytest

from nogs.attention.comparison import Learned, by_horizon, compare, curves_json, measure, read_run
from nogs.attention.comparison_tables import table, tasks_table
from nogs.report import convergence_figure, curves_figure
from nogs.runtime.errors import InputError

STEPS = (100, 200, 300, 400)


def network(method="ram", attribute="Smiling", seed=0, nll=(0.6, 0.5, 0.41, 0.4), accuracy=0.7):
    curves = {"nll": tuple(nll), "accuracy": (0.5,) * len(nll), "balanced_accuracy": (0.5,) * len(nll)}
    test = {"accuracy": accuracy, "averaged_accuracy": accuracy, "balanced_accuracy": 0.5, "nll": nll[-1]}
    return Learned(method, attribute, seed, "nll", STEPS[: len(nll)], curves, test, majority=0.55)


def test_a_network_is_measured_against_its_own_and_the_references_best():
    found = measure(network("ps-nogs, weight 1", nll=(0.5, 0.39, 0.3, 0.305)), network())
    assert found["converged"] == 300  # 0.3 + 0.01 is first met there
    assert found["reached"] == 200  # ram's best is 0.4
    never = measure(network("ps-nogs, weight 1", nll=(0.6, 0.6, 0.5, 0.45)), network())
    assert np.isnan(never["reached"])


def test_means_are_over_tasks_of_means_over_seeds_and_differences_are_paired():
    rams = [network(attribute=a, seed=s, accuracy=x) for a, s, x in (("A", 0, 0.6), ("A", 1, 0.8), ("B", 0, 0.5))]
    others = [replace(n, method="ps", test={**n.test, "accuracy": n.test["accuracy"] + 0.1}) for n in rams]
    found = compare([*rams, *others], resamples=200)
    assert found["methods"]["ram"]["mean"]["accuracy"][0] == pytest.approx((0.7 + 0.5) / 2)
    mean, low, high = found["methods"]["ps"]["difference"]["accuracy"]
    assert mean == pytest.approx(low) == pytest.approx(high) == pytest.approx(0.1)
    assert found["methods"]["ram"]["difference"] is None
    assert found["tasks"]["A"]["ps"]["accuracy"] == pytest.approx(0.8)
    assert found["majority_class_accuracy"] == pytest.approx(0.55)


def test_the_bootstrap_interval_has_the_width_of_the_standard_error_over_tasks():
    values = np.random.default_rng(0).normal(0.7, 0.05, 40)
    found = compare([network(attribute=str(n), accuracy=x) for n, x in enumerate(values)], resamples=4000)
    _, low, high = found["methods"]["ram"]["mean"]["accuracy"]
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(40), rel=0.1)


def test_a_network_that_never_reaches_the_reference_counts_with_the_horizon():
    found = compare([network(), network("ps", nll=(0.6, 0.6, 0.5, 0.45))], resamples=10)
    assert found["methods"]["ps"]["never_reached"] == 1
    assert found["methods"]["ps"]["mean"]["reached"][0] == 400
    head, _, _, ps, less, _ = [[cell.strip() for cell in line.split("|")] for line in table(found).splitlines()]
    column = head.index("reached (NLL)")
    assert (ps[column], less[column]) == ("never within 400", "> 0")
    assert "| > 400 |" in tasks_table(found)
    found = compare([network(seed=s) for s in (0, 1)] + [network("ps"), network("ps", seed=1, nll=(0.6,) * 4)])
    assert "| > 400 |" in table(found)


def test_a_shorter_horizon_gives_the_convergence_of_the_shorter_run():
    found = by_horizon([network()], [200, 400])
    assert found == {"ram": [measure(network(nll=(0.6, 0.5)), None)["converged"], 300]}


def test_networks_of_different_horizons_or_given_twice_are_refused():
    with pytest.raises(InputError, match=r"trained for 300, 400 iterations; .* compare networks of one"):
        compare([network(), network("ps", nll=(0.6, 0.5, 0.4))])
    with pytest.raises(InputError, match="same method, attribute and seed"):
        compare([network(), network()])


def test_curves_are_read_back_as_they_were_written(tmp_path):
    networks = [network(), network("ps", seed=1, nll=(0.6, None, 0.5, 0.45))]
    (tmp_path / "curves.json").write_text(curves_json(networks))
    again = read_run(tmp_path / "curves.json")
    assert curves_json(again) == curves_json(networks)
    assert np.isnan(again[1].curve("nll")[1])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"other\.json is not a curves\.json"):
        read_run(tmp_path / "other.json")


def test_tables_and_figures_show_every_method_and_task():
    networks = [network(attribute=a) for a in "AB"] + [network("ps", attribute=a, accuracy=0.8) for a in "AB"]
    found = compare(networks, resamples=10)
    text = table(found)
    assert "| ram | 2 |" in text
    assert "+10.00 %" in text
    assert "55.00 %" in text
    assert tasks_table(found).count("80.00 %") == 2
    labels = [t.get_text() for t in convergence_figure(found, networks).axes[0].get_xticklabels()]
    assert sorted(labels) == ["A", "B"]
    assert len(curves_figure(networks).axes) == 2


def test_what_is_rounded_to_zero_has_no_sign():
    close = {"accuracy": 0.7 - 1e-6, "nll": (0.6, 0.5, 0.405, 0.4 - 1e-6)}
    text = table(compare([network(), network("ps", **close)]))
    less = [cell.strip() for cell in text.splitlines()[4].split("|")]
    assert less[1:-1] == ["… less reference", "", "0", "0", "0", "0.00 %", "0.00 %", "0.00 %", "0.0000"]
    assert "+0.01 %" in table(compare([network(), network("ps", accuracy=0.7001)]))
    assert "-10.00 %" in table(compare([network(), network("ps", accuracy=0.6)]))


def test_one_tasks_interval_is_students_over_its_seeds_and_paired_with_the_reference():
    values = (0.50, 0.54, 0.55)
    rams = [network(seed=s, accuracy=x) for s, x in enumerate(values)]
    others = [network("ps", seed=s, accuracy=x + 0.1 + 0.01 * s) for s, x in enumerate(values)]
    found = compare([*rams, *others])
    mean, low, high = found["methods"]["ram"]["mean"]["accuracy"]
    half = 4.302653 * np.std(values, ddof=1) / np.sqrt(3)  # t at 97.5 % with two degrees of freedom
    assert (mean, high - mean, mean - low) == pytest.approx((np.mean(values), half, half), rel=1e-5)
    mean, _, high = found["methods"]["ps"]["difference"]["accuracy"]
    assert (mean, high - mean) == pytest.approx((0.11, 4.302653 * 0.01 / np.sqrt(3)), rel=1e-5)


def test_printed_intervals_of_means_end_where_values_can_lie():
    sure, late = (0.02, 0.02, 0.02, 0.02), (3.0, 2.0, 1.0, 0.5)
    rams = [network(seed=s, accuracy=x, nll=n) for s, (x, n) in enumerate(((0.99, sure), (0.5, late)))]
    others = [network("ps", seed=s, accuracy=x, nll=n) for s, (x, n) in enumerate(((0.1, late), (0.6, sure)))]
    found = compare([*rams, *others])
    raw = found["methods"]["ram"]["mean"]
    assert raw["accuracy"][2] > 1
    assert raw["converged"][1] < 0 < 400 < raw["converged"][2]
    assert raw["nll"][1] < 0
    head, _, ram, ps, less, _ = [[cell.strip() for cell in line.split("|")] for line in table(found).splitlines()]
    assert ram[head.index("accuracy")] == "74.50 % [0.00 %, 100.00 %]"
    assert ram[head.index("converged")] == "250 [0, 400]"
    assert ram[head.index("nll")] == f"0.2600 [0.0000, {raw['nll'][2]:.4f}]"
    assert ps[head.index("accuracy")] == "35.00 % [0.00 %, 100.00 %]"
    mean, low, high = found["methods"]["ps"]["difference"]["accuracy"]  # differences may lie anywhere
    assert low < -1
    assert less[head.index("accuracy")] == f"{100 * mean:+.2f} % [{100 * low:+.2f} %, {100 * high:+.2f} %]"


def test_bounds_stand_below_the_methods():
    networks = [replace(network(seed=s), whole=x) for s, x in enumerate((0.8, 0.9))]
    found = compare(networks)
    assert found["whole_image_accuracy"] == pytest.approx(0.85)
    last, whole = table(found).splitlines()[-2:]
    assert last.startswith("| majority class |")
    assert whole.startswith("| whole image |")
    assert "85.00 %" in whole
    assert "whole image" not in table(compare([network()]))
