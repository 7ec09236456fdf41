"""Folders of pictures to classify: their true classes where folders are classes, and how many answers are right."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nogs.data.archives import IMAGE_SUFFIXES, walk
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json, read_sealed, write_text
from nogs.runtime.spelling import closest

if TYPE_CHECKING:
    from nogs.model.answers import Answer

__all__ = ["Asked", "pictures", "summary", "write_csv"]

_COLUMNS = ("image", "label", "probability", "true", "right", "split", "glimpses", "pixels_read")
_LEARNT = ("train", "validation")
_NAMED = 5  # folders that are no class


@dataclass(frozen=True)
class Asked:
    """A picture's file, its class where a folder names it, and its split in the run, if any; `unknown` is the picture's
    folder where no folder names its class."""

    path: Path
    true: str | None = None
    split: str | None = None
    unknown: str | None = None


def pictures(paths: Iterable[Path], *, labels: Sequence[str], run: Path | None = None) -> list[Asked]:
    """The files among `paths`, and every picture below the folders among them; one without pictures is refused.

    A picture's class is the nearest folder above it whose name is one of the `labels`.
    """
    home, splits = _splits(run)
    out = []
    for path in paths:
        if not path.is_dir():
            out.append(Asked(path))
            continue
        found = list(walk(path))
        if not found:
            raise InputError(
                f"There is no picture in {path} ({', '.join(IMAGE_SUFFIXES)}); give a folder that has some."
            )
        for entry in found:
            above = (path.resolve().name, *PurePosixPath(entry.name).parts[:-1])
            true = next((name for name in reversed(above) if name in labels), None)
            place = Path(entry.path).resolve()
            own = home is not None and place.is_relative_to(home)
            split = splits.get(place.relative_to(home).as_posix()) if own and home is not None else None
            out.append(Asked(Path(entry.path), true, split, above[-1] if labels and true is None else None))
    return out


def summary(rows: Sequence[tuple[Asked, Answer]]) -> list[str]:
    """How many answers are right, in all and by class, of pictures whose class is known; pictures that the network was
    trained or selected on are counted separately."""
    known = [(one, answer.label == one.true) for one, answer in rows if one.true is not None]
    labels = rows[0][1].probabilities if rows else ()
    left_out = _left_out([one for one, _ in rows], labels=labels, scored=bool(known))
    if not known:
        return left_out
    right = sum(right for _, right in known)
    lines = [
        f"Accuracy {right / len(known):.1%}: {right:,} of the {len(known):,} pictures in folders named like classes "
        "are right"
    ]
    learnt = [right for one, right in known if one.split in _LEARNT]
    if learnt:
        new = [right for one, right in known if one.split not in _LEARNT]
        rest = f"of the others {_share(new)}" if new else "there are no others"
        lines.append(f"  the network was trained or chosen on {len(learnt):,} of them; {rest}")
        known = [(one, right) for one, right in known if one.split not in _LEARNT] or known
    names = list(dict.fromkeys(str(one.true) for one, _ in known))
    if len(names) > 1:
        width = max(map(len, names)) + 2
        lines += [f"  {name:<{width}}{_share([right for one, right in known if one.true == name])}" for name in names]
    return lines + left_out


def _left_out(asked: Sequence[Asked], *, labels: Iterable[str], scored: bool) -> list[str]:
    """Which folders are no class, the misspelt ones first; where nothing is `scored`, only misspelt ones matter."""
    unknown = [one.unknown for one in asked if one.unknown is not None]
    meant = {name: closest(name, labels) for name in dict.fromkeys(unknown)}
    if not meant or not (scored or any(meant.values())):
        return []
    names = [f"{name} (did you mean {close!r}?)" for name, close in meant.items() if close]
    names += [name for name, close in meant.items() if not close]
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return [f"Not scored: {len(unknown):,} of {len(asked):,} pictures, in folders that are no class: {shown}"]


def write_csv(path: Path, rows: Sequence[tuple[Asked, Answer]]) -> None:
    """A row for each picture; `true`, `right` and `split` are empty where they are not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one, answer in rows:
        right = "" if one.true is None else int(answer.label == one.true)
        share = f"{answer.probability:.4f}"
        row = [one.path, answer.label, share, one.true or "", right, one.split or "", len(answer.locations)]
        writer.writerow([*row, f"{answer.pixels_read:.4f}"])
    write_text(path, out.getvalue())


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right):,} of {len(right):,} right ({sum(right) / len(right):.1%})"


def _splits(run: Path | None) -> tuple[Path | None, dict[str, str]]:
    """The folder of a run's own pictures, and the split of each by its id; nothing where that is not known."""
    local, path = (None, None) if run is None else (run / "local.json", run / "data" / "splits.json")
    if local is None or path is None or not local.is_file() or not path.is_file():
        return None, {}
    home, found = read_sealed(local).get("data"), read_json(path)
    splits = found.get("splits", {}) if isinstance(found, dict) else {}
    by_id = {str(id): name for name in ("train", "validation", "test") for id in splits.get(name, ())}
    return (Path(home).resolve() if isinstance(home, str) else None), by_id
