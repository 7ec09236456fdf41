"""Building a bank into a folder, resumable at any moment; loading one.

bank/stage.json, done.json          what it was built from
bank/generator.safetensors, .json   the generator trained here, if there is one, and the seconds that it took; before
                                    that, its generator-state
bank/images/                        shards of images, or `probe.npy` where only their numbers are kept
bank/pca.safetensors, codes/        principal components, float16 codes
bank/sources.npy                    the training image that each shows, if the generator says so
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from pydantic import BaseModel, Field
from torch import Tensor

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
from nogs.runtime.files import load_array, read_json, read_sealed, save_array, write_sealed
from nogs.runtime.fingerprint import file_digest, fingerprint
from nogs.runtime.headers import described
from nogs.runtime.stage import Stage

__all__ = ["GENERATOR", "SeededImages", "build_bank", "load_bank", "read_about"]

GENERATOR = "generator.safetensors"
SHARD = 256 << 20  # bytes of a file of images
_PROBED = 8  # images kept of a bank of numbers, to tell whether the generator still makes the same


class _About(BaseModel):
    """What `done.json` of a bank must say; more is for people."""

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


class SeededImages:
    """Images of which only the generator's numbers are kept; each is made anew whenever it is read."""

    def __init__(self, generator: Generator, numbers: Int64[np.ndarray, " N"], *, seed: int, batch: int) -> None:
        self.generator, self.numbers, self.seed, self.batch = generator, numbers, seed, batch

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in px."""
        return self.generator.size

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, rows: Int64[np.ndarray, " n"]) -> UInt8[Tensor, "n H W 3"]:
        """The images of these rows, generated `batch` at a time."""
        wanted = self.numbers[rows]
        parts = [
            self.generator.generate(wanted[first : first + self.batch], seed=self.seed).cpu()
            for first in range(0, len(wanted), self.batch)
        ]
        return torch.cat(parts) if parts else torch.empty((0, *self.size, 3), dtype=torch.uint8)


def build_bank(
    task: Task, *, config: BankConfig, folder: Path, source: Path | None = None, device: str = "auto"
) -> dict[str, Any]:
    """Build the bank of a task into `folder`, or go on with it; returns what `done.json` says about it."""
    where = pick_device(device)
    folder, training = Path(folder), 0.0
    if config.generator == "trained" and source is None:
        source, training = _train(task, config, folder, where)
    generator = make_generator(config, task=task, source=source, device=where)
    if generator.size != (task.grid.height, task.grid.width):
        raise ValueError(f"The generator makes {generator.size} px, not the task's {task.grid.height} px.")
    fields = config.model_dump(mode="json")
    mark = fingerprint(fields, generator.fingerprint, task.fingerprint)
    named = dotted({"bank": fields, "generator": generator.fingerprint, "data": task.fingerprint})
    stage = Stage(folder, name="bank", fingerprint=mark, fields=named)
    stage.check_folder()
    if stage.done:
        about = dict(read_json(folder / "done.json"))
        if not _has_sources(folder, images=about["images"]):
            _write_sources(task, generator, folder)
        return about
    stage.begin()
    began = time.monotonic()
    check = Duplicates.of(task, rms=config.duplicate_rms, device=where)
    images: Images
    if config.keep == "images":
        images = _write_images(generator, check, config, folder / "images")
    else:
        images = _write_numbers(generator, check, config, folder / "images")
    if len(images) <= config.components:
        raise InputError(
            f"The bank got {len(images)} images, too few for bank.components = {config.components}; lower the latter."
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
    _write_sources(task, generator, folder)
    inner = [f"{CODES}/{MANIFEST}", *(f"images/{name}" for name in (MANIFEST, "build.json", "probe.npy"))]
    stage.finish(
        also=[name for name in inner if (folder / name).exists()],
        images=len(images),
        generator=config.generator,
        generator_fingerprint=generator.fingerprint,
        generator_digest=file_digest(source) if source == folder / GENERATOR else None,
        near_duplicates_left_out=len(_drawn(folder)[1]),
        explained_variance=round(pca.explained, 5),
        task=task.fingerprint,
        config=fields,
        seconds=round(training + time.monotonic() - began, 3),
    )
    return dict(read_json(folder / "done.json"))


def load_bank(
    folder: Path,
    *,
    device: str = "auto",
    on_gpu: bool = True,
    task: Task | None = None,
    source: Path | None = None,
) -> Bank:
    """The bank in a folder, with its codes on `device`, and its images too if `on_gpu` and the device is a GPU.

    Every image is checked when it is read. A bank that keeps only numbers needs its task, and `source` as it was built.
    """
    folder, where = Path(folder), pick_device(device)
    about = read_about(folder)
    config = BankConfig.model_validate(about["config"])
    images: Images
    if config.keep == "images":
        images = Shards.open(folder / "images")
    else:
        images = _open_numbers(folder, config, about, task, source, where)
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
    """The generator trained here on the images that it may see, and the seconds that it took; one that is there with
    the same fields is kept."""
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
    """Generate until there are `count` images that are no near-duplicates, a shard at a time."""
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
                _refuse_hopeless(len(dropped), held)
            if held:
                store.append(np.concatenate(parts), Note(next=number, dropped=dropped))
    return store


def _write_numbers(generator: Generator, check: Duplicates, config: BankConfig, folder: Path) -> SeededImages:
    """The numbers of `count` images that are no near-duplicates; the first few images are kept as a probe."""
    path = folder / "build.json"
    number, dropped = _read_numbers(path) if path.exists() else (0, [])
    with progress.track("checking the bank", total=config.count, unit="images", start=number - len(dropped)) as bar:
        while number - len(dropped) < config.count and not _exhausted(generator, number):
            for _ in range(64):
                left = config.count - (number - len(dropped))
                if not left or _exhausted(generator, number):
                    break
                numbers = _next_numbers(generator, number, min(config.batch, left))
                bad = check(generator.generate(numbers, seed=SEED)).cpu().numpy()
                dropped += numbers[bad].tolist()
                number = int(numbers[-1]) + 1
                bar.advance(int((~bad).sum()))
                _refuse_hopeless(len(dropped), number - len(dropped))
            write_sealed(path, {"next": number, "dropped": dropped})
    made = SeededImages(generator, _kept(number, dropped), seed=SEED, batch=config.batch)
    save_array(folder / "probe.npy", made.read(np.arange(min(_PROBED, len(made)))).numpy())
    return made


def _open_numbers(
    folder: Path,
    config: BankConfig,
    about: dict[str, Any],
    task: Task | None,
    source: Path | None,
    device: torch.device,
) -> SeededImages:
    if task is None:
        raise InputError(f"{folder} keeps only the numbers of its images; give its task, to generate them anew.")
    own = folder / GENERATOR
    generator = make_generator(config, task=task, source=source or (own if own.exists() else None), device=device)
    following, dropped = _drawn(folder)
    if following - len(set(dropped)) != about["images"]:
        raise InputError(
            f"{folder / 'images' / 'build.json'} lists {following - len(set(dropped))} images, not {about['images']}; "
            "build the bank again."
        )
    made = SeededImages(generator, _kept(following, dropped), seed=SEED, batch=config.batch)
    probe = load_array(folder / "images" / "probe.npy").astype(np.int16)
    # another device may round differently, another generator makes other pictures
    if np.abs(made.read(np.arange(len(probe))).numpy() - probe).mean() > 1:
        raise InputError(
            f"The generator does not make the images that {folder} was built with; give its own --generator-path."
        )
    return made


def _next_numbers(generator: Generator, first: int, wanted: int) -> Int64[np.ndarray, " n"]:
    last = first + wanted if generator.count is None else min(first + wanted, generator.count)
    return np.arange(first, last)


def _exhausted(generator: Generator, number: int) -> bool:
    return generator.count is not None and number >= generator.count


def _refuse_hopeless(dropped: int, held: int) -> None:
    if dropped > 1000 and dropped > 4 * held:
        raise InputError(
            f"Of {dropped + held} generated images, {dropped} are near-duplicates of held-out ones; the generator "
            "repeats them, or bank.duplicate_rms is too large."
        )


def _kept(following: int, dropped: list[int]) -> Int64[np.ndarray, " N"]:
    numbers = np.arange(following)
    return numbers[~np.isin(numbers, dropped)]


def _drawn(folder: Path) -> tuple[int, list[int]]:
    """The number after the last that was asked of a bank's generator, and those that were left out."""
    path = folder / "images" / "build.json"
    if path.exists():
        return _read_numbers(path)
    notes = Shards.open(folder / "images").notes
    return notes[-1].next, [number for note in notes for number in note.dropped]


def _read_numbers(path: Path) -> tuple[int, list[int]]:
    with described(path, "the list of a bank's numbers"):
        note = Note.model_validate(read_sealed(path))
    return note.next, note.dropped


def _write_sources(task: Task, generator: Generator, folder: Path) -> None:
    """For a bank of training images, the index of each one's source in `source_rows`."""
    if not isinstance(generator, TrainingImages):
        return
    rows = source_rows(task)
    index = np.zeros(len(task.ids), np.int64)
    index[rows] = np.arange(len(rows))
    save_array(folder / SOURCES, index[generator.shown(_kept(*_drawn(folder)))])


def _has_sources(folder: Path, *, images: int) -> bool:
    try:
        return read_sources(folder, images=images) is not None
    except InputError:  # damaged
        return False


def read_about(folder: Path) -> dict[str, Any]:
    """What a finished bank says of itself."""
    path = folder / "done.json"
    if not path.exists():
        raise InputError(f"{folder} holds no finished bank; run nogs bank build.")
    about: dict[str, Any] = read_json(path)
    with described(path, "the mark of a finished bank"):
        _About.model_validate(about)
        BankConfig.model_validate(about["config"])
    return about
