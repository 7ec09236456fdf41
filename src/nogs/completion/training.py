"""Training of a learned completion on a task's own images: a conditional GAN (Isola et al., 2017) or a flow.

Every step shows random glimpses of some images, as many as annotation may show. A killed training resumes from its last
saved state, with the same result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.bank.config import SEED
from nogs.bank.generators.steps import Done, Work
from nogs.bank.generators.training import drawn, resident_rows
from nogs.bank.leaks import allowed_rows, refuse_ids
from nogs.completion.conditional import Learned, condition, unet
from nogs.completion.config import CompletionConfig
from nogs.completion.networks import Discriminator
from nogs.data.task import Task
from nogs.glimpse import Grid, mask
from nogs.runtime import streams
from nogs.runtime.device import pick_precision
from nogs.runtime.fields import dotted
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.stage import Stage

__all__ = ["NETWORK", "STATE", "train_completion", "train_network"]

NETWORK, STATE = "network.safetensors", "state.safetensors"


def train_completion(
    task: Task, *, config: CompletionConfig, glimpses: int, folder: Path, rms: float, device: torch.device
) -> Path:
    """The file of the trained network of `config.kind` in its folder; it is trained now if it is not there.

    It is trained on the images that a bank may show: training images that are no near-duplicates of held-out ones.
    """
    rows = allowed_rows(task, rms=rms, device=device)
    fields = {
        "network": config.network.model_dump(mode="json", exclude={"steps"}),
        "flips": config.flips,
        "glimpses": glimpses,
        "data": task.fingerprint,
        "images": fingerprint([task.ids[row] for row in rows]),
    }
    mark = fingerprint(config.kind, fields)
    stage = Stage(folder, name=config.kind, fingerprint=mark, fields=dotted(fields))
    stage.check_folder()
    if stage.done:
        return folder / NETWORK
    stage.begin()
    state = folder / STATE
    made = train_network(task, rows, config=config, glimpses=glimpses, device=device, state=state)
    made.save(folder / NETWORK)
    state.unlink(missing_ok=True)
    known = {name: made.about[name] for name in ("loss", "iterations")}
    stage.finish(device=device, task=task.fingerprint, **known)
    return folder / NETWORK


def train_network(
    task: Task,
    rows: Int64[np.ndarray, " n"],
    *,
    config: CompletionConfig,
    glimpses: int,
    seed: int = SEED,
    device: torch.device | str = "cpu",
    state: Path | None = None,
) -> Learned:
    """Train on these rows of a task, seen in 1 to `glimpses` - 1 glimpses; a held-out image among them is refused."""
    ids = [task.ids[row] for row in rows]
    refuse_ids(ids, task, what="The training set of the completion network")
    device, size, fields = torch.device(device), (task.grid.height, task.grid.width), config.network
    mark = fingerprint(
        *(config.kind, fields.model_dump(exclude={"seconds", "steps"}), config.flips, glimpses),
        *(ids, task.fingerprint, seed),
    )
    done = Done(state, first=config.kind, mark=mark)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(streams.key(seed, config.kind))
        losses = (_Adversarial if config.kind == "cgan" else _Flow)(config, task.grid, glimpses, device=device)
        images = resident_rows(task.images, rows, device)
        work = Work(
            losses,
            lambda rows: losses(drawn(images, rows)),
            title=config.kind,
            of=len(images) * (2 if config.flips else 1),
            batch=min(fields.batch, len(images)),
            seed=seed,
            averaged=True,
            betas=losses.betas,
        )
        work.run(done, iterations=fields.iterations, learning_rate=fields.learning_rate, limit=fields.seconds)
    losses.load_state_dict(work.average)
    about: dict[str, Any] = {
        "kind": config.kind,
        "task": task.name,
        "size": list(size),
        "glimpse": task.grid.glimpse,
        "ids": ids,
        "config": fields.model_dump(mode="json"),
        "loss": round(float(work.sums) / done.iteration, 5),
        "iterations": done.iteration,
    }
    return Learned(losses.network, about=about, device=device)


class _Losses(nn.Module):
    """The network in training, and its loss on images of which it is given random glimpses."""

    betas = (0.9, 0.999)

    def __init__(self, config: CompletionConfig, grid: Grid, glimpses: int, *, device: torch.device) -> None:
        super().__init__()
        self.grid, self.most, self.config = grid, max(1, glimpses - 1), config.network
        self.network = unet(config.kind, config.network, (grid.height, grid.width)).to(device)
        self.places = grid.pixels.to(device)
        self.precision = pick_precision("auto", device)

    def seen(self, number: int) -> Bool[Tensor, "n H W"]:
        """The pixels that 1 to T - 1 glimpses at random locations of the grid show."""
        device = self.places.device
        places = self.places[torch.randint(len(self.places), (number, self.most), device=device)]
        count = torch.randint(1, self.most + 1, (number, 1), device=device)
        some = torch.arange(self.most, device=device) < count
        size = {"height": self.grid.height, "width": self.grid.width}
        return mask(places, glimpse=self.grid.glimpse, observed=some, **size)


class _Adversarial(_Losses):
    """pix2pix: the discriminator's loss plus the generator's, which sends no gradient to the discriminator."""

    betas = (0.5, 0.999)

    def __init__(self, config: CompletionConfig, grid: Grid, glimpses: int, *, device: torch.device) -> None:
        super().__init__(config, grid, glimpses, device=device)
        size, inputs = (grid.height, grid.width), 6 + self.config.mask
        self.judge = Discriminator(inputs, width=self.config.width, size=size).to(device)

    def forward(self, target: Tensor) -> Tensor:
        observed = self.seen(len(target))
        given = condition(target, observed, torch.randn_like(target), channel=self.config.mask)
        held = {name: value.detach() for name, value in self.judge.named_parameters()}
        with self.precision.active():
            found = torch.tanh(self.network(given).float())
            real = self.judge(torch.cat([given, target], 1)).float()
            false = self.judge(torch.cat([given, found.detach()], 1)).float()
            taken = torch.func.functional_call(self.judge, held, (torch.cat([given, found], 1),)).float()
        judging = (F.softplus(-real).mean() + F.softplus(false).mean()) / 2
        making = F.softplus(-taken).mean() + self.config.l1 * (found - target).abs().mean()
        # one optimiser serves both: Adam is invariant to this scale, which keeps one gradient from dominating the
        # other when they are clipped together
        return judging + making / (1 + self.config.l1)


class _Flow(_Losses):
    """Regress the velocity image - noise at a random point of the straight line between them."""

    def forward(self, target: Tensor) -> Tensor:
        known = condition(target, self.seen(len(target)), 0.0, channel=True)
        noise = torch.randn_like(target)
        # most times lie in the middle, where the velocity is hardest to predict (Esser et al., 2024)
        time = torch.randn(len(target), device=target.device).sigmoid()
        way = time[:, None, None, None]
        with self.precision.active():
            found = self.network(torch.cat([way * target + (1 - way) * noise, known], 1), time)
        return (found.float() - (target - noise)).square().mean()
