"""Generators from elsewhere: a module exported by torch (`torch.export` or TorchScript), and a diffusers pipeline."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nogs.bank.generators.noise import image_keys, normal, to_pictures
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import file_digest, files_fingerprint, fingerprint
from nogs.runtime.streams import key

__all__ = ["Diffusers", "Exported"]


class Exported:
    """A module that maps N(0, 1) numbers [n, latent] to images [n, 3, H, W] in -1..1: `.pt2`, or TorchScript."""

    count = None

    def __init__(self, path: Path, *, latent: int, image_size: int, device: torch.device) -> None:
        self.path, self.latent, self.size, self.device = Path(path), latent, (image_size, image_size), device
        self._mark = file_digest(path)
        try:
            with warnings.catch_warnings(), _plain_tensors_only():
                warnings.simplefilter("ignore")  # TorchScript is deprecated, but files of it are around
                if self.path.suffix == ".pt2":
                    self._module: Any = torch.export.load(self.path).module().to(device)
                else:
                    self._module = torch.jit.load(str(self.path), map_location=device).eval()
        except Exception as error:  # both readers raise many kinds on files that are not theirs
            raise InputError(
                f"{path} is neither a module of torch.export (.pt2) nor of TorchScript; export it again."
            ) from error

    @property
    def fingerprint(self) -> str:
        """Of the file and the size."""
        return fingerprint("exported", self._mark, self.latent, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""
        keys = image_keys(numbers, seed=seed, purpose="exported", device=self.device)
        values = self._module(normal(keys, self.latent))
        if not isinstance(values, Tensor) or values.ndim != 4 or values.shape[:2] != (len(numbers), 3):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise InputError(f"{self.path} must give images [n, 3, H, W] for [n, {self.latent}] numbers, not {got}.")
        return to_pictures(values, self.size[0])


@contextmanager
def _plain_tensors_only() -> Iterator[None]:
    """torch.export unpickles what it finds in an archive; torch's own switch restricts that to plain tensors."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class Diffusers:
    """An unconditional diffusers pipeline from a local folder; nothing is downloaded."""

    count = None

    def __init__(self, folder: Path, *, image_size: int, device: torch.device) -> None:
        self.size, self.device = (image_size, image_size), device
        try:
            from diffusers import DiffusionPipeline  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise InputError("The generator 'diffusers' needs an extra: pip install 'nogs[diffusers]'.") from error
        try:
            self._pipeline = DiffusionPipeline.from_pretrained(str(folder), local_files_only=True, use_safetensors=True)
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} is not a diffusers pipeline with safetensors weights ({error}).") from error
        self._pipeline.to(device)
        self._pipeline.set_progress_bar_config(disable=True)
        self._mark = files_fingerprint(path for path in Path(folder).rglob("*") if path.is_file())

    @property
    def fingerprint(self) -> str:
        """Of the files and the size."""
        return fingerprint("diffusers", self._mark, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers, each from its own torch generator."""
        streams = [
            torch.Generator(device=self.device).manual_seed(key(seed, "diffusers", str(number))) for number in numbers
        ]
        out = self._pipeline(batch_size=len(streams), generator=streams, output_type="np").images
        return to_pictures(torch.from_numpy(out).permute(0, 3, 1, 2) * 2 - 1, self.size[0])
