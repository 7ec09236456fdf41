"""The verdict of a run is supported by its scores."""

from pathlib import Path

import pytest

from nogs.attention.comparison import Learned
from nogs.report.contents import Network, Run
from nogs.report.results import best_network, results
from nogs.report.verdict import verdict


def network(
    method,
    accuracy,
    *,
    validation=None,
    curve=(0.1, 0.2, 0.3),
    whole=None,
    attribute=None,
    seed=0,
    seen=0.21,
    kept=False,
):
    """A network with these scores, validated every ten iterations."""
    best = {"validation": accuracy if validation is None else validation, "test": {"pixels_seen": seen}}
    best["iteration"] = 0 if kept else 30
    member = {"method": method, "attribute": attribute, "seed": seed}
    learned = Learned(
        method=method,
        attribute=attribute,
        seed=seed,
        rule="accuracy",
        iterations=tuple(10 * (n + 1) for n in range(len(curve))),
        curves={"accuracy": curve, "nll": curve, "balanced_accuracy": curve},
        test={"accuracy": accuracy},
        majority=0.2,
        whole=whole,
    )
    return Network(Path(method), {"member": member, "best": {"accuracy": best}}, learned)


def run(*networks, random=None, tests=734):
    """A run with these networks, and optionally a posterior with this accuracy at random locations."""
    tables = {"test, calibrated": [{"glimpses": t, "accuracy": 0.1} for t in range(4)]}
    tables["test, calibrated"].append({"glimpses": 4, "accuracy": random})
    return Run(
        folder=Path("run"),
        recipe={"glimpses": 4},
        data=None,
        inspection={"task": "flowers", "splits": {"test": tests, "validation": 36}},
        posterior=None if random is None else {"tables": tables},
        bank=None,
        completions={},
        kinds=None,
        sequences=(),
        networks=networks,
        scores={},
        stages={},
    )


def test_one_sentence_has_every_row():
    found = verdict(
        run(network("ram", 0.66, whole=0.8), network("fixed", 0.71), network("ps-nogs+", 0.74), random=0.664)
    )
    assert found.sentence == (
        "With 21 % of the pixels PS-NOGS+ is right on 74 of 100 test pictures; RAM 66, random locations 66, one fixed "
        "order 71, the whole image 80."
    )
    assert found.best == "ps-nogs+"
    assert found.advice == ""  # three points may be chance


def test_what_the_policy_gains_is_said_before_what_the_sequences_did_not():
    # the demo: PS-NOGS+ is far above the fixed order, PS-NOGS is close to it
    networks = network("ps-nogs+", 0.754), network("ps-nogs", 0.622), network("ram", 0.496), network("fixed", 0.595)
    assert verdict(run(*networks, tests=1_000)).advice == (
        "PS-NOGS+ is 16 points better than one fixed order of locations. PS-NOGS is 13 points better than RAM, but not "
        "clearly better than one fixed order. With 1,000 test pictures, differences of less than 4 points may be "
        "chance."
    )


def test_sequences_that_help_beside_ram_alone_are_said_to():
    networks = network("ps-nogs", 0.6), network("ram", 0.5), network("fixed", 0.65)
    advice = verdict(run(*networks, tests=1_000)).advice
    assert advice.startswith("PS-NOGS is 10 points better than RAM, but no better than one fixed order. Try ")


def test_chance_is_named_on_few_test_pictures_also_where_sequences_did_not_help():
    networks = network("ram", 0.53), network("ps-nogs", 0.51), network("fixed", 0.52)
    assert (
        "With 85 test pictures, differences of less than 15 points may be chance."
        in verdict(run(*networks, tests=85)).advice
    )


def test_differences_of_less_than_a_point_are_not_rounded_to_none():
    networks = network("ram", 0.62), network("ps-nogs", 0.621), network("fixed", 0.6), network("ps-nogs+", 0.605)
    advice = verdict(run(*networks, tests=100_000)).advice
    assert "With 100,000 test pictures, differences of less than 0.4 points may be chance." in advice
    assert "PS-NOGS+ is 0.5 points better than one fixed order of locations." in advice
    networks = network("fixed", 0.6), network("ps-nogs+", 0.61)
    assert "PS-NOGS+ is 1 point better than one fixed order" in verdict(run(*networks, tests=100_000)).advice


def test_a_policy_that_keeps_the_fixed_order_says_so():
    found = verdict(run(network("ram", 0.66), network("fixed", 0.71), network("ps-nogs+", 0.71, kept=True)))
    assert found.advice == "PS-NOGS+ learned no better policy than one fixed order, and keeps that order."


def test_network_to_take_is_chosen_on_validation_pictures():
    taken = run(network("ram", 0.7, validation=0.6), network("ps-nogs", 0.65, validation=0.7))
    assert verdict(taken).sentence.startswith(
        "With 21 % of the pixels PS-NOGS is right on 65 of 100 test pictures; RAM 70."
    )
    assert best_network(taken).method == "ps-nogs"


