"""Nested fields by their dotted names, as flags and messages spell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["dotted"]


def dotted(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    out: dict[str, Any] = {}
    for name, item in value.items():
        out |= dotted(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return out
