"""Generators of bank images, p(I), with random access to a stream of images by number.

In: numbers of images and a seed. Out: uint8 images of one size. An image depends only on its number and the seed, so
that a build can be resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from nogs.bank.config import BankConfig, GeneratorName
from nogs.data.task import Task
from nogs.runtime.errors import InputError

__all__ = ["DIFFERENTIABLE", "Differentiable", "Generator", "make_differentiable", "make_generator"]

DIFFERENTIABLE: tuple[GeneratorName, ...] = ("trained", "stylegan", "finegan")
"""Generators whose images are differentiable functions of a Gaussian latent."""

_NEEDS = {
    "stylegan": "its public weights",
    "finegan": "its public weights",
    "exported": "the .onnx file",
    "diffusers": "the pipeline's folder",
    "folder": "a folder of pictures",
    "trained": "the trained generator",
}


@runtime_checkable
class Generator(Protocol):
    """A source of images."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""

    @property
    def count(self) -> int | None:
        """Number of different images; None if unlimited."""

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change an image."""

    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""


@runtime_checkable
class Differentiable(Generator, Protocol):
    """A source whose images are differentiable functions of a latent with a Gaussian prior."""

    @property
    def latent(self) -> int:
        """Length of the latent."""

    def decode(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 H W"]:
        """Images in -1..1; any other randomness (noise, a discrete code) is drawn from the streams `keys`."""


def make_differentiable(
    name: str, path: Path, *, image_size: int, device: torch.device | str = "cpu"
) -> Differentiable:
    """One of the `DIFFERENTIABLE` generators, from its file."""
    device = torch.device(device)
    if name == "stylegan":
        from nogs.bank.generators.stylegan import StyleGAN

        return StyleGAN.load(path, image_size=image_size, device=device)
    if name == "finegan":
        from nogs.bank.generators.finegan import FineGAN

        return FineGAN.load(path, image_size=image_size, device=device)
    from nogs.bank.generators.trained import Trained

    return Trained.load(path, device=device)


def make_generator(
    config: BankConfig, *, task: Task, path: Path | None = None, device: torch.device | str = "cpu"
) -> Generator:
    """The generator that `config` names; `path` is its file or folder of weights or pictures, if it needs one."""
    size, device = task.grid.height, torch.device(device)
    if config.generator in _NEEDS:
        if path is None:
            needs = _NEEDS[config.generator]
            raise InputError(f"The generator {config.generator!r} needs {needs}; give --generator-path.")
        if not Path(path).exists():
            raise InputError(f"There is no {path}; give --generator-path {_NEEDS[config.generator]}.")
        if not (Path(path).is_file() or Path(path).is_dir()):  # a pipe or a device may never end
            raise InputError(f"{path} is not a regular file; give --generator-path {_NEEDS[config.generator]}.")
    match config.generator:
        case "training-images":
            from nogs.bank.generators.pictures import COLOUR, TrainingImages
            from nogs.bank.leaks import allowed_rows

            rows = allowed_rows(task, rms=config.duplicate_rms, device=device)
            return TrainingImages(task, rows, shift=config.shift, colour=COLOUR)
        case "digits":
            from nogs.bank.generators.pictures import Digits

            return Digits(image_size=size)
    assert path is not None
    match config.generator:
        case "folder":
            from nogs.bank.generators.pictures import Folder

            return Folder(path, image_size=size)
        case "stylegan" | "finegan":
            return make_differentiable(config.generator, path, image_size=size, device=device)
        case "exported":
            from nogs.bank.generators.exported import Exported

            return Exported(path, latent=config.latent, image_size=size, device=device)
        case "diffusers":
            from nogs.bank.generators.exported import Diffusers

            return Diffusers(path, image_size=size, device=device)
    from nogs.bank.generators.trained import Trained
    from nogs.bank.leaks import refuse_ids

    trained = Trained.load(path, device=device)
    if trained.size != (size, size):
        raise InputError(f"{path} makes images of {trained.size} px, but the task's are {size} px; train it again.")
    refuse_ids(trained.ids, task, what=f"The generator {path}")
    return trained
