"""Data of the page's gallery: some images, and networks and sequences on them, with a map for each step.

Maps are stored as one byte per location: 0 where nothing was computed, 1 to 255 from worst to best. So the brightest
location is the one to look at.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image

from nogs.data.task import Task
from nogs.design.steps import Tools
from nogs.report.choice import class_of, spread
from nogs.report.contents import Run, SequenceSet
from nogs.report.lookers import Looker, looker
from nogs.report.methods import chosen_networks
from nogs.report.pictures import data_uri
from nogs.report.results import title
from nogs.report.rollouts import Trace

__all__ = ["LINES", "Shown", "drawn", "gallery", "opening", "usual"]

NETWORKS, SETS = 6, 3
"""The most networks and sets of sequences of a run that the gallery shows."""
IMAGES, MOST = 24, 60
"""Default number of test images: this many, or one of each class, but at most `MOST`."""
COMPLETIONS = 4
LINES = 8
"""The most lines in the chart of the classes' probabilities."""
_SHARP = 96  # px: smaller images are stored without loss


@dataclass(frozen=True)
class Shown:
    """A run in the gallery: its task, its networks opened, and what completes its glimpses."""

    run: Run
    task: Task
    tools: Tools | None = None
    best: Looker | None = None

    def lookers(self) -> list[Looker]:
        """The networks to show, the recommended one first."""
        best = None if self.best is None else (self.best.network.learned.method, self.best.network.attribute)
        chosen = chosen_networks(self.run, most=NETWORKS)
        found = [looker(n, self.task) for n in chosen if (n.learned.method, n.attribute) != best]
        return [one for one in (self.best, *found) if one is not None]


