"""Comparison of methods: speed of learning and scores of their networks, averaged over attributes and seeds.

Averages are over tasks (attributes) first and seeds second. Intervals are bootstraps over tasks, or Student's over the
seeds of a single task. Differences to the reference method are paired by task and seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nogs.attention.convergence import iterations_to_convergence, iterations_to_reach
from nogs.runtime import streams
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json
from nogs.runtime.headers import described
from nogs.runtime.metrics import read_metrics
from nogs.runtime.spelling import instead_of_run, without_networks
from nogs.runtime.tensors import tensor_header
from nogs.whole.evaluation import whole_scores

MEASURES = {
    "converged": "iterations to convergence",
    "converged_smoothed": "the same on a curve smoothed over 5 validations",
    "reached": "iterations to the reference's best validation NLL",
    "accuracy": "test accuracy at the best validation accuracy",
    "balanced_accuracy": "test balanced accuracy at the best validation balanced accuracy",
    "averaged_accuracy": "test accuracy when an image's sampled trajectories vote",
    "nll": "test NLL at the best validation NLL",
}
CURVES = ("nll", "accuracy", "balanced_accuracy")
RELEASE = ", release embedder"
"""Suffix of the method of a network with that embedder."""


@dataclass(frozen=True)
class Learned:
    """One trained network: its validation curves, its scores on the test images, and on the validation images.

    Scores are of the kept checkpoints: the best by that score, or of a network on a posterior the only one.
    A network on a trained posterior has no `rule`: its iterations start from the posterior and can't be compared.
    """

    method: str
    attribute: str | None
    seed: int
    rule: str | None
    iterations: tuple[int, ...]
    curves: Mapping[str, tuple[float | None, ...]]
    test: Mapping[str, float]
    majority: float
    whole: float | None = None
    validation: Mapping[str, float | None] = field(default_factory=dict)

    def curve(self, name: str) -> np.ndarray:
        """A validation curve; NaN where a value was not finite."""
        return np.array([np.nan if value is None else value for value in self.curves[name]], dtype=float)


def read_run(run: Path, *, only: Sequence[Path] | None = None) -> list[Learned]:
    """Every finished network of a run's folder (`only`: those in some of its folders), or of a `curves.json`."""
    if run.is_file():
        try:
            return [Learned(**network) for network in read_json(run)["networks"]]
        except (KeyError, TypeError):
            raise InputError(f"{run} is not a curves.json of nogs compare; give that or a run's folder.") from None
    if not run.is_dir():
        raise InputError(f"There is no folder {run}; {instead_of_run(run, otherwise='give the folder of a run.')}")
    found = sorted((run / "attention").glob("**/evaluation.json"))
    if only is not None:
        found = [folder / "evaluation.json" for folder in only]
    if not found:
        raise InputError(without_networks(run))
    out = []
    for path in found:
        weights = path.parent / "best-accuracy.safetensors"
        with described(weights, "a network of nogs train"):
            embedder = tensor_header(weights)[0].get("architecture", {}).get("embedder")
        metrics = read_metrics(path.parent)
        if not metrics:
            raise InputError(
                f"{path.parent / 'metrics.jsonl'} holds no validations; bring it back from a copy, or delete "
                f"{path.parent} and train that network again."
            )
        evaluation = read_json(path)
        with described(path, f"the evaluation of a network whose curves are in {path.parent / 'metrics.jsonl'}"):
            network = learned(evaluation, metrics, embedder=embedder)
        whole = whole_scores(run, network.attribute)
        out.append(network if whole is None else replace(network, whole=whole["accuracy"]))
    return out


def learned(evaluation: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], *, embedder: str | None) -> Learned:
    """Build the record of one network from its files."""
    member, best = evaluation["member"], evaluation["best"]
    weighted = member["method"].startswith("ps-") and member["weight"] is not None
    variant = [f"weight {member['weight']:g}"] if weighted else []
    return Learned(
        method=", ".join([member["method"], *variant]) + (RELEASE if embedder == "release" else ""),
        attribute=member["attribute"],
        seed=member["seed"],
        rule=evaluation["convergence"] and evaluation["convergence"]["rule"],
        iterations=tuple(line["step"] for line in metrics),
        curves={name: tuple(_short(line[f"validation_{name}"]) for line in metrics) for name in CURVES},
        test={
            "accuracy": best["accuracy"]["test"]["accuracy"],
            "averaged_accuracy": best["accuracy"]["test"]["averaged_accuracy"],
            "balanced_accuracy": best["balanced_accuracy"]["test"]["balanced_accuracy"],
            "nll": best["nll"]["test"]["nll"],
        },
        majority=evaluation["majority_class_accuracy"],
        whole=evaluation.get("whole_image_accuracy"),
        validation={name: best[name].get("validation") for name in CURVES},
    )


def curves_json(networks: Sequence[Learned]) -> str:
    """All raw curves and scores, one network per line."""
    lines = ",\n".join(json.dumps(asdict(network), separators=(",", ":")) for network in networks)
    return f'{{"networks": [\n{lines}\n]}}\n'


def measure(network: Learned, reference: Learned | None) -> dict[str, float]:
    """The numbers of `MEASURES` for one network; NaN where the reference is missing or its best was never reached."""
    rule = network.rule
    if rule is None:
        nothing = dict.fromkeys(("converged", "converged_smoothed", "reached"), float("nan"))
        return {**nothing, **{name: float(value) for name, value in network.test.items()}}
    curve, reached = network.curve(rule), None
    if reference is not None and np.isfinite(reference.curve("nll")).any():
        target = float(np.nanmin(reference.curve("nll")))
        reached = iterations_to_reach(network.iterations, network.curve("nll"), target, rule="nll")
    values = {
        "converged": iterations_to_convergence(network.iterations, curve, rule=rule),  # type: ignore[arg-type]
        "converged_smoothed": iterations_to_convergence(network.iterations, curve, rule=rule, smooth=5),  # type: ignore[arg-type]
        "reached": reached,
        **network.test,
    }
    return {name: float("nan") if value is None else float(value) for name, value in values.items()}


