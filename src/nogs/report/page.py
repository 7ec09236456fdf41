"""`write_report`: one self-contained HTML page about one or several runs, with its figures as files beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from nogs.attention.store import OTHER_SPLITS, splits_mark
from nogs.data import read_splits
from nogs.data.config import DataConfig
from nogs.data.task import Task
from nogs.model.drawing import tile
from nogs.report import words
from nogs.report.album import Album
from nogs.report.cells import Table
from nogs.report.contents import Run, read_run
from nogs.report.gallery import Shown, encoded, gallery, opening, usual
from nogs.report.headlines import commands, headlines
from nogs.report.kinds import kinds_table
from nogs.report.methods import compared, learned_in
from nogs.report.pictures import Picture, save_figure
from nogs.report.plates import Plate, learning_plates
from nogs.report.tables import methods_table, runs_table, tables
from nogs.report.verdict import verdict
from nogs.runtime import progress
from nogs.runtime.device import versions
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, read_text, write_json, write_text

__all__ = ["LARGEST", "Loader", "write_report"]

LARGEST = 15_000_000
"""Bytes of a page; the gallery shrinks until it fits."""
Loader = Callable[[DataConfig], Task | None]
"""Loads a run's task with its images, or returns None if they are not available."""


@dataclass(frozen=True)
class _Shown:
    """A plate in the form that the template draws."""

    name: str
    anchor: str
    title: str
    caption: str
    picture: Picture
    sources: tuple[tuple[str, str], ...]
    png: str
    svg: str

    narrow: Picture | None = None

    @property
    def wide(self) -> bool:
        return self.picture.width > 900 or self.picture.width > 2.2 * self.picture.height


def write_report(
    runs: Sequence[Path],
    *,
    out: Path | None = None,
    task: Task | Loader | None = None,
    images: int | None = None,
    device: str = "auto",
) -> Path:
    """Write a page about `runs` to the file `out`, by default RUN/report.html (of several runs, beside the first).

    `task` is the runs' task, or a function that loads one: without images there is no gallery. `images` test images and
    half as many with sequences go into it, by default some of every class. Figures are also written as PNG and SVG
    into a folder named like the page, with `comparison.json`, the numbers of the methods side by side. Returns the
    page's path.
    """
    if not runs:
        raise InputError("A report needs at least one RUN: a folder that nogs run, nogs train or another command made.")
    if images is not None and images < 0:
        raise InputError(f"The number of images must not be negative, but is {images}.")
    if len({Path(folder).resolve() for folder in runs}) < len(runs):
        raise InputError("A run was given twice; give each once.")
    found = [read_run(Path(folder)) for folder in runs]
    if out is None:
        out = found[0].folder / "report.html" if len(found) == 1 else found[0].folder.parent / "report.html"
    page = _Page(found, [_task_of(run, task) for run in found], Path(out), device)
    for run, images_of in zip(found, page.tasks):
        absent = images_of is None and run.data is not None and run.data.kind != "digits"
        if absent and images != 0 and (run.sequences or run.networks):
            progress.say(f"{run.folder}: There is no gallery without the images; give their folder with --data.")
    text, most = page.render(images), max((usual(task) for task in page.tasks if task is not None), default=0)
    while len(text.encode()) > LARGEST and images != 0:
        images = (most if images is None else images) // 2
        text = page.render(images)
    write_text(page.out, text)
    return page.out


