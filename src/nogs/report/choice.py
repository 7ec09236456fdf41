"""Which images a page shows: some of every class, right and wrong ones in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nogs.data.task import Task

__all__ = ["class_of", "spread"]


def class_of(task: Task, id: str, attribute: str | None = None) -> str:
    """The class of an image; with attributes, whether it has this one, or nothing if none is given."""
    label = task.labels[task.position[id]]
    if task.space.kind == "categorical":
        return task.space.names[int(label)]
    if attribute is None:
        return ""
    return f"{'' if label[task.attribute(attribute)] else 'not '}{attribute.replace('_', ' ')}"


def spread(
    task: Task,
    ids: Sequence[str],
    number: int,
    *,
    attribute: str | None = None,
    right: Mapping[str, bool] | None = None,
) -> list[str]:
    """`number` of the ids: one of each class before a second of any; classes that don't fit are left out evenly.

    If `right` says which ones a network gets right, right and wrong ones alternate, within a class and from one class
    to the next. The order is by class.
    """
    known = right or {}
    by_class: dict[str, list[str]] = {}
    for id in ids:
        by_class.setdefault(class_of(task, id, attribute), []).append(id)
    names = sorted(by_class, key=_place(task))
    if number < len(names):
        names = [names[n * len(names) // number] for n in range(number)]
    queues = {name: _in_turn(by_class[name], known, wrong_first=n % 2 == 1) for n, name in enumerate(names)}
    taken: dict[str, list[str]] = {name: [] for name in names}
    left = number
    while left > 0 and any(queues.values()):
        for name in names:
            if queues[name] and left > 0:
                taken[name].append(queues[name].pop(0))
                left -= 1
    return [id for name in names for id in taken[name]]


def _in_turn(ids: Sequence[str], right: Mapping[str, bool], *, wrong_first: bool) -> list[str]:
    good, bad = ([id for id in ids if right.get(id, True) is value] for value in (True, False))
    out = []
    for turn in range(2 * len(ids)):
        queue, other = (bad, good) if (turn + wrong_first) % 2 else (good, bad)
        if queue or other:
            out.append((queue or other).pop(0))
    return out


def _place(task: Task) -> Callable[[str], tuple[int, str]]:
    places = {name: n for n, name in enumerate(task.space.names)}
    return lambda name: (places.get(name, 0), name)