def gallery(shown: Sequence[Shown], *, images: int | None, link: Callable[[Path], str]) -> dict[str, Any] | None:
    """`images` test images of the runs' task, and half as many that have a sequence: of all classes, right and wrong.

    `link` gives the page's address of a file. None if there are no networks and no sequences.
    """
    task = shown[0].task
    same = [one for one in shown if one.task.fingerprint == task.fingerprint]
    prefixes = [f"{one.run.name}: " if len(shown) > 1 else "" for one in same]
    networks = [(prefix, one) for prefix, run in zip(prefixes, same) for one in run.lookers()]
    sets = [(prefix, run, one) for prefix, run in zip(prefixes, same) for one in _sets(run, task)]
    if not sets and not networks:
        return None
    first = networks[0][1] if networks else None
    attribute = first.network.attribute if first else None
    number = usual(task) if images is None else images
    tests: list[str] = []
    right: dict[str, bool] = {}
    if first is not None:
        right = dict(zip(first.tested, first.right.tolist()))
        tests = spread(task, first.tested, number, attribute=attribute, right=right)
    taught = list(dict.fromkeys(id for _, _, one in sets for id in one.sequences.ids if id in task.position))
    half = max(1, number // 2 if tests else number)
    few = half if images is not None else max(half, min(_classes(task), MOST))
    examples = spread(task, taught, few, attribute=attribute)
    ids = [*tests, *(id for id in examples if id not in tests)]
    looks: dict[str, list[dict[str, Any]]] = {id: [] for id in ids}
    for prefix, one in networks:
        for id, look in _rollouts(one, ids, prefix):
            looks[id].append(look | {"source": link(one.network.folder / "evaluation.json")})
    for prefix, run, known in sets:
        for id, look in _sequences(known, [id for id in ids if id in known.sequences.position], prefix, run):
            looks[id].append(look | {"source": link(known.folder / "sequences.jsonl")})
    test = set(task.splits["test"])
    return {
        "task": task.title,
        "grid": task.grid.to_json(),
        "images": [
            {
                "id": id,
                "label": class_of(task, id, attribute).replace("_", " "),
                "split": "test picture" if id in test else "picture with a sequence",
                "right": right.get(id),
                "src": encoded(task.images[task.position[id]]),
                "looks": drawn(looks[id]),
            }
            for id in ids
            if looks[id]
        ],
        "colours": _lookup(),
    }


def usual(task: Task) -> int:
    """The default number of test images."""
    return max(IMAGES, min(_classes(task), MOST))


def _classes(task: Task) -> int:
    return len(task.space.names) if task.space.kind == "categorical" else 2


def opening(found: dict[str, Any]) -> int:
    """The image that the page opens on: the first test image that the best network gets right, if there is one."""
    images = found["images"]
    return next((n for n, image in enumerate(images) if image["right"]), 0)


def _sets(shown: Shown, task: Task) -> Iterable[SequenceSet]:
    attributes = {network.attribute for network in chosen_networks(shown.run, most=NETWORKS)}
    fitting = [one for one in shown.run.sequences if one.sequences.grid == task.grid]
    return sorted(fitting, key=lambda one: one.sequences.attribute not in attributes)[:SETS]


def _sequences(one: SequenceSet, ids: Sequence[str], prefix: str, shown: Shown) -> Iterable[tuple[str, dict[str, Any]]]:
    sequences, task = one.sequences, shown.task
    maps = one.maps()
    first = one.first_map(None if sequences.attribute is None else task.attribute(sequences.attribute))
    about = f" for {sequences.attribute.replace('_', ' ')}" if sequences.attribute else ""
    strips = _completions(shown.tools, task, ids, sequences.locations[sequences.rows(ids)]) if ids else []
    for n, id in enumerate(ids):
        place = sequences.position[id]
        steps = list(maps[place]) if maps is not None else [first, *[None] * (sequences.length - 1)]
        yield (
            id,
            {
                "who": f"{prefix}{one.name} sequence{about}",
                "kind": "sequence",
                "pixels": sequences.locations[place].tolist(),
                "maps": [None if values is None else _quantised(values, least=True) for values in steps],
                "completions": [strip[n] for strip in strips],
                "entropy": _numbers(sequences.entropy_before, place),
                "epe": _numbers(sequences.epe, place),
                "error": _numbers(sequences.epe_error, place),
            },
        )


def _completions(tools: Tools | None, task: Task, ids: Sequence[str], pixels: np.ndarray) -> list[list[str]]:
    """For each step and image the most likely completions of the glimpses before it, side by side in one picture."""
    if tools is None:
        return []
    images = torch.from_numpy(np.array(task.images[task.rows(ids)])).to(tools.device)
    out = []
    for t in range(pixels.shape[1]):
        found = tools.completion.complete(images, torch.from_numpy(pixels[:, :t].astype(np.int64)), ids=list(ids))
        strips = []
        for n in range(len(ids)):
            likeliest = found.weights_of(n).argsort(descending=True, stable=True)[:COMPLETIONS]
            strips.append(encoded(np.concatenate(list(found.images(n)[likeliest].cpu().numpy()), 1), small=True))
        out.append(strips)
    return out


def _rollouts(one: Looker, ids: Sequence[str], prefix: str) -> Iterable[tuple[str, dict[str, Any]]]:
    test = set(one.task.splits["test"])
    for part in ([id for id in ids if id in test], [id for id in ids if id not in test]):
        found = one.look(part) if part else None
        for n, id in enumerate(part):
            assert found is not None
            yield id, _rollout(one, found, n, int(one.truth[one.task.position[id]]), prefix)


def _rollout(one: Looker, found: Trace, n: int, truth: int, prefix: str) -> dict[str, Any]:
    network, answers = one.network, found.answers[n]
    names = [name.replace("_", " ") for name in one.labels]
    about = f" for {network.attribute.replace('_', ' ')}" if network.attribute else ""
    return {
        "who": f"{prefix}{title(network.learned.method)}{about}",
        "kind": "network",
        "pixels": one.task.grid.pixels[found.locations[n]].tolist(),
        "maps": [_quantised(policy, least=False) for policy in found.policies[n]],
        "greedy": one.loaded.policy == "argmax",
        "names": names,
        "beliefs": answers,
        "answers": [[names[int(p.argmax())], round(float(p.max()), 3)] for p in answers],
        "truth": names[truth],
    }


def drawn(looks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Looks at one image, each with the lines of its chart: the true class, then the others, as far as they fit.

    If they are more than `LINES`, the last line is the sum of the less probable ones. Networks share the order, so that
    a class keeps its colour.
    """
    out = []
    for look in looks:
        if "beliefs" in look:
            names, truth = look["names"], look["names"].index(look["truth"])
            alike = [one["beliefs"] for one in looks if one.get("names") == names and one["truth"] == look["truth"]]
            most = np.max([answers.max(0) for answers in alike], 0)
            most[[answers[-1].argmax() for answers in alike]] += 1  # the networks' answers come first
            most[truth] = np.inf
            order = np.argsort(-most, kind="stable").tolist()
            kept = order if len(order) <= LINES else order[: LINES - 1]
            rest = order[len(kept) :]
            named = [names[k] for k in kept]
            beliefs = [[round(float(p[k]), 3) for k in kept] for p in look["beliefs"]]
            if rest:
                named.append("all others")
                beliefs = [[*row, round(float(p[rest].sum()), 3)] for row, p in zip(beliefs, look["beliefs"])]
            look = {**look, "names": named, "beliefs": beliefs}
        out.append(look)
    return out


def _quantised(values: Float[np.ndarray, " L"], *, least: bool) -> dict[str, Any]:
    """A map as bytes, with its range. The least entropy is the best; probabilities are shown by their square root."""
    known = np.isfinite(values)
    low, high = float(values[known].min()), float(values[known].max())
    scaled = (values - low) / max(high - low, 1e-12) if least else np.sqrt(np.maximum(values, 0) / max(high, 1e-12))
    strength = np.where(known, 1 + np.round(254 * np.clip(1 - scaled if least else scaled, 0, 1)), 0)
    data = base64.b64encode(np.nan_to_num(strength).astype(np.uint8).tobytes()).decode()
    return {"data": data, "low": round(low, 4) if least else 0, "high": round(high, 4)}


def _numbers(values: np.ndarray | None, place: int) -> list[float] | None:
    return None if values is None else [round(float(value), 4) for value in values[place]]


def encoded(image: UInt8[np.ndarray, "H W 3"], *, small: bool = False) -> str:
    """A picture as an address that holds it; a `small` one is at most `_SHARP` px high, and compressed."""
    out = io.BytesIO()
    picture = Image.fromarray(np.ascontiguousarray(image))
    height = image.shape[0]
    if small and height > _SHARP:
        picture = picture.resize((round(picture.width * _SHARP / height), _SHARP), Image.Resampling.LANCZOS)
    if height <= _SHARP and not small:
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
