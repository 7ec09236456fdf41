"""`Plate`: a figure of the report with its caption and its sources; and the figures of a run's networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nogs.attention.comparison import Learned
from nogs.attention.methods import ON_POSTERIOR
from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.model.stopping import FILE as BY_GLIMPSES
from nogs.posterior.queries import fixed_pixels
from nogs.report.cells import Link, Table
from nogs.report.classes import LARGEST, classes_table, confusion, confusion_figure
from nogs.report.contents import Run
from nogs.report.learning import convergence_figure, curves_figure
from nogs.report.lookers import Looker, looker
from nogs.report.looking import heatmaps_figure, mean_image
from nogs.report.methods import compared, learned_in, ordered
from nogs.report.quality import pixels_figure, policy_figure, stopping_figure
from nogs.report.results import WHOLE, best_network, results, title
from nogs.report.rollouts import seen_share
from nogs.runtime.device import pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NetworkPlates", "Plate", "learning_plates", "posterior_tables"]

TASKS_A_SHEET = 6


@dataclass(frozen=True)
class Plate:
    """One figure: the name of its files, a title, what it shows, and what it was made from."""

    name: str
    title: str
    caption: str
    figure: Figure
    sources: tuple[Path, ...]
    narrow: Figure | None = None  # the same for a phone, its panels below each other


class NetworkPlates:
    """The figures of a run's networks."""

    def __init__(self, run: Run, task: Task | None, *, device: str = "auto") -> None:
        self.run, self.task, self.device = run, task, device

    def plates(self) -> Iterator[Plate]:
        """Every figure that the run has the data for."""
        yield from learning_plates([self.run])
        for make in (self._classes, self._looking, self._pixels, self._stopping, self._policy):
            yield from make()

    @cached_property
    def best(self) -> Looker | None:
        """The recommended network, if its images are available."""
        network = best_network(self.run)
        if network is None or self.task is None:
            return None
        return looker(network, self.task, device=pick_device(self.device))

    def classes(self, link: Link) -> Table | None:
        """Accuracy of each class, for the recommended network and for the reference."""
        best, task = self.best, self.task
        if best is None or task is None or best.network.attribute is not None:
            return None
        found = {best.network.learned.method: (best, confusion(best))}
        others = [n for n in self.run.networks if n.method in ("ram", "ram+") and n.method != best.network.method]
        for network in others[:1]:
            other = looker(network, task, device=pick_device(self.device))
            if other is not None:
                found[network.learned.method] = (other, confusion(other))
        return classes_table(found, link=link)

    def _looking(self) -> Iterator[Plate]:
        by_task: dict[str, dict[str, list[np.ndarray]]] = {}
        sources = []
        for network in self.run.networks:
            found = network.locations()
            if found is not None:
                by_task.setdefault(network.attribute or "", {}).setdefault(network.learned.method, []).append(found)
                sources.append(network.folder / "locations.npy")
        grid = self._grid
        if not by_task or grid is None:
            return
        looks = {
            task: {title(method): np.concatenate(parts) for method, parts in ordered(methods).items()}
            for task, methods in by_task.items()
        }
        mean = None if self.task is None else mean_image(self.task)
        over = "over the mean test image" if mean is not None else "over the image's area"
        names = list(looks)
        for first in range(0, len(names), TASKS_A_SHEET):
            part = {name: looks[name] for name in names[first : first + TASKS_A_SHEET]}
            number = f"-{first // TASKS_A_SHEET + 1}" if len(names) > TASKS_A_SHEET else ""
            yield Plate(
                f"where{number}",
                "Where the networks look" + (f" ({number[1:]})" if number else ""),
                f"How often each pixel is seen at each glimpse on the test images, {over} (figures 4, 9 to 11 of the "
                "paper). Before the first glimpse a network knows nothing of the image, so one location is enough.",
                heatmaps_figure(part, grid=grid, mean=mean),
                tuple(sources[:1]) if len(sources) == 1 else (self.run.folder / "attention",),
                heatmaps_figure(part, grid=grid, mean=mean, across=True) if _few(part) else None,
            )

    def _classes(self) -> Iterator[Plate]:
        if self.task is None or self.best is None or self.best.network.attribute is not None:
            return
        found = confusion(self.best)
        shown = found if len(found.names) <= LARGEST else found.most_confused(LARGEST)
        of = "" if shown is found else f" Shown are the {LARGEST} of {len(found.names)} classes with the most mistakes."
        yield Plate(
            "confusion",
            "Confusion matrix",
            f"A row for each true class, a column for each answer: {title(self.best.network.learned.method)}, one look "
            f"at each of {found.images:,} test pictures. Right answers are on the diagonal.{of}",
            confusion_figure(shown),
            (self.best.network.folder / "evaluation.json",),
        )

    def _pixels(self) -> Iterator[Plate]:
        found: dict[str, list[np.ndarray]] = {}
        images = set()
        for network in self.run.networks:
            kept = network.by_glimpses()
            if kept is not None:
                own = kept["policies"][kept.get("own", "sample")]
                points = np.stack([own["pixels_read"], own["accuracy"]], -1)
                found.setdefault(network.learned.method, []).append(points)
                images.add(int(kept["images"]))
        if not found:
            return
        curves = {method: [tuple(p) for p in np.mean(all_, 0)] for method, all_ in ordered(found).items()}
        trained = list(curves)
        grid = self._grid
        table = (self.run.posterior or {}).get("tables", {}).get("test, calibrated")
        one_label = all(network.attribute is None for network in self.run.networks)
        if table and grid is not None and one_label and "random" not in curves:
            seen = _seen_at_random(self.run, grid, int(table[-1]["glimpses"]))
            curves["random locations (posterior)"] = [(seen[r["glimpses"]], r["accuracy"]) for r in table]
        levels = {"majority class": float(np.mean([n.learned.majority for n in self.run.networks]))}
        levels |= {row.method: row.accuracy for row in results(self.run) if row.method == WHOLE}
        yield Plate(
            "pixels",
            "Accuracy against pixels seen",
            f"After 1, 2 ... glimpses of all {max(images):,} test pictures; filled points are after the last. RAM and "
            "PS-NOGS are trained to answer then, the others after each. Overlapping pixels count once.",
            pixels_figure(curves, levels=levels, trained=trained),
            (self.run.folder / "attention",),
        )

    def _stopping(self) -> Iterator[Plate]:
        curves: dict[str, list[Mapping[str, Any]]] = {}
        sources = []
        for network in self.run.networks:
            found = network.by_glimpses()
            if found is not None:
                curves.setdefault(network.learned.method, []).append(found["policies"][found.get("own", "sample")])
                sources.append(network.folder / BY_GLIMPSES)
        if curves:
            yield Plate(
                "stopping",
                "Stopping early",
                "Accuracy on the test images after each glimpse, and when the network stops at the confidence beside "
                "a point; rings are all glimpses. Mean over a method's networks. "
                "RAM and PS-NOGS are trained to answer after the last glimpse, the others after each.",
                stopping_figure(means := {method: mean_curves(all_) for method, all_ in ordered(curves).items()}),
                tuple(sources) if len(sources) <= 4 else (self.run.folder / "attention",),
                stopping_figure(means, columns=1),
            )

    def _policy(self) -> Iterator[Plate]:
        entropies: dict[str, list[list[float]]] = {}
        for network in self.run.networks:
            values = network.test.get("policy_entropy")
            if (
                values and None not in values and network.method not in ON_POSTERIOR
            ):  # those sample nothing they learned
                entropies.setdefault(network.learned.method, []).append(values)
        if entropies and self._grid is not None:
            several = any(len(rows) > 1 for rows in entropies.values())
            band = "; the band is the range over a method's networks" if several else ""
            yield Plate(
                "policy-entropy",
                "Entropy of the policy at each glimpse",
                f"Entropy of the distribution that the next location is drawn from, on the test images{band}. Near "
                "zero, it looks at the same location whatever it has seen.",
                policy_figure(ordered(entropies), locations=len(self._grid)),
                tuple(network.folder / "evaluation.json" for network in self.run.networks[:1])
                if len(self.run.networks) == 1
                else (self.run.folder / "attention",),
            )

    @property
    def _grid(self) -> Any:
        if self.task is not None:
            return self.task.grid
        return self.run.data.grid if self.run.data is not None else None


