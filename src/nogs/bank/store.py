"""The images of a bank: uint8 shards on disk that are checked at every read, or all images on a device.

A shard is written atomically and counts once the manifest lists it, so that a killed build resumes from its last
complete shard. A file beside each shard has a CRC-32 of every image; the manifest holds that file's digest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int64, UInt8
from pydantic import Field
from torch import Tensor

from nogs.runtime.digests import file_digest
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_array, read_sealed, save_array, write_sealed
from nogs.runtime.headers import Header, described

__all__ = ["Images", "Note", "ResidentImages", "Shards", "resident", "stored_blocks"]

MANIFEST = "manifest.json"


@runtime_checkable
class Images(Protocol):
    """Rows of uint8 images of one size, on disk, in memory or on a device."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""

    def __len__(self) -> int: ...

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n H W 3"]:
        """The images of these rows, in their order."""


class ResidentImages:
    """Images on a device as one tensor; `pixels` may be indexed without a copy."""

    def __init__(self, pixels: UInt8[Tensor, "N H W 3"]) -> None:
        self.pixels = pixels

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n H W 3"]:
        """The images of these rows, in their order."""
        return self.pixels[torch.from_numpy(rows).to(self.pixels.device)]


class Note(Header):
    """The position of a bank's generator after a shard: its next image number, and the numbers that were left out."""

    next: int = Field(ge=0, le=10**9)
    dropped: list[int]


class _Shard(Header):
    """The manifest's entry for one shard."""

    file: str = Field(pattern=r"^\d{5,}\.npy$")
    images: int = Field(ge=1)
    checks: str  # digest of the file of CRCs
    note: Note


class _Manifest(Header):
    """The manifest of a folder of shards."""

    format: Literal["nogs bank images 1"]
    size: list[Annotated[int, Field(ge=1, le=1 << 14)]] = Field(min_length=2, max_length=2)
    shards: list[_Shard]


class Shards:
    """A folder of shards. `append` adds a shard; `read` maps shards and refuses an image that has changed."""

    def __init__(self, folder: Path, *, size: tuple[int, int], shards: list[_Shard]) -> None:
        self.folder, self._size, self._shards = Path(folder), size, shards
        self._maps: dict[int, tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]] = {}
        self._starts = np.cumsum([0, *(shard.images for shard in shards)])

    @classmethod
    def create(cls, folder: Path, *, size: tuple[int, int]) -> Shards:
        """An empty store of images of this height and width; the shards of an interrupted build are kept."""
        if (Path(folder) / MANIFEST).exists():
            found = cls.open(folder)
            if found.size != size:
                raise InputError(f"{folder} holds images of {found.size} px, not {size}; choose another folder.")
            return found
        made = cls(Path(folder), size=size, shards=[])
        made._write_manifest()
        return made

    @classmethod
    def open(cls, folder: Path) -> Shards:
        """The store in `folder`; only its manifest is read."""
        path = Path(folder) / MANIFEST
        with described(path, "the manifest of a bank of this version"):
            manifest = _Manifest.model_validate(read_sealed(path))
        return cls(Path(folder), size=(manifest.size[0], manifest.size[1]), shards=manifest.shards)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""
        return self._size

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def notes(self) -> list[Note]:
        """The builder's notes on each shard."""
        return [shard.note for shard in self._shards]

    def rows(self, shard: int) -> range:
        """The rows that a shard holds."""
        return range(int(self._starts[shard]), int(self._starts[shard + 1]))

    def append(self, images: UInt8[np.ndarray, "n H W 3"], note: Note | None = None) -> None:
        """Write the next shard atomically: it is in the store only if this returns."""
        if images.dtype != np.uint8 or images.shape[1:] != (*self.size, 3):
            raise ValueError(f"A shard of {images.dtype} {images.shape} does not fit images of {self.size} px.")
        name = f"{len(self._shards):05}.npy"
        crc = self.folder / _crc_name(name)
        save_array(self.folder / name, images)
        save_array(crc, np.array([zlib.crc32(np.ascontiguousarray(image).data) for image in images], np.uint32))
        self._shards.append(
            _Shard(file=name, images=len(images), checks=file_digest(crc), note=note or Note(next=0, dropped=[]))
        )
        self._starts = np.append(self._starts, self._starts[-1] + len(images))
        self._write_manifest()

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n H W 3"]:
        """The images of these rows, in their order; a changed image is an error that names its row."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise ValueError(f"Rows {rows.min()}..{rows.max()} are outside a bank of {len(self)} images.")
        out = np.empty((len(rows), *self.size, 3), np.uint8)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(owner):
            pixels, crc = self._open(int(shard))
            for place in np.flatnonzero(owner == shard):
                inside = rows[place] - self._starts[shard]
                out[place] = pixels[inside]
                if zlib.crc32(out[place]) != crc[inside]:
                    raise InputError(self._damage(int(shard), int(rows[place])))
        return torch.from_numpy(out)

    def verify(self, *, advance: Callable[[int], None] = lambda n: None) -> list[str]:
        """Read every image and describe each damage in one sentence; an empty list means no damage."""
        problems = []
        for shard, entry in enumerate(self._shards):
            try:
                pixels, crc = self._open(shard)
            except InputError as error:
                problems.append(str(error))
            else:
                changed = [n for n, image in enumerate(pixels) if zlib.crc32(image) != crc[n]]
                problems += [self._damage(shard, int(self._starts[shard]) + n) for n in changed]
                self._maps.pop(shard)  # frees its pages for the next shard
            advance(entry.images)
        return problems

    def _open(self, shard: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
        if shard not in self._maps:
            entry = self._shards[shard]
            path, crc_path = self.folder / entry.file, self.folder / _crc_name(entry.file)
            if file_digest(crc_path) != entry.checks:
                raise InputError(f"{crc_path} has changed since the bank was built; build the bank again.")
            pixels, crc = load_array(path, mmap=True), load_array(crc_path)
            if crc.shape != (entry.images,):
                raise InputError(f"{crc_path} does not belong to {path.name}; build the bank again.")
            if pixels.shape != (entry.images, *self.size, 3) or pixels.dtype != np.uint8:
                raise InputError(f"{path} holds {pixels.dtype} {pixels.shape}, not its images; build the bank again.")
            self._maps[shard] = pixels, crc
        return self._maps[shard]

    def _damage(self, shard: int, row: int) -> str:
        path = self.folder / self._shards[shard].file
        return f"{path} is damaged: image {row} has changed since the bank was built; build the bank again."

    def _write_manifest(self) -> None:
        record = _Manifest(format="nogs bank images 1", size=list(self.size), shards=self._shards)
        write_sealed(self.folder / MANIFEST, record.model_dump())


def resident(
    images: Images, *, device: torch.device, block: int = 1024, advance: Callable[[int], None] = lambda n: None
) -> ResidentImages:
    """All images on a device, read and checked once, block by block."""
    pixels = torch.empty((len(images), *images.size, 3), dtype=torch.uint8, device=device)
    for rows, pixels_of_block in stored_blocks(images, block=block):
        pixels[rows.start : rows.stop] = pixels_of_block.to(device)
        advance(len(rows))
    return ResidentImages(pixels)


def stored_blocks(images: Images, *, block: int) -> Iterator[tuple[range, UInt8[Tensor, "n H W 3"]]]:
    """The images in order, `block` at a time."""
    for first in range(0, len(images), block):
        rows = range(first, min(first + block, len(images)))
        yield rows, images.read(np.arange(rows.start, rows.stop))


def _crc_name(file: str) -> str:
    return file.removesuffix(".npy") + ".crc.npy"
