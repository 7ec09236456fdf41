"""The generator trained here on a task's own images, so that a labelled folder suffices for a bank.

It is flow matching (Lipman, Chen, Ben-Hamu, Nickel and Le, 2023) in the latent space of an autoencoder. Unlike a GAN it
does not collapse, and completions need diversity more than sharpness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from pydantic import Field
from torch import Tensor, nn

from nogs.bank.config import TrainedConfig
from nogs.bank.generators.networks import FACTOR, Autoencoder, Flow, heun
from nogs.bank.generators.noise import image_keys, normal, to_pictures
from nogs.runtime.device import pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Header, Name, check_bounds, check_shapes, described
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = ["CHANNELS", "Trained", "networks"]

FORMAT = "nogs trained generator 1"
CHANNELS = 16
"""Channels of the latent map, whose sides are an eighth of the image's."""
_SIZES = ("autoencoder_width", "width", "depth", "steps")  # fields that cost memory or time


class _About(Header):
    """How a generator was trained."""

    task: Name
    size: list[Annotated[int, Field(ge=1, le=1 << 14)]] = Field(min_length=2, max_length=2)
    ids: list[Name]
    seed: int
    config: dict[str, Any]
    autoencoder_error: float
    flow_loss: float
    flow_iterations: int


class _Header(Header):
    """The metadata of a trained generator's file."""

    format: Literal["nogs trained generator 1"]
    about: _About


class _Both(nn.Module):
    """The two networks under the names that their weights have in the file."""

    def __init__(self, autoencoder: Autoencoder, flow: Flow) -> None:
        super().__init__()
        self.autoencoder, self.flow = autoencoder, flow


class Trained:
    """A trained generator: noise flows to a latent map, which is decoded."""

    count = None

    def __init__(
        self,
        autoencoder: Autoencoder,
        flow: Flow,
        *,
        about: dict[str, Any],
        device: torch.device,
        scale: Tensor,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        self.autoencoder = autoencoder.eval().requires_grad_(False).to(device)
        self.flow = flow.eval().requires_grad_(False).to(device)
        self.about, self.device, self._scale = about, device, scale.to(device)
        self.size, self.ids = (about["size"][0], about["size"][1]), tuple(about["ids"])
        self.steps = int(about["config"]["steps"])
        self.seconds = dict(seconds or {})
        """Seconds of training and encoding, if it was just trained; they are not in its file."""
        self.precision = pick_precision("auto", device)

    @property
    def fingerprint(self) -> str:
        """Of the weights and the number of steps."""
        weights = {**self.autoencoder.state_dict(prefix="a."), **self.flow.state_dict(prefix="f.")}
        return fingerprint("trained", weights, self._scale, self.steps, self.size)

    @property
    def latent(self) -> int:
        """Length of the latent, the noise that an image is made from."""
        return self.flow.channels * math.prod(self.flow.side)

    def decode(self, z: Float32[Tensor, "n latent"], keys: Int64[Tensor, " n"]) -> Float32[Tensor, "n 3 H W"]:
        """Images in -1..1, as a differentiable function of z: it flows to a latent map, which is decoded.

        Nothing else is random, so `keys` are not used.
        """
        x = z.reshape(len(z), self.flow.channels, *self.flow.side)
        with self.precision.active():
            return self.autoencoder.decode(heun(self._velocity, x, steps=self.steps) * self._scale, self.size)

    @torch.no_grad()
    def generate(self, numbers: Int64[np.ndarray, " n"], *, seed: int) -> UInt8[Tensor, "n H W 3"]:
        """The images of these numbers."""
        keys = image_keys(numbers, seed=seed, purpose="trained generator", device=self.device)
        return to_pictures(self.decode(normal(keys, self.latent), keys), self.size[0])

    def _velocity(self, x: Tensor, time: float) -> Tensor:
        return self.flow(x, torch.full((len(x),), time, device=x.device)).float()

    def save(self, path: Path) -> None:
        """Write the networks and a description of their training."""
        tensors = {**self.autoencoder.state_dict(prefix="autoencoder."), **self.flow.state_dict(prefix="flow.")}
        save_tensors(path, {**tensors, "scale": self._scale}, {"format": FORMAT, "about": self.about})

    @classmethod
    def load(cls, path: Path, *, device: torch.device | str = "cpu") -> Trained:
        """Load what `save` wrote."""
        path = Path(path)
        said, shapes = tensor_header(path)
        if said.get("format") != FORMAT:
            raise InputError(f"{path} is not a trained generator of this version; train it again with nogs bank build.")
        with described(path, "a trained generator of this version"):
            header = _Header.model_validate(said)
            check_bounds({name: header.about.config.get(name) for name in _SIZES}, tensors=len(shapes))
            config, (height, width) = TrainedConfig.model_validate(header.about.config), header.about.size
            found = dict(shapes)
            if found.pop("scale", None) != (CHANNELS, 1, 1):
                raise InputError("its tensor 'scale' is missing or misshapen")
            check_shapes(path, lambda: _Both(*networks(config, (height, width))), found)
        autoencoder, flow = networks(config, (height, width))
        tensors, _ = load_tensors(path)
        for name, value in tensors.items():
            if not torch.isfinite(value).all():
                raise InputError(f"{path} holds numbers that are not finite (tensor {name!r}); train it again.")
        scale = tensors.pop("scale")
        _Both(autoencoder, flow).load_state_dict(tensors)
        about = header.about.model_dump(exclude_unset=True)
        return cls(autoencoder, flow, about=about, device=torch.device(device), scale=scale)

    @classmethod
    def untrained(cls, config: TrainedConfig, *, size: Sequence[int], device: torch.device) -> Trained:
        """An untrained generator, which takes as long to make its meaningless pictures."""
        about = {"size": list(size), "ids": [], "config": config.model_dump(mode="json")}
        return cls(*networks(config, size), about=about, device=device, scale=torch.ones(CHANNELS, 1, 1))


def networks(config: TrainedConfig, size: Sequence[int]) -> tuple[Autoencoder, Flow]:
    """Both networks for images of height and width `size`, with torch's random initial weights."""
    side = (-(-size[0] // FACTOR), -(-size[1] // FACTOR))
    flow = Flow(channels=CHANNELS, side=side, width=config.width, depth=config.depth)
    return Autoencoder(width=config.autoencoder_width, latent=CHANNELS), flow
