"""`Album`: all figures that a run has the data for; those of sequences, posterior and bank are made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from nogs.data.task import Task
from nogs.design.config import DesignConfig
from nogs.design.entropies import objective
from nogs.design.steps import Tools
from nogs.report.choice import spread
from nogs.report.completions import completions_figure
from nogs.report.contents import Run, SequenceSet
from nogs.report.kinds import kinds_plates
from nogs.report.maps import epe_figure
from nogs.report.opened import open_tools
from nogs.report.plates import NetworkPlates, Plate, posterior_tables
from nogs.report.quality import effective_figure, posterior_figure, scores_figure
from nogs.report.supervision import sequences_figure
from nogs.report.walk import boed_figure, walk_through
from nogs.runtime.errors import InputError

__all__ = ["Album"]

EVALUATIONS = {"cuda": 1_000_000}
"""Evaluations of the posterior that the walk-through may take, by kind of device; elsewhere 20,000."""


class Album:
    """The figures of one run. `task` has its images; without it the figures that show images are left out.

    Afterwards `problems` says which files could not be used.
    """

    def __init__(self, run: Run, task: Task | None, *, device: str = "auto") -> None:
        self.run, self.task, self.device = run, task, device
        self.problems: list[str] = []
        self.networks = NetworkPlates(run, task, device=device)

    def plates(self) -> Iterator[Plate]:
        """Every figure that this run has the data for, results first."""
        yield from self.networks.plates()
        for make in (
            self._supervision,
            self._maps,
            self._walk,
            self._scores,
            self._posterior,
            self._completions,
            partial(kinds_plates, self.run),
            self._effective,
        ):
            try:
                yield from make()
            except InputError as error:  # still draw the other figures
                if (said := f"A figure is missing: {error}") not in self.problems:
                    self.problems.append(said)

    def _supervision(self) -> Iterator[Plate]:
        for attribute, sets in _by_attribute(self.run.sequences).items():
            if self.task is None or not all(one.sequences.grid == self.task.grid for one in sets):
                return
            ids = [id for id in sets[0].sequences.ids if id in self.task.position]
            common = [id for id in ids if all(id in one.sequences.position for one in sets)]
            if not ids:
                return
            kinds = {one.name: one.sequences for one in sets}
            yield Plate(
                "sequences",
                "Supervision sequences" + (f" for {attribute}" if attribute else ""),
                "What the sequences show of some training images, glimpses numbered in order (figure 13 of the paper).",
                sequences_figure(self.task, kinds, shown := spread(self.task, common or ids, 8, attribute=attribute)),
                tuple(one.folder / "sequences.jsonl" for one in sets),
                sequences_figure(self.task, kinds, shown[::2][:4]),
            )
            return  # one attribute is enough as an example

    def _maps(self) -> Iterator[Plate]:
        for found in self.run.sequences:
            maps = found.maps()
            if maps is None or self.task is None or found.sequences.grid != self.task.grid:
                continue
            id = found.sequences.ids[_most_informative(found)]
            yield Plate(
                "epe",
                "How a near-optimal sequence is found",
                "The image whose entropy fell most (figure 2 of the paper); all others are in the gallery.",
                epe_figure(self.task, found.sequences, id, own := maps[found.sequences.position[id]]),
                (found.folder / "maps.safetensors", found.folder / "sequences.jsonl"),
                epe_figure(self.task, found.sequences, id, own, down=True),
            )
            return

    def _walk(self) -> Iterator[Plate]:
        tools = self.tools
        if tools is None or self.task is None:
            return
        sets = [one for one in self.run.sequences if one.sequences.grid == self.task.grid]
        if not sets:
            return
        sequences = sets[0].sequences
        id = sequences.ids[_most_informative(sets[0])]
        column = None if sequences.attribute is None else self.task.attribute(sequences.attribute)
        walk = walk_through(
            tools,
            self.task,
            id,
            sequences.by_id(id)[:1],
            variables=objective(self.task.space, column),
            overlap=DesignConfig.model_validate(self.run.recipe.get("design", {})).overlap,
            evaluations=EVALUATIONS.get(tools.device.type, 20_000),
        )
        yield Plate(
            "walk-through",
            "The design of one glimpse",
            "Algorithm 1 step by step (figure 7 of the paper): the first glimpse, and its most likely completions from "
            "the bank. Then the posterior's entropy on each after a glimpse at each location, and the weighted mean.",
            boed_figure(self.task, walk),
            (self.run.posterior_file, self.run.folder / "bank" / "done.json"),
            boed_figure(self.task, walk, down=True),
        )

    def _scores(self) -> Iterator[Plate]:
        for n, (path, found) in enumerate(self.run.scores.items()):
            what = f"{found['attribute']}, " if found.get("attribute") else ""
            yield Plate(
                "scores" + (f"-{n + 1}" if n else ""),
                "Scores of the sequences",
                f"{what}{found.get('images', 0):,} images, scored by a posterior after each glimpse; bands are 95 % "
                "intervals over images.",
                scores_figure(found["ways"]),
                (path,),
                scores_figure(found["ways"], columns=1),
            )

    def _posterior(self) -> Iterator[Plate]:
        if self.run.posterior is not None:
            yield Plate(
                "posterior",
                "The posterior by number of glimpses",
                "Scores of the posterior after random glimpses. Cross-entropy is the mean of -log p(true class), and "
                "entropy is the posterior's own estimate of it. The two are close where the posterior is calibrated.",
                posterior_figure(posterior_tables(self.run)),
                (self.run.folder / "posterior" / "evaluation.json",),
                posterior_figure(posterior_tables(self.run), columns=1),
            )

    def _completions(self) -> Iterator[Plate]:
        tools, task = self.tools, self.task
        if tools is None or task is None:
            return
        ids = spread(task, task.splits["validation"], 4)
        glimpses = max(1, min(3, int(self.run.recipe.get("glimpses", 3)) - 1))
        from nogs.completion.quality import random_locations

        pixels = random_locations(task, ids, glimpses, seed=int(self.run.recipe.get("seed", 0)))
        images = torch.from_numpy(np.array(task.images[task.rows(ids)])).to(tools.device)
        kind = self.run.recipe.get("completion", {}).get("kind", "retrieval")
        found = {kind: tools.completion.complete(images, pixels, ids=ids)}
        yield Plate(
            "completions",
            "Completions",
            "What the rest of an image might be, given the marked glimpses of the true one (figure 8 of the paper), "
            "the most likely first. Each glimpse is enlarged beside its image.",
            completions_figure(task, ids, pixels.numpy(), found, samples=5),
            (self.run.folder / "bank" / "done.json",),
            completions_figure(task, ids, pixels.numpy(), found, samples=2),
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
                "How many of the bank's images carry the weight of a completion. Where there are few, the bank has few "
                "images that match the glimpses.",
                effective_figure(sizes),
                tuple(sources),
            )

    @cached_property
    def tools(self) -> Tools | None:
        """Posterior and bank of this run, if they can be opened."""
        found, problem = open_tools(self.run, self.task, device=self.device)
        if problem:
            self.problems.append(problem)
        return found


def _most_informative(found: SequenceSet) -> int:
    """The sequence along which the entropy falls most."""
    entropy = found.sequences.entropy_before
    return 0 if entropy is None else int((entropy[:, 0] - entropy[:, -1]).argmax())


def _by_attribute(sets: Sequence[SequenceSet]) -> dict[str | None, list[SequenceSet]]:
    out: dict[str | None, list[SequenceSet]] = {}
    for one in sets:
        out.setdefault(one.sequences.attribute, []).append(one)
    return out
