"""Labelled images: `load_task` turns a `DataConfig` and a folder of files into a `Task`.

In: the original downloads of CelebA-HQ or CUB-200-2011, a folder of pictures, or nothing (digits). Out: uint8 images,
decoded once and memory-mapped, with labels, explicit splits and the grid of glimpse locations.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nogs.runtime.errors import InputError

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
) -> Task:
    """The task of `config`, its images read from the folder `data` and kept decoded in `cache`.

    Unreadable images are an error that names them all, unless `skip_corrupt` or the config's: then they are
    left out and noted.
    `workers` is the number of decoding processes, by default one a core. With `verify` every decoded image is compared
    with its checksum.
    """
    if config.kind == "digits":
        from nogs.data.digits import load_digits_task

        return load_digits_task(config)
    from nogs.data.cache import prepare

    cache = cache_folder() if cache is None else Path(cache)
    catalogue = read_catalogue(config, data=data, cache=cache)
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
    """What the files and annotations in `data` say; no picture is opened."""
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


def __getattr__(name: str) -> Any:
    """Import on first use: a decoding process imports this package too, and must not wait for torch."""
    from importlib import import_module

    homes = {"config": ("CELEBA_HQ", "CUB", "DataConfig"), "splits": ("read_splits", "write_splits")}
    homes["task"] = ("SPLITS", "LabelSpace", "Parts", "Task")
    homes["inspect"] = ("contact_sheet",)
    homes["wrap"] = ("from_datasets", "from_torchvision")
    for module, names in homes.items():
        if name in names:
            return getattr(import_module(f"nogs.data.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
