"""The figures of a run, each made where the run holds what it needs, with a caption and the files it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nogs.attention.cohort import Member, member_labels
from nogs.attention.store import load_network
from nogs.bank import load_bank
from nogs.completion import CompletionConfig, Retrieval
from nogs.data.task import Task
from nogs.design.entropies import objective
from nogs.design.steps import Tools
from nogs.posterior.store import load_posterior
from nogs.report.completions import completions_figure
from nogs.report.contents import Network, Run, SequenceSet
from nogs.report.learning import convergence_figure, curves_figure
from nogs.report.looking import heatmaps_figure, mean_image
from nogs.report.maps import epe_figure
from nogs.report.methods import chosen_networks, compared, learned_in, ordered
from nogs.report.quality import effective_figure, pixels_figure, policy_figure, posterior_figure, scores_figure
from nogs.report.rollouts import accuracy_by_glimpse, seen_by_glimpse, trace
from nogs.report.supervision import sequences_figure
from nogs.report.walk import boed_figure, walk_through
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Album", "Plate", "learning_plates", "stored_locations"]

LARGEST_BANK = 200_000
"""Images of a bank that a report still opens, for completions and the walk-through; a larger one takes minutes."""
EVALUATIONS = {"cuda": 1_000_000}
"""Evaluations of the posterior that the walk-through may take, by kind of device; elsewhere 20,000."""
TASKS_A_SHEET = 6


@dataclass(frozen=True)
class Plate:
    """One figure: the name of its files, a title, what it shows, and what it was made from."""

    name: str
    title: str
    caption: str
    figure: Figure
    sources: tuple[Path, ...]


class Album:
    """The figures of one run. `task` brings its images; without it the figures that show images are left out."""

    def __init__(self, run: Run, task: Task | None, *, device: str = "auto") -> None:
        self.run, self.task, self.device = run, task, device

    def plates(self) -> Iterator[Plate]:
        """Every figure that this run has the means for, results first."""
        for make in (
            self._learning,
            self._looking,
            self._pixels,
            self._policy,
            self._supervision,
            self._maps,
            self._walk,
            self._scores,
            self._posterior,
            self._completions,
            self._effective,
        ):
            yield from make()

    def _learning(self) -> Iterator[Plate]:
        yield from learning_plates([self.run])

    def _looking(self) -> Iterator[Plate]:
        by_task: dict[str, dict[str, list[np.ndarray]]] = {}
        sources = []
        for network in self.run.networks:
            found = network.locations()
            if found is not None:
                by_task.setdefault(network.attribute or "", {}).setdefault(network.method, []).append(found)
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
            found.setdefault(network.method, []).append(points)
        curves = {method: [tuple(p) for p in np.mean(all_, 0)] for method, all_ in ordered(found).items()}
        trained = list(curves)
        table = next((t for name, t in _tables(self.run).items() if name.startswith("test")), None)
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

    def _policy(self) -> Iterator[Plate]:
        entropies: dict[str, list[list[float]]] = {}
        for network in self.run.networks:
            values = network.test.get("policy_entropy")
            if values and None not in values:
                entropies.setdefault(network.method, []).append(values)
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

    def _supervision(self) -> Iterator[Plate]:
        for attribute, sets in _by_attribute(self.run.sequences).items():
            if self.task is None or not all(one.sequences.grid == self.task.grid for one in sets):
                return
            ids = [id for id in sets[0].sequences.ids if id in self.task.position]
            common = [id for id in ids if all(id in one.sequences.position for one in sets)]
            if not ids:
                return
            yield Plate(
                "sequences",
                "Supervision sequences" + (f" for {attribute}" if attribute else ""),
                "What the sequences show of some training images, glimpses numbered in order (figure 13 of the paper).",
                sequences_figure(self.task, {one.name: one.sequences for one in sets}, (common or ids)[:7]),
                tuple(one.folder / "sequences.jsonl" for one in sets),
            )
            return  # one attribute is enough to see their manner

    def _maps(self) -> Iterator[Plate]:
        for found in self.run.sequences:
            maps = found.maps()
            if maps is None or self.task is None or found.sequences.grid != self.task.grid:
                continue
            id = found.sequences.ids[_telling(found)]
            yield Plate(
                "epe",
                "How a near-optimal sequence comes about",
                "The image whose entropy fell most (figure 2 of the paper); all others are in the gallery.",
                epe_figure(self.task, found.sequences, id, maps[found.sequences.position[id]]),
                (found.folder / "maps.safetensors", found.folder / "sequences.jsonl"),
            )
            return

    def _walk(self) -> Iterator[Plate]:
        tools = self._tools
        if tools is None or self.task is None:
            return
        sets = [one for one in self.run.sequences if one.sequences.grid == self.task.grid]
        if not sets:
            return
        sequences = sets[0].sequences
        id = sequences.ids[_telling(sets[0])]
        column = None if sequences.attribute is None else self.task.attribute(sequences.attribute)
        walk = walk_through(
            tools,
            self.task,
            id,
            sequences.by_id(id)[:1],
            variables=objective(self.task.space, column),
            evaluations=EVALUATIONS.get(tools.device.type, 20_000),
        )
        yield Plate(
            "walk-through",
            "The design of one glimpse",
            "Algorithm 1 laid open (figure 7 of the paper): the first glimpse, the likeliest completions from the "
            "bank, the posterior's entropy on each if one looked at each location, and the weighted mean of these.",
            boed_figure(self.task, walk),
            (self.run.posterior_file, self.run.folder / "bank" / "done.json"),
        )

    def _scores(self) -> Iterator[Plate]:
        for n, (path, found) in enumerate(self.run.scores.items()):
            what = f"{found['attribute']}, " if found.get("attribute") else ""
            yield Plate(
                "scores" + (f"-{n + 1}" if n else ""),
                "What a judge knows along the sequences",
                f"{what}{found.get('images', 0):,} images, judged by a posterior after each glimpse; bands are 95 % "
                "intervals over images.",
                scores_figure(found["ways"]),
                (path,),
            )

    def _posterior(self) -> Iterator[Plate]:
        if self.run.posterior is not None:
            yield Plate(
                "posterior",
                "The posterior by number of glimpses",
                "Accuracy, cross-entropy, entropy and calibration error at random locations. A calibrated posterior's "
                "cross-entropy and entropy lie close together.",
                posterior_figure(_tables(self.run)),
                (self.run.folder / "posterior" / "evaluation.json",),
            )

    def _completions(self) -> Iterator[Plate]:
        tools, task = self._tools, self.task
        if tools is None or task is None:
            return
        ids = list(task.splits["validation"][:3])
        glimpses = max(1, min(3, int(self.run.recipe.get("glimpses", 3)) - 1))
        from nogs.completion.quality import random_locations

        pixels = random_locations(task, ids, glimpses, seed=int(self.run.recipe.get("seed", 0)))
        images = torch.from_numpy(np.array(task.images[task.rows(ids)])).to(tools.device)
        found = {"retrieval": tools.completion.complete(images, pixels, ids=ids)}
        yield Plate(
            "completions",
            "Completions",
            "What the rest of an image might be, given the marked glimpses of the true one (figure 8 of the paper), "
            "the likeliest first; each glimpse is enlarged beside its image.",
            completions_figure(task, ids, pixels.numpy(), found, samples=5),
            (self.run.folder / "bank" / "done.json",),
        )

    def _effective(self) -> Iterator[Plate]:
        sizes: dict[str, list[tuple[int, float | None]]] = {}
        sources: list[Path] = []
        for path, found in self.run.completions.items():
            rows = found["by_glimpses"]
            for name, key in (
                ("of completions", "effective_sample_size"),
                ("of the proposal", "proposal_effective_sample_size"),
            ):
                sizes[f"{name}, {found['split']} images"] = [(row["observed"], row[key]) for row in rows]
            sources.append(path)
        for one in self.run.sequences:
            steps = one.done.get("median_completions_by_step")
            if steps:
                label = f"median while annotating{f' {one.sequences.attribute}' if one.sequences.attribute else ''}"
                sizes.setdefault(label, list(enumerate(steps)))
                sources.append(one.folder / "done.json")
        sizes = {name: rows for name, rows in list(sizes.items())[:6] if any(size for _, size in rows)}
        if sizes:
            yield Plate(
                "effective",
                "Effective number of completions",
                "How many of the bank's images really speak for a set of glimpses. Where few do, the bank holds little "
                "that resembles the image.",
                effective_figure(sizes),
                tuple(sources),
            )

    @property
    def _grid(self) -> Any:
        if self.task is not None:
            return self.task.grid
        return self.run.data.grid if self.run.data is not None else None

    @cached_property
    def _tools(self) -> Tools | None:
        """Posterior and bank of this run, where both are here, small enough to open, and of this task."""
        run = self.run
        if self.task is None or run.bank is None or not run.posterior_file.is_file():
            return None
        if run.bank["images"] > LARGEST_BANK:
            return None
        device = pick_device(self.device)
        try:
            posterior = load_posterior(run.posterior_file, task=self.task, device=device)
            bank = load_bank(run.folder / "bank", device=str(device), on_gpu=False, task=self.task)
        except InputError:  # of another grid, or a bank of numbers whose generator is not here
            return None
        config = CompletionConfig.model_validate(run.recipe.get("completion", {}))
        seed = int(run.recipe.get("seed", 0))
        return Tools(posterior, Retrieval(bank, config=config, glimpse=self.task.grid.glimpse, seed=seed), device)


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


def stored_locations(network: Network, task: Task, ids: Sequence[str]) -> np.ndarray | None:
    """The first trajectory of some of the first test images, as the evaluation kept it."""
    found = network.locations()
    if found is None or len(found) != len(task.splits["test"]):
        return None
    rows = [task.splits["test"].index(id) for id in ids]
    return np.asarray(task.grid.index(torch.from_numpy(found[rows, 0])).numpy())


def _tables(run: Run) -> dict[str, Any]:
    """The posterior's tables that matter: on test images if there are, before and after calibration."""
    tables = dict((run.posterior or {}).get("tables", {}))
    test = {name: table for name, table in tables.items() if name.startswith("test")}
    return dict(reversed((test or tables).items()))


def _telling(found: SequenceSet) -> int:
    """The sequence along which most was learned, so that there is something to see."""
    entropy = found.sequences.entropy_before
    return 0 if entropy is None else int((entropy[:, 0] - entropy[:, -1]).argmax())


def _by_attribute(sets: Sequence[SequenceSet]) -> dict[str | None, list[SequenceSet]]:
    out: dict[str | None, list[SequenceSet]] = {}
    for one in sets:
        out.setdefault(one.sequences.attribute, []).append(one)
    return out
