"""One fixed order of locations for all images: greedy forward selection by the posterior's mean cross-entropy.

It needs no completions, since labels are known and images are whole. The images must not have trained the posterior: on
its training images every location looks good. The order is the baseline that a learned policy has to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float32, Int, Int64, UInt8
from torch import Tensor
from torch.nn import functional as F

from nogs.data.task import Task
from nogs.glimpse import Grid
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.protocol import Posterior, cross_entropy
from nogs.posterior.store import about_posterior
from nogs.posterior.tokens import GlimpseTokens
from nogs.runtime import progress

__all__ = ["ENCODED", "FixedOrder", "between", "coarse_locations", "fixed_order", "order_of", "strangers"]

_ALL = 400  # locations: a grid of more is searched coarsely first
_COARSE = 13  # rows and columns of the coarse search
_FEW = 500  # images that a large grid is searched on; all images decide between the best locations
_BEST = 16  # locations that all images decide between
_ANSWERS = 1 << 24  # numbers held at once
ENCODED = 1 << 28
"""The most numbers of encoded glimpses that are held: 1 GiB in float32, and twice as much while they are joined."""


@dataclass(frozen=True)
class FixedOrder:
    """For each of A objectives an order of grid indices, and the mean cross-entropies that it was chosen by.

    `losses[a, t, l]` is the mean cross-entropy (nats) after the first t locations of the order and l. A large grid is
    searched coarsely and on some of the images; all images decide between the best locations. Values in between are
    interpolated, and never below the best.
    """

    order: Int64[Tensor, "A T"]
    losses: Float32[Tensor, "A T L"]


def order_of(
    task: Task,
    posterior: Posterior,
    *,
    source: str,
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    glimpses: int,
    objectives: Sequence[Sequence[int]] = ((0,),),
) -> FixedOrder:
    """`fixed_order` on a task's `images` and `labels` that the posterior, read from `source`, was not trained on."""
    rows = torch.from_numpy(task.rows(strangers(task, source))).to(images.device)
    with progress.track("the fixed order", total=None, unit="locations") as bar:
        return fixed_order(
            posterior, images, labels, rows, glimpses=glimpses, objectives=objectives, advance=bar.advance
        )


def strangers(task: Task, posterior: str) -> tuple[str, ...]:
    """Images that did not train a posterior, and on which no location looks better than it is."""
    about = about_posterior(posterior)
    split = about.get("went_on", about.get("config", {}).get("split", "posterior"))
    known = {*task.splits[split], *task.splits["test"]}
    return tuple(id for id in (*task.splits["validation"], *task.splits["train"]) if id not in known)


