"""Learned completions: a conditional GAN (pix2pix) or a flow, from glimpses and noise to whole images.

The GAN's network is given the glimpses on an image of Gaussian noise. The flow's network moves noise to an image, and
is given the glimpses on grey with a mask channel. Observed pixels are then restored exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from pydantic import Field
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.bank.generators.networks import heun
from nogs.bank.generators.noise import as_pictures, normal, to_values
from nogs.completion.config import CompletionConfig, NetworkConfig
from nogs.completion.networks import UNet
from nogs.completion.prior import prior
from nogs.completion.protocol import Completions
from nogs.glimpse import mask
from nogs.runtime.device import pick_precision
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.headers import Header, Name, check_bounds, check_shapes, described
from nogs.runtime.streams import bits, key
from nogs.runtime.tensors import load_tensors, save_tensors, tensor_header

__all__ = ["Conditional", "Learned", "condition", "unet"]

FORMAT = "nogs completion network 1"
_TOGETHER = 64  # completions per call of the network
_FREE = {"seconds", "steps"}  # fields that may differ from training


class _About(Header):
    """How a network was trained."""

    kind: Literal["cgan", "flow"]
    task: Name
    size: list[Annotated[int, Field(ge=1, le=1 << 14)]] = Field(min_length=2, max_length=2)
    glimpse: int = Field(ge=1)
    ids: list[Name]
    config: dict[str, Any]
    loss: float
    iterations: int


class _Header(Header):
    """The metadata of a network's file."""

    format: Literal["nogs completion network 1"]
    about: _About


def unet(kind: str, config: NetworkConfig, size: Sequence[int]) -> UNet:
    """The U-Net of a kind for images of that height and width, with torch's initial weights."""
    inputs = 7 if kind == "flow" else 3 + config.mask
    return UNet(inputs, width=config.width, size=(size[0], size[1]), timed=kind == "flow")


def condition(
    seen: Float32[Tensor, "n 3 H W"],
    observed: Bool[Tensor, "n H W"],
    hidden: Float32[Tensor, "n 3 H W"] | float,
    *,
    channel: bool,
) -> Float32[Tensor, "n c H W"]:
    """The observed pixels, with `hidden` elsewhere; with `channel`, also a mask of what was observed."""
    there = observed[:, None]
    embedded = torch.where(there, seen, hidden)
    return torch.cat([embedded, there.to(seen.dtype)], 1) if channel else embedded


class Learned:
    """A trained network, and what it was trained on."""

    def __init__(self, network: UNet, *, about: dict[str, Any], device: torch.device) -> None:
        self.network, self.about, self.device = network.eval().requires_grad_(False).to(device), about, device
        self.kind, self.size, self.glimpse = about["kind"], (about["size"][0], about["size"][1]), about["glimpse"]
        self.config = NetworkConfig.model_validate(about["config"])
        self.precision = pick_precision("auto", device)

    def sample(
        self,
        image: Float32[Tensor, "3 H W"],
        observed: Bool[Tensor, "H W"],
        noise: Float32[Tensor, "n 3 H W"],
        *,
        steps: int,
    ) -> Float32[Tensor, "n 3 H W"]:
        """Whole images in -1..1 that complete the observed pixels of one image, one for each noise."""
        number = len(noise)
        seen, there = image.expand(number, -1, -1, -1), observed.expand(number, -1, -1)
        with torch.no_grad(), self.precision.active():
            if self.kind == "cgan":
                return torch.tanh(self.network(condition(seen, there, noise, channel=self.config.mask)).float())
            known = condition(seen, there, 0.0, channel=True)

            def velocity(x: Tensor, time: float) -> Tensor:
                now = torch.full((number,), time, device=x.device)
                return self.network(torch.cat([x, known], 1), now).float()

            return heun(velocity, noise, steps=steps)

    def save(self, path: Path) -> None:
        """Write the network and what it was trained on."""
        save_tensors(path, self.network.state_dict(), {"format": FORMAT, "about": self.about})

    @classmethod
    def load(cls, path: Path, *, device: torch.device | str = "cpu") -> Learned:
        """Read what `save` wrote."""
        said, shapes = tensor_header(path)
        if said.get("format") != FORMAT:
            raise InputError(
                f"{path} is not a completion network of this version; train it again with nogs bank build."
            )
        with described(path, "a completion network of this version"):
            about = _Header.model_validate(said).about
            check_bounds(about.config, tensors=len(shapes))
            config = NetworkConfig.model_validate(about.config)
            check_shapes(path, lambda: unet(about.kind, config, about.size), shapes)
        network = unet(about.kind, config, about.size)
        tensors, _ = load_tensors(path)
        for name, value in tensors.items():
            if not torch.isfinite(value).all():
                raise InputError(f"{path} holds numbers that are not finite (tensor {name!r}); train it again.")
        network.load_state_dict(tensors)
        return cls(network, about=about.model_dump(), device=torch.device(device))


