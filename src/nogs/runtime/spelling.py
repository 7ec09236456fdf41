"""Suggestions for misspelt names of attributes, methods, recipes, fields, flags and commands."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["closest", "instead", "instead_of_run", "nearby", "without_networks"]


_NAMED = 5  # runs that a sentence names


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to `word`, if one is similar; case is ignored."""
    spelt = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), spelt, n=1)
    return spelt[found[0]] if found else None


def instead(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """The end of a sentence about an unknown name: a suggestion, or `otherwise`."""
    close = closest(word, known)
    return otherwise if close is None else f"did you mean {close!r}?"


def nearby(folder: Path, *, has: str = "") -> Path | None:
    """The folder beside `folder`, which does not exist, whose name is closest, if one is similar and has the file
    `has`."""
    try:
        beside = os.listdir(folder.parent)
    except OSError:
        return None
    folders = [folder.parent / name for name in beside if os.path.isdir(folder.parent / name)]
    # os.path.exists is False, where Path's own raises, for what lies in a folder that others have closed
    close = closest(folder.name, [path.name for path in folders if os.path.exists(path / has)])
    return None if close is None else folder.parent / close


def instead_of_run(folder: Path, *, otherwise: str, has: str = "run.json") -> str:
    """The end of a sentence about a folder that is not a run: the run of that name or a similar one, else those in it
    or its `runs` that have the file `has`, else `otherwise`."""
    run = Path("runs") / folder.name
    if folder.name and run.is_dir() and not (folder.exists() and run.samefile(folder)):
        return f"did you mean {run}?"
    if not folder.exists() and (near := nearby(folder, has=has)):
        return f"did you mean {near}?"
    inside = sorted(path.parent for place in (folder, folder / "runs") for path in place.glob(f"*/{has}"))
    if not inside:
        return otherwise
    more = f" or {len(inside) - _NAMED} more" if len(inside) > _NAMED else ""
    one_of = "one of " if len(inside) > 1 else ""
    return f"did you mean {one_of}{', '.join(map(str, inside[:_NAMED]))}{more}?"


def without_networks(run: Path) -> str:
    """The sentence about a folder that holds no trained networks: how to train them there, or which run was meant."""
    recipe = run / "recipe.yaml"
    train = f"train them with nogs run {recipe}" if recipe.is_file() else "make some with nogs train ..."
    return f"{run} holds no trained networks; {instead_of_run(run, otherwise=f'{train} --out {run}.')}"
