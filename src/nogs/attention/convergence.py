"""How fast a network learned: the paper's iterations to convergence, and iterations to another run's best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

TOLERANCE = {"nll": 0.01, "accuracy": 0.01}


def iterations_to_convergence(
    iterations: Sequence[int], values: Sequence[float], *, rule: Literal["nll", "accuracy"], smooth: int = 1
) -> int | None:
    """The first validation whose NLL is within 0.01 nats of the best, or whose accuracy is within 0.01 of it.

    With `smooth` > 1 the curve is first averaged over that many neighbouring validations (fewer at its ends), so that a
    single lucky validation matters less.
    """
    curve = smoothed(values, smooth)
    if not np.isfinite(curve).any():
        return None
    if rule == "nll":
        return iterations_to_reach(iterations, curve, np.nanmin(curve) + TOLERANCE[rule], rule=rule)
    return iterations_to_reach(iterations, curve, np.nanmax(curve) - TOLERANCE[rule], rule=rule)


def iterations_to_reach(
    iterations: Sequence[int], values: Sequence[float] | np.ndarray, target: float, *, rule: Literal["nll", "accuracy"]
) -> int | None:
    """The first validation at or past `target`; None if it was never reached."""
    values = np.asarray(values, dtype=float)
    # curves are means of float32 numbers, whose last digits don't count
    reached = values <= target + 1e-9 if rule == "nll" else values >= target - 1e-9
    return int(iterations[int(reached.argmax())]) if reached.any() else None


def smoothed(values: Sequence[float], width: int) -> np.ndarray:
    """Centred moving average, over fewer values at the ends."""
    array = np.asarray(values, dtype=float)
    kernel = np.ones(min(width, len(array)))
    return np.convolve(array, kernel, "same") / np.convolve(np.ones(len(array)), kernel, "same")
