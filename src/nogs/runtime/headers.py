"""Headers of weight files, validated before a network is built: by a schema, bounds and shapes.

A file may be untrusted, and false sizes in its header could exhaust the memory. So the network is first built without
memory, on torch's meta device, and its tensors are compared with the file's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nogs.runtime.errors import InputError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Glimpses", "Header", "Name", "Size", "check_bounds", "check_shapes", "described"]

LARGEST = 1 << 20
"""The largest size that a header may hold: widths, labels, locations, images."""
_DEEP = ("layers", "depth")  # suffixes of fields that count modules, which take time to build even without memory

_FEW = 64  # layers that are always allowed: some of the network's tensors may lie in another file

Name = Annotated[str, Field(max_length=10_000)]
Size = Annotated[int, Field(ge=0, le=LARGEST)]
Glimpses = Annotated[int, Field(ge=1, le=1_000)]


class Header(BaseModel):
    """A header: unknown fields and values of other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@contextmanager
def described(path: Path, what: str) -> Iterator[None]:
    """Turn any error that an invalid header causes in the block into one sentence about its file."""
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = f"its field {_short(field)} is wrong ({first['msg'].rstrip('.')})" if field else first["msg"]
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,  # includes RecursionError
        TypeError,
        ValueError,  # includes InputError
    ) as error:
        if isinstance(error, InputError) and str(path) in str(error):
            raise  # it already names the file
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    else:
        return
    raise InputError(f"{path} is not {what}: {reason[:500]}; fetch it again, or make it again.") from None


def check_bounds(value: Any, *, tensors: int) -> None:
    """Refuse a header with an implausible size: a number above `LARGEST`, or more layers than tensors."""
    for name, item in value.items() if isinstance(value, Mapping) else ():
        if isinstance(item, Mapping):
            check_bounds(item, tensors=tensors)
        elif isinstance(item, int | float) and not -LARGEST <= item <= LARGEST:
            raise InputError(f"its field {name} is {_short(item)}, more than {LARGEST:,}")
        elif isinstance(item, int) and name.endswith(_DEEP) and item > max(tensors, _FEW):
            raise InputError(f"its field {name} is {item}, but the file has {tensors} tensors")


def check_shapes(
    path: Path,
    build: Callable[[], nn.Module],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    leading: int = 0,
    name: str = "",
) -> None:
    """Refuse a file whose tensors don't match the network that it describes, which is built without memory.

    The network's tensors have `leading` more axes than the file's; `name` is the prefix of the file's names.
    """
    import torch

    with torch.device("meta"):
        expected = {key: tuple(value.shape[leading:]) for key, value in build().state_dict().items()}
    for key in sorted(expected.keys() | shapes.keys()):
        if expected.get(key) != shapes.get(key):
            raise InputError(
                f"{path} does not fit its own architecture: tensor {name + key!r} is missing, unknown or misshapen."
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
