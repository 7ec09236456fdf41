"""Completions before the first glimpse, for every kind of completion: images of the bank, which is p(I)."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.bank.store import ResidentImages
from nogs.completion.config import CompletionConfig
from nogs.completion.protocol import Completions
from nogs.runtime.streams import bits, key, permutation

__all__ = ["pixels_of", "prior", "sources_of"]


def prior(bank: Bank, number: int, *, config: CompletionConfig, seed: int) -> Completions:
    """Different images of the bank for t = 1, the same for every image of a task, since nothing was seen."""
    kept, device = min(config.prior, len(bank)), bank.device
    rows = permutation(key(seed, "completion/prior"), len(bank))[:kept].sort().values.to(device)
    mirrored = (bits(key(seed, "completion/prior flips"), rows) & 1).bool() & config.flips
    pool, index = pixels_of(bank, rows)
    shape = (number, kept)
    nothing = torch.full((number,), torch.nan, device=device)
    return Completions(
        pool,
        index.expand(shape),
        mirrored.expand(shape),
        torch.full(shape, 1 / kept, device=device),
        rows.expand(shape),
        torch.full((number,), float(kept), device=device),
        nothing,
        nothing,
        sources_of(bank, rows.expand(shape)),
    )


def pixels_of(bank: Bank, rows: Int64[Tensor, " K"]) -> tuple[Tensor, Tensor]:
    """Images of the bank, and the indices of these rows among them; all images if the bank is resident."""
    images = bank.images
    if isinstance(images, ResidentImages):
        return images.pixels, rows
    unique, index = torch.unique(rows, return_inverse=True)
    return images.read(unique.cpu().numpy()).to(bank.device), index


def sources_of(bank: Bank, rows: Int64[Tensor, "B N"]) -> Int64[Tensor, "B N"] | None:
    """Sources of these rows of the bank; -1 where an entry is not used."""
    known = bank.sources
    return None if known is None else torch.where(rows >= 0, known[rows.clamp(min=0)], -1)
