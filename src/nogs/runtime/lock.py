"""One process at a time in a folder: a second one is refused instead of writing into the same files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nogs.runtime.errors import InputError

__all__ = ["only_one"]


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold `folder` until the block ends or the process does, however it does; refuse if another process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
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
