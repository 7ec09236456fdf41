"""Fields of a configuration by their dotted names, and those that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["differing", "dotted"]


def dotted(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    out: dict[str, Any] = {}
    for name, item in value.items():
        out |= dotted(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return out


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the fields whose values differ, or that only one of the two has."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]
