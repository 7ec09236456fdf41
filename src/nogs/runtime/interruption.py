"""`Interruption`: Ctrl-C and SIGTERM wait for the end of a training's step, so that its state can be saved."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["Interruption"]


class Interruption:
    """A context in which the first SIGINT or SIGTERM waits until `deliver` is called or the context ends.

    The second one is delivered at once. Signals that nothing handles keep their default, and so do all signals outside
    the main thread.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        """The signal that waits."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.asked is not None:
            self.deliver()
        self._restore()

    def deliver(self) -> None:
        """Let the signal act as it would have done without this context."""
        assert self.asked is not None
        number, before = self.asked, self._before[self.asked]
        self.asked = None
        self._restore()
        before(number, None)

    def _note(self, number: int, _: object) -> None:
        if self.asked is None:
            self.asked = number
            return
        before = self._before[number]
        self.deliver()
        before(number, None)  # the first one's handler may return

    def _restore(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}