@torch.no_grad()
def fixed_order(
    posterior: Posterior,
    images: UInt8[Tensor, "N H W 3"],
    labels: Int[Tensor, "N V"],
    rows: Int[Tensor, " n"],
    *,
    glimpses: int,
    objectives: Sequence[Sequence[int]] = ((0,),),
    advance: Callable[[int], None] = lambda _: None,
) -> FixedOrder:
    """The order for each of `objectives`, the label variables whose mean cross-entropy it lowers, chosen on the images
    `rows`; `advance` is called for every location tried."""
    grid, device = posterior.grid, images.device
    pixels = grid.pixels.to(device)
    coarse, step = coarse_locations(grid), _step(grid)
    few = rows if step == 1 else rows[:: max(1, len(rows) // _FEW)]
    order = torch.zeros(len(objectives), 0, dtype=torch.int64)
    losses = torch.zeros(len(objectives), glimpses, len(grid))
    among = _encoded(posterior, images, rows) if step == 1 else None

    def mean_losses(prefix: Tensor, locations: Tensor, of: Sequence[int], rows: Tensor = few) -> Float32[Tensor, "a l"]:
        """Mean cross-entropies of some objectives after a prefix and each of these locations."""
        total = torch.zeros(len(locations), labels.shape[1], dtype=torch.float64)
        values = labels.shape[1] * (2 if posterior.space.kind == "bernoulli" else len(posterior.space.names))
        for places in torch.arange(len(rows), device=device).split(max(1, _ANSWERS // (len(locations) * values))):
            some = rows[places]
            if among is None:
                seen = pixels[prefix].expand(len(some), -1, 2)
                answers = posterior.look_ahead(images, seen, pixels[locations.to(device)], index=some)
            else:
                seen = torch.cat([prefix.expand(len(locations), -1), locations[:, None]], 1).to(device)
                each = among(places.repeat_interleave(len(locations)), seen.repeat(len(some), 1))
                answers = each.unflatten(0, (len(some), len(locations)))
            truth = labels[some][:, None].expand(answers.shape[:-1])
            total += cross_entropy(answers, truth).sum(0, dtype=torch.float64).cpu()
        advance(len(locations) * len(of))
        return torch.stack([total[:, list(objectives[a])].mean(1) for a in of]).div(len(rows)).float()

    for t in range(glimpses):
        chosen = torch.zeros(len(objectives), 1, dtype=torch.int64)
        for prefix in order.unique(dim=0) if t else order[:1]:
            sharing = [a for a in range(len(objectives)) if torch.equal(order[a], prefix)]
            first = mean_losses(prefix, coarse, sharing)
            for a, found in zip(sharing, first):
                tried, values = coarse, found
                if step > 1:
                    near = _around(grid, int(coarse[_best(coarse, found, prefix)]), step, coarse)
                    tried, place = torch.cat([coarse, near]).sort()  # the first on the grid wins a tie
                    values = torch.cat([found, mean_losses(prefix, near, [a])[0]])[place]
                    last = values.masked_fill(torch.isin(tried, prefix), torch.inf).argsort()[:_BEST]
                    exact = mean_losses(prefix, tried[last], [a], rows)[0]
                    values += exact[0] - values[last[0]]  # differences between locations vary less than images do
                    values[last] = exact
                    found = values[torch.isin(tried, coarse)]
                best = _best(tried, values, prefix)
                chosen[a] = tried[best]
                losses[a, t] = between(grid, found).clamp(min=float(values[best]) + 1e-6)
                losses[a, t, tried] = values
        order = torch.cat([order, chosen], 1)
    return FixedOrder(order, losses)


def _encoded(
    posterior: Posterior, images: UInt8[Tensor, "N H W 3"], rows: Int[Tensor, " n"]
) -> Callable[[Int[Tensor, " M"], Int[Tensor, "M k"]], Float32[Tensor, "M V C"]] | None:
    """`NetworkPosterior.among` for the images `rows` with glimpses at every location, which all steps share; None where
    nothing is encoded, or it takes too much memory."""
    if not isinstance(posterior, NetworkPosterior) or not isinstance(posterior.network, GlimpseTokens):
        return None
    network, pixels = posterior.network, posterior.grid.pixels.to(images.device)
    if len(rows) * len(pixels) * len(network.centres) * network.prior.numel() > ENCODED:
        return None
    return partial(posterior.among, posterior.prepare(images, pixels.expand(len(rows), -1, 2), index=rows))


def _best(locations: Int[Tensor, " l"], values: Float32[Tensor, " l"], taken: Int[Tensor, " t"]) -> int:
    """The location with the least value that is not taken yet; the first one wins a tie."""
    return int(values.masked_fill(torch.isin(locations, taken), torch.inf).argmin())


def _step(grid: Grid) -> int:
    """Rows and columns from one location of the coarse search to the next; a small grid is searched in full."""
    rows, columns = grid.shape
    return 1 if rows * columns <= _ALL else -(-max(rows, columns) // _COARSE)


def coarse_locations(grid: Grid) -> Int64[Tensor, " l"]:
    """Grid indices of the coarse search."""
    (rows, columns), step = grid.shape, _step(grid)
    row, column = torch.arange(step // 2, rows, step), torch.arange(step // 2, columns, step)
    return (row[:, None] * columns + column).flatten()


def _around(grid: Grid, index: int, step: int, tried: Int[Tensor, " l"]) -> Int64[Tensor, " l"]:
    """Locations within less than a step of one of the coarse search, without those already tried."""
    rows, columns = grid.shape
    row, column = divmod(index, columns)
    near = torch.cartesian_prod(
        torch.arange(row - step + 1, row + step), torch.arange(column - step + 1, column + step)
    )
    inside = (near >= 0).all(1) & (near[:, 0] < rows) & (near[:, 1] < columns)
    flat = near[inside] @ torch.tensor([columns, 1])
    return flat[~torch.isin(flat, tried)]


def between(grid: Grid, values: Float32[Tensor, "*batch l"]) -> Float32[Tensor, "*batch L"]:
    """The values of the coarse search at every location, interpolated."""
    (rows, columns), step = grid.shape, _step(grid)
    if step == 1:
        return values
    shape = (len(range(step // 2, rows, step)), len(range(step // 2, columns, step)))
    flat = values.reshape(-1, 1, *shape)
    found = F.interpolate(flat, (rows, columns), mode="bilinear", align_corners=False)
    return found.reshape(*values.shape[:-1], len(grid))
