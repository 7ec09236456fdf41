"""Masked-patch prediction: before it learns labels, a glimpse-token transformer may learn what images look like."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.posterior.stems import patches
from nogs.posterior.tokens import GlimpseTokens


class Painter(nn.Module):
    """Paints the second half of an image's glimpses from the first; thrown away after the pretraining."""

    def __init__(self, network: GlimpseTokens, *, size: int) -> None:
        super().__init__()
        width = len(network.prior)
        self.size = size
        self.stand_in = nn.Parameter(torch.zeros(width))
        self.norm = nn.LayerNorm(width)
        self.paint = nn.Linear(width, 3 * size * size)

    def loss(
        self,
        network: GlimpseTokens,
        glimpses: UInt8[Tensor, "Q T g g 3"],
        pixels: Int[Tensor, "Q T 2"],
    ) -> Float[Tensor, ""]:
        """Mean squared error of the hidden glimpses' normalised pixels; the network knows their places."""
        queries, number = pixels.shape[:2]
        hidden = (torch.arange(number, device=pixels.device) >= number // 2).expand(queries, -1)
        flat = glimpses.flatten(0, 1)
        tokens = network.encode(flat, pixels.flatten(0, 1), hidden=hidden.flatten(), stand_in=self.stand_in)
        context = network.context(tokens, torch.ones_like(hidden), [(queries, number)], all_tokens=True)
        context = context.view(queries, -1, context.shape[-1])[:, 1:].unflatten(1, (number, -1))
        painted = self.paint(self.norm(context[:, number // 2 :]))
        truth = (
            network.stem.normalise(patches(flat, self.size))
            .flatten(2)
            .unflatten(0, (queries, number))[:, number // 2 :]
        )
        return F.mse_loss(painted.float(), truth)
