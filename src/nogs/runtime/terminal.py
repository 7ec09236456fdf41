"""Safe terminal output: control characters in labels, names and files are shown, never executed.

Control characters can move the cursor, change the title or fake typed input. Here they become visible escapes, such as
`\\x1b`. So do bytes that are not text and marks that reverse the reading order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

__all__ = ["guarded", "harmless", "unguarded"]

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with all control characters but line ends and tabs made visible."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class _Guarded:
    """A text stream that writes only harmless text; it does not count as a terminal, so that text is not coloured."""

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
    """Make everything printed to standard output and standard error harmless."""
    with redirect_stdout(_Guarded(sys.stdout)), redirect_stderr(_Guarded(sys.stderr)):
        yield


def unguarded(stream: Any) -> Any:
    """The underlying stream, for code that draws on the terminal and escapes its own text."""
    while isinstance(stream, _Guarded):
        stream = stream.inner
    return stream
