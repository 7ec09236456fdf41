"""What the page's gallery needs: some images, and everyone who looked at them, step by step, with a map for each step.

Maps travel as one byte a location: 0 for what was not tried, 1 to 255 from worst to best, so that the brightest is
where one would look.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from nogs.attention.cohort import Member, member_labels
from nogs.attention.store import load_network
from nogs.data.task import Task
from nogs.report.contents import Network, Run, SequenceSet
from nogs.report.methods import chosen_networks
from nogs.report.pictures import data_uri
from nogs.report.plates import stored_locations
from nogs.report.rollouts import Trace, trace

__all__ = ["gallery"]

NETWORKS, SETS = 6, 3
"""Networks and sets of sequences of a run that look at each image of the gallery."""
_SHARP = 96  # px: smaller images are stored without loss


def gallery(runs: Sequence[tuple[Run, Task]], *, images: int, link: Any) -> dict[str, Any] | None:
    """The first `images` of a task that have a sequence and as many test images, for runs of that one task.

    `link` turns a file's path into the page's address of it. None where nothing looked at anything.
    """
    task = runs[0][1]
    named = [
        (f"{run.name}: " if len(runs) > 1 else "", run) for run, other in runs if other.fingerprint == task.fingerprint
    ]
    sets = [(prefix, one) for prefix, run in named for one in _sets(run, task)]
    networks = [(prefix, one) for prefix, run in named for one in chosen_networks(run, most=NETWORKS)]
    if not sets and not networks:
        return None
    taught = list(dict.fromkeys(id for _, one in sets for id in one.sequences.ids if id in task.position))
    split = {id: name for name in ("train", "validation", "test") for id in task.splits[name]}
    ids = [*taught[:images], *(task.splits["test"][:images] if networks else ())]
    looks: dict[str, list[dict[str, Any]]] = {id: [] for id in ids}
    for prefix, one in sets:
        maps = one.maps()
        column = None if one.sequences.attribute is None else task.attribute(one.sequences.attribute)
        first = one.first_map(column)
        for id in ids:
            if id in one.sequences.position:
                looks[id].append(
                    _sequence(one, id, prefix, maps, first) | {"source": link(one.folder / "sequences.jsonl")}
                )
    for prefix, network in networks:
        for id, look in _rollouts(network, task, ids, prefix):
            looks[id].append(look | {"source": link(network.folder / "evaluation.json")})
    grid = task.grid
    return {
        "task": task.title,
        "grid": grid.to_json(),
        "steps": max(len(look["pixels"]) for all_ in looks.values() for look in all_),
        "images": [
            {
                "id": id,
                "label": _label(task, id),
                "split": "test image" if split.get(id) == "test" else "training image",
                "src": _encoded(task.images[task.position[id]]),
                "looks": looks[id],
            }
            for id in ids
            if looks[id]
        ],
        "colours": _lookup(),
    }


def _sets(run: Run, task: Task) -> Iterable[SequenceSet]:
    shown = {network.attribute for network in chosen_networks(run, most=NETWORKS)}
    fitting = [one for one in run.sequences if one.sequences.grid == task.grid]
    return sorted(fitting, key=lambda one: one.sequences.attribute not in shown)[:SETS]


def _sequence(
    one: SequenceSet,
    id: str,
    prefix: str,
    maps: Float[np.ndarray, "N T L"] | None,
    first: Float[np.ndarray, " L"] | None,
) -> dict[str, Any]:
    sequences, place = one.sequences, one.sequences.position[id]
    steps = list(maps[place]) if maps is not None else [first, *[None] * (sequences.length - 1)]
    shown = [None if values is None else _quantised(values, least=True) for values in steps]
    about = f" for {sequences.attribute}" if sequences.attribute else ""
    return {
        "who": f"{prefix}{one.name} sequence{about}",
        "kind": "sequence",
        "pixels": sequences.locations[place].tolist(),
        "maps": shown,
        "entropy": _numbers(sequences.entropy_before, place),
        "epe": _numbers(sequences.epe, place),
        "error": _numbers(sequences.epe_error, place),
    }


def _rollouts(network: Network, task: Task, ids: Sequence[str], prefix: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """The network on each image: on test images the first trajectory of its evaluation, elsewhere a new one."""
    loaded, about = load_network(network.folder / "best-accuracy.safetensors")
    if loaded.architecture.grid != task.grid:
        return
    test = set(task.splits["test"])
    labels = member_labels(task, Member(network.method, attribute=network.attribute))
    for part in ([id for id in ids if id in test], [id for id in ids if id not in test]):
        if not part:
            continue
        known = stored_locations(network, task, part) if part[0] in test else None
        found = trace(loaded, task.images[task.rows(part)], part, locations=known, seed=network.learned.seed)
        for n, id in enumerate(part):
            look = _rollout(network, found, n, about["labels"], int(labels[task.position[id]]), prefix, task)
            yield id, look


def _rollout(
    network: Network, found: Trace, n: int, names: Sequence[str], truth: int, prefix: str, task: Task
) -> dict[str, Any]:
    about = f" for {network.attribute}" if network.attribute else ""
    answers = []
    for probabilities in found.answers[n, 1:]:
        best = np.argsort(-probabilities, kind="stable")[:4]
        answers.append([[names[k], round(float(probabilities[k]), 3)] for k in best])
    return {
        "who": f"{prefix}{network.learned.method}{about}, seed {network.learned.seed}",
        "kind": "network",
        "pixels": task.grid.pixels[found.locations[n]].tolist(),
        "maps": [_quantised(policy, least=False) for policy in found.policies[n]],
        "answers": answers,
        "truth": names[truth],
    }


def _quantised(values: Float[np.ndarray, " L"], *, least: bool) -> dict[str, Any]:
    """A map as bytes with its range. Of entropies the least is the best; probabilities are shown by their root."""
    known = np.isfinite(values)
    low, high = float(values[known].min()), float(values[known].max())
    scaled = (values - low) / max(high - low, 1e-12) if least else np.sqrt(np.maximum(values, 0) / max(high, 1e-12))
    strength = np.where(known, 1 + np.round(254 * np.clip(1 - scaled if least else scaled, 0, 1)), 0)
    data = base64.b64encode(np.nan_to_num(strength).astype(np.uint8).tobytes()).decode()
    return {"data": data, "low": round(low, 4) if least else 0, "high": round(high, 4)}


def _numbers(values: np.ndarray | None, place: int) -> list[float] | None:
    return None if values is None else [round(float(value), 4) for value in values[place]]


def _label(task: Task, id: str) -> str:
    label = task.labels[task.position[id]]
    return task.space.names[int(label)] if task.space.kind == "categorical" else ""


def _encoded(image: UInt8[np.ndarray, "H W 3"]) -> str:
    out = io.BytesIO()
    picture = Image.fromarray(np.ascontiguousarray(image))
    if max(image.shape[:2]) <= _SHARP:
        picture.save(out, "PNG", optimize=True)
        return data_uri(out.getvalue(), "png")
    picture.save(out, "JPEG", quality=90, subsampling=0)
    return data_uri(out.getvalue(), "jpeg")


def _lookup() -> str:
    """Colours of the strengths 0 to 255, as bytes: the map that the figures use."""
    from matplotlib import colormaps

    from nogs.report.drawing import LOOKED

    table = (255 * colormaps[LOOKED](np.linspace(0, 1, 256))[:, :3]).round().astype(np.uint8)
    return base64.b64encode(table.tobytes()).decode()
