"""Attention over many short rows of tokens, concatenated without padding.

A GPU's attention kernels work in tiles of 64 to 128 tokens, which a row of 21 tokens would leave mostly idle. Several
rows therefore share a tile, and a bias prevents attention between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

TILE = {"cuda": 128}
"""Tokens of a tile by type of device; on other devices rows are not combined."""


@dataclass(frozen=True)
class Rows:
    """Rows of equal length: their number, tokens per row, rows per tile, and the attention bias (0 or -inf)."""

    rows: int
    tokens: int
    together: int
    bias: Float[Tensor, "G 1 S S"] | None
    first_bias: Float[Tensor, "G 1 R S"] | None
    """The bias of only the first token of each row."""


def plan_rows(rows: int, tokens: int, *, seen: Bool[Tensor, "Q n"], device: torch.device) -> Rows:
    """Rows whose tokens attend to those tokens of their own row that are `seen`."""
    most = max(1, TILE.get(device.type, 1) // tokens)
    together = next(number for number in range(min(most, max(rows, 1)), 0, -1) if rows % number == 0)
    if tokens == 1:
        return Rows(rows, tokens, together, None, None)
    own = torch.eye(together, dtype=torch.bool, device=device).repeat_interleave(tokens, 1)
    allowed = own & seen.reshape(-1, 1, together * tokens)
    cast = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if cast else torch.float32
    first = torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, -torch.inf)[:, None]
    return Rows(rows, tokens, together, first.repeat_interleave(tokens, 2), first)


def attend(
    queries: Float[Tensor, "A D"],
    keys: Float[Tensor, "S D"],
    values: Float[Tensor, "S D"],
    plan: Sequence[Rows],
    *,
    heads: int,
    first: bool,
) -> Float[Tensor, "A D"]:
    """Softmax attention within each row; with `first`, `queries` has only the first token of each row."""
    sizes = [part.rows * part.tokens for part in plan]
    asked = [part.rows if first else part.rows * part.tokens for part in plan]
    found = []
    for part, q, k, v in zip(plan, queries.split(asked), keys.split(sizes), values.split(sizes)):
        if part.tokens == 1:  # a token that attends only to itself
            found.append(v)
            continue
        tiles = part.rows // part.together
        q, k, v = (x.reshape(tiles, -1, heads, x.shape[-1] // heads).transpose(1, 2) for x in (q, k, v))
        bias = part.first_bias if first else part.bias
        assert bias is not None
        bias = bias.to(q.dtype).expand(tiles, -1, -1, -1)
        found.append(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(found) if len(found) > 1 else found[0]
