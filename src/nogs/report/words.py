"""Words and small numbers of the report's page: what was run, what is absent, bars, names fit for files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from nogs.data.task import Task
from nogs.report.contents import Run
from nogs.report.results import title
from nogs.report.tables import percent
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
        share = grid.glimpse**2 / (grid.height * grid.width)
        parts.append(
            f"{run.recipe['glimpses']} glimpses of {grid.glimpse} px, each {share:.1%} of the image, at "
            f"{len(grid):,} locations"
        )
    if run.networks:
        methods = ", ".join(dict.fromkeys(network.method for network in run.networks))
        number = len(run.networks)
        parts.append(f"{number} network{'' if number == 1 else 's'} ({methods})")
    text = "; ".join(parts)
    return f"{text}." if text else ""


def _images(number: int, size: int, kind: str, labels: int) -> str:
    return f"{number:,} images of {size} px with {labels} {'classes' if kind == 'categorical' else 'attributes'}"


def absent(run: Run, task: Task | None) -> list[str]:
    """What this run does not have, so that nobody looks for it."""
    lines = []
    makers = {
        "posterior": "nogs posterior train",
        "bank": "nogs bank build",
        "sequences": "nogs annotate",
        "networks": "nogs train",
    }
    missing = [name for name, there in run.has.items() if not there]
    if missing:
        named = ", ".join(f"{name} ({makers[name]})" for name in missing)
        lines.append(f"Not in this run: {named}.")
    if task is None:
        lines.append("The images were not at hand (--data), so there is no gallery and no figure that shows images.")
    annotated = [one for one in run.sequences if "evaluations" in one.done]
    if annotated and not any((one.folder / "maps.safetensors").is_file() for one in annotated):
        lines.append(
            "Maps of expected posterior entropy were not kept, apart from the first; --design.keep-maps of nogs "
            "annotate keeps them."
        )
    return lines


def bars(found: Verdict | None) -> list[dict[str, Any]]:
    """Every way to look as a bar, the one that the verdict leads with marked."""
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
    """A sentence whose flags stand out, and are not broken in two."""
    return Markup(re.sub(r"--[a-z][\w.-]*(?: \d+)*", r"<code>\g<0></code>", str(escape(text))))


def steps(looks: dict[str, Any]) -> str:
    """A word for what the gallery's images are of."""
    labels = {image["label"] for image in looks["images"] if image["label"]}
    return f"{len(looks['images'])} pictures" + (f" of {len(labels)} classes" if len(labels) > 1 else "")


def inert(value: Any) -> str:
    """JSON that can't end the script element that holds it."""
    return json.dumps(value, default=plain, separators=(",", ":")).replace("<", "\\u003c")


def slugs(names: Iterable[str]) -> list[str]:
    """Names fit for files and anchors, all different."""
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
