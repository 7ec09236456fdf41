"""Build a bank in a folder, resumable at any time, and load one.

bank/stage.json, done.json          recipe and inputs of the bank
bank/generator.safetensors, .json   the generator trained here, if there is one, and its training seconds; during
                                    training, its generator-state
bank/images/                        shards of images
bank/pca.safetensors, codes/        principal components, float16 codes
bank/sources.npy                    the training image that each image shows, for the generator training-images
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import BaseModel, Field

from nogs.bank.bank import CODES, PCA_FILE, SOURCES, Bank, encode_bank, on_device, read_codes, read_sources, source_rows
from nogs.bank.config import SEED, BankConfig, TrainedConfig
from nogs.bank.generators import Generator, make_generator
from nogs.bank.generators.pictures import TrainingImages
from nogs.bank.leaks import Duplicates, allowed_rows
from nogs.bank.pca import fit_pca, load_pca, save_pca
from nogs.bank.store import MANIFEST, Images, Note, Shards, resident
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.fields import dotted
from nogs.runtime.files import read_json, read_sealed, save_array, write_sealed
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.headers import described
from nogs.runtime.stage import Stage

__all__ = ["GENERATOR", "build_bank", "load_bank", "read_about"]

GENERATOR = "generator.safetensors"
SHARD = 256 << 20  # bytes of a shard of images


class _About(BaseModel):
    """Required fields of a bank's `done.json`; other fields are for people."""

    stage: Literal["bank"]
    fingerprint: str
    task: str
    images: int = Field(ge=1)
    generator: str
    generator_digest: str | None
    near_duplicates_left_out: int
    explained_variance: float
    config: dict[str, Any]
    files: dict[str, str]


