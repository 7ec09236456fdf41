"""Files of anyone's making are read as regular files of a bounded size: a pipe or a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["check_regular", "read_regular", "size"]


def read_regular(path: str | Path, *, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; OSError for a larger one, a pipe, a device, a folder."""
    check_regular(path)  # before it is opened: opening alone may wait, or move a device
    with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
        about = os.fstat(file.fileno())
        _check(about, path)
        if about.st_size > most:
            raise OSError(errno.EFBIG, f"larger than {size(most)}", str(path))
        return file.read(about.st_size)


def check_regular(path: str | Path) -> None:
    """OSError for a pipe, a device or a folder."""
    _check(os.stat(path), path)


def size(count: int) -> str:
    """A number of bytes as messages name it."""
    return f"{count >> 20:,} MiB" if count >= 2**20 else f"{count:,} bytes"


_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _check(about: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
