"""Progress of long jobs: a bar with rate and time left on a terminal, plain lines at least every 5 s elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from nogs.runtime.terminal import guarded, harmless, unguarded

__all__ = ["Tracker", "say", "silence", "tell", "track", "working"]

_EVERY = 4.0  # seconds between two plain lines
_silent = False  # whether only results and errors are shown
_live: list[Any] = []  # the rich bar now on the screen, if any: nested jobs and `say` share it
_jobs: list[_Job] = []  # running jobs, the innermost last
_last_output = 0.0  # when the last line was written


class Tracker(Protocol):
    """What `track` yields."""

    def advance(self, n: int = 1, **fields: Any) -> None:
        """Count `n` more units as done; show `fields` (a loss, an accuracy) beside the count."""


@contextmanager
def track(title: str, *, total: int | None, unit: str = "it", start: int = 0) -> Iterator[Tracker]:
    """Show the progress of a job of `total` units (None: unknown), `start` of which were done before."""
    if unguarded(sys.stderr).isatty() and not _silent:
        yield from _bar(title, total, unit, start)
    else:
        lines = _Lines(title, total, unit, start)
        lines.write("")
        try:
            with _watched(lines):
                yield lines
        except BaseException:
            lines.write(", stopped")
            raise
        lines.write(", done")


@contextmanager
def working(title: str) -> Iterator[None]:
    """Show a job without countable units: a line with title and elapsed time whenever nothing else was printed."""
    with _watched(_Working(title)):
        yield


def say(text: str) -> None:
    """Print one line to standard error, above the progress bar if there is one."""
    global _last_output
    _last_output = time.monotonic()
    if _silent:
        return
    text = harmless(text)
    if _live:
        _live[-1].console.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """Print one line about a run to standard output; progress goes to standard error."""
    global _last_output
    _last_output = time.monotonic()
    if not _silent:
        print(text, flush=True)


def silence(on: bool) -> None:
    """Hide progress and lines from now on, or show them again."""
    global _silent
    _silent = on


class _Job(Protocol):
    """A running job that can report its progress."""

    def beat(self) -> None:
        """Print a line, since nothing was printed for a while."""


@contextmanager
def _watched(job: _Job) -> Iterator[None]:
    """Within the block, `job` reports its progress whenever nothing was printed for `_EVERY` seconds."""
    global _last_output
    if not _jobs:
        _last_output = time.monotonic()
        threading.Thread(target=_watch, args=(over := threading.Event(),), daemon=True).start()
    else:
        over = None
    _jobs.append(job)
    try:
        yield
    finally:
        _jobs.remove(job)
        if over is not None:
            over.set()


def _watch(over: threading.Event) -> None:
    while not over.wait(0.25):
        if not _live and time.monotonic() - _last_output >= _EVERY:  # a bar on the screen updates itself
            for job in _jobs[-1:]:
                job.beat()


class _Working:
    """A job without countable units."""

    def __init__(self, title: str) -> None:
        self.title, self.began = title, time.monotonic()

    def beat(self) -> None:
        say(f"{self.title}: {_clock(time.monotonic() - self.began)} so far")


class _Lines:
    """Plain lines: the first, the last, and about one every `_EVERY` seconds."""

    def __init__(self, title: str, total: int | None, unit: str, start: int) -> None:
        self.title, self.total, self.unit, self.start = title, total, unit, start
        self.count = start
        self.fields: dict[str, Any] = {}
        self.began = self.written = time.monotonic()

    def advance(self, n: int = 1, **fields: Any) -> None:
        self.count += n
        self.fields.update(fields)
        if time.monotonic() - self.written >= _EVERY:
            self.write("")

    def beat(self) -> None:
        self.write("")

    def write(self, ending: str) -> None:
        self.written = time.monotonic()
        seconds, done = self.written - self.began, self.count - self.start
        parts = [f"{self.title}: {self.count}{'' if self.total is None else f'/{self.total}'} {self.unit}"]
        if done and seconds > 0:
            parts.append(_rate(done / seconds, self.unit))
            if ending:
                parts.append(f"{_clock(seconds)} in all")
            elif self.total is not None:
                parts.append(f"{_clock((self.total - self.count) * seconds / done)} left")
        if not done and not ending and seconds >= 1:
            parts.append(f"{_clock(seconds)} so far")
        parts += [f"{name} {_short(value)}" for name, value in self.fields.items()]
        say(", ".join(parts) + ending)


class _Bar:
    """One line of a rich progress display."""

    def __init__(self, display: Any, task: Any) -> None:
        self.display, self.task = display, task
        self.fields: dict[str, Any] = {}

    def advance(self, n: int = 1, **fields: Any) -> None:
        self.fields.update(fields)
        shown = harmless("  ".join(f"{name} {_short(value)}" for name, value in self.fields.items()))
        self.display.update(self.task, advance=n, shown=shown)


def _bar(title: str, total: int | None, unit: str, start: int) -> Iterator[Tracker]:
    global _last_output
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(_rate(speed, task.fields["unit"]) if speed else "")

    outer = _live[-1] if _live else None
    display = outer or Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}", markup=False),
        console=Console(file=unguarded(sys.stderr)),
        speed_estimate_period=120,
    )
    task = display.add_task(harmless(title), total=total, completed=start, unit=unit, shown="")
    if outer:
        try:
            yield _Bar(display, task)
        finally:
            display.remove_task(task)
        return
    with display, guarded():  # the display takes over both streams
        _live.append(display)
        try:
            yield _Bar(display, task)
        finally:
            _last_output = time.monotonic()  # what waits for the bar's end has not been silent
            _live.pop()


def _rate(speed: float, unit: str) -> str:
    return f"{speed:.3g} {unit}/s" if speed < 1000 else f"{speed:,.0f} {unit}/s"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