def test_methods_that_are_better_on_the_test_pictures_are_named():
    # a new user's birds
    plus = network("ps-nogs+", 0.425, validation=0.444)
    ram, centre = network("ram", 0.507, validation=0.428), network("centre-out", 0.479, validation=0.361)
    found = verdict(run(plus, ram, centre, network("random", 0.5), random=0.5))
    assert "RAM and centre-out were right on more test pictures; the choice was made on 36 validation pictures." in (
        found.advice
    )
    assert "RAM was right on more test pictures; " in verdict(run(plus, ram)).advice
    point = run(network("ram", 0.82, validation=0.7), network("ps-nogs+", 0.81, validation=0.75))
    assert "RAM was right on more test pictures; " in verdict(point).advice
    near = network("ram", 0.434, validation=0.428, whole=0.8)
    assert "more test pictures" not in verdict(run(plus, near, random=0.5)).advice
    assert "Centre-out was right on more test pictures; " in verdict(run(plus, centre)).advice
    best = network("centre-out", 0.479, validation=0.5)
    assert "36 validation pictures, and centre-out is for comparison only." in verdict(run(plus, best)).advice


def test_pictures_and_verdict_are_of_one_network_also_where_two_are_equally_good():
    taken = run(network("fixed", 0.7), network("ps-nogs+", 0.7, kept=True))
    assert verdict(taken).best == best_network(taken).method == "ps-nogs+"
    seeds = run(
        network("ram", 0.5), network("ram", 0.8, seed=1), network("ps-nogs", 0.7), network("ps-nogs", 0.7, seed=1)
    )
    assert verdict(seeds).best == best_network(seeds).method == "ps-nogs"  # on average; RAM has the best seed


def test_random_locations_are_not_what_one_should_take():
    taken = run(network("ram", 0.5), network("random", 0.6), network("ps-nogs", 0.55))
    assert verdict(taken).best == "ps-nogs"
    assert [row.method for row in results(taken)] == ["ps-nogs", "ram", "random"]


def test_seeds_are_averaged():
    (row,) = results(run(network("ram", 0.5), network("ram", 0.7, seed=1)))
    assert (row.accuracy, row.networks) == (pytest.approx(0.6), 2)


def test_sequences_that_did_not_help_are_not_praised():
    # the flowers of a new user: PS-NOGS reached RAM's final accuracy sooner on validation pictures, and lost
    taught = network("ps-nogs", 0.647, validation=0.7, curve=(0.7, 0.7, 0.7))
    found = verdict(run(network("ram", 0.66, curve=(0.4, 0.5, 0.6)), taught, random=0.68))
    assert found.advice.startswith("The sequences did not help: PS-NOGS is no better than RAM and random locations.")
    assert "Try more sequences (--data.annotated), longer training of the posterior" in found.advice
    assert found.races == ()


def test_difference_that_chance_may_make_is_called_that():
    found = verdict(run(network("ram", 0.60), network("ps-nogs", 0.62), tests=107))
    assert found.advice.startswith("It is not clear that the sequences helped PS-NOGS, which is close to RAM. Try ")
    assert "more or larger pictures" in found.advice
    assert found.advice.endswith("With 107 test pictures, differences of less than 13 points may be chance.")
    assert verdict(run(network("ram", 0.60), network("ps-nogs", 0.62), tests=100_000)).advice == ""


def test_few_test_pictures_are_said_where_no_sequences_were_taught():
    # a new user's birds: 72 test pictures, and nothing learned from sequences
    networks = network("ram", 0.74, whole=0.71), network("centre-out", 0.71), network("random", 0.54)
    found = verdict(run(*networks, tests=72))
    assert found.advice == "With 72 test pictures, differences of less than 15 points may be chance."
    assert verdict(run(networks[0], networks[2], tests=60)).advice.startswith("With 60")  # the whole image is near
    assert verdict(run(network("ram", 0.74), networks[2], tests=72)).advice == ""
    assert verdict(run(*networks, tests=100_000)).advice == ""


def test_race_is_told_where_the_test_scores_support_it():
    ram = network("ram", 0.5, curve=(0.2, 0.4, 0.6))
    (race,) = verdict(run(ram, network("ps-nogs", 0.6, curve=(0.5, 0.7, 0.8)))).races
    assert race["sentence"] == (
        "PS-NOGS reached RAM's final validation accuracy (60.0%) after 20 iterations; RAM took 30."
    )
    assert (race["iterations"], race["reference_iterations"]) == (20, 30)
    for accuracy, curve in ((0.5, (0.5, 0.7, 0.8)), (0.6, (0.1, 0.2, 0.7)), (0.6, (0.1, None, 0.3))):
        assert verdict(run(ram, network("ps-nogs", accuracy, curve=curve))).races == ()


def test_attributes_are_named():
    found = verdict(run(network("ram", 0.875, attribute="Pale_Skin", seen=0.0255)))
    assert found.sentence == "With 2.5 % of the pixels RAM is right on 88 of 100 test pictures about Pale Skin."
    two = verdict(run(network("ram", 0.8, attribute="Male"), network("ram", 0.9, attribute="Young"), random=0.9))
    assert two.sentence == "With 21 % of the pixels RAM is right on 85 of 100 test pictures about 2 attributes."


def test_run_without_networks_has_no_verdict():
    assert verdict(run(random=0.5)) is None
