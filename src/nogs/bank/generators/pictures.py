"""Generators without a network: the task's training images, the digits renderer, a folder of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nogs.data.archives import IMAGE_SUFFIXES, MOST, walk
from nogs.data.digits import render_digits
from nogs.data.images import Preparation, decode, reason
from nogs.data.task import Task
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import files_fingerprint, fingerprint
from nogs.runtime.reading import read_regular
from nogs.runtime.streams import numpy_stream

__all__ = ["Digits", "Folder", "TrainingImages"]

COLOUR = 0.1
"""Largest relative change of a channel's brightness in a changed copy."""


class TrainingImages:
    """Training images of a task: first the originals, then copies, mirrored and slightly moved and recoloured."""

    count = None

    def __init__(self, task: Task, rows: Int64[np.ndarray, " n"], *, shift: int, colour: float) -> None:
        self._task, self.rows, self.shift, self.colour = task, rows, shift, colour
        self.size = (task.grid.height, task.grid.width)
        self.ids = tuple(task.ids[row] for row in rows)
        if not len(rows):
            raise InputError(f"Task {task.title!r} leaves no training image for a bank; lower data.annotated.")

    @property
    def fingerprint(self) -> str:
        """Of the task, the rows and the changes."""
        return fingerprint("training-images", self._task.fingerprint, self.rows, self.shift, self.colour)

    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """Image number i shows training image i modulo their number; from the second round on it is changed."""
        images = np.array(self._task.images[self.shown(numbers)])
        for n, number in enumerate(numbers):
            if number >= len(self.rows):
                images[n] = self._changed(images[n], numpy_stream(seed, "training images", str(number)))
        return torch.from_numpy(images)

    def shown(self, numbers: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Rows of the training images that these image numbers show."""
        return self.rows[np.asarray(numbers) % len(self.rows)]

    def _changed(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if random.random() < 0.5:
            image = image[:, ::-1]
        reach = min(self.shift, min(self.size) - 1)
        if reach:
            top, left = random.integers(0, 2 * reach + 1, 2)
            image = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
            image = image[top : top + self.size[0], left : left + self.size[1]]
        gain = 1 + self.colour * random.uniform(-1, 1, 3)
        return np.rint(image * gain).clip(0, 255).astype(np.uint8)


class Digits:
    """Images like the embedded task's, from the source digits that train its posterior; none shows a held-out digit."""

    count = None

    def __init__(self, *, image_size: int, fragments: int = 8) -> None:
        self.size, self.fragments = (image_size, image_size), fragments

    @property
    def fingerprint(self) -> str:
        """Of the size and the clutter."""
        return fingerprint("digits", self.size, self.fragments)

    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers; negative seeds of the renderer make them differ from any task's images."""
        images, _, _ = render_digits(
            [int(number) for number in numbers],
            pool="posterior",
            seed=-1 - abs(seed),
            fragments=self.fragments,
            image_size=self.size[0],
        )
        return torch.from_numpy(images)


class Folder:
    """Pictures below a folder, in the order of their paths, cropped to squares and resized; each is used once."""

    def __init__(self, folder: Path, *, image_size: int) -> None:
        self.folder, self.size = Path(folder), (image_size, image_size)
        self.paths = sorted(self.folder / entry.name for entry in walk(self.folder))
        if not self.paths:
            raise InputError(f"{folder} holds no pictures ({', '.join(IMAGE_SUFFIXES)}); check --generator-path.")

    @property
    def count(self) -> int:
        """The number of pictures."""
        return len(self.paths)

    @property
    def fingerprint(self) -> str:
        """Of the files and the size."""
        names = [path.relative_to(self.folder).as_posix() for path in self.paths]
        return fingerprint("folder", names, files_fingerprint(self.paths), self.size)

    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The pictures of these numbers; the seed is ignored."""
        how = Preparation(self.size[0], fit="crop", upright=True)
        images = np.empty((len(numbers), *self.size, 3), np.uint8)
        for n, number in enumerate(numbers):
            path = self.paths[int(number)]
            try:
                images[n] = decode(read_regular(path, most=MOST), how).pixels
            except Exception as error:  # Pillow raises many types of errors on damaged files
                raise InputError(
                    f"{path} can't be read as a picture ({reason(error)}); remove it from the folder."
                ) from error
        return torch.from_numpy(images)
