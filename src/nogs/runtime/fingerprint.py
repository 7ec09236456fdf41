"""Fingerprints of configurations and inputs: a stage with an unchanged fingerprint is not done again."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from nogs.runtime.digests import file_digest
from nogs.runtime.errors import InputError

__all__ = ["file_digest", "files_fingerprint", "fingerprint"]


def fingerprint(*parts: Any) -> str:
    """Hash of the parts' types and values, as 16 hexadecimal digits.

    Parts may be plain values, paths, mappings (in any order), sequences, sets, arrays and tensors (by type, shape and
    content). Pydantic models count as their JSON form, dataclasses as a mapping of their fields.
    """
    return hashlib.blake2b(_digest(parts), digest_size=8).hexdigest()


def files_fingerprint(paths: Iterable[str | Path]) -> str:
    """Fingerprint of files by name, size and modification time, in any order, without reading them."""
    return fingerprint(sorted(_stat(Path(path)) for path in paths))


def _stat(path: Path) -> tuple[str, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(f"Cannot read {path} ({error.strerror}); check the path.") from error
    return path.name, stat.st_size, stat.st_mtime_ns


def _digest(value: Any) -> bytes:
    """Digest of one value. Containers hash their members' digests, so no two nestings look alike."""
    tag, content = _encode(value)
    state = hashlib.blake2b(tag.encode() + b"\0", digest_size=32)
    for piece in content:
        state.update(piece)
    return state.digest()


def _encode(value: Any) -> tuple[str, Iterable[Any]]:
    torch = sys.modules.get("torch")  # no tensor exists before torch is imported
    match value:
        case None:
            return "none", ()
        case Enum():
            return _encode(value.value)
        case bool() | np.bool_():
            return "bool", (b"1" if value else b"0",)
        case int() | np.integer():
            return "int", (str(int(value)).encode(),)
        case float() | np.floating():
            return "float", (struct.pack("<d", value),)
        case str():
            return "str", (value.encode(),)
        case PurePath():
            return "str", (str(value).encode(),)
        case bytes() | bytearray():
            return "bytes", (value,)
        case np.ndarray():
            return _encode_array(value)
        case Mapping():
            return "mapping", sorted(_digest(key) + _digest(item) for key, item in value.items())
        case set() | frozenset():
            return "set", sorted(map(_digest, value))
        case Sequence():
            return "sequence", map(_digest, value)
    if torch is not None and isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"array {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}", (flat.data,)
    if hasattr(value, "model_dump"):
        return _encode(value.model_dump(mode="json"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    raise TypeError(f"A {type(value).__name__} has no fingerprint.")


def _encode_array(array: np.ndarray) -> tuple[str, Iterable[Any]]:
    if array.dtype.hasobject:
        raise TypeError("An array of Python objects has no fingerprint.")
    name = array.dtype.descr if array.dtype.names else array.dtype.name
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return f"array {name} {array.shape}", (little.reshape(-1).view(np.uint8).data,)
