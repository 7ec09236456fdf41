"""What a file of weights says about itself, checked before a network is built from it: by a model, bounds and shapes.

A file may come from a stranger. Sizes in its header cost nothing to write and gigabytes to believe, so a network is
first built without memory, on torch's meta device, and its tensors are compared with those of the file.
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
"""No size in a header is larger: widths, labels, locations, images."""
_DEEP = ("layers", "depth")  # endings of fields that count modules, which take time to build even without memory

_FEW = 64  # modules that any file may describe: some of its network's tensors may lie in another one

Name = Annotated[str, Field(max_length=10_000)]
Size = Annotated[int, Field(ge=0, le=LARGEST)]
Glimpses = Annotated[int, Field(ge=1, le=1_000)]


class Header(BaseModel):
    """Fields of a header: no others, and of exactly these types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


@contextmanager
def described(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a wrong header makes fail in the block into one sentence about its file."""
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
        RuntimeError,  # and with it RecursionError
        TypeError,
        ValueError,  # and with it InputError
    ) as error:
        if isinstance(error, InputError) and str(path) in str(error):
            raise  # it says so itself
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    else:
        return
    raise InputError(f"{path} is not {what}: {reason[:500]}; fetch it again, or make it again.") from None


def check_bounds(value: Any, *, tensors: int) -> None:
    """Refuse a header with a size that no network has: any number above `LARGEST`, or more layers than tensors."""
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
    """Refuse a file whose tensors are not those of the network that it describes, which is built without memory.

    The network's tensors have `leading` axes that the file's have not; `name` is what the file's names begin with.
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
