"""Recipes: the frozen configuration of an experiment, by name or from a YAML file.

In: `digits`, `celeba-hq`, `cub`, `folder`, or a file with a recipe's fields. Out: a `Recipe`, whose fields are also the
dotted flags of every command. A file may start from a built-in recipe and state only what differs:

    base: celeba-hq
    name: smaller-glimpses
    data: {glimpse: 12}
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from nogs.recipes.recipe import Recipe, changed, validated
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_yaml

__all__ = ["Recipe", "changed", "names", "recipe", "validated"]

_MODULES = {name: f"nogs.recipes.{name.replace('-', '_')}" for name in ("digits", "celeba-hq", "cub", "folder")}


def names() -> tuple[str, ...]:
    """Names of the built-in recipes."""
    return tuple(_MODULES)


def recipe(name_or_path: str | Path, *, other: str = "") -> Recipe:
    """A built-in recipe by its name, or one from a YAML file; `other` is what the caller takes too."""
    name = str(name_or_path)
    if name in _MODULES:
        return _built_in(name)
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        return _from_file(path)
    raise InputError(f"There is no recipe {name!r}{_closest(name)}; choose {_choices()}, or a .yaml file{other}.")


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
    """`above` laid over `below`, part by part."""
    both = {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {**below, **both}


def _closest(name: str) -> str:
    close = difflib.get_close_matches(name, _MODULES, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _choices() -> str:
    *first, last = _MODULES
    return f"{', '.join(first)} or {last}"