def compare(networks: Sequence[Learned], *, reference: str = "ram", resamples: int = 10_000) -> dict[str, Any]:
    """For each method: mean and 95 % interval of each measure, and of its difference to the reference.

    A network that never reached the reference's best NLL enters with the horizon, and is counted in `never_reached`.
    """
    horizons = {network.iterations[-1] for network in networks if network.rule is not None} or {0}
    if len(horizons) > 1:
        raise InputError(
            f"These networks were trained for {', '.join(map(str, sorted(horizons)))} iterations; iterations to "
            "convergence depend on the horizon, so compare networks of one."
        )
    by_place = {(n.method, n.attribute, n.seed): n for n in networks}
    if len(by_place) < len(networks):
        raise InputError("Two of the networks have the same method, attribute and seed; give each run once.")
    horizon = horizons.pop()
    rng = streams.numpy_stream(0, "bootstrap")
    out: dict[str, Any] = {"horizon": horizon, "reference": reference, "methods": {}, "tasks": {}}
    places = {(n.attribute, n.seed) for n in networks}
    majorities = [_of_place(networks, place).majority for place in sorted(places, key=str)]
    out["majority_class_accuracy"] = float(np.mean(majorities))
    wholes = [n.whole for n in networks if n.whole is not None]
    out["whole_image_accuracy"] = float(np.mean(wholes)) if wholes else None
    learning = [network for network in networks if network.rule is not None]
    validations = learning[0].iterations if learning else (0,)
    out["horizons"] = sorted({validations[-(-len(validations) * tenth // 10) - 1] for tenth in range(1, 11)})
    out["converged_by_horizon"] = by_horizon(learning, out["horizons"])
    for method in dict.fromkeys(n.method for n in networks):
        own = [n for n in networks if n.method == method]
        rows: dict[str | None, list[dict[str, float]]] = {}
        differences: dict[str | None, list[dict[str, float]]] = {}
        never: dict[str | None, int] = {}
        for network in own:
            partner = by_place.get((reference, network.attribute, network.seed))
            values = measure(network, partner)
            learned = network.rule is not None and np.isfinite(network.curve("nll")).any()
            if partner is not None and learned and np.isnan(values["reached"]):
                never[network.attribute] = never.get(network.attribute, 0) + 1
                values["reached"] = float(horizon)
            rows.setdefault(network.attribute, []).append(values)
            if partner is not None and partner is not network:
                theirs = measure(partner, partner)
                differences.setdefault(network.attribute, []).append({k: values[k] - theirs[k] for k in MEASURES})
        out["methods"][method] = {
            "networks": len(own),
            "tasks": len(rows),
            "never_reached": sum(never.values()),
            "mean": _summary(rows, rng, resamples),
            "difference": _summary(differences, rng, resamples) if differences else None,
            "variance_of_converged": float(np.var([np.mean([v["converged"] for v in r]) for r in rows.values()]))
            if own[0].rule
            else None,
        }
        for attribute, values_of_seeds in rows.items():
            task = out["tasks"].setdefault(attribute or "all", {})
            task[method] = {k: float(np.mean([v[k] for v in values_of_seeds])) for k in MEASURES}
            task[method]["never_reached"] = never.get(attribute, 0)
    return out


def by_horizon(networks: Sequence[Learned], horizons: Sequence[int]) -> dict[str, list[float]]:
    """Mean iterations to convergence of each method, had training ended at each of `horizons`."""
    out: dict[str, list[float]] = {}
    for network in networks:
        assert network.rule is not None
        curve, steps = network.curve(network.rule), np.array(network.iterations)
        ends = [int((steps <= horizon).sum()) for horizon in horizons]
        converged = [iterations_to_convergence(steps[:n], curve[:n], rule=network.rule) for n in ends]  # type: ignore[arg-type]
        out.setdefault(network.method, []).append(converged)  # type: ignore[arg-type]
    return {method: np.array(rows, dtype=float).mean(0).tolist() for method, rows in out.items()}


def _of_place(networks: Sequence[Learned], place: tuple[str | None, int]) -> Learned:
    return next(n for n in networks if (n.attribute, n.seed) == place)


def _summary(
    rows: Mapping[str | None, Sequence[Mapping[str, float]]], rng: np.random.Generator, resamples: int
) -> dict[str, tuple[float, float, float]]:
    """Mean over tasks of the mean over seeds, with a bootstrap interval over tasks.

    For a single task, Student's interval over its seeds: a bootstrap of three numbers would be far too narrow.
    """
    from scipy.stats import t as student  # type: ignore[import-untyped]

    out = {}
    for name in MEASURES:
        means = np.array([np.mean([values[name] for values in seeds]) for seeds in rows.values()])
        if len(rows) == 1:
            means = np.array([values[name] for seeds in rows.values() for values in seeds])
            half = 0.0
            if len(means) > 1:
                half = float(student.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
            out[name] = (float(means.mean()), float(means.mean()) - half, float(means.mean()) + half)
            continue
        drawn = means[rng.integers(0, len(means), (resamples, len(means)))].mean(1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        out[name] = (float(means.mean()), float(low), float(high))
    return out


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
