"""The architecture of a hard-attention network, which its embedder and its fast path use too."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nogs.attention.config import AttentionConfig
from nogs.glimpse import Grid

SHAPING = ("embedder", "embedder_network", "embedder_layers", "hidden", "embedding")
"""Fields of a recipe that an architecture has too."""


@dataclass(frozen=True)
class Architecture:
    """Everything that determines the shapes and the arithmetic of a network; stored with its weights."""

    grid: Grid
    glimpses: int
    labels: int
    embedder: str = "paper"
    embedder_network: str = "vgg16"
    embedder_layers: int = 12
    hidden: int = 64
    embedding: int = 64
    location_hidden: int = 32

    @classmethod
    def of(cls, config: AttentionConfig, *, grid: Grid, glimpses: int, labels: int) -> Architecture:
        """The architecture that a recipe asks for."""
        return cls(grid, glimpses, labels, **{name: getattr(config, name) for name in SHAPING})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "grid": self.grid.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Architecture:
        """Inverse of `to_json`."""
        return cls(**{**value, "grid": Grid.from_json(value["grid"])})
