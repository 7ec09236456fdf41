"""Opening posterior and bank in a worker, and refusing images that either of them has seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path

import torch

from nogs.bank import Bank, load_bank
from nogs.bank.bank import read_sources
from nogs.completion import Completion, CompletionConfig, make_completion, weights_file
from nogs.data import DataConfig, Task
from nogs.design.config import DesignConfig
from nogs.design.steps import Tools
from nogs.posterior.crossfit import CrossFitted, whole_task
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.protocol import CrossFit, Posterior
from nogs.posterior.store import load_posterior, trained_elsewhere
from nogs.runtime.device import pick_device
from nogs.runtime.errors import InputError
from nogs.runtime.files import read_json

__all__ = [
    "Files",
    "bank_folder",
    "check_leaks",
    "check_sources",
    "fits",
    "unseen",
    "worker_device",
]


@dataclass(frozen=True)
class Files:
    """Where posterior and bank lie, and how they are used; called in a worker, it opens them there."""

    posterior: str
    bank: Path
    completion: CompletionConfig
    design: DesignConfig
    task: DataConfig
    glimpse: int
    seed: int
    precision: str = "auto"
    device: str = "auto"
    generator_path: Path | None = None  # of a generator that completes, and was not trained with the bank

    def __call__(self) -> Tools:
        """Posterior and completion, on the worker's device."""
        device = worker_device(self.device)
        posterior = self.open_posterior(self.posterior, device=device)
        check_sources(posterior, bank=self.bank)
        bytes_ = read_json(self.bank / "done.json")["images"] * self.task.image_size**2 * 3
        bank = load_bank(self.bank, device=str(device), on_gpu=fits(bytes_, device))
        return self.tools(posterior, bank, device=device, weights=self.weights)

    def open_posterior(self, path: str | Path, *, device: torch.device) -> NetworkPosterior | CrossFitted:
        """A posterior's file, as this annotation uses it."""
        return load_posterior(
            path,
            device=device,
            precision=self.precision,
            chunk=self.design.batch,
            compiled=self.design.compile,
        )

    @property
    def weights(self) -> Path | None:
        """The file that the completion needs besides the bank, if it needs one."""
        return weights_file(self.bank, self.completion, generator_path=self.generator_path)

    def tools(self, posterior: Posterior, bank: Bank, *, device: torch.device, weights: Path | None) -> Tools:
        """Posterior and bank, joined; `weights` are the completion's."""
        return Tools(posterior, self.open_completion(bank, weights=weights), device)

    def open_completion(self, bank: Bank, *, weights: Path | None) -> Completion:
        """The completion over this bank, with its own file."""
        return make_completion(bank, config=self.completion, glimpse=self.glimpse, seed=self.seed, weights=weights)


def fits(bytes_: int, device: torch.device) -> bool:
    """Whether so many bytes of images leave half of a GPU's free memory free."""
    return device.type == "cuda" and bool(bytes_ < torch.cuda.mem_get_info(device)[0] / 2)


def worker_device(name: str) -> torch.device:
    """The device for this process: of several GPUs, each local worker takes the next."""
    device = pick_device(name)
    number = re.search(r"(\d+)$", current_process().name)
    if device.type == "cuda" and device.index is None and number and torch.cuda.device_count() > 1:
        return torch.device("cuda", (int(number[1]) - 1) % torch.cuda.device_count())
    return device


def bank_folder(path: Path) -> Path:
    """The folder of a bank, given as such or as the run that holds it."""
    found = next((folder for folder in (path, path / "bank") if _is_bank(folder)), None)
    if found is None:
        raise InputError(f"{path} holds no finished bank; build one with nogs bank build, or correct --bank.")
    return found


def unseen(task: Task, ids: Sequence[str], *, split: str = "annotate") -> None:
    """Refuse by name images that are not of the split that gets sequences."""
    mine = set(task.splits[split])
    outside = [id for id in ids if id not in mine]
    if not outside:
        return
    home = next(
        (
            other
            for other in ("posterior", "validation", "test", "annotate", "train")
            if outside[0] in task.splits[other]
        ),
        "",
    )
    what = "the images to annotate" if split == "annotate" else f"the {split} images"
    more = f" and {len(outside) - 1:,} more images are" if len(outside) > 1 else " is"
    raise InputError(
        f"Image {outside[0]!r} (of the split {home!r}){more} not among {what} of task {task.title!r}; choose others "
        "with --subset, or pass --unchecked if neither posterior nor bank has seen them."
    )


def check_leaks(task: Task, *, posterior: str, bank: Path, split: str = "annotate") -> None:
    """Refuse a posterior or a bank that was made with other splits, since it may have seen the images of a split."""
    built = read_json(bank / "done.json").get("task")
    # a posterior of all training images has not seen the test images
    harmless = [] if split == "annotate" else [whole_task(task).fingerprint]
    elsewhere = [other for other in trained_elsewhere(posterior, task) if other not in harmless]
    found = [(f"The posterior {posterior}", "train it", other) for other in elsewhere]
    if built not in (None, task.fingerprint):
        found.append((f"The bank {bank}", "build it", built))
    for what, remedy, other in found:
        raise InputError(
            f"{what} was made for other data or splits than these ({other}, not {task.fingerprint}), so it may have "
            f"seen the images to annotate; {remedy} again, or pass --unchecked if it has not."
        )


def check_sources(posterior: Posterior, *, bank: Path) -> None:
    """Refuse a bank of training images if a cross-fitted posterior can't tell which network has not seen them."""
    about = read_json(bank / "done.json")
    if not isinstance(posterior, CrossFit) or about["generator"] != "training-images":
        return
    read_sources(bank, images=about["images"])  # a missing or damaged file is refused before any work
    if posterior.splits != about["task"]:
        raise InputError(
            f"The posterior is cross-fitted on other data or splits than those of {bank} ({posterior.splits}, not "
            f"{about['task']}), so none of its networks is known not to have seen an image; make one of them again."
        )


def _is_bank(folder: Path) -> bool:
    path = folder / "done.json"
    if not path.is_file():
        return False
    about = read_json(path)
    return isinstance(about, dict) and about.get("stage") == "bank"
