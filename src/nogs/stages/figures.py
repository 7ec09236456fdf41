"""Figures of the stages, as files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

from nogs.runtime.files import write_bytes

__all__ = ["save_figure"]


def save_figure(figure: Any, path: Path, *, kind: str = "png") -> None:
    """Write a figure."""
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)  # it draws a box instead
        figure.savefig(picture, format=kind)
    write_bytes(path, picture.getvalue())
