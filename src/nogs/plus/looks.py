"""Scores of the next location: a table of the fixed order's losses, and a location head that adapts it to an image."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.posterior.labels import Float32Linear
from nogs.posterior.tokens import Block, GlimpseTokens
from nogs.supervision.fixed import between, coarse_locations

TEMPERATURE = 0.05
"""Temperature in nats: where locations are drawn, one whose score is lower by this is drawn e times as often."""

_HIDDEN = 256


def context(
    prior: Float[Tensor, " D"],
    blocks: nn.ModuleList,
    tokens: Float[Tensor, "Q S D"],
    seen: Bool[Tensor, "Q S"] | None = None,
) -> Float[Tensor, "Q D"]:
    """`GlimpseTokens.context` for rows of one length, in operations that every exporter supports."""
    first = prior.to(tokens.dtype).expand(len(tokens), 1, -1)
    x, bias = torch.cat([first, tokens], 1), None
    if seen is not None:
        allowed = torch.cat([seen.new_ones(len(seen), 1), seen], 1)[:, None, None]
        bias = torch.zeros(allowed.shape, dtype=torch.float32, device=x.device).masked_fill(~allowed, -1e9)
    for n, block in enumerate(blocks):
        assert isinstance(block, Block)
        queries, keys, values = block.qkv(block.norm1(x)).chunk(3, -1)
        if n == len(blocks) - 1:  # only the prior token is needed
            queries, x = queries[:, :1], x[:, :1]
        q, k, v = (y.unflatten(-1, (block.heads, -1)).transpose(1, 2) for y in (queries, keys, values))
        mask = None if bias is None else bias.to(q.dtype)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = x + block.drop(block.out(found))
        x = x + block.drop(block.mlp(block.norm2(x)))
    return x[:, 0]


class LocationHead(nn.Module):
    """Corrects each location's mean loss over images by the glimpses so far; initially by zero.

    It reads the core's state and, with transformer blocks of its own, the core's tokens. All policies share it, and
    each has a gain for every hidden unit.
    """

    def __init__(self, core: GlimpseTokens, *, ways: int) -> None:
        super().__init__()
        width = core.prior.numel()
        self.blocks, self.prior = copy.deepcopy(core.blocks), nn.Parameter(core.prior.detach().clone())
        self.norm = nn.LayerNorm(2 * width)
        self.hidden = nn.Linear(2 * width, _HIDDEN)
        self.gain = nn.Parameter(torch.ones(ways, _HIDDEN))
        coarse = coarse_locations(core.grid)
        self.last = Float32Linear(_HIDDEN, len(coarse))
        self.register_buffer("spread", between(core.grid, torch.eye(len(coarse))), persistent=False)
        self.spread: Tensor
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(
        self,
        state: Float[Tensor, "Q D"],
        tokens: Float[Tensor, "Q S D"],
        way: Int[Tensor, " Q"] | None,
        seen: Bool[Tensor, "Q S"] | None = None,
    ) -> Float32[Tensor, "Q A L"]:
        """Corrections in nats, for one policy (`way`) per query, or for all."""
        own = context(self.prior, self.blocks, tokens, seen)
        hidden = F.gelu(self.hidden(self.norm(torch.cat([own, state], -1))))
        gain = self.gain if way is None else self.gain[way][:, None]
        return self.last(hidden[:, None] * gain) @ self.spread


class Looks(nn.Module):
    """A score for every location at every step, for each of A policies; the unseen location of least score is next.

    Every attribute has its own policy, or all share one, for which `attribute` does not matter. Without `learned` the
    table alone gives one order for all images. With `sampled`, locations are drawn by their scores, as for random ones.
    """

    def __init__(
        self,
        core: GlimpseTokens,
        table: Float32[Tensor, "A T L"],
        *,
        learned: bool = False,
        sampled: bool = False,
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(table.clone())
        self.sampled = sampled
        self.head = LocationHead(core, ways=len(table)) if learned else None

    @property
    def shared(self) -> bool:
        """Whether there is a single policy."""
        return len(self.table) == 1

    def forward(
        self,
        state: Float[Tensor, "Q D"] | None,
        tokens: Float[Tensor, "Q S D"],
        attribute: Int[Tensor, " Q"],
        step: Int[Tensor, " Q"] | int,
        seen: Bool[Tensor, "Q S"] | None = None,
    ) -> Float32[Tensor, "Q L"]:
        """Scores in nats before the glimpse number `step` (from 0); a table alone needs no state.

        No gradient reaches the core.
        """
        way = torch.zeros_like(attribute) if self.shared else attribute
        table = self.table[way, step]
        if self.head is None:
            return table
        assert state is not None
        return table + self.head(state.detach(), tokens.detach(), way, seen)[:, 0]

    def of_all(
        self, state: Float[Tensor, "Q D"], tokens: Float[Tensor, "Q S D"], step: int
    ) -> Float32[Tensor, "Q A L"]:
        """Scores of all policies; seen locations are treated like any other."""
        assert self.head is not None
        return self.table[:, step] + self.head(state.detach(), tokens.detach(), None)
