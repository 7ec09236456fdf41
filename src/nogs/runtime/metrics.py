"""Metrics of a run by step: JSON lines for scripts, and the same scalars for TensorBoard."""

from __future__ import annotations

import hashlib
import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from nogs.runtime.errors import InputError
from nogs.runtime.files import plain, read_text, refusal, write_text

__all__ = ["Metrics", "read_metrics"]

_NAME = "metrics.jsonl"


class Metrics:
    """Appends to `folder`/metrics.jsonl, and to event files beside it unless `tensorboard` is off.

    Existing lines are kept, except for an incomplete last line. With `resume_after` = s, lines of steps after s are
    removed too, since the run will write them again (-1: all lines). The kept lines must match `digest`, their digest
    when the training state was saved.
    """

    def __init__(
        self, folder: Path, *, resume_after: int | None = None, digest: str | None = None, tensorboard: bool = True
    ) -> None:
        folder = Path(folder)
        self.path = path = folder / _NAME
        lines = read_metrics(folder) if path.exists() else []
        kept = [_line(line) for line in lines if resume_after is None or line["step"] <= resume_after]
        self._digest = hashlib.blake2b("".join(kept).encode(), digest_size=16)
        if digest not in (None, self.digest):
            raise InputError(
                f"{path} has changed since the training was interrupted; bring it back from a copy, or delete the "
                "state.safetensors of this training, which then starts again."
            )
        # an atomic rewrite also makes the folder and refuses one that can't be written, before any work is done
        write_text(path, "".join(kept))
        try:
            self._file = path.open("a", encoding="utf-8")
            purge = None if resume_after is None else resume_after + 1
            self._events = _Events(folder, purge=purge) if tensorboard else None
        except OSError as error:
            raise InputError(refusal(path, error)) from error

    @property
    def digest(self) -> str:
        """Digest of all lines so far."""
        return self._digest.hexdigest()

    def log(self, step: int, **values: Any) -> None:
        """Write one line: the step and its values (numbers, strings, lists); non-finite numbers become null."""
        line = {"step": step, **json.loads(json.dumps(values, default=plain), parse_constant=lambda _: None)}
        text = _line(line)
        try:
            self._file.write(text)
            self._file.flush()
            if self._events:
                self._events.add(step, {name: value for name, value in line.items() if _is_scalar(name, value)})
        except OSError as error:
            raise InputError(refusal(self.path, error)) from error
        self._digest.update(text.encode())

    def close(self) -> None:
        """Write what is pending and close the files."""
        try:
            self._file.close()
            if self._events:
                self._events.close()
        except OSError as error:
            raise InputError(refusal(self.path, error)) from error

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of `folder`/metrics.jsonl in order; an incomplete last line is left out."""
    path = Path(folder) / _NAME
    lines = read_text(path).split("\n")
    values: list[dict[str, Any]] = []
    for number, line in enumerate(lines[:-1], start=1):  # after the last newline: nothing, or an incomplete line
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", None) or type(error).__name__
            raise InputError(f"Line {number} of {path} is not JSON ({reason}); correct or delete it.") from error
        if not isinstance(value, dict) or type(value.get("step")) is not int:
            raise InputError(f'Line {number} of {path} has no whole number "step"; correct or delete it.')
        values.append(value)
    return values


class _Events:
    """TensorBoard's event file, written with TensorBoard's own writer, since torch's is slow to import."""

    def __init__(self, folder: Path, *, purge: int | None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder))
        if purge is not None:  # makes TensorBoard discard the later steps of earlier files
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
