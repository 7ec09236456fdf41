"""File locks: one process at a time works in a folder, and a second one is refused.

Temporary files are locked while their process lives, so that abandoned ones can be removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nogs.runtime.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["held", "only_one", "remove_abandoned"]

_STALE = 86_400  # seconds after which a file counts as abandoned, on systems without locks


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock `folder` until the block or the process ends; refuse if another process holds the lock."""
    if fcntl is None:
        yield
        return
    path = Path(folder) / ".lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        raise InputError(f"Cannot write {path} ({error.strerror}); choose another folder.") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"Another process is working in {folder}; wait for it or choose another folder.") from None
        yield


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Make an empty file that `remove_abandoned` keeps until the block or the process ends."""
    if fcntl is None:
        path.touch()
        yield
        return
    while True:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                break
        file.close()  # removed as abandoned between the two calls: make it again
    with file:
        yield


def remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove files that killed processes left: those that no process holds, whatever their age."""
    for path in folder.glob(pattern):
        with suppress(OSError), path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while it is held
            elif time.time() - path.stat().st_mtime <= _STALE:
                continue
            path.unlink()
