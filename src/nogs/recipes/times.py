"""`Expected`, the estimated time of a stage; and seconds in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Expected", "about", "clock"]


@dataclass(frozen=True)
class Expected:
    """Seconds of a stage: those that grow with its training iterations, and the others."""

    stage: str
    training: float
    other: float

    @property
    def seconds(self) -> float:
        """The total."""
        return self.training + self.other


def about(seconds: float) -> str:
    """An estimate of seconds in words."""
    return clock(seconds) if seconds < 10 else f"about {clock(seconds)}"


def clock(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"{math.ceil(seconds / 10) * 10} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{round(2 * minutes) / 2 if minutes < 5 else round(minutes):g} minutes"
    return f"{minutes / 60:.1f} hours"
