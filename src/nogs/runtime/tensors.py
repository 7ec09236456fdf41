"""Named tensors and their metadata in one sealed safetensors file, read into torch's own memory; never a pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.runtime.digests import check_product, sealed, unsealed
from nogs.runtime.errors import InputError
from nogs.runtime.files import atomic, plain
from nogs.runtime.reading import check_regular, reason, unreadable

if TYPE_CHECKING:  # --help should not wait for torch
    import numpy as np
    import torch

__all__ = ["load_tensors", "own_tensor", "save_tensors", "tensor_header"]

_ENTRY, _TENSORS = "nogs", "tensors"  # keys: our entry in a safetensors header, and in it the digest of the tensors
_AGAIN = "bring it back from a copy, or delete it and make it again."


def save_tensors(
    path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write named tensors as safetensors, with `metadata` (plain values) and a digest of everything.

    The metadata is one entry of the header: safetensors writes several entries in random order, but the same tensors
    should give the same file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # views of one storage, which safetensors refuses, are copied
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    seen: set[int] = set()
    for name, tensor in whole.items():
        storage = tensor.untyped_storage().data_ptr()
        whole[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    header = None
    if metadata is not None:
        said = json.loads(json.dumps(dict(metadata), default=plain))
        header = {_ENTRY: json.dumps(sealed({**said, _TENSORS: _tensor_digest(whole)}))}
    with atomic(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # as for any new file; safetensors would make it readable by its owner only
        try:
            save_file(whole, str(temporary), header)
        except SafetensorError as error:
            number = re.search(r"os error (\d+)", str(error))  # the operating system's error, if there is one
            code = int(number[1]) if number else errno.EIO
            raise OSError(code, os.strerror(code) if number else str(error)) from error
        temporary.chmod(mode)


def tensor_header(path: str | Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The metadata of a file of tensors and the shape of each tensor, without reading the tensors.

    The metadata of a file from another program is an empty dictionary.
    """
    with _opened(path) as file:
        header = _unsealed_header(path, file)
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    header.pop(_TENSORS, None)
    return header, shapes


def load_tensors(
    path: str | Path, device: str | torch.device = "cpu"
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors by name, in torch's own memory, and their metadata."""
    with _opened(path) as file:
        header = _unsealed_header(path, file)
        # a copy: the alignment of the file's bytes would affect how float32 matrix products are rounded
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if header and header.pop(_TENSORS, None) != _tensor_digest(tensors):
        raise InputError(f"{path} has changed since it was written; {_AGAIN}")
    return {name: tensor.to(device) for name, tensor in tensors.items()}, header


def own_tensor(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor in torch's own memory, since alignment affects how matrix products are rounded."""
    import torch

    return torch.tensor(array)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """Open a safetensors file; every error becomes one sentence."""
    from safetensors import SafetensorError, safe_open

    try:
        check_regular(path)
        check_product(path)
        with safe_open(str(path), framework="pt") as file:
            yield file
    except InputError:
        raise
    except OSError as error:
        raise InputError(unreadable(path, error)) from error
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(f"{path} is not a whole safetensors file ({reason(error)}); {_AGAIN}") from error


def _unsealed_header(path: str | Path, file: Any) -> dict[str, Any]:
    text = (file.metadata() or {}).get(_ENTRY)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The header of {path} is not valid JSON ({reason(error)}); {_AGAIN}") from error
    if not isinstance(value, dict):
        raise InputError(f"The header of {path} is not a JSON object; {_AGAIN}")
    return dict(unsealed(value, Path(path), required=True))


def _tensor_digest(tensors: Mapping[str, torch.Tensor]) -> str:
    import torch

    state = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        value = tensors[name]
        state.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        state.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()
