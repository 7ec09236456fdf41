"""Posterior and bank in the memory of a cluster, so that its nodes need no access to the files.

The driver reads and checks both once and puts them into the object store. A worker builds its tools from there, without
copying the bank's pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nogs.bank import Bank, load_bank
from nogs.bank.bank import on_device
from nogs.bank.pca import PCA
from nogs.bank.store import Images, resident, stored_blocks
from nogs.design.steps import Tools
from nogs.design.tools import Files, fits, worker_device
from nogs.posterior.store import find_posterior
from nogs.runtime import progress
from nogs.runtime.files import read_json, write_bytes
from nogs.runtime.tensors import own_tensor

__all__ = ["Shared", "Store", "StoredImages", "share"]

_BLOCK = 64 << 20  # bytes of images in one object, few for the driver's memory


class Store(Protocol):
    """A store of values for all workers: a `RayExecutor`."""

    def share(self, value: Any) -> Callable[[], Any]:
        """Something small to send to workers, which returns the value when called there."""

    def room(self) -> int:
        """Bytes that fit on every node."""


class StoredImages:
    """Images in several arrays, in order, wherever these lie; implements `Images`."""

    def __init__(self, parts: list[UInt8[np.ndarray, "_ H W 3"]]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part) for part in parts)])

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""
        return self._parts[0].shape[1], self._parts[0].shape[2]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n H W 3"]:
        """The images of these rows, in their order."""
        out = np.empty((len(rows), *self.size, 3), np.uint8)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(owner):
            mine = owner == part
            out[mine] = self._parts[part][rows[mine] - self._starts[part]]
        return torch.from_numpy(out)


@dataclass(frozen=True)
class Contents:
    """The contents of the store, as arrays, which a worker reads without a copy."""

    posterior: UInt8[np.ndarray, " bytes"]  # the posterior's file
    pca: dict[str, Any]
    codes: np.ndarray  # float16 [N, C]
    images: list[Callable[[], UInt8[np.ndarray, "n H W 3"]]]
    about: dict[str, Any]
    sources: Int64[np.ndarray, " N"] | None
    weights: tuple[str, UInt8[np.ndarray, " bytes"]] | None  # name and content of the completion's own file


@dataclass(frozen=True)
class Shared:
    """Opens tools, as `Files` does, from what lies in the store; two are equal if they were made from equal files."""

    files: Files
    contents: Callable[[], Contents] = field(compare=False)

    def __call__(self) -> Tools:
        """Posterior and completion, on the worker's device."""
        device, found = worker_device(self.files.device), self.contents()
        images: Images = StoredImages([part() for part in found.images])
        if fits(len(images) * images.size[0] * images.size[1] * 3, device):
            images = resident(images, device=device)
        pca = PCA(**{name: _own(value) for name, value in found.pca.items()}).to(device)
        sources = None if found.sources is None else _own(found.sources).to(device)
        bank = Bank(images, pca, on_device(_own(found.codes), device), found.about, sources)
        with TemporaryDirectory() as folder:
            posterior_file, weights = Path(folder) / "posterior.safetensors", None
            write_bytes(posterior_file, found.posterior.tobytes())
            posterior = self.files.open_posterior(posterior_file, device=device)
            if found.weights is not None:
                weights = Path(folder) / found.weights[0]
                write_bytes(weights, found.weights[1].tobytes())
            return self.files.tools(posterior, bank, device=device, weights=weights)


def share(files: Files, store: Store) -> Files | Shared:
    """Put posterior and bank into the store; where they don't fit, every node must read the files."""
    count = read_json(files.bank / "done.json")["images"]
    file, own = find_posterior(files.posterior), files.weights
    needed = count * files.task.image_size**2 * 3 + sum(path.stat().st_size for path in (file, own) if path)
    if needed > store.room():
        progress.say(
            f"posterior and bank ({_gib(needed)}) don't fit the object store of every node ({_gib(store.room())}): "
            f"each node reads them from {file} and {files.bank} itself."
        )
        return files
    bank = load_bank(files.bank, device="cpu")
    block = max(1, _BLOCK // (files.task.image_size**2 * 3))
    parts = []
    with progress.track("sharing the bank", total=count, unit="images") as bar:
        for rows, images in stored_blocks(bank.images, block=block):
            parts.append(store.share(images.numpy()))
            bar.advance(len(rows))
    pca = {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(bank.pca).items()}
    posterior, codes = np.fromfile(file, np.uint8), bank.codes.half().numpy()
    sources = None if bank.sources is None else bank.sources.numpy()
    weights = None if own is None else (own.name, np.fromfile(own, np.uint8))
    return Shared(files, store.share(Contents(posterior, pca, codes, parts, bank.about, sources, weights)))


def _own(value: Any) -> Any:
    """An array as a tensor in torch's own memory, as if read from the file; other values as they are."""
    return own_tensor(value) if isinstance(value, np.ndarray) else value


def _gib(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"