class _Page:
    """Figures and numbers of some runs, made once; rendered for a number of gallery images."""

    def __init__(self, runs: Sequence[Run], tasks: Sequence[Task | None], out: Path, device: str) -> None:
        self.runs, self.tasks, self.out = list(runs), list(tasks), out
        self.folder = out.with_suffix("")
        if self.folder == out:
            raise InputError(f"The page {out} needs a name that ends in .html.")
        several = len(self.runs) > 1
        slugs = words.slugs(run.name for run in self.runs)
        self.prefixes = [f"{slug}-" if several else "" for slug in slugs]
        self.comparison_files = [self.folder / f"{prefix}comparison.json" for prefix in self.prefixes]
        self.albums: list[Album] = []
        with progress.track("drawing the report", total=None, unit="figures") as bar:
            self.sections = [
                self._section(run, task, prefix, file, device, bar.advance)
                for run, task, prefix, file in zip(self.runs, self.tasks, self.prefixes, self.comparison_files)
            ]
            self.comparison = self._side_by_side(bar.advance) if several else None

    def render(self, images: int | None) -> str:
        """The page's text."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("nogs.report", "template"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        environment.filters["flags"] = words.flags
        template = Path(__file__).with_name("template")
        looks = self._gallery(images)
        names = [("Side by side", "comparison")] if self.comparison else [("Results", "results")]
        names += [("Gallery", "gallery")] if looks else []
        if not self.comparison and self.sections[0]["first_tables"]:
            names.append(("Scores", "scores"))
        if self.comparison:
            names += [(run.name, section["anchor"]) for run, section in zip(self.runs, self.sections)]
        else:
            parts = (("Figures", "figures", "plates"), ("Tables", "tables", "tables"))
            names += [(name, anchor) for name, anchor, part in parts if self.sections[0][part]]
            names.append(("Reproduce", "reproduce"))
        return environment.get_template("page.html.j2").render(
            title=self._title(),
            runs=self.sections,
            comparison=self.comparison,
            nav=names,
            gallery=words.inert(looks | {"opening": opening(looks)}) if looks else None,
            steps=words.steps(looks) if looks else "",
            hero=self._hero(looks) if looks else None,
            css=read_text(template / "page.css"),
            js=read_text(template / "page.js"),
            versions=versions(),
            time=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )

    def _title(self) -> str:
        if len(self.runs) == 1:
            return self.runs[0].task if self.tasks[0] is None else self.tasks[0].title
        return f"{', '.join(run.name for run in self.runs[:-1])} and {self.runs[-1].name}"

    def _section(
        self, run: Run, task: Task | None, prefix: str, file: Path, device: str, advance: Callable[[], None]
    ) -> dict[str, Any]:
        comparison = compared(learned_in([run]), alike=True) if run.networks else None
        if comparison is not None:
            write_json(file, comparison)
        every = [*tables(run, comparison, link=self.link, comparison_file=file), *kinds_table(run, link=self.link)]
        album = Album(run, task, device=device)
        self.albums.append(album)
        plates = [self._shown(plate, prefix, advance) for plate in album.plates()]
        problems = [*_other_splits(run), *album.problems]
        for line in problems:
            progress.say(f"{run.folder}: {line}")
        first = [table for table in every if table.id == "methods"]
        every += [table for table in [album.networks.classes(self.link)] if table is not None]
        first += [table for table in every if table.id == "classes"]
        found = verdict(run)
        return {
            "name": run.name,
            "anchor": f"run-{prefix.rstrip('-')}" if prefix else "results",
            "prefix": prefix,
            "about": words.about(run, task),
            "headlines": headlines(run, link=self.link, comparison_file=file),
            "verdict": "" if found is None else found.sentence,
            "advice": "" if found is None else found.advice,
            "rows": words.bars(found),
            "races": [] if found is None or len(found.races) > 3 else [race["sentence"] for race in found.races],
            "absent": [*problems, *words.absent(run, task)],
            "first_tables": first,
            "tables": [table for table in every if table not in first],
            "plates": [shown for shown in plates if shown.name != "confusion"],
            "class_plates": [shown for shown in plates if shown.name == "confusion"],
            "recipe": read_text(run.folder / "recipe.yaml") if run.recipe else "",
            "recipe_href": self.link(run.folder / "recipe.yaml"),
            "needs_data": run.data is not None and run.data.kind != "digits",
            "command": run.command,
            "commands": commands(run, report=[one.folder for one in self.runs]),
        }

    def _side_by_side(self, advance: Callable[[], None]) -> dict[str, Any]:
        networks = learned_in(self.runs)
        found = compared(networks) if networks else None
        file = self.folder / "comparison.json"
        shown: list[Table] = [
            runs_table(self.runs, [f"#{section['anchor']}" for section in self.sections], link=self.link)
        ]
        note = ""
        if found is not None:
            write_json(file, found)
            shown.append(methods_table(found, self.link(file)))
        elif networks:
            note = (
                "These networks were trained for different numbers of iterations, so their iterations to convergence "
                "are not compared."
            )
        plates = [self._shown(plate, "all-", advance) for plate in learning_plates(self.runs)]
        return {"tables": shown, "note": note, "plates": plates}

    def _shown(self, plate: Plate, prefix: str, advance: Callable[[], None]) -> _Shown:
        name = f"{prefix}{plate.name}"
        picture = save_figure(plate.figure, self.folder, name)
        narrow = None if plate.narrow is None else save_figure(plate.narrow, self.folder, f"{name}-narrow", files=False)
        advance()
        return _Shown(
            name=plate.name,
            anchor=f"figure-{name}",
            title=plate.title,
            caption=plate.caption,
            picture=picture,
            sources=tuple((words.short(path), self.link(path)) for path in plate.sources[:4]),
            png=self.link(self.folder / f"{name}.png"),
            svg=self.link(self.folder / f"{name}.svg"),
            narrow=narrow,
        )

    def _gallery(self, images: int | None) -> dict[str, Any] | None:
        if images == 0:
            return None
        known = [
            Shown(album.run, album.task, album.tools, album.networks.best)
            for album in self.albums
            if album.task is not None
        ]
        return gallery(known, images=images, link=self.link) if known else None

    def _hero(self, looks: dict[str, Any]) -> dict[str, str] | None:
        """The picture that the gallery opens on, with all glimpses of the first network, and its answer."""
        image = looks["images"][opening(looks)]
        look, task = image["looks"][0], next(task for task in self.tasks if task is not None)
        side = (480, round(480 * task.grid.height / task.grid.width))
        shown = tile(task.images[task.position[image["id"]]], look["pixels"], task.grid, side)
        text = f"{look['who']}: {len(look['pixels'])} glimpses of {image['label'] or 'a picture'}."
        if look["kind"] == "network":
            said, sure = look["answers"][-1]
            right = "right" if said == look["truth"] else f"it is {look['truth']}"
            text = f"{look['who']} sees {len(look['pixels'])} glimpses and says {said} ({100 * sure:.0f} %): {right}."
        return {"src": encoded(np.asarray(shown)), "text": text[:1].upper() + text[1:]}

    def link(self, path: Path) -> str:
        """The address of a file, relative to the page."""
        return quote(os.path.relpath(path.resolve(), self.out.resolve().parent).replace(os.sep, "/"))


def _task_of(run: Run, task: Task | Loader | None) -> Task | None:
    if run.data is None or task is None:
        return None
    found = task if isinstance(task, Task) else task(run.data)
    if found is None:
        return None
    # the run's own splits: new ones from a changed folder could show training images as test images
    return read_splits(found, run.folder / "data") if (run.folder / "data" / "splits.json").is_file() else found


def _other_splits(run: Run) -> list[str]:
    """A sentence where networks were trained on other images than the run's `splits.json` says."""
    path = run.folder / "data" / "splits.json"
    mark = splits_mark(read_json(path)["splits"]) if run.networks and path.is_file() else None
    others = [network for network in run.networks if mark and network.splits() not in (None, mark)]
    if not others:
        return []
    name = others[0].folder.relative_to(run.folder / "attention").as_posix()
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    return [f"The network {name}{more} {OTHER_SPLITS}"]
