"""The generator that is trained here, on a task's own images, so that whoever has a labelled folder has a bank.

It is flow matching (Lipman, Chen, Ben-Hamu, Nickel and Le, 2023) in the latent space of an autoencoder.

Chosen over a GAN because it does not collapse: completions must be diverse before they must be sharp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from nogs.bank.config import TrainedConfig
from nogs.bank.generators.networks import FACTOR, Autoencoder, Flow
from nogs.bank.generators.noise import image_keys, normal, to_pictures
from nogs.bank.generators.weights import fill
from nogs.bank.leaks import refuse_ids
from nogs.data.task import Task
from nogs.runtime import progress
from nogs.runtime.capture import captured
from nogs.runtime.device import Precision, pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.files import load_tensors, save_tensors
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import torch_stream

__all__ = ["Trained", "train_generator"]

FORMAT = "nogs trained generator 1"


class Trained:
    """A trained generator: noise flows to a latent map, which is decoded."""

    count = None

    def __init__(
        self, autoencoder: Autoencoder, flow: Flow, *, about: dict[str, Any], device: torch.device, scale: Tensor
    ) -> None:
        self.autoencoder = autoencoder.eval().requires_grad_(False).to(device)
        self.flow = flow.eval().requires_grad_(False).to(device)
        self.about, self.device, self._scale = about, device, scale.to(device)
        self.size, self.ids = (about["size"][0], about["size"][1]), tuple(about["ids"])
        self.steps = int(about["config"]["steps"])
        self.precision = pick_precision("auto", device)

    @property
    def fingerprint(self) -> str:
        """Of the weights and the number of steps."""
        weights = {**self.autoencoder.state_dict(prefix="a."), **self.flow.state_dict(prefix="f.")}
        return fingerprint("trained", weights, self._scale, self.steps, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers: Heun's method from the noise at time 0 to a latent map at time 1."""
        keys = image_keys(numbers, seed=seed, purpose="trained generator", device=self.device)
        shape = (len(keys), self.flow.channels, *self.flow.side)
        x = normal(keys, math.prod(shape[1:])).reshape(shape)
        # small steps near both ends, where the velocity changes fastest
        times = (0.5 - 0.5 * torch.cos(torch.linspace(0, math.pi, self.steps + 1))).tolist()
        with self.precision.active():
            velocity = self._velocity(x, times[0])
            for now, then in pairwise(times):
                ahead = x + (then - now) * velocity
                after = self._velocity(ahead, then)
                x = x + (then - now) / 2 * (velocity + after)
                velocity = self._velocity(x, then) if then < times[-1] else after
            values = self.autoencoder.decode(x * self._scale, self.size)
        return to_pictures(values, self.size[0])

    def _velocity(self, x: Tensor, time: float) -> Tensor:
        return self.flow(x, torch.full((len(x),), time, device=x.device)).float()

    def save(self, path: Path) -> None:
        """Write the networks and what they were trained on."""
        tensors = {**self.autoencoder.state_dict(prefix="autoencoder."), **self.flow.state_dict(prefix="flow.")}
        save_tensors(path, {**tensors, "scale": self._scale}, {"format": FORMAT, "about": json.dumps(self.about)})

    @classmethod
    def load(cls, path: Path, *, device: torch.device | str = "cpu") -> Trained:
        """What `save` wrote."""
        tensors, metadata = load_tensors(path)
        if metadata.get("format") != FORMAT:
            raise InputError(f"{path} is not a trained generator of this version; train it again with nogs bank build.")
        about = json.loads(metadata["about"])
        autoencoder, flow = _networks(TrainedConfig.model_validate(about["config"]), tuple(about["size"]))
        for name, network in (("autoencoder.", autoencoder), ("flow.", flow)):
            own = {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}
            fill(network, own, path=Path(path))
        return cls(autoencoder, flow, about=about, device=torch.device(device), scale=tensors["scale"])