def build_bank(
    task: Task,
    *,
    config: BankConfig,
    folder: Path,
    generator_path: Path | None = None,
    generator: Generator | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """Build the bank of a task in `folder`, or resume building it; returns the content of `done.json`.

    A `generator` replaces the one that `config` names.
    """
    where = pick_device(device)
    folder, training = Path(folder), 0.0
    name = config.generator if generator is None else type(generator).__name__
    if generator is None:
        if config.generator == "trained" and generator_path is None:
            generator_path, training = _train(task, config, folder, where)
        generator = make_generator(config, task=task, path=generator_path, device=where)
    if generator.size != (task.grid.height, task.grid.width):
        raise ValueError(f"The generator makes {generator.size} px, not the task's {task.grid.height} px.")
    fields = config.model_dump(mode="json")
    mark = fingerprint(fields, generator.fingerprint, task.fingerprint)
    named = dotted({"bank": fields, "generator": generator.fingerprint, "data": task.fingerprint})
    stage = Stage(folder, name="bank", fingerprint=mark, fields=named)
    stage.check_folder()
    if stage.done:
        return dict(read_json(folder / "done.json"))
    stage.begin()
    began = time.monotonic()
    check = Duplicates.of(task, rms=config.duplicate_rms, device=where)
    images = _write_images(generator, check, config, folder / "images")
    if len(images) <= config.components:
        raise InputError(
            f"The bank got {len(images)} images, too few for bank.components = {config.components}; lower that."
        )
    if not (folder / PCA_FILE).exists():
        with progress.track("fitting the PCA", total=len(images), unit="images") as bar:
            pca = fit_pca(
                images,
                components=config.components,
                centre=config.pixel_mean,
                scale=config.pixel_std,
                seed=SEED,
                device=where,
                advance=bar.advance,
            )
        save_pca(folder / PCA_FILE, pca)
    pca = load_pca(folder / PCA_FILE, device=where)
    encode_bank(images, pca, folder=folder, block=1 << 15, device=where)
    dropped = [number for note in images.notes for number in note.dropped]
    if isinstance(generator, TrainingImages):
        numbers = np.setdiff1d(np.arange(images.notes[-1].next), dropped)
        save_array(folder / SOURCES, _sources(task, generator, numbers))
    stage.finish(
        device=where,
        also=[f"{CODES}/{MANIFEST}", f"images/{MANIFEST}"],
        images=len(images),
        generator=name,
        generator_fingerprint=generator.fingerprint,
        generator_digest=file_digest(generator_path) if generator_path == folder / GENERATOR else None,
        near_duplicates_left_out=len(dropped),
        explained_variance=round(pca.explained, 5),
        task=task.fingerprint,
        config=fields,
        seconds=round(training + time.monotonic() - began, 3),
    )
    return dict(read_json(folder / "done.json"))


def load_bank(folder: Path, *, device: str = "auto", on_gpu: bool = True) -> Bank:
    """The bank in a folder, with its codes on `device`, and its images too if `on_gpu` and the device is a GPU.

    Every image is checked when it is read.
    """
    folder, where = Path(folder), pick_device(device)
    about = read_about(folder)
    images: Images = Shards.open(folder / "images")
    if len(images) != about["images"]:
        raise InputError(
            f"{folder} holds {len(images)} images, not the {about['images']} of done.json; build it again."
        )
    codes = read_codes(folder)
    if len(codes) != len(images):
        raise InputError(f"{folder} holds {len(codes)} codes for {len(images)} images; build the bank again.")
    if on_gpu and where.type == "cuda":
        with progress.track("loading the bank", total=len(images), unit="images") as bar:
            images = resident(images, device=where, advance=bar.advance)
    sources = read_sources(folder, images=len(codes))
    return Bank(
        images,
        load_pca(folder / PCA_FILE, device=where),
        on_device(codes, where),
        about,
        None if sources is None else sources.to(where),
    )


def _train(task: Task, config: BankConfig, folder: Path, device: torch.device) -> tuple[Path, float]:
    """The generator trained here on the allowed images, and its training seconds; one with the same fields is kept."""
    from nogs.bank.generators.trained import Trained
    from nogs.bank.generators.training import STATE, train_generator

    path, times, state = folder / GENERATOR, folder / "generator.json", folder / STATE
    rows = allowed_rows(task, rms=config.duplicate_rms, device=device)
    if path.exists():
        about = Trained.load(path).about
        same = TrainedConfig.model_validate(about["config"]) == config.trained
        if same and about["ids"] == [task.ids[row] for row in rows]:
            return path, sum(read_sealed(times).values()) if times.exists() else 0.0
        raise InputError(f"{path} was trained with other fields or images; choose another folder or delete it.")
    made = train_generator(task, rows, config=config.trained, seed=SEED, device=device, state=state)
    write_sealed(times, made.seconds)
    made.save(path)
    state.unlink(missing_ok=True)
    return path, sum(made.seconds.values())


def _write_images(generator: Generator, check: Duplicates, config: BankConfig, folder: Path) -> Shards:
    """Generate until there are `count` images without near-duplicates, a shard at a time."""
    store = Shards.create(folder, size=generator.size)
    per_shard = max(1, SHARD // (3 * generator.size[0] * generator.size[1]))
    number = store.notes[-1].next if store.notes else 0
    with progress.track("generating the bank", total=config.count, unit="images", start=len(store)) as bar:
        while len(store) < config.count and not _exhausted(generator, number):
            wanted = min(per_shard, config.count - len(store))
            parts, dropped, held = [], [], 0
            while held < wanted and not _exhausted(generator, number):
                numbers = _next_numbers(generator, number, min(config.batch, wanted - held))
                images = generator.generate(numbers, seed=SEED)
                bad = check(images).cpu().numpy()
                parts.append(images.cpu().numpy()[~bad])
                dropped += numbers[bad].tolist()
                number, held = int(numbers[-1]) + 1, held + len(parts[-1])
                bar.advance(len(parts[-1]))
                _check_duplicates(len(dropped), held)
            if held:
                store.append(np.concatenate(parts), Note(next=number, dropped=dropped))
    return store


def _next_numbers(generator: Generator, first: int, wanted: int) -> Int64[np.ndarray, " n"]:
    last = first + wanted if generator.count is None else min(first + wanted, generator.count)
    return np.arange(first, last)


def _exhausted(generator: Generator, number: int) -> bool:
    return generator.count is not None and number >= generator.count


def _check_duplicates(dropped: int, held: int) -> None:
    if dropped > 1000 and dropped > 4 * held:
        raise InputError(
            f"Of {dropped + held} generated images, {dropped} are near-duplicates of held-out ones; the generator "
            "repeats them, or bank.duplicate_rms is too large."
        )


def _sources(task: Task, generator: TrainingImages, numbers: Int64[np.ndarray, " N"]) -> Int64[np.ndarray, " N"]:
    """Index in `source_rows` of the training image that each image number shows."""
    rows = source_rows(task)
    index = np.zeros(len(task.ids), np.int64)
    index[rows] = np.arange(len(rows))
    return index[generator.shown(numbers)]


def read_about(folder: Path) -> dict[str, Any]:
    """The description in a finished bank's `done.json`."""
    path = folder / "done.json"
    if not path.exists():
        raise InputError(f"{folder} holds no finished bank; run nogs bank build.")
    about: dict[str, Any] = read_json(path)
    with described(path, "the mark of a finished bank"):
        _About.model_validate(about)
        BankConfig.model_validate(about["config"])
    return about
