"""`Ledger`: what each stage of a run was made from, to say in one line why a stage is made again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nogs.runtime.errors import InputError
from nogs.runtime.fields import differing, dotted
from nogs.runtime.files import read_sealed, write_sealed
from nogs.runtime.fingerprint import fingerprint

__all__ = ["Ledger"]

FILE = "run.json"


class Ledger:
    """`run.json` of a run: for each stage the fields and inputs that its product came from.

    A stage whose fields or inputs changed is moved out of the run, into the folder RUN.before, so that nothing is lost.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.path = Path(run), Path(run) / FILE
        found = read_sealed(self.path) if self.path.exists() else {}
        if not all(isinstance(entry, dict) for entry in found.values()):
            raise InputError(f"{self.path} is not the record of a run; delete it, or choose another --out.")
        self.entries: dict[str, dict[str, Any]] = found

    def fingerprint(self, stage: str) -> str:
        """Fingerprint of what a stage was made from, as an input of the next."""
        return fingerprint(self.entries[stage])

    @staticmethod
    def plain(made_from: Mapping[str, Any]) -> dict[str, Any]:
        """The form in which entries are stored."""
        return {name: list(item) if isinstance(item, tuple) else item for name, item in dotted(made_from).items()}

    def enter(self, stage: str, made_from: Mapping[str, Any], *, redo: bool) -> str | None:
        """Record what a stage is made from now. If it changed: with `redo`, move its product aside and return the
        reason in one line; else refuse."""
        now = self.plain(made_from)
        before = self.entries.get(stage)
        why = None
        if before is not None and before != now:
            difference = _difference(before, now)
            if not redo and (self.run / stage).exists():
                raise InputError(
                    f"{self.run / stage} was made with another recipe or other inputs ({difference}); choose another "
                    "--out, delete it, or use nogs run, which makes it again and keeps the old one."
                )
            why = f"{stage}: {difference}{self._move(stage, fingerprint(before))}."
        self.entries[stage] = now
        write_sealed(self.path, self.entries)
        return why

    def _move(self, stage: str, former: str) -> str:
        folder = self.run / stage
        if not folder.exists():
            return ""
        before, number = self.run.with_name(f"{self.run.name}.before"), 1
        aside = before / f"{stage}-{former}"
        while aside.exists():
            number += 1
            aside = before / f"{stage}-{former}-{number}"
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(aside)
        except OSError as error:
            raise InputError(f"Cannot move {folder} to {aside} ({error.strerror}); choose another --out.") from error
        return f"; made again, the old one is kept in {aside}"


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first field that differs, and how many more do."""
    names = differing(before, now)
    first = names[0]
    others = len(names) - 1
    more = f" and {others} more field{' differs' if others == 1 else 's differ'}" if others else ""
    if first.startswith("from "):
        return f"made {first} that changed{more}"
    return f"{first} was {before.get(first)!r} and is {now.get(first)!r}{more}"