def train_generator(
    task: Task,
    rows: Int64[np.ndarray, " n"],
    *,
    config: TrainedConfig,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Trained:
    """Train on these rows of a task; a held-out image among them is refused."""
    ids = [task.ids[row] for row in rows]
    refuse_ids(ids, task, what="The training set of the generator")
    device, size = torch.device(device), (task.grid.height, task.grid.width)
    precision = pick_precision("auto", device)
    torch.manual_seed(torch_stream(seed, "trained generator").initial_seed())
    autoencoder, flow = _networks(config, size)
    autoencoder.to(device)
    flow.to(device)
    images = torch.from_numpy(np.array(task.images[rows])).to(device)
    lost = _train_autoencoder(autoencoder, images, config, seed, precision)
    latents = _latents(autoencoder, images, precision)
    scale = latents.std((0, 2, 3), keepdim=True).clamp_min(1e-6)[0]
    latents /= scale
    average, loss = _train_flow(flow, latents, config, seed, precision)
    flow.load_state_dict(average)
    about = {
        "task": task.name,
        "size": list(size),
        "ids": ids,
        "seed": seed,
        "config": config.model_dump(mode="json"),
        "autoencoder_error": round(lost, 5),
        "flow_loss": round(loss, 5),
    }
    return Trained(autoencoder, flow, about=about, device=device, scale=scale)


def _networks(config: TrainedConfig, size: Sequence[int]) -> tuple[Autoencoder, Flow]:
    side = (-(-size[0] // FACTOR), -(-size[1] // FACTOR))
    flow = Flow(channels=config.latent_channels, side=side, width=config.width, depth=config.depth)
    return Autoencoder(width=config.autoencoder_width, latent=config.latent_channels), flow


def _train_autoencoder(
    autoencoder: Autoencoder, images: Tensor, config: TrainedConfig, seed: int, precision: Precision
) -> float:
    """Minimise `_picture_loss`; returns the last batch's mean absolute error, in -1..1."""
    error = torch.zeros((), device=images.device)

    def loss(rows: Tensor) -> Tensor:
        values = _values(images[rows % len(images)])
        target = torch.where((rows < len(images))[:, None, None, None], values, values.flip(3))
        with precision.active():
            # a little noise on the code, so that the decoder forgives what the flow does not get exactly right
            code = autoencoder.encode(target)
            found = autoencoder.decode(code + 0.05 * torch.randn_like(code), (target.shape[2], target.shape[3]))
        error.copy_((found.detach().float() - target).abs().mean())
        return _picture_loss(found.float(), target) + 1e-3 * code.float().square().mean()

    rows = torch.zeros(max(1, min(config.batch // 8, len(images))), dtype=torch.int64, device=images.device)
    work = _Work(autoencoder, partial(loss, rows), config.learning_rate, config.autoencoder_iterations)
    work.run(rows, of=2 * len(images), generator=torch_stream(seed, "autoencoder batches"), title="autoencoder")
    return float(error)


def _picture_loss(found: Tensor, target: Tensor) -> Tensor:
    """Error of pixels, and of their differences to neighbours at three scales, which keeps edges."""
    # squares pull the colours right early on, absolute values the details later
    loss = (found - target).square().mean() + (found - target).abs().mean()
    for _ in range(3):
        for axis in (-1, -2):
            loss = loss + (found.diff(dim=axis) - target.diff(dim=axis)).abs().mean()
        found, target = F.avg_pool2d(found, 2), F.avg_pool2d(target, 2)
    return loss


@torch.no_grad()
def _latents(autoencoder: Autoencoder, images: Tensor, precision: Precision) -> Tensor:
    """Latent maps of all images and their mirror images."""
    parts = []
    with precision.active():
        for block in images.split(64):
            values = _values(block)
            parts += [autoencoder.encode(values).float(), autoencoder.encode(values.flip(3)).float()]
    return torch.cat(parts)


def _train_flow(
    flow: Flow, latents: Tensor, config: TrainedConfig, seed: int, precision: Precision
) -> tuple[dict[str, Tensor], float]:
    """Regress the velocity latent - noise at a random point of the straight way; returns the averaged weights."""

    def loss(rows: Tensor) -> Tensor:
        target = latents[rows]
        noise = torch.randn_like(target)
        # times crowd in the middle, where the velocity is hardest to tell (Esser et al., 2024)
        time = torch.randn(len(target), device=target.device).sigmoid()
        way = time[:, None, None, None]
        with precision.active():
            found = flow(way * target + (1 - way) * noise, time)
        return (found.float() - (target - noise)).square().mean()

    rows = torch.zeros(min(config.batch, len(latents)), dtype=torch.int64, device=latents.device)
    work = _Work(flow, partial(loss, rows), config.learning_rate, config.iterations)
    work.run(rows, of=len(latents), generator=torch_stream(seed, "flow batches"), title="flow")
    return work.average, float(work.sums) / config.iterations


class _Work:
    """Steps of AdamW on a loss, on a GPU as a captured graph, and the running average of the weights."""

    def __init__(
        self, network: torch.nn.Module, loss: Callable[[], Tensor], learning_rate: float, iterations: int
    ) -> None:
        self.network, self.loss, self.learning_rate, self.iterations = network, loss, learning_rate, iterations
        self.device = next(network.parameters()).device
        self.rate, self.new = (torch.zeros((), device=self.device) for _ in range(2))
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=self.rate, weight_decay=0.01, fused=True, capturable=self.device.type == "cuda"
        )
        self.sums = torch.zeros((), device=self.device)
        self.average = {name: value.clone() for name, value in network.state_dict().items()}

    def run(self, rows: Tensor, *, of: int, generator: torch.Generator, title: str) -> None:
        """All iterations; `rows`, which the loss reads, are drawn anew for each."""
        changes = [*self.network.state_dict().values(), *self.average.values(), self.sums]
        step = captured(self._step, self.device, changes=changes)
        for state in self.optimizer.state.values():  # made by the trial runs of a capture
            for value in state.values():
                value.zero_()
        with progress.track(title, total=self.iterations) as bar:
            for n in range(self.iterations):
                rows.copy_(torch.randint(of, rows.shape, generator=generator))
                warm = max(1, min(500, self.iterations // 10))
                share = min((n + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * n / self.iterations))
                self.rate.fill_(self.learning_rate * share)
                self.new.fill_(1 - min(0.9995, (n + 1) / (n + 10)))
                step()
                bar.advance(1)

    def _step(self) -> None:
        loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.sums += loss.detach()
        with torch.no_grad():
            for name, value in self.network.state_dict().items():
                self.average[name].lerp_(value, self.new)


def _values(images: Tensor) -> Tensor:
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1
