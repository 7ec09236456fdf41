"""Fields of a configuration: by their dotted names, and those on which a result depends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["differing", "dotted", "telling"]


def dotted(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    out: dict[str, Any] = {}
    for name, item in value.items():
        out |= dotted(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return out


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the fields that have another value in one than in the other, or none."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def telling(config: BaseModel, *, later: Mapping[str, Any], exclude: Collection[str] = ()) -> dict[str, Any]:
    """All fields but `exclude`, and but those that came `later` and have the value that changes nothing, so that what
    was made before there were such fields is not taken for something else."""
    plain = {name for name, value in later.items() if getattr(config, name) == value}
    return config.model_dump(mode="json", exclude=plain.union(exclude))
