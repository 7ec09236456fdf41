"""Texts and small numbers of the report's page: what was run, what is absent, bars, names for files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from nogs.attention.methods import ON_POSTERIOR
from nogs.data.task import Task
from nogs.report.cells import percent
from nogs.report.contents import Run
from nogs.report.results import percent_of_pixels, rank, title
from nogs.report.verdict import Verdict
from nogs.runtime.files import plain

__all__ = ["about", "absent", "bars", "flags", "inert", "short", "slugs", "steps"]


def about(run: Run, task: Task | None) -> str:
    """What was run, in a sentence or two."""
    parts = []
    if task is not None:
        images, size, kind, number = len(task.ids), task.grid.width, task.space.kind, len(task.space.names)
        parts.append(_images(images, size, kind, number))
    elif run.inspection is not None:
        labels = run.inspection["labels"]
        size = run.inspection["image_size"][1]
        parts.append(_images(run.inspection["images"], size, labels["kind"], labels["number"]))
    if run.data is not None and "glimpses" in run.recipe:
        grid = run.data.grid
        share = percent_of_pixels(grid.glimpse**2 / (grid.height * grid.width))
        parts.append(
            f"{run.recipe['glimpses']} glimpses of {grid.glimpse} px, each {share} of the image, at {len(grid):,} "
            "locations"
        )
    if run.networks:
        methods = ", ".join(map(title, sorted({network.method for network in run.networks}, key=rank)))
        number = len(run.networks)
        parts.append(f"{number} network{'' if number == 1 else 's'} ({methods})")
    text = "; ".join(parts)
    return f"{text}." if text else ""


def _images(number: int, size: int, kind: str, labels: int) -> str:
    return f"{number:,} images of {size} px with {labels} {'classes' if kind == 'categorical' else 'attributes'}"


def absent(run: Run, task: Task | None) -> list[str]:
    """Lines about what this run does not have."""
    lines = []
    makers = {
        "posterior": "nogs posterior train",
        "bank": "nogs bank build",
        "sequences": "nogs annotate",
        "networks": "nogs train",
    }
    methods = {network.method for network in run.networks}
    needless = () if not methods or methods - {"ram", *ON_POSTERIOR} else ("bank", "sequences")
    missing = [name for name, there in run.has.items() if not there and name not in needless]
    if missing:
        named = ", ".join(f"{name} ({makers[name]})" for name in missing)
        lines.append(f"Not in this run: {named}.")
    if task is None:
        lines.append("The images were not found, so there is no gallery and no figure with images; give --data.")
    annotated = [one for one in run.sequences if "evaluations" in one.done]
    if annotated and not any((one.folder / "maps.safetensors").is_file() for one in annotated):
        lines.append(
            "Of the maps of expected posterior entropy only the first was kept; nogs annotate --design.keep-maps keeps "
            "all."
        )
    return lines


def bars(found: Verdict | None) -> list[dict[str, Any]]:
    """Every method as a bar, with a mark at the one that the verdict recommends."""
    if found is None:
        return []
    return [
        {
            "name": title(row.method),
            "best": row.method == found.best,
            "width": f"{100 * row.accuracy:.1f}",
            "share": percent(row.accuracy),
        }
        for row in found.rows
    ]


def flags(text: str) -> Markup:
    """A sentence with its flags marked as code, which is not broken between lines."""
    return Markup(re.sub(r"--[a-z][\w.-]*(?: \d+)*", r"<code>\g<0></code>", str(escape(text))))


def steps(looks: dict[str, Any]) -> str:
    """The numbers of pictures and classes in the gallery."""
    labels = {image["label"] for image in looks["images"] if image["label"]}
    return f"{len(looks['images'])} pictures" + (f" of {len(labels)} classes" if len(labels) > 1 else "")


def inert(value: Any) -> str:
    """JSON that can't end the script element that holds it."""
    return json.dumps(value, default=plain, separators=(",", ":")).replace("<", "\\u003c")


def slugs(names: Iterable[str]) -> list[str]:
    """Names for files and anchors, all different."""
    out: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"
        while slug in out:
            slug += "-again"
        out.append(slug)
    return out


def short(path: Path) -> str:
    """The last two parts of a path."""
    return "/".join(path.parts[-2:])
