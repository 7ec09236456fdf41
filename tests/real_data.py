"""The real datasets, where there are any: $NOGS_DATA, else `shared/data` beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_data(name: str) -> Path:
    """The folder that holds `name` (celeba-hq, cub-200-2011, or a file); without it the test is skipped."""
    given = os.environ.get("NOGS_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / name).exists():
        pytest.skip(f"no real data: set NOGS_DATA to the folder that holds {name}")
    return folder