def learning_plates(runs: Sequence[Run]) -> Iterator[Plate]:
    """Curves and iterations to convergence of the networks of some runs."""
    networks = learned_in(runs)
    if not networks:
        return
    sources = tuple(run.folder / "attention" for run in runs if run.networks)
    yield Plate(
        "curves",
        "Validation curves",
        _curves_caption(networks),
        curves_figure(networks),
        sources,
        curves_figure(networks, columns=1),
    )
    comparison = compared(networks)
    if comparison is not None and len(comparison["tasks"]) > 1:
        yield Plate(
            "convergence",
            "Iterations to convergence",
            "Each task, sorted by the reference; bars are ranges over seeds, dashed lines are means (figure 5 of the "
            "paper).",
            convergence_figure(comparison, networks),
            sources,
        )


def _curves_caption(networks: Sequence[Learned]) -> str:
    several = len({network.attribute for network in networks}) > 1
    seeds = len({network.seed for network in networks if network.rule is not None}) > 1
    dotted = any(network.rule is None for network in networks)
    return (
        f"Scores on the validation pictures while the networks learn{', averaged over tasks' if several else ''}"
        f"{'; the band is the range over seeds' if seeds else ''} (figures 6 and 12 of the paper). "
        + ("Dotted: the kept version of a network that answers with the posterior. " if dotted else "")
        + "NLL is the negative log-likelihood, the mean of -log p(true class) in nats: lower is better, and 0 is "
        "certainty."
    )


def _few(looks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the rows fit beside each other on a phone."""
    return sum(len(methods) for methods in looks.values()) <= 4


def mean_curves(policies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over networks of a policy in `accuracy-by-glimpses.json`, at the confidences that all have."""
    by_confidence = [{one["stop_at"]: one for one in policy["stopping"]} for policy in policies]
    common = sorted(set.intersection(*(set(one) for one in by_confidence)))
    return {
        "accuracy": np.mean([policy["accuracy"] for policy in policies], 0).tolist(),
        "stopping": [
            {"stop_at": at}
            | {name: float(np.mean([one[at][name] for one in by_confidence])) for name in ("accuracy", "mean_glimpses")}
            for at in common
        ],
    }


def _seen_at_random(run: Run, grid: Grid, glimpses: int) -> list[float]:
    """Mean share of the pixels that 0, 1 ... random glimpses show, as in the posterior's evaluation."""
    pixels = fixed_pixels(
        512,
        glimpses=glimpses,
        grid=grid,
        locations=run.recipe.get("posterior", {}).get("locations", "grid"),
        seed=int(run.recipe.get("seed", 0)),
        purpose="report",
        device=torch.device("cpu"),
    )
    return [0.0, *(float(seen_share(pixels[:, : t + 1], grid)) for t in range(glimpses))]


def posterior_tables(run: Run) -> dict[str, Any]:
    """The posterior's tables to show: on test images if there are any, before and after calibration."""
    tables = dict((run.posterior or {}).get("tables", {}))
    test = {name: table for name, table in tables.items() if name.startswith("test")}
    return dict(reversed((test or tables).items()))
