"""`Bank`: images that complete glimpses, with their PCA, codes and sources; and the files of codes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from nogs.bank.pca import LARGEST_CODE, PCA
from nogs.bank.store import MANIFEST, Images, ResidentImages, stored_blocks
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.digests import DONE
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_array, read_json, read_sealed, save_array, write_sealed
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.headers import Header, described
from nogs.runtime.tensors import own_tensor

__all__ = ["Bank", "encode_bank", "make_bank", "read_codes", "read_sources", "source_rows"]

CODES = "codes"
PCA_FILE = "pca.safetensors"
SOURCES = "sources.npy"


class _Codes(Header):
    """The manifest's entry for one file of codes."""

    file: str = Field(pattern=r"^\d{5,}\.npy$")
    images: int = Field(ge=1)
    digest: str


class _Manifest(Header):
    """The manifest of a bank's codes: the digest of the PCA, the images per file, and the files."""

    pca: str
    block: int = Field(ge=1)
    files: list[_Codes]


@dataclass(frozen=True)
class Bank:
    """N images with their codes. `codes` and `pca` are on the computing device; `images` may be elsewhere."""

    images: Images
    pca: PCA
    codes: Float[Tensor, "N C"]
    about: dict[str, Any]
    sources: Int64[Tensor, " N"] | None = None
    """Index of each image's source in `source_rows`, for a bank of training images; None for other banks."""

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def device(self) -> torch.device:
        """The device on which proposals are computed."""
        return self.codes.device

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change a completion."""
        return str(self.about["fingerprint"])


def make_bank(pixels: Tensor, *, pca: PCA, about: dict[str, Any] | None = None) -> Bank:
    """A bank of images that are already in memory, on their device."""
    pca = pca.to(pixels.device)
    blocks = [_halves(pca.encode(block)) for _, block in stored_blocks(ResidentImages(pixels), block=512)]
    codes = torch.cat(blocks)
    about = {"fingerprint": fingerprint("bank in memory", codes), **(about or {})}
    return Bank(ResidentImages(pixels), pca, on_device(codes, pixels.device), about)


def encode_bank(images: Images, pca: PCA, *, folder: Path, block: int, device: torch.device) -> None:
    """The second pass: write float16 codes, one file for each `block` images; existing files are kept."""
    pca = pca.to(device)
    mark = file_digest(folder / PCA_FILE)
    path = folder / CODES / MANIFEST
    manifest = _read_manifest(path) if path.exists() else None
    if manifest is None or manifest.pca != mark or manifest.block != block:
        manifest = _Manifest(pca=mark, block=block, files=[])
    start = sum(entry.images for entry in manifest.files)
    with progress.track("encoding the bank", total=len(images), unit="images", start=start) as bar:
        for first in range(start, len(images), block):
            rows = range(first, min(first + block, len(images)))
            part = [
                _halves(pca.encode(images.read(np.arange(n, min(n + 512, rows.stop))).to(device))).cpu()
                for n in range(rows.start, rows.stop, 512)
            ]
            file = folder / CODES / f"{len(manifest.files):05}.npy"
            save_array(file, torch.cat(part).numpy())
            manifest.files.append(_Codes(file=file.name, images=len(rows), digest=file_digest(file)))
            write_sealed(path, manifest.model_dump())
            bar.advance(len(rows))


def read_codes(folder: Path) -> Float[Tensor, "N C"]:
    """The codes of a bank's folder, checked; float16."""
    manifest, parts = _read_manifest(folder / CODES / MANIFEST), []
    if file_digest(folder / PCA_FILE) != manifest.pca:
        raise InputError(f"{folder / PCA_FILE} has changed since the bank was built; build the bank again.")
    for entry in manifest.files:
        path = folder / CODES / entry.file
        if file_digest(path) != entry.digest:
            raise InputError(f"{path} has changed since the bank was built; build the bank again.")
        codes = load_array(path)
        if codes.dtype != np.float16 or codes.ndim != 2 or len(codes) != entry.images:
            raise InputError(f"{path} holds {codes.dtype} {codes.shape}, not its codes; build the bank again.")
        parts.append(own_tensor(codes))
    if not parts or len({part.shape[1] for part in parts}) > 1:
        raise InputError(f"{folder / CODES / MANIFEST} lists no codes of one length; build the bank again.")
    return torch.cat(parts)


def _read_manifest(path: Path) -> _Manifest:
    with described(path, "the manifest of a bank's codes"):
        return _Manifest.model_validate(read_sealed(path))


def source_rows(task: Task) -> Int64[np.ndarray, " M"]:
    """Rows of the images that a bank may hold: first those that train the posterior, then the other training images."""
    trained = task.rows(task.splits.get("posterior", ()))
    others = task.rows(task.splits["train"])
    return np.concatenate([trained, others[~np.isin(others, trained)]])


def read_sources(folder: Path, *, images: int) -> Int64[Tensor, " N"] | None:
    """The training image that each row of a bank shows, or None if unknown."""
    path = folder / SOURCES
    if SOURCES not in read_json(folder / DONE)["files"]:
        return None
    if not path.is_file():
        raise InputError(f"{path} is missing; bring it back from a copy, or build the bank again.")
    found = load_array(path)
    if found.shape != (images,) or found.dtype != np.int64:
        raise InputError(f"{path} does not hold {images} sources; build the bank again.")
    return own_tensor(found)


def on_device(codes: Float[Tensor, "N C"], device: torch.device) -> Float[Tensor, "N C"]:
    """Codes in the type that the device multiplies fastest: float16 on a GPU, float32 on a CPU."""
    return codes.to(device, torch.float16 if device.type == "cuda" else torch.float32)


def _halves(codes: Tensor) -> Tensor:
    largest = float(codes.abs().max()) if len(codes) else 0.0
    if not largest < LARGEST_CODE:
        raise InputError(
            f"A code of {largest:.0f} is too large for float16; bank.pixel_std is far below the images' own deviation."
        )
    return codes.half()
