"""Decoded images on disk: pictures are decoded once, in parallel, and mapped into memory from then on.

A cache is a folder named by a fingerprint of the files and their preparation. `cache.json` is written last: without it
the rest is not used, and another fingerprint in it is an error. It holds a CRC-32 of every `_CHUNK` pictures. They are
compared when the size or modification time of `images.npy` has changed, since reading all of it at every start would
take too long. `nogs data prepare` always compares them.
"""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from nogs.data.archives import Entry
from nogs.data.images import VERSION, Chunk, Preparation, decode_chunk
from nogs.runtime import files
from nogs.runtime.digests import file_digest
from nogs.runtime.errors import InputError
from nogs.runtime.executors import LocalExecutor
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Header
from nogs.runtime.lock import held, remove_abandoned
from nogs.runtime.progress import say, track

__all__ = ["Prepared", "prepare", "shortage"]

_CHUNK = 128  # pictures a worker decodes and writes at once: 19 MB at 224 px
_NAMED = 5  # unreadable pictures named in the sentence itself
_LARGEST = 2**30  # limit on the bytes of one decoded picture, some 19,000 px per side


@dataclass(frozen=True)
class Prepared:
    """Decoded pictures: `rows` are their indices in the given entries, `sizes` their original (width, height)."""

    images: npt.NDArray[np.uint8]  # M S S 3
    rows: npt.NDArray[np.int64]  # M
    sizes: npt.NDArray[np.int32]  # M 2
    notes: tuple[str, ...]


def prepare(
    *,
    name: str,
    title: str = "",
    entries: Sequence[Entry],
    boxes: npt.NDArray[np.float64] | None,
    how: Preparation,
    cache: Path,
    skip_corrupt: bool = False,
    workers: int | None = None,
    verify: bool = False,
) -> Prepared:
    """The pixels of `entries`, from the cache if it has them, else decoded into it by `workers` processes.

    With `verify` every picture of the cache is compared with its checksum, even if the file's time is unchanged.
    """
    sources = "\n".join(f"{entry.name}\t{entry.size}\t{entry.stamp}" for entry in entries)
    mark = fingerprint("prepared images", VERSION, how, sources, boxes)
    folder = Path(cache) / f"{name}-{how.size}px-{mark}"
    remove_abandoned(Path(cache), "*/.images.*.part.npy")
    record = _finished(folder, mark, verify=verify)
    if record is None:
        record = _decode_all(folder, (name, title or name), mark, entries, boxes, how, workers or os.cpu_count() or 1)
    corrupt = [bad.model_dump() for bad in record.corrupt]
    if corrupt and not skip_corrupt:
        raise InputError(_unreadable(corrupt, len(entries), folder))
    notes = []
    if record.conversions:
        kinds = ", ".join(f"{count} {kind}" for kind, count in record.conversions.items())
        notes.append(f"Pictures that were not plain RGB were converted: {kinds}.")
    if corrupt:
        notes.append(_left_out([entries[bad["row"]].name for bad in corrupt]))
    rows = np.delete(np.arange(len(entries)), [bad["row"] for bad in corrupt])
    images = files.load_array(folder / "images.npy", mmap=True)
    return Prepared(images, rows, files.load_array(folder / "sizes.npy"), tuple(notes))


class _Corrupt(Header):
    row: int = Field(ge=0)
    file: str
    problem: str


class _Record(Header):
    """Content of `cache.json`."""

    fingerprint: str
    task: str
    version: int
    preparation: dict[str, Any]
    images: int = Field(ge=0)
    conversions: dict[str, int]
    corrupt: list[_Corrupt]
    checks: list[int]
    """CRC-32 of each `_CHUNK` pictures."""
    stamp: list[int]
    """Size and modification time of images.npy at the last comparison."""
    sizes: str
    """Digest of sizes.npy."""


def _finished(folder: Path, mark: str, *, verify: bool) -> _Record | None:
    """The content of `cache.json`, or None if the cache is incomplete or has changed."""
    path = folder / "cache.json"
    if not path.exists():
        return None
    try:
        record = _Record.model_validate(files.read_sealed(path))
    except (InputError, ValidationError):
        say(f"{path} is damaged: the pictures are decoded again.")
        return None
    if record.fingerprint != mark:
        raise InputError(
            f"The cache {folder} holds images of another recipe than its name says; delete that folder or give "
            "another --cache."
        )
    file = folder / "images.npy"
    try:
        images = files.load_array(file, mmap=True)
        sizes = files.load_array(folder / "sizes.npy")
    except InputError:
        return None
    if not len(images) == len(sizes) == record.images or file_digest(folder / "sizes.npy") != record.sizes:
        say(f"{folder} is damaged: the pictures are decoded again.")
        return None
    if verify or _stamp(file) != record.stamp:
        if list(_checks(images, "Comparing the decoded images")) != record.checks:
            say(f"{file} has changed since it was written: the pictures are decoded again.")
            return None
        record = record.model_copy(update={"stamp": _stamp(file)})
        with suppress(InputError):  # a read-only cache is compared at every start
            files.write_sealed(path, record.model_dump())
    return record


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _checks(images: npt.NDArray[np.uint8], title: str) -> Iterator[int]:
    with track(title, total=len(images), unit="images") as bar:
        for row in range(0, len(images), _CHUNK):
            part = np.ascontiguousarray(images[row : row + _CHUNK])
            yield zlib.crc32(part.data)
            bar.advance(len(part))


