"""A trained network, step by step: its policy before each glimpse, and its answer after each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from nogs.attention.looking import Looking
from nogs.glimpse import Grid, cut, shown
from nogs.runtime import streams

__all__ = ["Trace", "seen_share", "trace"]


@dataclass(frozen=True)
class Trace:
    """One trajectory on each of n images. RAM and PS-NOGS are trained to answer after the last glimpse only."""

    locations: Int64[np.ndarray, "n T"]
    policies: Float32[np.ndarray, "n T L"]  # probability of each location before each glimpse; none without `maps`
    answers: Float32[np.ndarray, "n T1 K"]  # probabilities of the labels after 0..T glimpses


def trace(
    network: Looking,
    images: UInt8[np.ndarray, "n H W 3"],
    ids: Sequence[str],
    *,
    locations: Int64[np.ndarray, "n T"] | None = None,
    seed: int = 0,
    batch: int = 64,
    maps: bool = True,
) -> Trace:
    """Follow the first of the networks, on its device, along given locations, or along ones drawn by (seed, id)."""
    parts = [
        _trace(network, images[part], ids[part], None if locations is None else locations[part], seed, maps)
        for part in (slice(n, n + batch) for n in range(0, len(ids), batch))
    ]
    columns = zip(*((one.locations, one.policies, one.answers) for one in parts))
    return Trace(*(np.concatenate(column) for column in columns))


def _trace(
    network: Looking,
    images: np.ndarray,
    ids: Sequence[str],
    locations: np.ndarray | None,
    seed: int,
    maps: bool,
) -> Trace:
    a = network.architecture
    device = network.coordinates.device
    pictures = torch.from_numpy(np.array(images)).to(device)
    rows = torch.arange(len(images), device=device)[None].repeat(len(network), 1)
    with torch.no_grad():
        if locations is None:
            steps = torch.arange(a.glimpses)
            drawn = torch.stack([streams.uniform(streams.key(seed, "report", id), steps) for id in ids]).to(device)
            found = network(pictures, rows, uniforms=drawn[None].repeat(len(network), 1, 1)).locations
        else:
            found = torch.from_numpy(np.asarray(locations)).to(device)[None].repeat(len(network), 1, 1)
        state, policies, answers = network.start(len(images)), [], []
        for t in range(a.glimpses + 1):
            answers.append(torch.softmax(network.classify(state)[0], -1))
            if t == a.glimpses:
                break
            logits = network.location_logits(state)
            policies.append(torch.softmax(logits[0], -1)[:, : None if maps else 0])
            place = found[..., t]
            patches = cut(pictures, network.pixels[place], glimpse=a.grid.glimpse, index=rows)
            state = network.see(state, patches, place)
    return Trace(*(x.cpu().numpy() for x in (found[0], torch.stack(policies, 1), torch.stack(answers, 1))))


def seen_share(pixels: Int64[Tensor, "n t 2"], grid: Grid) -> float:
    """Mean share of the image inside glimpses at `pixels`; overlaps count once."""
    if not pixels.shape[1]:
        return 0.0
    return shown(pixels, glimpse=grid.glimpse, height=grid.height, width=grid.width)[:, -1].mean().item()
