"""Atomic files: every write goes to a temporary file beside the target, is synced, and is then renamed.

Every reader refuses a changed file, by the digests of `done.json` and by the file's own seal.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.runtime.digests import MARKS, check_product, sealed, unsealed
from nogs.runtime.errors import InputError
from nogs.runtime.reading import check_regular, json_of, text_of, unreadable

if TYPE_CHECKING:  # --help should not wait for numpy
    import numpy as np

__all__ = [
    "atomic",
    "load_array",
    "plain",
    "read_json",
    "read_sealed",
    "read_text",
    "read_yaml",
    "refusal",
    "save_array",
    "write_bytes",
    "write_json",
    "write_sealed",
    "write_text",
    "write_yaml",
]

_MOST_YAML = 2**20


@contextmanager
def atomic(path: str | Path, *, durable: bool = True) -> Iterator[Path]:
    """A temporary path beside `path`, with the same suffix; it is renamed to `path` when the block succeeds.

    If the block or the disk fails, an existing file at `path` is unchanged. Without `durable` nothing waits for the
    disk, which suits many small files that can be made again.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            _sync(temporary)
        os.replace(temporary, path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        # a file that the block failed to *read* is not a failure to write this one
        ours = {None, str(temporary), *map(str, (path, *path.parents))}
        if error.filename is not None and str(error.filename) not in ours:
            raise
        raise InputError(refusal(path, error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_bytes(path: str | Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` atomically."""
    with atomic(path, durable=durable) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | Path, text: str, *, durable: bool = True) -> None:
    """Write `text` as UTF-8 with its newlines unchanged."""
    write_bytes(path, text.encode(), durable=durable)


def read_text(path: str | Path) -> str:
    """The UTF-8 text of a file."""
    check_product(path)
    return text_of(path)


def write_json(path: str | Path, obj: Any) -> None:
    """Write JSON, indented by 2, keys in the order given; arrays become lists and paths strings."""
    write_text(path, json.dumps(obj, indent=2, ensure_ascii=False, default=plain) + "\n")


def write_sealed(path: str | Path, obj: Mapping[str, Any]) -> None:
    """Write a JSON object with a digest of its fields, which every reader checks."""
    write_json(path, sealed(json.loads(json.dumps(obj, default=plain))))


def read_json(path: str | Path) -> Any:
    """The value of a JSON file without its seal, which must match. The marks of a stage must have a seal."""
    check_product(path)
    return unsealed(json_of(path), Path(path), required=Path(path).name in MARKS)


def read_sealed(path: str | Path) -> dict[str, Any]:
    """The fields that `write_sealed` wrote; a file without a seal is refused."""
    check_product(path)
    return dict(unsealed(json_of(path), Path(path), required=True))


def write_yaml(path: str | Path, obj: Any) -> None:
    """Write YAML in block style, keys in the order given."""
    import yaml

    write_text(path, yaml.safe_dump(obj, sort_keys=False, allow_unicode=True))


def read_yaml(path: str | Path) -> Any:
    """The value of a YAML file (plain values only: no tag runs code)."""
    import yaml

    from nogs.runtime.strict_yaml import parse

    text = read_text(path)
    if len(text) > _MOST_YAML:
        raise InputError(f"{path} has {len(text):,} characters, more than a recipe needs; give at most {_MOST_YAML:,}.")
    try:
        return parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{path} is not valid YAML ({where}{problem}); correct it.") from error


def save_array(path: str | Path, array: np.ndarray) -> None:
    """Write an array as `.npy`."""
    import numpy as np

    whole = np.asarray(array, order="C")
    if whole.dtype.hasobject:
        raise ValueError("An array of Python objects can't be written: allow_pickle is never set.")
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(whole))
        # not np.save, whose error on a full disk does not say that it is full
        file.write(whole.reshape(-1).view(np.uint8).data)


def load_array(path: str | Path, mmap: bool = False) -> np.ndarray:
    """An `.npy` array, read whole, or mapped read-only with `mmap`."""
    from tokenize import TokenError

    import numpy as np

    try:
        check_regular(path)
        if not mmap:  # a mapped file is too large to digest here; the caller checks what it reads
            check_product(path)
        array = np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(unreadable(path, error)) from error
    except (ValueError, EOFError, TokenError) as error:  # TokenError: a damaged header
        raise InputError(f"{path} is not a whole .npy file of numbers; delete it and make it again.") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputError(f"{path} is an archive of arrays, not one .npy array.")
    return array


def plain(value: Any) -> Any:
    """For `json.dumps(default=...)`: paths as strings, arrays and numbers of numpy and torch as Python values."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"A {type(value).__name__} has no JSON form.")


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # Windows has no handle of a folder to sync
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refusal(path: str | Path, error: OSError) -> str:
    """Why a file can't be written, and what to do, in one sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free some space or choose another folder"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "choose a folder that you may write to"
    else:
        advice = "check the path or choose another folder"
    return f"Cannot write {path} ({error.strerror or error}): {advice}."
