"""Read untrusted files, only if they are regular and of bounded size: a pipe or a device may never end."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from nogs.runtime.errors import InputError

__all__ = ["check_regular", "json_of", "read_regular", "reason", "size", "text_of", "unreadable"]

_MOST_TEXT = 2**30
"""Size of the largest text file that is read, in bytes."""


def read_regular(path: str | Path, *, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; OSError for a larger one, a pipe, a device, a folder."""
    check_regular(path)  # before opening, which alone may block or act on a device
    with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
        about = os.fstat(file.fileno())
        _check(about, path)
        if about.st_size > most:
            raise OSError(errno.EFBIG, f"larger than {size(most)}", str(path))
        return file.read(about.st_size)


def check_regular(path: str | Path) -> None:
    """OSError for a pipe, a device or a folder."""
    _check(os.stat(path), path)


def text_of(path: str | Path) -> str:
    """The UTF-8 text of a file."""
    try:
        return read_regular(path, most=_MOST_TEXT).decode()
    except OSError as error:
        raise InputError(unreadable(path, error)) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def json_of(path: str | Path) -> Any:
    """The value of a JSON file, its seal included."""
    text = text_of(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(
            f"{path} is not valid JSON ({where}: {error.msg}); correct it, or delete it and make it again."
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or brackets nested too deeply
        raise InputError(f"{path} can't be read as JSON ({reason(error)}); delete it and make it again.") from error


def reason(error: Exception) -> str:
    """The first line of an error, to be quoted inside a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")[:200]


def unreadable(path: str | Path, error: OSError) -> str:
    """Why a file can't be read, and what to do, in one sentence."""
    if isinstance(error, FileNotFoundError):
        return f"There is no file {path}; check the path."
    return f"Cannot read {path} ({error.strerror or error}); check the path and its permissions."


def size(count: int) -> str:
    """A number of bytes, as text for messages."""
    return f"{count >> 20:,} MiB" if count >= 2**20 else f"{count:,} bytes"


_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _check(about: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
