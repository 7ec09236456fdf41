"""The forward pass of T glimpses on a CPU, with all intermediate values that the hand-written gradients need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nogs.attention.architecture import Architecture
from nogs.glimpse import Grid, cut

Parameters = dict[str, Tensor]
"""One network's parameters, or their gradients, by name."""


@dataclass
class Trace:
    """The inputs, values and choices of one network, step by step; ReLUs have been applied."""

    pixels: Float[Tensor, "T B side side C"]
    conv1: Float[Tensor, "T B h w 16"]
    pooled_from: list[Int[Tensor, "B 32 f f"]]
    coordinates: Float[Tensor, "T B 2"]
    glimpse: Float[Tensor, "T B F"]  # features of the pixels, then of the location
    inputs: Float[Tensor, "T B D"]
    gates: Float[Tensor, "T B H2"]
    new: Float[Tensor, "T B H"]
    states: Float[Tensor, "T+1 B H"]
    from_state: Float[Tensor, "T B S"]  # the GRU's affine map of the state, then the location network's hidden layer
    excess: Float[Tensor, "T B L"]  # probabilities of the locations, less one for the chosen
    locations: Int[Tensor, "T B"]
    features: int

    @classmethod
    def empty(cls, a: Architecture, batch: int) -> Trace:
        """Empty tensors for all steps. Of a glimpse, only the pixels that reach a pooled feature are kept."""
        shape, side = (a.glimpses, batch), ((a.grid.glimpse - 5) // 2 + 1) // 2
        features = side * side * 32
        return cls(
            pixels=torch.empty(*shape, 4 * side + 3, 4 * side + 3, 3),
            conv1=torch.empty(*shape, 4 * side + 1, 4 * side + 1, 16),
            pooled_from=[],
            coordinates=torch.empty(*shape, 2),
            glimpse=torch.empty(*shape, features + a.location_hidden),
            inputs=torch.empty(*shape, a.embedding),
            gates=torch.empty(*shape, 2 * a.hidden),
            new=torch.empty(*shape, a.hidden),
            states=torch.empty(a.glimpses + 1, batch, a.hidden),
            from_state=torch.empty(*shape, 3 * a.hidden + a.location_hidden),
            excess=torch.empty(*shape, len(a.grid)),
            locations=torch.empty(shape, dtype=torch.int64),
            features=features,
        )


def look(
    p: Parameters,
    a: Architecture,
    images: Tensor,
    rows: Tensor,
    uniforms: Tensor | None,
    forced: Tensor | None,
    flip: Tensor | None,
) -> tuple[Trace, Float[Tensor, "T B"]]:
    """Choose a location and see it, T times; also returns the log-probabilities of the choices."""
    size, coordinates = a.hidden, a.grid.coordinates
    trace = Trace.empty(a, len(rows))
    conv1, conv2 = (p[f"conv{n}_weight"].contiguous(memory_format=torch.channels_last) for n in (1, 2))
    # one product where two layers have the same input, or their outputs are added
    state_weight = torch.cat([p["state_weight"], p["locate1_weight"]]).T
    state_bias = torch.cat([p["state_bias"], p["locate1_bias"]])
    glimpse_weight = torch.cat([p["project_weight"], p["place2_weight"]], 1).T
    glimpse_bias, place_weight = p["project_bias"] + p["place2_bias"], p["place1_weight"].T
    draw, read = _Draw(len(rows), a), _Read(a.grid, images, rows, flip)
    # views of all steps, made at once: one by one they would cost as much as the arithmetic of a step
    states, from_state, gates, new, locations, probabilities = (
        x.unbind() for x in (trace.states, trace.from_state, trace.gates, trace.new, trace.locations, trace.excess)
    )
    of_gates, recurrent, located = _split(trace.from_state, 2 * size, size, a.location_hidden)
    reset, update = _split(trace.gates, size, size)
    features, place = _split(trace.glimpse, trace.features, a.location_hidden)
    pixels, convolved = (x.permute(0, 1, 4, 2, 3).unbind() for x in (trace.pixels, trace.conv1))
    drawn_with, followed = ((None,) * a.glimpses if x is None else x.unbind(-1) for x in (uniforms, forced))
    highest, largest, picked = (torch.empty(a.glimpses, len(rows), 1) for _ in range(3))
    trace.states[0] = p["initial_state"]
    for t, location in enumerate(locations):
        torch.addmm(state_bias, states[t], state_weight, out=from_state[t])
        logits = F.linear(located[t].relu_(), p["locate2_weight"], p["locate2_bias"])
        torch.softmax(logits, -1, out=probabilities[t])
        if (uniform := drawn_with[t]) is None:
            torch.argmax(logits, -1, out=location)
        else:
            draw(probabilities[t], uniform[:, None], out=location)
        if (force := followed[t]) is not None:
            torch.where(force >= 0, force, location, out=location)
        torch.amax(logits, -1, keepdim=True, out=highest[t])
        torch.amax(probabilities[t], -1, keepdim=True, out=largest[t])
        torch.gather(logits, -1, location[:, None], out=picked[t])
        read(location, out=trace.pixels[t])
        torch.clamp_min(F.conv2d(pixels[t], conv1, p["conv1_bias"]), 0, out=convolved[t])
        pooled, pooled_from = F.max_pool2d(
            F.conv2d(convolved[t], conv2, p["conv2_bias"], stride=2), 2, return_indices=True
        )
        trace.pooled_from.append(pooled_from)
        torch.clamp_min(pooled.permute(0, 2, 3, 1).flatten(1), 0, out=features[t])
        chosen = torch.index_select(coordinates, 0, location, out=trace.coordinates[t])
        torch.addmm(p["place1_bias"], chosen, place_weight, out=place[t]).relu_()
        inputs = torch.addmm(glimpse_bias, trace.glimpse[t], glimpse_weight, out=trace.inputs[t]).relu_()
        to_gates, to_new = F.linear(inputs, p["input_weight"], p["input_bias"]).split([2 * size, size], -1)
        torch.add(to_gates, of_gates[t], out=gates[t]).sigmoid_()
        torch.addcmul(to_new, reset[t], recurrent[t], out=new[t]).tanh_()
        torch.lerp(new[t], states[t], update[t], out=states[t + 1])
    trace.excess.scatter_add_(-1, trace.locations[..., None], torch.full((a.glimpses, len(rows), 1), -1.0))
    # the largest probability is one over the sum of exponentials; that of a forced location may round to zero
    return trace, (picked - highest + largest.log_())[..., 0]


def _split(x: Float[Tensor, "T B S"], *sizes: int) -> list[tuple[Tensor, ...]]:
    """The parts of the last axis, as one view per step."""
    return [part.unbind() for part in x.split(sizes, -1)]


class _Draw:
    """The draw of `policy.choose`: first a block of locations (a row of the grid), then one of its entries."""

    def __init__(self, batch: int, a: Architecture) -> None:
        self.blocks, self.width = a.grid.shape
        self.before = torch.zeros(batch, self.blocks + 1)
        self.sums, self.total = self.before[:, 1:], self.before[:, -1:]
        self.first = torch.arange(0, batch * self.blocks, self.blocks)

    def __call__(self, probabilities: Float[Tensor, "B L"], uniform: Float[Tensor, "B 1"], *, out: Tensor) -> None:
        blocks = probabilities.view(-1, self.blocks, self.width)
        torch.cumsum(blocks.sum(-1), -1, out=self.sums)
        threshold = uniform * self.total
        block = torch.searchsorted(self.before, threshold, right=True).sub_(1).clamp_(max=self.blocks - 1)
        row = block[:, 0]
        chosen = blocks.flatten(0, 1).index_select(0, self.first + row).cumsum(-1)
        rest = torch.minimum(threshold.sub_(self.before.gather(1, block)), chosen[:, -1:] * (1 - 2.0**-23))
        within = torch.searchsorted(chosen, rest, right=True)[:, 0].clamp_(max=self.width - 1)
        torch.add(within, row, alpha=self.width, out=out)


class _Read:
    """The pixels of glimpses that are used, in [-1, 1]; the few mirrored glimpses are flipped after they are cut."""

    def __init__(self, grid: Grid, images: Tensor, rows: Tensor, flip: Tensor | None) -> None:
        self.grid, self.images, self.rows, self.flip = grid, images, rows, flip
        self.mirrored = None if flip is None else flip.nonzero()[:, 0]
        self.offset = torch.tensor(-1.0)

    def __call__(self, location: Int[Tensor, " B"], *, out: Float[Tensor, "B side side C"]) -> None:
        side, pixels = out.shape[1], self.grid.pixels.index_select(0, location)
        if self.flip is not None and self.mirrored is not None:
            column = pixels[:, 1]
            torch.where(self.flip, self.grid.width - side - column, column, out=column)
        patches = cut(self.images, pixels, glimpse=side, index=self.rows)
        if self.mirrored is not None:
            patches.index_copy_(0, self.mirrored, patches.index_select(0, self.mirrored).flip(2))
        torch.add(self.offset, patches, alpha=2 / 255, out=out)
