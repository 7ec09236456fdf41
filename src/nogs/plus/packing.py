"""Compact storage of `Looks`: an order of locations if nothing was learned, else the table and the packed head."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nogs.posterior.rounding import packed_shapes, restored, rounded
from nogs.runtime.errors import InputError

__all__ = ["packed", "unpacked"]

TABLE, ORDER = "table", "order"


def packed(tensors: Mapping[str, Tensor], *, by_order: bool, bits: int) -> dict[str, Tensor]:
    """The tensors of a `Looks` with so many bits per weight. With `by_order` only the best locations of its table
    matter, so only they are kept; else the table is float16."""
    out = rounded({name: value for name, value in tensors.items() if name != TABLE}, bits, keep="inverse_temperature")
    if TABLE in tensors:
        out[ORDER if by_order else TABLE] = _order(tensors[TABLE]) if by_order else tensors[TABLE].half()
    return out


def unpacked(tensors: Mapping[str, Tensor], blank: nn.Module) -> dict[str, Tensor]:
    """The inverse of `packed` up to rounding, for a `Looks` like `blank`; other tensors are unchanged. Tensors that
    don't fit are refused."""
    expected = {name: value.shape for name, value in blank.state_dict().items()}
    found = dict(tensors)
    if ORDER in found:
        found[TABLE] = _table(found.pop(ORDER), expected[TABLE])
    shapes = packed_shapes({name: tuple(value.shape) for name, value in found.items()}, lambda: blank)
    if shapes != {name: tuple(shape) for name, shape in expected.items()}:
        raise InputError("its tensors of where to look are missing, unknown or misshapen")
    return {name: value.float() for name, value in restored(found, expected).items()}


def _order(table: Float[Tensor, "A T L"]) -> Int[Tensor, "A T"]:
    """The best unseen location at every step."""
    left, chosen = table.float().clone(), []
    for step in range(table.shape[1]):
        chosen.append(left[:, step].argmin(-1))
        left.scatter_(2, chosen[-1][:, None, None].expand(-1, table.shape[1], 1), torch.inf)
    return torch.stack(chosen, 1).int()


def _table(order: Int[Tensor, "A T"], shape: torch.Size) -> Float[Tensor, "A T L"]:
    """A table whose best locations are those of an order."""
    if (
        order.dtype != torch.int32
        or order.shape != shape[:2]
        or not 0 <= int(order.min()) <= int(order.max()) < shape[2]
    ):
        raise InputError("its order of locations is misshapen, or leaves the grid")
    return torch.ones(shape).scatter(2, order.long()[..., None], 0.0)
