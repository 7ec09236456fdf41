"""Labelled images: `load_task` turns a `DataConfig` and a folder of files into a `Task`.

In: the original downloads of CelebA-HQ or CUB-200-2011, a folder of pictures, or nothing (digits). Out: uint8 images,
decoded once and memory-mapped, with labels, explicit splits and the grid of glimpse locations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nogs.runtime.errors import InputError
from nogs.runtime.lazy import imported

if TYPE_CHECKING:
    from nogs.data.catalogue import Catalogue
    from nogs.data.config import CELEBA_HQ, CUB, DataConfig
    from nogs.data.inspect import contact_sheet
    from nogs.data.splits import read_splits, write_splits
    from nogs.data.task import SPLITS, LabelSpace, Parts, Task
    from nogs.data.wrap import from_datasets, from_torchvision

__all__ = [
    "CELEBA_HQ",
    "CUB",
    "SPLITS",
    "DataConfig",
    "LabelSpace",
    "Parts",
    "Task",
    "cache_folder",
    "contact_sheet",
    "from_datasets",
    "from_torchvision",
    "load_task",
    "read_catalogue",
    "read_splits",
    "write_splits",
]


def load_task(
    config: DataConfig,
    *,
    data: Path | None = None,
    cache: Path | None = None,
    skip_corrupt: bool = False,
    workers: int | None = None,
    verify: bool = False,
    check: Callable[[LabelSpace, str], object] | None = None,
) -> Task:
    """The task of `config`, its images read from the folder `data` and kept decoded in `cache`.

    Unreadable images are an error, unless `skip_corrupt` is set here or in the config: then they are left out with a
    note. `workers` is the number of decoding processes, by default one per core. With `verify` every decoded image is
    compared with its checksum. `check` is called with the label space and the task's title before any picture is
    decoded; it may raise.
    """
    if config.kind == "digits":
        from nogs.data.digits import load_digits_task

        digits = load_digits_task(config)
        if check is not None:
            check(digits.space, digits.title)
        return digits
    from nogs.data.cache import prepare

    cache = cache_folder() if cache is None else Path(cache)
    catalogue = read_catalogue(config, data=data, cache=cache)
    if check is not None:
        check(catalogue.space, catalogue.title or catalogue.name)
    prepared = prepare(
        name=catalogue.name,
        title=catalogue.title,
        entries=catalogue.entries,
        boxes=catalogue.boxes,
        how=catalogue.how,
        cache=cache,
        skip_corrupt=skip_corrupt or config.skip_corrupt,
        workers=workers,
        verify=verify,
    )
    return catalogue.task(prepared, grid=config.grid)


def read_catalogue(config: DataConfig, *, data: Path | None, cache: Path | None = None) -> Catalogue:
    """Files, labels and splits of the dataset in `data`, without opening any picture."""
    if data is None:
        raise InputError(f"The task {config.kind!r} needs its pictures; give --data the folder that holds them.")
    data = Path(data)
    if data.is_file():
        raise InputError(f"{data} is a file, not a folder; give --data the folder that holds the pictures.")
    if not data.is_dir():
        raise InputError(f"There is no folder {data}; check --data.")
    from nogs.data import celeba_hq, cub, folder

    if config.kind == "celeba-hq":
        return celeba_hq.catalogue(config, data=data)
    if config.kind == "cub":
        return cub.catalogue(config, data=data, cache=cache)
    assert config.kind == "folder", config.kind
    return folder.catalogue(config, data=data)


def cache_folder() -> Path:
    """Where decoded images are kept: $NOGS_CACHE, else ~/.cache/nogs."""
    return Path(os.environ.get("NOGS_CACHE") or Path.home() / ".cache" / "nogs")


_NAMES = {
    "config": ("CELEBA_HQ", "CUB", "DataConfig"),
    "inspect": ("contact_sheet",),
    "splits": ("read_splits", "write_splits"),
    "task": ("SPLITS", "LabelSpace", "Parts", "Task"),
    "wrap": ("from_datasets", "from_torchvision"),
}
# a decoding process imports this package too, and must not wait for torch
__getattr__, __dir__ = imported(
    __name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
)
