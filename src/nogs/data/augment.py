"""The fields of random changes of training images, for training with few images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from torch import Tensor

    from nogs.glimpse.changes import Changes

__all__ = ["AugmentConfig"]


class AugmentConfig(BaseModel):
    """Largest random changes of training images, drawn anew at each use; by default none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    zoom: float = Field(0.0, ge=0, lt=1)
    """Relative change of size."""
    zoom_in: float | None = Field(None, ge=0, le=4)
    """Largest relative enlargement; by default that of `zoom`."""
    turn: float = Field(0.0, ge=0, le=180)
    """Degrees of rotation."""
    move: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Shift in px."""
    colour: float = Field(0.0, ge=0, lt=1)
    """Relative change of each channel's brightness."""
    contrast: float = Field(0.0, ge=0, lt=1)
    """Relative change of contrast and of saturation; brightness changes by a quarter of it."""

    def draw(self, key: int, counter: Int64[Tensor, " B"]) -> Changes | None:
        """The change that each counter draws from the stream `key`; None if nothing changes."""
        from nogs.glimpse.changes import draw_changes  # recipes are read without torch

        if not any(self.model_dump().values()):
            return None
        return draw_changes(
            key,
            counter,
            zoom=(self.zoom, self.zoom if self.zoom_in is None else self.zoom_in),
            turn=self.turn,
            move=self.move,
            colour=self.colour,
            contrast=self.contrast,
        )
