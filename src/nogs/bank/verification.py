"""Whether a bank's files are as they were when it was built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nogs.bank.bank import read_codes, read_sources
from nogs.bank.build import GENERATOR, read_about
from nogs.bank.store import Shards
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest

__all__ = ["verify_bank"]


def verify_bank(folder: Path, *, advance: Callable[[int], None] = lambda n: None) -> list[str]:
    """Check counts and every checksum of a bank; each damage is one sentence, none means that the bank is whole."""
    folder = Path(folder)
    about = read_about(folder)
    problems = []
    try:
        codes = read_codes(folder)
        if len(codes) != about["images"]:
            problems.append(
                f"{folder / 'codes'} holds {len(codes)} codes, not {about['images']}; build the bank again."
            )
        read_sources(folder, images=about["images"])
    except InputError as error:
        problems.append(str(error))
    if about["config"]["keep"] == "images":
        store = Shards.open(folder / "images")
        if len(store) != about["images"]:
            problems.append(f"{folder / 'images'} holds {len(store)} images, not {about['images']}; build it again.")
        problems += store.verify(advance=advance)
    return problems + _generator_problems(folder / GENERATOR, about)


def _generator_problems(path: Path, about: dict[str, Any]) -> list[str]:
    """A sentence if the generator that was trained for the bank is not as it was then."""
    digest = about.get("generator_digest")
    if digest is None or (path.exists() and file_digest(path) == digest):
        return []
    why = "has changed since the bank was built" if path.exists() else "is missing"
    return [f"{path} {why}; bring it back from a copy, or build the bank again in another folder."]
