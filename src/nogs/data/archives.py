"""One view of a dataset's files, whether unpacked in folders or inside zip archives, which are read in place."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nogs.runtime.digests import BEGUN, DONE
from nogs.runtime.errors import InputError
from nogs.runtime.reading import read_regular, size

__all__ = ["IMAGE_SUFFIXES", "OTHER_SUFFIXES", "Entry", "Tree", "by_stem", "check_pictures", "hidden", "is_run", "walk"]

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
OTHER_SUFFIXES = (
    ".gif", ".heic", ".heif", ".avif", ".jxl", ".jp2", ".jfif", ".tga", ".ppm", ".pgm", ".pbm", ".svg", ".psd", ".dng",
    ".cr2", ".cr3", ".nef", ".arw", ".raw",
)  # fmt: skip
"""Suffixes of picture formats that are not read; a folder with such files gets a note."""
MOST = 2**28
"""Size of the largest picture or text file that is read, in bytes, packed or unpacked."""
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class Entry(NamedTuple):
    """A file on disk, or a member of a zip archive with its offset, so that any process can read it."""

    name: str  # posix, relative to the dataset
    path: str  # the file, or the archive that holds it
    size: int  # bytes of the content
    stamp: int  # modification time in ns of a file, checksum of a member; differs if the content does
    header: int = -1  # offset of a member's local header; -1 for a file
    packed: int = 0  # bytes that the member takes in the archive
    method: int = zipfile.ZIP_STORED

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.path if self.header < 0 else f"{self.path}:{self.name}"

    def read(self) -> bytes:
        """The content; ValueError or OSError where the file or the member is damaged, too large or no regular file."""
        if self.header < 0:
            return read_regular(self.path, most=MOST)
        if max(self.size, self.packed) > MOST:
            raise ValueError(f"larger than {size(MOST)}")
        with open(self.path, "rb") as file:
            file.seek(self.header)
            # the local header's own lengths count: its extra field may differ from the central directory's
            magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            if magic != b"PK\3\4":
                raise ValueError("the archive's directory points at something else")
            file.seek(name + extra, os.SEEK_CUR)
            data = file.read(self.packed)
        if self.method == zipfile.ZIP_DEFLATED:
            # the size in the archive's directory may be wrong: no more than that is unpacked
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.size + 1)
        if len(data) != self.size or zlib.crc32(data) != self.stamp:
            raise ValueError("its checksum in the archive is wrong")
        return data


class Tree:
    """Files of a dataset found in `folders` and in the archives there that match `archives` (glob patterns).

    The first folder that has a name wins, and a loose file wins over an archived one. Archived names may start with
    `prefix`, the dataset's own folder.
    """

    def __init__(self, folders: Sequence[Path], *, archives: Iterable[str], prefix: str) -> None:
        self.folders = [folder for folder in folders if folder.is_dir()]
        self.prefix = prefix
        patterns = tuple(archives)
        found = [zip for folder in self.folders for p in patterns for zip in sorted(folder.glob(p))]
        self.archives = [zip for zip in found if zip.is_file()]

    @cached_property
    def members(self) -> dict[str, Entry]:
        """Members of all archives by name."""
        found: dict[str, Entry] = {}
        for archive in self.archives:
            for entry in _members(archive, self.prefix):
                found.setdefault(entry.name, entry)
        return found

    def find(self, name: str) -> Entry | None:
        """The file `name`, or None."""
        for folder in self.folders:
            path = folder / name
            if path.is_file():
                return _loose(name, path, path.stat())
        return self.members.get(name)

    def text(self, name: str, *, hint: str) -> str:
        """The text of `name`; if there is none, the error ends with `hint`."""
        entry = self.find(name)
        if entry is None:
            looked = ", ".join(map(str, self.folders)) or "any folder given"
            raise InputError(f"There is no {name} in {looked}; {hint}.")
        try:
            return entry.read().decode()
        except (OSError, ValueError, struct.error, zlib.error) as error:
            raise InputError(f"Cannot read {entry.shown} ({error}); download the file again.") from error

    def images(self, folder: str) -> dict[str, Entry]:
        """Every picture below `folder`, by its name relative to the dataset."""
        found: dict[str, Entry] = {}
        for root in self.folders:
            for entry in walk(root / folder, f"{folder}/"):
                found.setdefault(entry.name, entry)
        for name, entry in self.members.items():
            if name.startswith(f"{folder}/") and name.lower().endswith(IMAGE_SUFFIXES):
                found.setdefault(name, entry)
        return found


def hidden(name: str) -> bool:
    """Whether a file or folder belongs to the system: it has a leading dot, or macOS adds it to archives."""
    return name.startswith(".") or name == "__MACOSX"


def is_run(folder: Path) -> bool:
    """Whether the folder is a run of this package, whose figures are not pictures of a dataset."""
    folder = folder.with_name(folder.name.removesuffix(".before"))
    return os.path.isfile(folder / "recipe.yaml") and os.path.isdir(folder / "data")  # False without permission


def check_pictures(folder: Path) -> None:
    """Refuse a run without its recipe.yaml in place of a folder of pictures: advice about classes would cost its
    networks."""
    marks = (folder / "run.json", *(path for name in (BEGUN, DONE) for path in folder.glob(f"*/{name}")))
    if any(map(os.path.isfile, marks)):
        raise InputError(
            f"{folder} is the folder of a run, not of pictures; to resume the run give its original command, with "
            f"--out {folder}."
        )


def walk(
    folder: Path, prefix: str = "", *, suffixes: tuple[str, ...] = IMAGE_SUFFIXES, above: tuple[str, ...] = ()
) -> Iterator[Entry]:
    """Every picture below a folder, sorted by name; hidden files, hidden folders and runs are skipped.

    A broken link is an entry too: reading it fails as for other damaged pictures. A link to one of the folders `above`
    is skipped, since it could be followed forever.
    """
    above = (*above, os.path.realpath(folder))
    try:
        children = sorted(os.scandir(folder), key=lambda child: child.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InputError(f"Cannot read the folder {folder} ({error.strerror}); check its permissions.") from error
    for child in children:
        if hidden(child.name):
            continue
        # os.path.isdir is False for a link to itself, where the entry's own is_dir raises
        if os.path.isdir(child.path) if child.is_symlink() else child.is_dir():
            if is_run(Path(child.path)):
                continue
            if not child.is_symlink() or os.path.realpath(child.path) not in above:
                _check_name(child.path)
                yield from walk(folder / child.name, f"{prefix}{child.name}/", suffixes=suffixes, above=above)
        elif child.name.lower().endswith(suffixes):
            _check_name(child.path)
            try:
                yield _loose(prefix + child.name, child.path, child.stat())
            except OSError:
                yield Entry(prefix + child.name, child.path, size=0, stamp=0)


def _check_name(path: str) -> None:
    """Refuse a name that is not UTF-8: it becomes an id or a label in files and reports."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(f"The name of {path} is not UTF-8; rename it.") from None


def by_stem(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Entries by name without suffix, so that a .webp copy matches a .jpg name; two with one stem are refused."""
    found: dict[str, Entry] = {}
    for name, entry in entries.items():
        other = found.setdefault(name.rpartition(".")[0], entry)
        if other is not entry:
            raise InputError(f"Two files are the same image: {other.shown} and {entry.shown}; remove one of them.")
    return found


def _loose(name: str, path: str | Path, stat: os.stat_result) -> Entry:
    return Entry(name, str(path), stat.st_size, stat.st_mtime_ns)


def _members(archive: Path, prefix: str) -> Iterator[Entry]:
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = opened.infolist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"{archive} is not a whole zip archive ({error}); download it again.") from error
    for info in infos:
        if not info.filename or info.is_dir():  # a damaged name may be empty, which is_dir does not expect
            continue
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{archive} is encrypted or packed in an unusual way; unpack it beside the archive.")
        name = info.filename.removeprefix(f"{prefix}/")
        yield Entry(
            name, str(archive), info.file_size, info.CRC, info.header_offset, info.compress_size, info.compress_type
        )
