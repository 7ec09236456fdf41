"""All figures of a run, each made where the run holds what it needs; here those of sequences, posterior and bank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from nogs.bank import load_bank
from nogs.completion import CompletionConfig, make_completion, weights_file
from nogs.data.task import Task
from nogs.design.config import DesignConfig
from nogs.design.entropies import objective
from nogs.design.steps import Tools
from nogs.posterior.store import load_posterior
from nogs.report.completions import completions_figure
from nogs.report.contents import Run, SequenceSet
from nogs.report.maps import epe_figure
from nogs.report.plates import NetworkPlates, Plate, posterior_tables
from nogs.report.quality import effective_figure, posterior_figure, scores_figure
from nogs.report.supervision import sequences_figure
from nogs.report.walk import boed_figure, walk_through
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError

__all__ = ["Album"]

LARGEST_BANK = 200_000
"""Images of a bank that a report still opens, for completions and the walk-through; a larger one takes minutes."""
EVALUATIONS = {"cuda": 1_000_000}
"""Evaluations of the posterior that the walk-through may take, by kind of device; elsewhere 20,000."""


class Album:
    """The figures of one run. `task` brings its images; without it the figures that show images are left out.

    Once they are made, `problems` says which files could not be used.
    """

    def __init__(self, run: Run, task: Task | None, *, device: str = "auto") -> None:
        self.run, self.task, self.device = run, task, device
        self.problems: list[str] = []

    def plates(self) -> Iterator[Plate]:
        """Every figure that this run has the means for, results first."""
        yield from NetworkPlates(self.run, self.task, device=self.device).plates()
        for make in (
            self._supervision,
            self._maps,
            self._walk,
            self._scores,
            self._posterior,
            self._completions,
            self._effective,
        ):
            try:
                yield from make()
            except InputError as error:  # the other figures are still wanted
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
            overlap=DesignConfig.model_validate(self.run.recipe.get("design", {})).overlap,
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
                posterior_figure(posterior_tables(self.run)),
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

    @cached_property
    def _tools(self) -> Tools | None:
        """Posterior and bank of this run, where both are here, small enough to open, and of this task."""
        run = self.run
        if self.task is None or run.bank is None or not run.posterior_file.is_file():
            return None
        if run.bank["images"] > LARGEST_BANK:
            return None
        device, config = pick_device(self.device), CompletionConfig.model_validate(run.recipe.get("completion", {}))
        try:
            posterior = load_posterior(run.posterior_file, task=self.task, device=device)
            bank = load_bank(run.folder / "bank", device=str(device), on_gpu=False)
            completion = make_completion(
                bank,
                config=config,
                glimpse=self.task.grid.glimpse,
                seed=int(run.recipe.get("seed", 0)),
                weights=weights_file(run.folder / "bank", config),
            )
        except InputError as error:  # damaged, or of another grid
            self.problems.append(f"There are no completions and no walk-through of the design: {error}")
            return None
        return Tools(posterior, completion, device)


def _telling(found: SequenceSet) -> int:
    """The sequence along which most was learned, so that there is something to see."""
    entropy = found.sequences.entropy_before
    return 0 if entropy is None else int((entropy[:, 0] - entropy[:, -1]).argmax())


def _by_attribute(sets: Sequence[SequenceSet]) -> dict[str | None, list[SequenceSet]]:
    out: dict[str | None, list[SequenceSet]] = {}
    for one in sets:
        out.setdefault(one.sequences.attribute, []).append(one)
    return out
