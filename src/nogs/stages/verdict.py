"""Did the sequences help? When a supervised network was as accurate as the unsupervised one in the end, or that not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nogs.attention.convergence import iterations_to_reach
from nogs.runtime.files import read_json, write_sealed
from nogs.runtime.metrics import read_metrics

__all__ = ["verdicts"]


def verdicts(folders: Sequence[Path], *, out: Path, reference: str = "ram") -> list[str]:
    """A sentence for each supervised network about RAM's final validation accuracy; the numbers go to `out`."""
    networks = [_read(folder) for folder in folders]
    finals = {(n["attribute"], n["seed"]): n for n in networks if n["method"] == reference}
    found, sentences = [], []
    for network in networks:
        other = finals.get((network["attribute"], network["seed"]))
        if other is None or not network["method"].startswith("ps-") or network["method"] == "ps-nogs+":
            continue
        target, horizon = other["accuracy"][-1], network["iterations"][-1]
        when = iterations_to_reach(network["iterations"], network["accuracy"], target, rule="accuracy")
        own = iterations_to_reach(other["iterations"], other["accuracy"], target, rule="accuracy")
        fewer = when is not None and own is not None and when < own
        best, top = _best(other)
        at_best = iterations_to_reach(network["iterations"], network["accuracy"], best, rule="accuracy")
        sentence = _sentence(network, target, horizon, when, own, reference)
        if best > target + 0.01:  # it learned by heart after that: its end says little
            met = f"reached it after {at_best:,}" if at_best is not None else "did not reach it"
            sentence += f" {reference.upper()}'s best was {best:.1%}, after {top:,}; {network['method'].upper()} {met}."
        sentences.append(sentence)
        names = ("method", "attribute", "seed")
        found.append(
            {
                **{name: network[name] for name in names},
                "reference": reference,
                "reference_final_validation_accuracy": target,
                "reference_iterations": own,
                "iterations": when,
                "reference_best_validation_accuracy": best,
                "reference_best_iterations": top,
                "iterations_to_best": at_best,
                "reached_in_fewer_iterations": fewer,
                "sentence": sentence,
            }
        )
    if found:
        write_sealed(out, {"verdicts": found})
    return sentences


def _best(network: dict[str, Any]) -> tuple[float, int]:
    """The highest validation accuracy, and when it was first reached."""
    best = max(network["accuracy"])
    return best, network["iterations"][network["accuracy"].index(best)]


def _sentence(
    network: dict[str, Any], target: float, horizon: int, when: int | None, own: int | None, reference: str
) -> str:
    of = f" of {network['attribute']}" if network["attribute"] else ""
    who, ram = network["method"].upper(), reference.upper()
    goal = f"{ram}'s final validation accuracy{of} ({target:.1%})"
    if when is None:
        return f"{who} did not reach {goal} within {horizon:,} iterations."
    if own is not None and when >= own:
        return f"{who} reached {goal} after {when:,} iterations, no sooner than {ram} itself ({own:,})."
    return f"{who} reached {goal} after {when:,} iterations; {ram} took {own:,}."


def _read(folder: Path) -> dict[str, Any]:
    lines, member = read_metrics(folder), read_json(folder / "evaluation.json")["member"]
    # a network whose numbers were not finite has no accuracy there
    return {
        **{name: member[name] for name in ("method", "attribute", "seed")},
        "iterations": [line["step"] for line in lines],
        "accuracy": [-1.0 if line["validation_accuracy"] is None else line["validation_accuracy"] for line in lines],
    }
