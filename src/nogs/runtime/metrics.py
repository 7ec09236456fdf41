"""Numbers of a run by step: JSON lines for scripts, and the same scalars for TensorBoard."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from nogs.runtime.errors import InputError
from nogs.runtime.files import plain, read_text, write_text

__all__ = ["Metrics", "read_metrics"]

_NAME = "metrics.jsonl"


class Metrics:
    """Appends to `folder`/metrics.jsonl, and to event files beside it unless `tensorboard` is off.

    What is there already stays, apart from a torn last line; with `resume_after` = s, lines of steps after s go too,
    since the run will make them again (-1: all of them).
    """

    def __init__(self, folder: Path, *, resume_after: int | None = None, tensorboard: bool = True) -> None:
        folder = Path(folder)
        path = folder / _NAME
        lines = read_metrics(folder) if path.exists() else []
        kept = [line for line in lines if resume_after is None or line["step"] <= resume_after]
        # an atomic rewrite also makes the folder and refuses one that can't be written, before any work is done
        write_text(path, "".join(map(_line, kept)))
        self._file = path.open("a", encoding="utf-8")
        self._events = (
            _Events(folder, purge=None if resume_after is None else resume_after + 1) if tensorboard else None
        )

    def log(self, step: int, **values: Any) -> None:
        """One line: the step and its values (numbers, strings, lists); what is not finite is written as null."""
        line = {"step": step, **json.loads(json.dumps(values, default=plain), parse_constant=lambda _: None)}
        self._file.write(_line(line))
        self._file.flush()
        if self._events:
            self._events.add(step, {name: value for name, value in line.items() if _is_scalar(name, value)})

    def close(self) -> None:
        """Write what is pending and close the files."""
        self._file.close()
        if self._events:
            self._events.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of `folder`/metrics.jsonl in order; a last line that a crash tore is left out."""
    path = Path(folder) / _NAME
    lines = read_text(path).split("\n")
    values = []
    for number, line in enumerate(lines[:-1], start=1):  # after the last newline: nothing, or a torn line
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise InputError(f"Line {number} of {path} is not JSON ({error.msg}); mend or delete it.") from error
    return values


class _Events:
    """TensorBoard's event file, written with its own writer: torch's brings a slow import and nothing that we need."""

    def __init__(self, folder: Path, *, purge: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder))
        if purge is not None:  # tells TensorBoard to forget the later steps of earlier files
            session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(self._event(wall_time=time.time(), step=purge, session_log=session))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        if values:
            self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def close(self) -> None:
        self._writer.close()


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value) + "\n"


def _is_scalar(name: str, value: Any) -> bool:
    return name != "step" and isinstance(value, int | float) and math.isfinite(value)
