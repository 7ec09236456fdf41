"""Text on its way to the terminal: what a label, a name or a file holds is shown, and never obeyed.

A terminal obeys control characters: they move the cursor, change the title, answer as if someone typed. Here they
become visible escapes, such as `\\x1b`, and so do bytes that are not text and marks that turn the reading order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

__all__ = ["guarded", "harmless", "unguarded"]

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with everything but line ends and tabs that a terminal would obey made visible."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


class _Guarded:
    """A text stream to which only harmless text goes; it says that it is no terminal, so that nobody colours text."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, text: str) -> int:
        encoding = getattr(self.inner, "encoding", None) or "utf-8"
        self.inner.write(harmless(text).encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Whatever is printed is harmless, to either stream."""
    with redirect_stdout(_Guarded(sys.stdout)), redirect_stderr(_Guarded(sys.stderr)):
        yield


def unguarded(stream: Any) -> Any:
    """The stream itself, for what draws on a terminal and takes care of its texts."""
    while isinstance(stream, _Guarded):
        stream = stream.inner
    return stream
