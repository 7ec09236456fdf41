"""A network that was found, and the names of the files in a packed folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CONFIG", "WEIGHTS", "Found"]

WEIGHTS = "model.safetensors"
"""The network's file in a packed folder."""
CONFIG = "config.json"
"""What a packed folder says about it for programs that don't read its header."""


@dataclass(frozen=True)
class Found:
    """A network's file, its name in the run, the run's `data` fields (none if unknown), why this one, and which
    attribute of it is meant (None: its only one, or all)."""

    path: Path
    name: str
    data: dict[str, Any]
    why: str
    attribute: str | None = None

    @property
    def folder(self) -> Path:
        """Where the network's own files lie: evaluation, metrics, locations."""
        return self.path.parent
