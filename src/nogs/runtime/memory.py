"""The size of the machine's memory, and an allocator setting that reuses freed memory in loops."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt(3)


def keep_freed_memory(*, block: int = 1 << 28) -> bool:
    """Serve blocks up to `block` bytes from the heap and keep them when freed; True if the allocator is glibc.

    By default glibc maps each block above 128 KiB anew, and the kernel clears its pages each time. On tensors of a
    megabyte this costs more than the arithmetic.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library, such as musl
        return False
    return bool(mallopt(_MMAP_THRESHOLD, min(block, 2**31 - 1))) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def physical_memory() -> int | None:
    """Bytes of the machine's memory; None if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
