"""Recipes: the frozen configuration of an experiment, by name or from a YAML file.

In: `digits`, `celeba-hq`, `cub`, `folder`, or a file with a recipe's fields. Out: a `Recipe`, whose fields are also the
dotted flags of every command. A file may start from a built-in recipe and state only what differs:

    base: celeba-hq
    name: smaller-glimpses
    data: {glimpse: 12}
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nogs.recipes.recipe import Recipe, changed, validated
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import read_yaml
from nogs.runtime.spelling import closest, nearby

__all__ = ["Recipe", "changed", "names", "recipe", "validated"]

_MODULES = {name: f"nogs.recipes.{name.replace('-', '_')}" for name in ("digits", "celeba-hq", "cub", "folder")}


def names() -> tuple[str, ...]:
    """Names of the built-in recipes."""
    return tuple(_MODULES)


def recipe(name_or_path: str | Path, *, or_pictures: bool = False) -> Recipe:
    """A built-in recipe by its name, or one from a YAML file; with `or_pictures` an error also suggests a folder of
    pictures."""
    name = str(name_or_path)
    if name in _MODULES:
        return _built_in(name)
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return _from_file(path)
    if or_pictures and path.is_file():
        raise InputError(f"{name} is neither a recipe (.yaml) nor a folder of pictures; unpack it if it holds some.")
    what, other = (" or folder", ", or a folder of pictures") if or_pictures else ("", "")
    meant = _closest(name)
    if or_pictures and not meant and (near := nearby(path)):
        meant = f" (did you mean {str(near)!r}?)"
    raise InputError(f"There is no recipe{what} {name!r}{meant}; choose {_choices()}, or a .yaml file{other}.")


def of_run(run: Path) -> Recipe:
    """The recipe of a run that is to be resumed. A run writes every field, so one that lacks some was cut, and its
    defaults would be another recipe."""
    path = run / "recipe.yaml"
    found = _from_file(path)
    given = dotted(read_yaml(path))
    lacking = [name for name in dotted(found.model_dump(mode="json")) if name not in given]
    if lacking and (run / "run.json").is_file():
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise InputError(
            f"{path} is incomplete: it lacks {lacking[0]}{more}; bring it back from a copy, or delete it and give the "
            f"run's original command, with --out {run}."
        )
    return found


def _built_in(name: str) -> Recipe:
    found: Recipe = import_module(_MODULES[name]).RECIPE
    return found


def _from_file(path: Path) -> Recipe:
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a recipe's fields (name, data, ...), but holds {values!r}.")
    values = {"name": path.stem, **values}
    base = values.pop("base", None)
    if base is not None:
        if base not in names():
            raise InputError(f"{path}: base is {base!r}{_closest(str(base))}; it must be {_choices()}.")
        values = _merged(_built_in(base).model_dump(mode="json"), values)
    return validated(values, source=str(path))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below`, updated part by part with `above`."""
    both = {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {**below, **both}


def _closest(name: str) -> str:
    close = closest(name, _MODULES)
    return f" (did you mean {close!r}?)" if close else ""


def _choices() -> str:
    *first, last = _MODULES
    return f"{', '.join(first)} or {last}"