def _decode_all(
    folder: Path,
    names: tuple[str, str],
    mark: str,
    entries: Sequence[Entry],
    boxes: npt.NDArray[np.float64] | None,
    how: Preparation,
    workers: int,
) -> _Record:
    total = len(entries)
    row_bytes = how.size * how.size * 3
    if lacking := shortage(folder, images=total, size=how.size):
        raise InputError(lacking)
    with suppress(OSError):
        (folder / "cache.json").unlink()
    sizes = np.zeros((total, 2), np.int32)
    problems, conversions = [""] * total, [""] * total
    with (
        ExitStack() as stack,  # until the file is renamed
        files.atomic(folder / "images.npy") as temporary,
        track(f"Decoding {names[1]}", total=total, unit="images") as bar,
    ):
        stack.enter_context(held(temporary))
        start = _allocate(temporary, total, how.size)
        chunks = [
            Chunk(
                entries[row : row + _CHUNK],
                None if boxes is None else boxes[row : row + _CHUNK].tolist(),
                start + row * row_bytes,
            )
            for row in range(0, total, _CHUNK)
        ]
        executor = LocalExecutor(min(workers, len(chunks)))
        with temporary.open("rb") as file:
            for index, result in executor.map(decode_chunk, chunks, shared=(str(temporary), how)):
                rows = slice(index * _CHUNK, index * _CHUNK + len(result[0]))
                sizes[rows], problems[rows], conversions[rows] = result
                bar.advance(len(result[0]))
                os.fsync(file.fileno())  # the disk writes while the workers decode, not after them
        bad = [row for row in range(total) if problems[row]]
        corrupt = [{"row": row, "file": entries[row].shown, "problem": problems[row]} for row in bad]
        if len(bad) == total:
            raise InputError(
                f"None of the {total} pictures can be read; the first is {corrupt[0]['file']} ({problems[0]})."
            )
        if bad:
            _drop(temporary, np.delete(np.arange(total), bad))
    if bad:
        lines = "".join(f"{entry['file']}\t{entry['problem']}\n" for entry in corrupt)
        files.write_text(folder / "corrupt.txt", lines)
    files.save_array(folder / "sizes.npy", np.delete(sizes, bad, 0))
    converted = Counter(kind for text in conversions for kind in text.split("; ") if kind)
    path = folder / "images.npy"
    record = _Record(
        fingerprint=mark,
        task=names[0],
        version=VERSION,
        preparation=asdict(how),
        images=total - len(bad),
        conversions=dict(converted.most_common()),
        corrupt=[_Corrupt.model_validate(one) for one in corrupt],
        checks=list(_checks(files.load_array(path, mmap=True), "Checksums of the decoded images")),
        stamp=_stamp(path),
        sizes=file_digest(folder / "sizes.npy"),
    )
    files.write_sealed(folder / "cache.json", record.model_dump())
    return record


def shortage(folder: Path, *, images: int, size: int) -> str | None:
    """Why the images, of `size` px, can't be decoded into `folder`; None if they can."""
    each = size * size * 3
    if each > _LARGEST:
        return (
            f"One image of {size} x {size} px needs {_amount(each)}, more than the limit of {_amount(_LARGEST)}; "
            "lower --data.image-size."
        )
    existing = next((parent for parent in (folder, *folder.absolute().parents) if parent.is_dir()), None)
    free = each * images if existing is None else shutil.disk_usage(existing).free
    if free >= each * images:
        return None
    return (
        f"The decoded images of {size} px need {_amount(each * images)} in {folder}, but only {_amount(free)} are "
        "free; free some space, give another --cache or lower --data.image-size."
    )


def _amount(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def _allocate(path: Path, total: int, size: int) -> int:
    """Turn an empty file into an .npy of full length, with its blocks reserved; return the offset of its pixels."""
    shape = (total, size, size, 3)
    with path.open("r+b") as file:
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "|u1"})
        file.flush()
        start = file.tell()
        length = start + total * size * size * 3
        try:
            os.posix_fallocate(file.fileno(), 0, length)
        except (AttributeError, OSError) as error:  # not every system and file system can reserve
            if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            file.truncate(length)
    return start


def _drop(path: Path, kept: npt.NDArray[np.int64]) -> None:
    """Remove the gaps that unreadable pictures left. numpy pads the header, so a smaller count fits in its place."""
    images = np.lib.format.open_memmap(path, mode="r+")
    start = images.offset
    for new, old in enumerate(kept):
        if new != old:
            images[new] = images[old]
    images.flush()
    shape = (len(kept), *images.shape[1:])
    del images
    with path.open("r+b") as file:
        np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "|u1"})
        assert file.tell() == start
        file.truncate(start + int(np.prod(shape)))


def _left_out(names: Sequence[str]) -> str:
    """A note that names the pictures and says what to do."""
    more = f" and {len(names) - _NAMED} more (--no-skip-corrupt lists all)" if len(names) > _NAMED else ""
    pictures, them = ("picture", "it") if len(names) == 1 else ("pictures", "them")
    return f"Left out {len(names)} unreadable {pictures}: {', '.join(names[:_NAMED])}{more}; replace or delete {them}."


def _unreadable(corrupt: Sequence[dict[str, Any]], total: int, folder: Path) -> str:
    named = ", ".join(f"{bad['file']} ({bad['problem']})" for bad in corrupt[:_NAMED])
    more = f" and {len(corrupt) - _NAMED} more" if len(corrupt) > _NAMED else ""
    return (
        f"{len(corrupt)} of {total} pictures can't be read: {named}{more}; all are listed in {folder / 'corrupt.txt'}: "
        "replace them, or skip them with --skip-corrupt."
    )
