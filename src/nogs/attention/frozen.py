"""Glimpse embeddings of pretrained, frozen embedders: looked up in a table of all glimpses, or computed at each look.

With a frozen embedder there are only as many different embeddings as images times locations (twice, if images are
mirrored). Both classes here are an `Embed` for networks without an embedder, and compute the same function.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from nogs.attention.cohort import Cohort
from nogs.attention.config import AttentionConfig
from nogs.attention.network import Networks
from nogs.attention.trunks import Frozen, tuned_convolutions
from nogs.runtime import progress

CHUNK = {"cuda": 1 << 13, "cpu": 1 << 8}
"""Glimpses that go through an embedder at once without gradients."""


def stand_on(networks: Networks, frozen: Frozen, cohort: Cohort, config: AttentionConfig) -> None:
    """Give `networks` the frozen RNN and classifier of their trunks, and the trunks' embeddings."""
    core = networks.core_parameters
    for name, parameter in core.items():
        parameter.data.copy_(torch.stack([frozen.networks[r].core_parameters[name][0] for r in frozen.numbers]))
    core.requires_grad_(False)
    if worth_a_table(config, cohort, trunks=len(frozen.trunks), width=networks.architecture.embedding):
        networks.embed = Table.make(frozen.networks, frozen.numbers, cohort, flip=config.flip)
    else:
        networks.embed = Direct(frozen.networks, frozen.numbers)


class Direct:
    """Embeddings computed from the pixels; network m has the embedder `trunks[trunk_of[m]]`."""

    def __init__(self, trunks: Sequence[Networks], trunk_of: Sequence[int]) -> None:
        self.trunks = list(trunks)
        self.members = [[m for m, r in enumerate(trunk_of) if r == n] for n in range(len(trunks))]
        self.order = [m for members in self.members for m in members]
        self.place = [self.order.index(m) for m in range(len(self.order))]

    def __call__(
        self,
        images: UInt8[Tensor, "N H W C"],
        rows: Int[Tensor, "M B"],
        locations: Int[Tensor, "M B"],
        flip: Bool[Tensor, "M B"] | None,
    ) -> Float[Tensor, "M B D"]:
        """See `network.Embed`."""
        parts = []
        with torch.no_grad():
            for trunk, members in zip(self.trunks, self.members):
                row, location = (torch.cat([x[m] for m in members])[None] for x in (rows, locations))
                mirrored = None if flip is None else torch.cat([flip[m] for m in members])[None]
                parts.append(trunk.embed(images, row, location, mirrored)[0].unflatten(0, (len(members), -1)))
        together = torch.cat(parts)
        return torch.stack([together[n] for n in self.place])


class Table:
    """Embeddings of all glimpses of the task's images: `table[r, slot of image, location]` for trunk r."""

    def __init__(
        self,
        table: Float[Tensor, "R S L D"],
        *,
        slots: Int[Tensor, "2 N"],
        trunk_of: Int[Tensor, " M"],
    ) -> None:
        self.table, self.slots, self.trunk_of = table, slots, trunk_of
        self.flat = table.view(-1, table.shape[-1])  # a view: index_select of it copies whole rows

    @classmethod
    def make(cls, trunks: Sequence[Networks], trunk_of: Sequence[int], cohort: Cohort, *, flip: bool) -> Table:
        """Embed every location of every image of the splits, and of every mirrored training image if `flip`."""
        device, grid = cohort.device, cohort.task.grid
        rows, mirrored, slots = shown(cohort, flip=flip)
        width = trunks[0].architecture.embedding
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        table = torch.empty(len(trunks), len(rows), len(grid), width, dtype=dtype, device=device)
        total, chunk = len(rows) * len(grid), CHUNK.get(device.type, CHUNK["cpu"])
        bar = progress.track("embedding every glimpse", total=len(trunks) * total, unit="glimpses")
        with torch.no_grad(), tuned_convolutions(), bar as shown_bar:
            for r, trunk in enumerate(trunks):
                out = table[r].view(total, width)
                for start in range(0, total, chunk):
                    pairs = torch.arange(start, min(start + chunk, total), device=device)
                    slot, location = pairs // len(grid), pairs % len(grid)
                    own = trunk.embed(cohort.images, rows[slot][None], location[None], mirrored[slot][None])
                    out[start : start + chunk] = own[0]
                    shown_bar.advance(len(pairs))
        return cls(table, slots=slots, trunk_of=torch.tensor(trunk_of, device=device))

    def __call__(
        self,
        images: UInt8[Tensor, "N H W C"],
        rows: Int[Tensor, "M B"],
        locations: Int[Tensor, "M B"],
        flip: Bool[Tensor, "M B"] | None,
    ) -> Float[Tensor, "M B D"]:
        """See `network.Embed`."""
        slot = self.slots[0][rows] if flip is None else torch.where(flip, self.slots[1][rows], self.slots[0][rows])
        _, number, places, width = self.table.shape
        index = (self.trunk_of[:, None] * number + slot) * places + locations
        return self.flat.index_select(0, index.flatten()).view(*index.shape, width).float()


def shown(cohort: Cohort, *, flip: bool) -> tuple[Int[Tensor, " S"], Bool[Tensor, " S"], Int[Tensor, "2 N"]]:
    """The image of each slot of a table, which slots are mirrored, and each image's slots, plain and mirrored."""
    device, task = cohort.device, cohort.task
    plain = torch.cat([torch.from_numpy(task.rows(split)) for split in ("train", "validation", "test")]).to(device)
    train = torch.from_numpy(task.rows("train")).to(device) if flip else plain[:0]
    rows = torch.cat([plain, train])
    mirrored = torch.arange(len(rows), device=device) >= len(plain)
    slots = torch.zeros(2, len(task.ids), dtype=torch.int64, device=device)
    slots[0, plain] = torch.arange(len(plain), device=device)
    slots[1, train] = len(plain) + torch.arange(len(train), device=device)
    return rows, mirrored, slots


def worth_a_table(config: AttentionConfig, cohort: Cohort, *, trunks: int, width: int) -> bool:
    """Whether a table is asked for or, by default, fits into half of the free memory and saves work."""
    if config.cache != "auto":
        return config.cache == "always"
    task, members = cohort.task, len(cohort.members)
    rows = sum(len(task.splits[split]) for split in ("train", "validation", "test"))
    entries = trunks * (rows + config.flip * len(task.splits["train"])) * len(task.grid)
    looks = config.iterations * cohort.batch
    looks += config.iterations // config.validate_every * len(task.splits["validation"]) * config.trajectories
    if entries >= looks * cohort.glimpses * members:
        return False
    if cohort.device.type == "cuda":
        return entries * width * 2 < torch.cuda.mem_get_info(cohort.device)[0] / 2
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return entries * width * 4 < free / 2
