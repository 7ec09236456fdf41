"""Running a network on many images, for several of its attributes at once; a policy that they share runs once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float32, Int, UInt8
from torch import Tensor

from nogs.attention.evaluation import Evaluation
from nogs.plus.network import TokenNetwork
from nogs.runtime import streams

__all__ = ["Looked", "look_at", "look_together"]

_AT_ONCE = {"cuda": 4096, "cpu": 512}  # looks


@dataclass(frozen=True)
class Looked:
    """T glimpses of n images by V attributes: calibrated log-probabilities after each, locations, entropies of the
    policy."""

    answers: Float32[Tensor, "V n T C"]
    locations: Int[Tensor, "V n T"]
    entropies: Float32[Tensor, "V n T"]

    def evaluation(self, labels: Int[Tensor, "V m"]) -> Evaluation:
        """The evaluation of the answers after all glimpses, for m images with n / m consecutive trajectories each."""
        shape = (labels.shape[1], self.locations.shape[1] // labels.shape[1])
        return Evaluation(
            self.answers[:, :, -1].unflatten(1, shape),
            self.locations.unflatten(1, shape),
            self.entropies.mean(1),
            labels,
        )


def look_at(
    network: TokenNetwork,
    images: UInt8[Tensor, "N H W 3"],
    rows: Int[Tensor, " m"],
    *,
    key: tuple[int, str],
    trajectories: int,
    attributes: Sequence[int] | None = None,
    greedy: bool = False,
) -> Looked:
    """`look_together` with so many trajectories of each image, drawn as in evaluation by `key`: seed and split.

    Nothing is drawn if the network, or the caller with `greedy`, takes the best locations.
    """
    which, uniforms = rows.repeat_interleave(trajectories), None
    if network.looks.sampled and not greedy:
        counter = torch.arange(len(which) * network.architecture.glimpses, device=rows.device).view(len(which), -1)
        uniforms = streams.uniform(streams.key(key[0], "evaluation", key[1]), counter)
    return look_together(network, images, which, attributes=attributes, uniforms=uniforms)


def look_together(
    network: TokenNetwork,
    images: UInt8[Tensor, "N H W 3"],
    rows: Int[Tensor, " n"],
    *,
    attributes: Sequence[int] | None = None,
    uniforms: Float[Tensor, "n T"] | None = None,
) -> Looked:
    """Look at the images `rows` for some attributes, by default all; `uniforms` draw the locations as in `look`."""
    every = torch.arange(len(network.variables), device=rows.device)
    asked = every if attributes is None else every[list(attributes)]
    shared = network.looks.shared
    ways = 1 if shared else len(asked)
    row, drawn = rows.repeat(ways), None if uniforms is None else uniforms.repeat(ways, 1)
    parts = []
    for some in torch.arange(len(row), device=row.device).split(_AT_ONCE.get(images.device.type, 512)):
        attribute = None if shared else asked[some // len(rows)]
        parts.append(network.look(images, row[some], attribute, uniforms=None if drawn is None else drawn[some]))
    answers, *how = (torch.cat(part).unflatten(0, (ways, len(rows))) for part in zip(*parts))
    if shared:
        answers = answers[0][:, :, asked].movedim(2, 0)
    return Looked(answers, *(each.expand(len(asked), -1, -1) for each in how))
