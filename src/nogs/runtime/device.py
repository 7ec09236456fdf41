"""Device and precision of a computation, and the versions that produced a result."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from nogs import __version__
from nogs.runtime.errors import InputError

__all__ = ["Precision", "one_thread", "pick_device", "pick_precision", "versions"]

_changing = threading.Lock()
_blocks: list[tuple[int, int]] = []  # open blocks of `one_thread`: the Python thread, and the number to restore


@dataclass(frozen=True)
class Precision:
    """How matrix products are rounded: "float32", "tf32" or "bfloat16". Weights and losses stay float32."""

    name: str
    device: torch.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of activations inside `active`."""
        return torch.bfloat16 if self.name == "bfloat16" else torch.float32

    def autocast(self) -> torch.autocast:
        """Context in which matrix products and convolutions run in `dtype`.

        Weights are cast at every use. With its cache, autocast would keep a cast until the context ends, although
        training changes the weight. A captured graph would keep the cast forever.
        """
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.name == "bfloat16", cache_enabled=False
        )

    @contextmanager
    def active(self) -> Iterator[None]:
        """`autocast`, with TensorFloat-32 on or off for what stays float32; the settings are restored at the end."""
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        try:
            torch.set_float32_matmul_precision("highest" if self.name == "float32" else "high")
            torch.backends.cudnn.allow_tf32 = self.name != "float32"
            with self.autocast():
                yield
        finally:
            torch.set_float32_matmul_precision(before[0])
            torch.backends.cudnn.allow_tf32 = before[1]


def pick_device(name: str = "auto") -> torch.device:
    """The device called "cpu", "cuda", "cuda:N" or "mps"; "auto" is the first available of cuda, mps and cpu."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (":" in name and (kind != "cuda" or not number.isdecimal())):
        raise InputError(f"There is no device {name!r}; choose auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(
            f"Device {name!r} was asked for, but this machine shows {count} CUDA devices; choose auto or cpu."
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError("Device 'mps' was asked for, but this machine has none; choose auto or cpu.")
    return torch.device(name)


@contextmanager
def one_thread(device: torch.device | str = "cpu") -> Iterator[None]:
    """On a CPU, compute with one thread, so that rounding does not depend on the number of cores or workers."""
    if torch.device(device).type != "cpu":
        yield
        return
    own = threading.get_ident()
    with _changing:
        # a Python thread that begins in another one's block would take the 1 there for the usual number
        known = not _blocks or any(thread == own for thread, _ in _blocks)
        block = own, torch.get_num_threads() if known else _blocks[0][1]
        _blocks.append(block)
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _changing:
            _blocks.remove(block)
            torch.set_num_threads(block[1])


def pick_precision(name: str, device: torch.device) -> Precision:
    """The precision of that name; "auto" is bfloat16 on CUDA devices that have it (Ampere and newer), else float32."""
    modern = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    if name == "auto":
        name = "bfloat16" if modern else "float32"
    if name not in ("float32", "tf32", "bfloat16"):
        raise InputError(f"There is no precision {name!r}; choose auto, float32, tf32 or bfloat16.")
    if name == "tf32" and not modern:
        raise InputError(f"Precision 'tf32' needs a CUDA device of compute capability 8, not {device}; choose float32.")
    return Precision(name, device)


def versions(device: torch.device | None = None) -> dict[str, str | None]:
    """Versions of nogs, Python, torch and CUDA and the name of the device, to record with a result."""
    device = device or pick_device("auto")
    on_gpu = device.type == "cuda"
    return {
        "nogs": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if on_gpu else None,
        "device": torch.cuda.get_device_name(device) if on_gpu else f"{device.type} ({platform.machine()})",
    }
