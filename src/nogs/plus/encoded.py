"""Glimpses of the training images, encoded once by a frozen stem; training then needs only the layers behind it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from nogs.plus.config import PlusConfig
from nogs.plus.network import TokenNetwork
from nogs.supervision.fixed import ENCODED

__all__ = ["Encoded", "encodes"]

_AT_ONCE = 512  # glimpses


def encodes(config: PlusConfig, network: TokenNetwork, images: int, *, flip: bool) -> bool:
    """Whether all glimpses of so many images are fewer than those that training reads, and fit in memory."""
    read = config.iterations * config.batch * config.candidates * network.architecture.glimpses
    glimpses = (1 + flip) * images * len(network.pixels)
    return glimpses < read and glimpses * network.tokens * network.width <= ENCODED


class Encoded:
    """Tokens of the glimpses at every location of some images and, with `flip`, of the mirrored images."""

    @torch.no_grad()
    def __init__(
        self,
        network: TokenNetwork,
        images: UInt8[Tensor, "N H W 3"],
        rows: Int[Tensor, " n"],
        *,
        flip: bool,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        """`advance` is called with the numbers of images done."""
        locations = torch.arange(len(network.pixels), device=rows.device)
        self._place = torch.zeros(len(images), dtype=torch.int64, device=rows.device)
        self._place[rows] = torch.arange(len(rows), device=rows.device)
        ways = (False, True) if flip else (False,)
        found = []
        for mirrored in ways:
            for some in rows.split(max(1, _AT_ONCE // len(locations))):
                turned = torch.full((len(some),), mirrored, device=rows.device)
                found.append(network.read(images, some, locations.expand(len(some), -1), flip=turned))
                advance(len(some))
        self._tokens = torch.cat(found).unflatten(0, (len(ways), len(rows)))

    def read(
        self, rows: Int[Tensor, " B"], locations: Int[Tensor, "B k"], flip: Bool[Tensor, " B"] | None
    ) -> Float[Tensor, "B k n D"]:
        """As `TokenNetwork.read`."""
        mirrored = torch.zeros_like(rows) if flip is None else flip.long()
        return self._tokens[mirrored[:, None], self._place[rows][:, None], locations]
