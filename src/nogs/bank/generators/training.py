"""Training of a bank's own generator: first the autoencoder, then the flow between noise and its latent maps.

A killed training resumes from its last saved state and gives the same result: batches and noise are functions of the
iteration, and everything else is in the state. The time limit may be changed before resuming.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from nogs.bank.config import TrainedConfig
from nogs.bank.generators.networks import FACTOR, Autoencoder, Flow
from nogs.bank.generators.noise import to_values
from nogs.bank.generators.steps import Done, Work
from nogs.bank.generators.trained import CHANNELS, Trained, networks
from nogs.bank.leaks import refuse_ids
from nogs.data.task import Task
from nogs.runtime import progress, streams
from nogs.runtime.device import Precision, pick_precision
from nogs.runtime.fingerprint import fingerprint

__all__ = ["STATE", "drawn", "resident_rows", "train_generator"]

STATE = "generator-state.safetensors"
"""The file to resume from, until the generator is trained."""

_AUTOENCODER_SHARE = 1 / 3  # of the time limit; the flow has the rest


def train_generator(
    task: Task,
    rows: Int64[np.ndarray, " n"],
    *,
    config: TrainedConfig,
    seed: int = 0,
    device: torch.device | str = "cpu",
    state: Path | None = None,
) -> Trained:
    """Train on these rows of a task; a held-out image among them is refused.

    Training resumes from the file `state` if it belongs to the same training, except for the time limit. The file is
    written every minute.
    """
    ids = [task.ids[row] for row in rows]
    refuse_ids(ids, task, what="The training set of the generator")
    device, size = torch.device(device), (task.grid.height, task.grid.width)
    precision = pick_precision("auto", device)
    fields = config.model_dump(mode="json", exclude={"seconds"})
    done = Done(state, first="autoencoder", mark=fingerprint("generator", fields, ids, task.fingerprint, seed))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(streams.key(seed, "trained generator"))
        autoencoder, flow = networks(config, size)
        autoencoder.to(device)
        flow.to(device)
        images = resident_rows(task.images, rows, device)
        if done.stage == "autoencoder":
            _train_autoencoder(autoencoder, images, config, seed, precision, done)
        done.restore("autoencoder", autoencoder.state_dict())
        began = time.monotonic()
        latents = _latents(autoencoder, images, CHANNELS, precision)
        encoding = time.monotonic() - began
        del images  # on a GPU their memory may be needed
        scale = latents.std((0, 2, 3), keepdim=True).clamp_min(1e-6)[0]
        latents /= scale
        loss = _train_flow(flow, latents, config, seed, precision, done)
    about = {
        "task": task.name,
        "size": list(size),
        "ids": ids,
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "autoencoder_error": round(done.error, 5),
        "flow_loss": round(loss, 5),
        "flow_iterations": done.iteration,
    }
    seconds = {"training": round(done.seconds, 1), "encoding": round(encoding, 1)}
    return Trained(autoencoder, flow, about=about, device=device, scale=scale, seconds=seconds)


def _train_autoencoder(
    autoencoder: Autoencoder, images: Tensor, config: TrainedConfig, seed: int, precision: Precision, done: Done
) -> None:
    """Minimise `_picture_loss` on images and their mirror images; records the last mean absolute error, in -1..1."""
    error = torch.zeros((), device=images.device)

    def loss(rows: Tensor) -> Tensor:
        target = drawn(images, rows)
        with precision.active():
            # a little noise on the code, so that the decoder tolerates small errors of the flow
            code = autoencoder.encode(target)
            found = autoencoder.decode(code + 0.05 * torch.randn_like(code), (target.shape[2], target.shape[3]))
        error.copy_((found.detach().float() - target).abs().mean())
        return _picture_loss(found.float(), target) + 1e-3 * code.float().square().mean()

    work = Work(
        autoencoder,
        loss,
        title="autoencoder",
        of=2 * len(images),
        batch=max(1, min(config.batch // 8, len(images))),
        seed=seed,
        averaged=False,
    )
    limit = None if config.seconds is None else _AUTOENCODER_SHARE * config.seconds
    work.run(done, iterations=config.autoencoder_iterations, learning_rate=config.learning_rate, limit=limit)
    done.next_stage("flow", error=float(error))


def _picture_loss(found: Tensor, target: Tensor) -> Tensor:
    """Error of pixels, and of their differences to neighbours at three scales, which keeps edges."""
    # squares fit the colours early in training, absolute values the details later
    loss = (found - target).square().mean() + (found - target).abs().mean()
    for _ in range(3):
        for axis in (-1, -2):
            loss = loss + (found.diff(dim=axis) - target.diff(dim=axis)).abs().mean()
        found, target = F.avg_pool2d(found, 2), F.avg_pool2d(target, 2)
    return loss


@torch.no_grad()
def _latents(autoencoder: Autoencoder, images: Tensor, channels: int, precision: Precision) -> Tensor:
    """Latent maps of all images and their mirror images, so that the flow is trained without the autoencoder."""
    high, wide = (-(-side // FACTOR) for side in images.shape[1:3])
    out = torch.empty(2, len(images), channels, high, wide, device=images.device)
    track = progress.track("encoding the training images", total=len(images), unit="images")
    with precision.active(), track as bar:
        for first in range(0, len(images), 64):
            pictures = to_values(images[first : first + 64])
            for mirrored in (0, 1):
                out[mirrored, first : first + 64] = autoencoder.encode(pictures.flip(3) if mirrored else pictures)
            bar.advance(len(pictures))
    return out.flatten(0, 1)


def _train_flow(
    flow: Flow, latents: Tensor, config: TrainedConfig, seed: int, precision: Precision, done: Done
) -> float:
    """Regress the velocity, latent - noise, at a random point between them; the weights become their average."""

    def loss(rows: Tensor) -> Tensor:
        target = latents[rows]
        noise = torch.randn_like(target)
        # times concentrate in the middle, where the velocity is hardest to predict (Esser et al., 2024)
        time = torch.randn(len(target), device=target.device).sigmoid()
        way = time[:, None, None, None]
        with precision.active():
            found = flow(way * target + (1 - way) * noise, time)
        return (found.float() - (target - noise)).square().mean()

    batch = min(config.batch, len(latents))
    work = Work(flow, loss, title="flow", of=len(latents), batch=batch, seed=seed, averaged=True)
    # a slow first step of the autoencoder may have used all the time, but a schedule needs some
    limit = None if config.seconds is None else max(1e-3, config.seconds - done.before)
    work.run(done, iterations=config.iterations, learning_rate=config.learning_rate, limit=limit)
    flow.load_state_dict(work.average)
    return float(work.sums) / done.iteration


def resident_rows(images: np.ndarray, rows: Int64[np.ndarray, " n"], device: torch.device) -> Tensor:
    """These images on the device, copied block by block, since the host may have too little memory for all."""
    out = torch.empty((len(rows), *images.shape[1:]), dtype=torch.uint8, device=device)
    for first in range(0, len(rows), 4096):
        out[first : first + 4096] = torch.from_numpy(np.array(images[rows[first : first + 4096]])).to(device)
    return out


def drawn(images: UInt8[Tensor, "n H W 3"], rows: Int64[Tensor, " B"]) -> Float32[Tensor, "B 3 H W"]:
    """Values of the images of these rows; rows from n on are mirror images."""
    found = to_values(images[rows % len(images)])
    return torch.where((rows < len(images))[:, None, None, None], found, found.flip(3))