class Conditional:
    """Completions by a trained network; before the first glimpse, images of the bank. A `Completion`."""

    def __init__(self, learned: Learned, bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0) -> None:
        trained, asked = (fields.model_dump(exclude=_FREE) for fields in (learned.config, config.network))
        if learned.kind != config.kind or trained != asked:
            raise InputError(
                f"The network of {learned.kind!r} was trained with other fields of completion.network; give the same "
                "ones, or train it again with nogs bank build."
            )
        if learned.size != bank.pca.size or learned.glimpse != glimpse:
            raise InputError(
                f"The network of {learned.kind!r} is for glimpses of {learned.glimpse} px of {learned.size} px, "
                f"not for {glimpse} px of {bank.pca.size} px; train it again with nogs bank build."
            )
        self.learned, self.bank, self.config, self.glimpse, self.seed = learned, bank, config, glimpse, seed
        weights = dict(learned.network.state_dict())
        self._mark = fingerprint(config.kind, weights, config, bank.fingerprint, glimpse, seed)

    @property
    def fingerprint(self) -> str:
        """Changes with the weights, the bank, the fields, the glimpse size or the seed."""
        return self._mark

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """Completions of `images` seen at the top-left `pixels` only; without glimpses, draws from the bank."""
        number, device = len(images), self.learned.device
        if images.shape[1:3] != self.learned.size:
            raise InputError(
                f"The images are {tuple(images.shape[1:3])} px, but the network's are {self.learned.size} px; train "
                "one for this task."
            )
        if not pixels.shape[1]:
            return prior(self.bank, number, config=self.config, seed=self.seed)
        images = images.to(device)
        height, width = self.learned.size
        seen = mask(pixels.to(device), glimpse=self.glimpse, height=height, width=width)
        pool = [self._of(images[b], seen[b], id=id, step=pixels.shape[1]) for b, id in enumerate(ids)]
        return unweighted(torch.cat(pool), number)

    def _of(
        self, image: UInt8[Tensor, "H W 3"], seen: Bool[Tensor, "H W"], *, id: str, step: int
    ) -> UInt8[Tensor, "N H W 3"]:
        """K2 completions of one image, in calls of fixed sizes, so that they don't depend on the batch."""
        own = key(self.seed, f"completion/{self.config.kind}", id, step)
        keys = bits(own, torch.arange(self.config.kept, device=image.device))
        target, shape = to_values(image[None])[0], (3, *image.shape[:2])
        parts = []
        for some in keys.split(_TOGETHER):
            noise = normal(some, math.prod(shape)).reshape(-1, *shape)
            parts.append(as_pictures(self.learned.sample(target, seen, noise, steps=self.config.network.steps)))
        return torch.where(seen[..., None], image, torch.cat(parts))


def unweighted(pool: UInt8[Tensor, "M H W 3"], number: int) -> Completions:
    """Equally likely completions of `number` images, from a pool in the order of these images."""
    kept, device = len(pool) // number, pool.device
    shape = (number, kept)
    nothing = torch.full((number,), torch.nan, device=device)
    return Completions(
        pool,
        torch.arange(len(pool), device=device).reshape(shape),
        torch.zeros(shape, dtype=torch.bool, device=device),
        torch.full(shape, 1 / kept, device=device),
        torch.full(shape, -1, dtype=torch.int64, device=device),
        torch.full((number,), float(kept), device=device),
        nothing,
        nothing,
    )
