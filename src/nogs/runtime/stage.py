"""A stage's folder: finished with this recipe, begun, or made with another recipe; one line says which."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.runtime.digests import BEGUN, DONE, product_digests
from nogs.runtime.errors import InputError
from nogs.runtime.fields import differing
from nogs.runtime.files import read_json, write_sealed

if TYPE_CHECKING:
    import torch

__all__ = ["Stage"]


class Stage:
    """The folder of one stage, whose product is fixed by `fingerprint` (its part of the recipe, and its inputs).

    `begin` writes `stage.json`; `finish` writes `done.json`, without which the product does not count. Given `fields`
    by their dotted names, the error about another recipe names the first field that differs.
    """

    def __init__(self, folder: Path, *, name: str, fingerprint: str, fields: Mapping[str, Any] | None = None) -> None:
        self.folder, self.name, self.fingerprint = Path(folder), name, fingerprint
        self.fields: dict[str, Any] = json.loads(json.dumps(dict(fields or {})))
        self._began = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether the folder holds the finished product of this recipe."""
        return self._found(DONE) == self.fingerprint

    @property
    def begun(self) -> bool:
        """Whether unfinished work of this recipe is there to be continued."""
        return not self.done and self._found(BEGUN) == self.fingerprint

    def why(self) -> str | None:
        """One line that says why the stage has to run; None if it is done."""
        if self.done:
            return None
        if self.begun:
            return f"{self.name}: begun before and not finished, goes on."
        return f"{self.name}: not done before."

    def check_folder(self) -> None:
        """Refuse a folder that holds another recipe's product."""
        other = self._other()
        if other and not self.done:
            what = self._differing() or f"{other}, not {self.fingerprint}"
            raise InputError(
                f"{self.folder} holds {self.name} of another recipe or other inputs ({what}); choose another folder or "
                "delete this one."
            )

    def begin(self) -> None:
        """Mark the folder as this recipe's before the first product, and remove an old mark of completion."""
        self._began = time.monotonic()
        if self._found(DONE) is not None:
            (self.folder / DONE).unlink()
        mark = {"stage": self.name, "fingerprint": self.fingerprint}
        write_sealed(self.folder / BEGUN, {**mark, "fields": self.fields} if self.fields else mark)

    def finish(self, *, device: torch.device | None = None, also: Iterable[str] = (), **extra: Any) -> None:
        """Mark the product as complete: fingerprint, versions, seconds since `begin`, time, `extra`, and digests.

        The versions name the `device` that it was made on, by default this machine's best. The digests cover every file
        in the folder and the files in subfolders named in `also`; readers check them.
        """
        from nogs.runtime.device import versions  # imports torch, which `done` does not need

        self.folder.mkdir(parents=True, exist_ok=True)
        write_sealed(
            self.folder / DONE,
            {
                "stage": self.name,
                "fingerprint": self.fingerprint,
                "versions": versions(device),
                "seconds": round(time.monotonic() - self._began, 3),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                **extra,
                "files": product_digests(self.folder, also),
            },
        )

    def _other(self) -> str | None:
        """The fingerprint of another recipe that left its mark here."""
        found = (self._found(DONE), self._found(BEGUN))
        return next((mark for mark in found if mark not in (None, self.fingerprint)), None)

    def _differing(self) -> str | None:
        """The first field that differs from its value at `begin`, with both values; None if none is known."""
        path = self.folder / BEGUN
        found = read_json(path) if path.exists() else None
        before = found.get("fields") if isinstance(found, dict) else None
        if not isinstance(before, dict):
            return None
        names = differing(before, self.fields)
        return f"{names[0]} = {before.get(names[0])!r}, not {self.fields.get(names[0])!r}" if names else None

    def _found(self, name: str) -> str | None:
        path = self.folder / name
        if not path.exists():
            return None
        mark = read_json(path)
        if not isinstance(mark, dict) or not isinstance(mark.get("fingerprint"), str):
            raise InputError(f"{path} has no field 'fingerprint'; delete the folder to do {self.name} again.")
        return str(mark["fingerprint"])
