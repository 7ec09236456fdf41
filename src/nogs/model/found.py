"""A network that was found, and the names of the files in a packed folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CONFIG", "WEIGHTS", "Found"]

WEIGHTS = "model.safetensors"
"""The network's file in a packed folder."""
CONFIG = "config.json"
"""The description of the network for programs that don't read its header."""


@dataclass(frozen=True)
class Found:
    """A network's file, its name in the run, the run's `data` fields (none if unknown), the reason for the choice, and
    the selected attribute (None: its only one, or all)."""

    path: Path
    name: str
    data: dict[str, Any]
    why: str
    attribute: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the network's own files: evaluation, metrics, locations."""
        return self.path.parent
