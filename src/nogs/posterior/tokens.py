"""The glimpse-token transformer: a posterior that reads only the observed glimpses of the image.

Each glimpse becomes a few tokens with their position in pixels, and a learned prior token aggregates them. All tokens
attend to each other, so their order does not matter. Without glimpses there is only the prior token, which gives the
prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from nogs.glimpse import Grid, cut
from nogs.glimpse.changes import Changes, changed
from nogs.posterior.attention import Rows, attend, plan_rows
from nogs.posterior.config import PosteriorConfig
from nogs.posterior.labels import Float32Linear
from nogs.posterior.stems import VGGStem, centres, make_stem, token_size

Groups = Sequence[tuple[int, int]]
"""(queries, glimpses or tokens of each), in the order of the rows: queries of one length need no padding."""

_OCTAVES = 7  # from half a wave across the image to 32 waves: a period of 7 px on 224 px


class Place(nn.Module):
    """Position of a token: sines and cosines of its row and column, through a small network."""

    def __init__(self, grid: Grid, width: int) -> None:
        super().__init__()
        self.register_buffer("size", torch.tensor([grid.height, grid.width], dtype=torch.float32), persistent=False)
        self.size: Tensor
        self.layers = nn.Sequential(nn.Linear(4 * _OCTAVES + 2, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, pixels: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch D"]:
        """Embed (row, column) in pixels."""
        share = pixels / self.size
        waves = math.pi * 2.0 ** torch.arange(_OCTAVES, device=pixels.device)
        angles = (share[..., None] * waves).flatten(-2)
        return self.layers(torch.cat([2 * share - 1, angles.sin(), angles.cos()], -1))


class Norm(nn.LayerNorm):
    """A layer norm that keeps its input's type; inside autocast torch's own would double the memory traffic."""

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Sums are float32 in any case."""
        with torch.autocast(x.device.type, enabled=False, cache_enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class Block(nn.Module):
    """A pre-norm transformer layer over rows of tokens, concatenated without padding."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "S D"], plan: Sequence[Rows], *, first: Int[Tensor, " Q"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """With `first`, the index of each row's first token, computes only these, as the last layer needs no more."""
        width, normed = x.shape[-1], self.norm1(x)
        if first is None:
            queries, keys, values = self.qkv(normed).chunk(3, -1)
        else:
            keys, values = F.linear(normed, self.qkv.weight[width:], self.qkv.bias[width:]).chunk(2, -1)
            queries = F.linear(normed[first], self.qkv.weight[:width], self.qkv.bias[:width])
        seen = attend(queries, keys, values, plan, heads=self.heads, first=first is not None)
        x = (x if first is None else x[first]) + self.drop(self.out(seen))
        return x + self.drop(self.mlp(self.norm2(x)))


class GlimpseTokens(nn.Module):
    """The network. `encode` sees each glimpse by itself, `context` all glimpses of a query."""

    def __init__(self, config: PosteriorConfig, *, grid: Grid, outputs: int) -> None:
        super().__init__()
        self.grid = grid
        size = token_size(config, grid.glimpse)
        self.stem = make_stem(config, glimpse=grid.glimpse)
        self.place = Place(grid, config.width)
        self.register_buffer("centres", centres(grid.glimpse, size), persistent=False)
        self.centres: Tensor
        self.blocks = nn.ModuleList(Block(config.width, config.heads, config.dropout) for _ in range(config.layers))
        self.prior = nn.Parameter(torch.zeros(config.width))
        self.norm = nn.LayerNorm(config.width)
        self.head = Float32Linear(config.width, outputs)
        nn.init.trunc_normal_(self.prior, std=0.02)
        for module in (*self.blocks, self.head):
            for name, layer in module.named_modules():
                if isinstance(layer, nn.Linear):
                    # the more branches add to the residual stream, the smaller they start
                    depth = 2 * config.layers if name in ("out", "mlp.2") else 1
                    nn.init.trunc_normal_(layer.weight, std=1 / math.sqrt(depth * layer.in_features))
                    nn.init.zeros_(layer.bias)

    def load(self, source: str) -> set[str]:
        """Load VGG-16's weights into the stem; returns the names of the parameters that were loaded."""
        if not isinstance(self.stem, VGGStem):
            return set()
        return {f"stem.{name}" for name in self.stem.load(source)}

    def read(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q T 2"],
        index: Int[Tensor, " Q"],
        flip: Bool[Tensor, " Q"] | None = None,
        changes: Changes | None = None,
    ) -> UInt8[Tensor, "Q T g g 3"]:
        """The glimpses of the images or of the changed images, all that the network needs."""
        if changes is not None:
            return changed(images, changes, index=index, flip=flip, pixels=pixels, glimpse=self.grid.glimpse)
        spread = pixels.shape[:2]
        mirrored = None if flip is None else flip[:, None].expand(spread)
        return cut(images, pixels, glimpse=self.grid.glimpse, index=index[:, None].expand(spread), flip=mirrored)

    def encode(self, glimpses: UInt8[Tensor, "M g g 3"], pixels: Int[Tensor, "M 2"]) -> Float[Tensor, "M n D"]:
        """Tokens of each glimpse, computed only from it and its location."""
        content: Tensor = self.stem(glimpses)
        return content + self.place(pixels[:, None] + self.centres)

    def context(
        self, tokens: Float[Tensor, "M n D"], observed: Bool[Tensor, "Q T"], groups: Groups
    ) -> Float[Tensor, "Q D"]:
        """The prior token of every query after attention to the query's tokens.

        `groups` are (queries, glimpses), and `tokens` are those of their glimpses one after the other.
        """
        each, width = tokens.shape[1:]
        rows, plan, firsts, start, token, query = [], [], [], 0, 0, 0
        for queries, glimpses in groups:
            part = tokens[start : start + queries * glimpses].reshape(queries, glimpses * each, width)
            prior = self.prior.to(part.dtype).expand(queries, 1, width)
            rows.append(torch.cat([prior, part], 1).reshape(-1, width))
            seen = observed[query : query + queries, :glimpses].repeat_interleave(each, 1)
            seen, length = torch.cat([seen.new_ones(queries, 1), seen], 1), 1 + glimpses * each
            plan.append(plan_rows(queries, length, seen=seen, device=tokens.device))
            firsts.append(token + length * torch.arange(queries, device=tokens.device))
            start, token, query = start + queries * glimpses, token + queries * length, query + queries
        x, first = torch.cat(rows), torch.cat(firsts)
        for n, block in enumerate(self.blocks):
            x = block(x, plan, first=first if n == len(self.blocks) - 1 else None)
        return x

    def classify(self, context: Float[Tensor, "Q D"]) -> Float[Tensor, "Q O"]:
        """Logits from the queries' prior tokens."""
        return self.head(self.norm(context))

    def forward(
        self,
        glimpses: UInt8[Tensor, "Q T g g 3"],
        pixels: Int[Tensor, "Q T 2"],
        observed: Bool[Tensor, "Q T"],
        groups: Groups | None = None,
    ) -> Float[Tensor, "Q O"]:
        """Logits from the output of `read`; the queries of a group (queries, t) use their first t glimpses."""
        groups = groups or [(len(glimpses), glimpses.shape[1])]
        ends = accumulate(queries for queries, _ in groups)
        spans = [(slice(end - queries, end), t) for end, (queries, t) in zip(ends, groups)]
        looked = torch.cat([glimpses[span, :t].flatten(0, 1) for span, t in spans])
        where = torch.cat([pixels[span, :t].flatten(0, 1) for span, t in spans])
        return self.classify(self.context(self.encode(looked, where), observed, groups))

    def prepare(
        self,
        images: UInt8[Tensor, "N H W 3"],
        pixels: Int[Tensor, "Q P 2"],
        index: Int[Tensor, " Q"],
        flip: Bool[Tensor, " Q"] | None = None,
    ) -> Float[Tensor, "Q P n D"]:
        """Encode the glimpses that all candidates of a query share."""
        glimpses = self.read(images, pixels, index, flip)
        return self.encode(glimpses.flatten(0, 1), pixels.flatten(0, 1)).unflatten(0, pixels.shape[:2])

    def extend(
        self,
        prepared: Float[Tensor, "B P n D"],
        glimpses: UInt8[Tensor, "B 1 g g 3"],
        pixels: Int[Tensor, "B P1 2"],
        observed: Bool[Tensor, "B P1"],
    ) -> Float[Tensor, "B O"]:
        """Logits after the prepared glimpses and one more, which is the last of `pixels`."""
        last = self.encode(glimpses[:, 0], pixels[:, -1])
        return self.join(torch.cat([prepared.to(last.dtype), last[:, None]], 1), observed)

    def join(self, prepared: Float[Tensor, "B P n D"], observed: Bool[Tensor, "B P"]) -> Float[Tensor, "B O"]:
        """Logits after glimpses that are encoded already."""
        return self.classify(self.context(prepared.flatten(0, 1), observed, [(len(prepared), prepared.shape[1])]))
