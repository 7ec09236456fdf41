"""Detect changed files: `done.json` lists a digest of every product, and some files carry a seal.

Every reader in `files` checks both, so that a corrupt file is refused before anything is computed from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nogs.runtime.errors import InputError
from nogs.runtime.reading import json_of

__all__ = ["BEGUN", "DONE", "MARKS", "SEAL", "check_product", "file_digest", "product_digests", "sealed", "unsealed"]

MARKS = DONE, BEGUN = "done.json", "stage.json"
SEAL = "seal"
"""The field of a JSON object that holds the digest of all other fields."""

_PASSING = (*MARKS, "state.safetensors")  # what a stage's folder holds besides products
_EVENTS = "events.out.tfevents"  # TensorBoard's event files, which the package never reads


def file_digest(path: str | Path) -> str:
    """Digest of a file's content, as 32 hexadecimal digits."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error.strerror}); check the path.") from error


def product_digests(folder: Path, also: Iterable[str] = ()) -> dict[str, str]:
    """Digests by name: of every file directly in a stage's folder, and of the files in subfolders named in `also`."""
    own = sorted(path.name for path in folder.iterdir() if path.is_file())
    names = [name for name in own if name not in _PASSING and not name.startswith((".", _EVENTS))]
    return {name: file_digest(folder / name) for name in (*names, *also)}


def check_product(path: str | Path) -> None:
    """Refuse a product that has changed since its stage finished; a file that no `done.json` lists is accepted."""
    path = Path(path)
    if path.name in MARKS:
        return
    for folder in (path.parent, path.parent.parent):
        done = folder / DONE
        if not done.is_file():
            continue
        record = unsealed(json_of(done), done, required=True)
        listed = record.get("files") if isinstance(record, dict) else None
        digest = listed.get(path.relative_to(folder).as_posix()) if isinstance(listed, dict) else None
        if digest is not None and path.is_file() and file_digest(path) != digest:
            raise InputError(
                f"{path} has changed since it was made (its digest is not the one in {done}); bring it back from a "
                f"copy, or delete {folder} and make it again."
            )


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object of plain values, with their digest added."""
    return {**value, SEAL: _digest(value)}


def unsealed(value: Any, path: Path, *, required: bool = False) -> Any:
    """The value without its seal, which must match. A value without a seal is accepted unless one is `required`."""
    if not isinstance(value, dict) or SEAL not in value:
        if required:
            raise InputError(f"{path} has no field {SEAL!r}; {_remedy(path)}")
        return value
    rest = {name: item for name, item in value.items() if name != SEAL}
    if value[SEAL] != _digest(rest):
        raise InputError(f"{path} has changed since it was written; {_remedy(path)}")
    return rest


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _remedy(path: Path) -> str:
    return f"bring it back from a copy, or delete {path.parent if path.name in MARKS else path} and make it again."
