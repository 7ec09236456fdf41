"""`Plate`: a figure of the report with its words and its sources; and those of networks: learning, looking, knowing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nogs.attention.cohort import Member, member_labels
from nogs.data.task import Task
from nogs.model.stopping import FILE as BY_GLIMPSES
from nogs.plus.store import load_network
from nogs.report.contents import Network, Run
from nogs.report.learning import convergence_figure, curves_figure
from nogs.report.looking import heatmaps_figure, mean_image
from nogs.report.methods import chosen_networks, compared, learned_in, ordered
from nogs.report.quality import pixels_figure, policy_figure, stopping_figure
from nogs.report.rollouts import accuracy_by_glimpse, seen_by_glimpse, trace
from nogs.runtime.device import pick_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NetworkPlates", "Plate", "learning_plates", "posterior_tables", "stored_locations"]

TASKS_A_SHEET = 6


@dataclass(frozen=True)
class Plate:
    """One figure: the name of its files, a title, what it shows, and what it was made from."""

    name: str
    title: str
    caption: str
    figure: Figure
    sources: tuple[Path, ...]


class NetworkPlates:
    """The figures of a run's networks."""

    def __init__(self, run: Run, task: Task | None, *, device: str = "auto") -> None:
        self.run, self.task, self.device = run, task, device

    def plates(self) -> Iterator[Plate]:
        """Every one that the run has the means for."""
        yield from learning_plates([self.run])
        for make in (self._looking, self._pixels, self._stopping, self._policy):
            yield from make()

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
            task: {method: np.concatenate(parts) for method, parts in ordered(methods).items()}
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
                "paper). Before the first glimpse a network knows nothing of the image, so one place is enough.",
                heatmaps_figure(part, grid=grid, mean=mean),
                tuple(sources[:1]) if len(sources) == 1 else (self.run.folder / "attention",),
            )

    def _pixels(self) -> Iterator[Plate]:
        if self.task is None or not self.run.networks:
            return
        device = pick_device(self.device)
        heavy = self.run.recipe.get("attention", {}).get("embedder") == "vgg" and device.type == "cpu"
        grid, rows = self.task.grid, self.task.rows("test")[: 100 if heavy else 500]
        images, ids = self.task.images[rows], [self.task.ids[row] for row in rows]
        found: dict[str, list[np.ndarray]] = {}
        for network in chosen_networks(self.run, most=12):
            loaded, _ = load_network(network.folder / "best-accuracy.safetensors", device=device)
            trail = trace(loaded, images, ids, locations=stored_locations(network, self.task, ids))
            labels = member_labels(self.task, Member(network.method, attribute=network.attribute))[rows]
            points = np.stack([seen_by_glimpse(trail.locations, grid), accuracy_by_glimpse(trail, labels)], -1)
            found.setdefault(network.learned.method, []).append(points)
        curves = {method: [tuple(p) for p in np.mean(all_, 0)] for method, all_ in ordered(found).items()}
        trained = list(curves)
        table = next((t for name, t in posterior_tables(self.run).items() if name.startswith("test")), None)
        if table is not None and self.task.space.kind == "categorical":
            share = grid.glimpse**2 / (grid.height * grid.width)
            curves["posterior, random places"] = [(r["glimpses"] * share, r["accuracy"]) for r in table]
        levels = {"majority class": float(np.mean([n.learned.majority for n in self.run.networks]))}
        wholes = [n.learned.whole for n in self.run.networks if n.learned.whole is not None]
        levels |= {"whole image, same features": float(np.mean(wholes))} if wholes else {}
        yield Plate(
            "pixels",
            "Accuracy against pixels seen",
            f"After 0, 1 ... glimpses of {len(rows):,} test images. The networks are trained to answer after the last "
            "glimpse (filled); hollow points are what they would have answered before. Overlaps of the networks' "
            "glimpses count once.",
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
                "Accuracy on the test images after each glimpse, and when the look ends as soon as the network is as "
                "sure as the number beside a point says; rings are all glimpses. Mean over a method's networks, "
                "locations drawn from the policy. The networks are trained to answer after the last glimpse.",
                stopping_figure({method: mean_curves(all_) for method, all_ in ordered(curves).items()}),
                tuple(sources) if len(sources) <= 4 else (self.run.folder / "attention",),
            )

    def _policy(self) -> Iterator[Plate]:
        entropies: dict[str, list[list[float]]] = {}
        for network in self.run.networks:
            values = network.test.get("policy_entropy")
            if values and None not in values:
                entropies.setdefault(network.learned.method, []).append(values)
        if entropies and self._grid is not None:
            yield Plate(
                "policy-entropy",
                "How open the policy is at each glimpse",
                "Entropy of the distribution that the next location is drawn from, on the test images; the band is the "
                "range over a method's networks. Near zero, the network looks at the same place whatever it has seen.",
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
        "Mean over tasks at each validation; the band is the range over seeds (figures 6 and 12 of the paper).",
        curves_figure(networks),
        sources,
    )
    comparison = compared(networks)
    if comparison is not None and len(comparison["tasks"]) > 1:
        yield Plate(
            "convergence",
            "Iterations to convergence",
            "Of each task, sorted by the reference's; bars go from the least to the most over seeds, dashes are means "
            "(figure 5 of the paper).",
            convergence_figure(comparison, networks),
            sources,
        )


def mean_curves(policies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over networks of what `accuracy-by-glimpses.json` says of a policy, at the confidences that all have."""
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


def stored_locations(network: Network, task: Task, ids: Sequence[str]) -> np.ndarray | None:
    """The first trajectory of some of the first test images, as the evaluation kept it."""
    found = network.locations()
    if found is None or len(found) != len(task.splits["test"]):
        return None
    rows = [task.splits["test"].index(id) for id in ids]
    return np.asarray(task.grid.index(torch.from_numpy(found[rows, 0])).numpy())


def posterior_tables(run: Run) -> dict[str, Any]:
    """The posterior's tables that matter: on test images if there are, before and after calibration."""
    tables = dict((run.posterior or {}).get("tables", {}))
    test = {name: table for name, table in tables.items() if name.startswith("test")}
    return dict(reversed((test or tables).items()))
