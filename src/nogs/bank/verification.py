"""Verify that a bank's files are unchanged since it was built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nogs.bank.bank import CODES, PCA_FILE, read_codes
from nogs.bank.build import read_about
from nogs.bank.store import MANIFEST, Shards
from nogs.runtime.digests import check_product
from nogs.runtime.errors import InputError

__all__ = ["verify_bank"]


def verify_bank(folder: Path, *, advance: Callable[[int], None] = lambda n: None) -> list[str]:
    """Check all counts and checksums of a bank; returns one sentence per damage, an empty list without damage."""
    folder = Path(folder)
    about = read_about(folder)
    problems: dict[str, str] = {}
    for name in about["files"]:
        path = folder / name
        try:
            if not path.is_file():
                raise InputError(f"{path} is missing; bring it back from a copy, or build the bank again.")
            check_product(path)
        except InputError as error:
            problems[name] = str(error)
    if not problems.keys() & {PCA_FILE, f"{CODES}/{MANIFEST}"}:
        try:
            codes = read_codes(folder)
            if len(codes) != about["images"]:
                raise InputError(
                    f"{folder / CODES} holds {len(codes)} codes, not {about['images']}; build the bank again."
                )
        except InputError as error:
            problems[CODES] = str(error)
    images: list[str] = []
    if f"images/{MANIFEST}" in about["files"] and f"images/{MANIFEST}" not in problems:
        store = Shards.open(folder / "images")
        if len(store) != about["images"]:
            images.append(f"{folder / 'images'} holds {len(store)} images, not {about['images']}; build it again.")
        images += store.verify(advance=advance)
    return [*problems.values(), *images]
