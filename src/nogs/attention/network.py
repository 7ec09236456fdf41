"""The hard-attention network of section 2 (figure 1): embedder, GRU core, location network, baseline and classifier.

The image is read only through `glimpse.cut`. All parameters carry the leading axis M of `stacked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from nogs.attention import policy
from nogs.attention.architecture import Architecture
from nogs.attention.embedders import EMBEDDERS, Embedder, PaperEmbedder, Shapes
from nogs.attention.looking import Looking
from nogs.attention.stacked import batch_norm, gru, linear
from nogs.attention.unrolled import unrolled
from nogs.glimpse import cut
from nogs.runtime import streams

Embed = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Embeddings `[M, B, D]` of glimpses, from images, rows `[M, B]`, locations `[M, B]`, and which are mirrored."""


@dataclass
class Rollout:
    """The outputs of M networks on a batch: `locations` are grid indices, `log_probabilities` those of each choice."""

    locations: Int[Tensor, "M B T"]
    log_probabilities: Float[Tensor, "M B T"]
    baselines: Float[Tensor, "M B T"]
    logits: Float[Tensor, "M B K"]
    entropies: Float[Tensor, "M B T"] | None = None


class Networks(Looking):
    """M hard-attention networks of one architecture, initialised from their own seeds.

    `initial_state` is the initial value of the GRU's learned first state: a standard normal draw, or zeros.
    Without `embedding` they have no embedder, and `embed` must be set to another source of embeddings.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        seeds: Sequence[int] = (0,),
        embedding: bool = True,
        initial_state: Literal["normal", "zeros"] = "normal",
    ) -> None:
        super().__init__()
        a = self.architecture = architecture
        self.embedder: Embedder = EMBEDDERS[a.embedder](a)
        normalised = a.embedder == "release"
        self.embed_parameters = _parameters(self.embedder.shapes() if embedding else {}, seeds, "embedder")
        self.embedder.initialise(self.embed_parameters)
        self.core_parameters = _parameters(
            {
                "place1_weight": (a.location_hidden, 2),
                "place1_bias": (a.location_hidden,),
                "place2_weight": (a.embedding, a.location_hidden),
                "place2_bias": (a.embedding,),
                **({"place_norm_scale": (a.embedding,), "place_norm_shift": (a.embedding,)} if normalised else {}),
                "input_weight": (3 * a.hidden, a.embedding),
                "input_bias": (3 * a.hidden,),
                "state_weight": (3 * a.hidden, a.hidden),
                "state_bias": (3 * a.hidden,),
                "initial_state": (a.hidden,),
                "classify_weight": (a.labels, a.hidden),
                "classify_bias": (a.labels,),
            },
            seeds,
            "core",
        )
        if initial_state == "zeros":
            self.core_parameters["initial_state"].data.zero_()
        self.policy_parameters = _parameters(
            {
                "locate1_weight": (a.location_hidden, a.hidden),
                "locate1_bias": (a.location_hidden,),
                "locate2_weight": (len(a.grid), a.location_hidden),
                "locate2_bias": (len(a.grid),),
                "baseline_weight": (1, a.hidden),
                "baseline_bias": (1,),
            },
            seeds,
            "policy",
        )
        # a plain dictionary, since reading parameters from ParameterDicts takes longer than a layer
        self.by_name = {**self.embed_parameters, **self.core_parameters, **self.policy_parameters}
        self.register_buffer("pixels", a.grid.pixels, persistent=False)
        self.register_buffer("coordinates", a.grid.coordinates, persistent=False)
        self.look: Callable[..., Any] = self._look
        self.embed: Embed = self._embed
        self.pixels: Tensor
        self.coordinates: Tensor

    def __len__(self) -> int:
        return len(self.core_parameters["initial_state"])

    def start(self, batch: int) -> Float[Tensor, "M B H"]:
        """The learned state before any glimpse."""
        return self.core_parameters["initial_state"][:, None].repeat(1, batch, 1)

    def see(
        self, state: Float[Tensor, "M B H"], glimpses: UInt8[Tensor, "M B g g 3"], locations: Int[Tensor, "M B"]
    ) -> Float[Tensor, "M B H"]:
        """The state after one more glimpse."""
        return self.remember(state, self.embedder(self.embed_parameters, glimpses), locations)

    def remember(
        self, state: Float[Tensor, "M B H"], embedding: Float[Tensor, "M B D"], locations: Int[Tensor, "M B"]
    ) -> Float[Tensor, "M B H"]:
        """The state after a glimpse with this embedding: relu(glimpse + location embedding) into the GRU."""
        p = self.core_parameters
        hidden = torch.relu(linear(self.coordinates[locations], p["place1_weight"], p["place1_bias"]))
        place = linear(hidden, p["place2_weight"], p["place2_bias"])
        if self.architecture.embedder == "release":
            place = batch_norm(place, p["place_norm_scale"], p["place_norm_shift"])
        x = torch.relu(place + embedding)
        from_input = linear(x, p["input_weight"], p["input_bias"])
        return gru(from_input, linear(state, p["state_weight"], p["state_bias"]), state)

    def follow(
        self,
        images: UInt8[Tensor, "N h w C"],
        rows: Int[Tensor, "M B"],
        locations: Int[Tensor, "M B T"],
        *,
        flip: Bool[Tensor, "M B"] | None = None,
        keep: Float[Tensor, "M B T D"] | None = None,
    ) -> Float[Tensor, "M B K"]:
        """Logits after glimpses at given locations, which are embedded all at once; `keep` scales the embeddings."""
        grid, shape = self.architecture.grid, locations.shape
        patches = cut(
            images,
            self.pixels[locations],
            glimpse=grid.glimpse,
            index=rows[..., None].expand(shape),
            flip=None if flip is None else flip[..., None].expand(shape),
        )
        embedding = self.embedder(self.embed_parameters, patches.flatten(1, 2)).unflatten(1, shape[1:])
        if keep is not None:
            embedding = embedding * keep
        state = self.start(rows.shape[1])
        for t in range(shape[2]):
            state = self.remember(state, embedding[:, :, t], locations[..., t])
        return self.classify(state)

    def location_logits(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B L"]:
        """Unnormalised log-probabilities of the next location; no gradient reaches the state."""
        p = self.policy_parameters
        x = torch.relu(linear(state.detach(), p["locate1_weight"], p["locate1_bias"]))
        return linear(x, p["locate2_weight"], p["locate2_bias"])

    def baseline(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B"]:
        """Expected reward before the next glimpse; no gradient reaches the state."""
        p = self.policy_parameters
        return linear(state.detach(), p["baseline_weight"], p["baseline_bias"])[..., 0]

    def classify(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B K"]:
        """Unnormalised log-probabilities of the labels."""
        return linear(state, self.core_parameters["classify_weight"], self.core_parameters["classify_bias"])

    def forward(
        self,
        images: UInt8[Tensor, "N H W C"],
        rows: Int[Tensor, "M B"],
        *,
        uniforms: Float[Tensor, "M B T"] | None = None,
        forced: Int[Tensor, "M B T"] | None = None,
        flip: Bool[Tensor, "M B"] | None = None,
        entropies: bool = False,
    ) -> Rollout:
        """Take T glimpses of the images `rows` of `images`, then classify.

        Locations are drawn with `uniforms`; without it they are the most probable ones. Entries of `forced` that are
        not negative replace them.
        """
        if not entropies and self.can_unroll(images):
            return Rollout(*unrolled(self.architecture, self.by_name, images, rows, uniforms, forced, flip))
        glimpses = self.architecture.glimpses
        state = self.start(rows.shape[1])
        states, steps = [], []
        for t in range(glimpses):
            states.append(state)
            uniform = None if uniforms is None else uniforms[..., t]
            force = None if forced is None else forced[..., t]
            state, *step = self.look(state, images, rows, uniform, force, flip, entropies=entropies)
            steps.append(step)
        locations, log_probabilities, policy_entropies = zip(*steps)
        baselines = self.baseline(torch.cat(states, 1)).unflatten(1, (glimpses, -1)).transpose(1, 2)
        return Rollout(
            torch.stack(locations, -1),
            torch.stack(log_probabilities, -1),
            baselines,
            self.classify(state),
            torch.stack(policy_entropies, -1) if entropies else None,
        )

    def can_unroll(self, images: Tensor) -> bool:
        """Whether `unrolled` supports these networks, and whether gradients are needed."""
        return (
            images.device.type == "cpu"
            and torch.is_grad_enabled()
            and type(self.embedder) is PaperEmbedder
            and self.embed == self._embed
            and all(parameter.requires_grad for parameter in self.by_name.values())
        )

    def _look(
        self,
        state: Float[Tensor, "M B H"],
        images: UInt8[Tensor, "N h w C"],
        rows: Int[Tensor, "M B"],
        uniform: Float[Tensor, "M B"] | None,
        forced: Int[Tensor, "M B"] | None,
        flip: Bool[Tensor, "M B"] | None,
        *,
        entropies: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """One step: choose a location and see it. Returns next state, location, its log-probability and the entropy."""
        logits = self.location_logits(state)
        location, log_probability = policy.choose(logits, uniform, forced, width=self.architecture.grid.shape[1])
        entropy = policy.entropy(logits) if entropies else None
        embedding = self.embed(images, rows, location, flip)
        return self.remember(state, embedding, location), location, log_probability, entropy

    def _embed(self, images: Tensor, rows: Tensor, locations: Tensor, flip: Tensor | None) -> Tensor:
        """Cut the glimpses and embed them; see `Embed`."""
        glimpse = self.architecture.grid.glimpse
        patches = cut(images, self.pixels[locations], glimpse=glimpse, index=rows, flip=flip)
        return self.embedder(self.embed_parameters, patches)

    def fuse(self) -> None:
        """Compile the step of `forward`, which all T glimpses share; the minute that it takes pays on a GPU only."""
        self.look = torch.compile(self._look, fullgraph=True, dynamic=False)


def _parameters(shapes: Shapes, seeds: Sequence[int], part: str) -> nn.ParameterDict:
    """Torch's defaults, U(-1/sqrt(fan), 1/sqrt(fan)), drawn for each network from its seed and the name alone.

    The first state of the GRU is standard normal, as in the release.
    """
    return nn.ParameterDict(
        {
            name: nn.Parameter(torch.stack([_initial(name, shape, shapes, seed, part) for seed in seeds]))
            for name, shape in shapes.items()
        }
    )


def _initial(name: str, shape: tuple[int, ...], shapes: Shapes, seed: int, part: str) -> Tensor:
    layer, kind = name.rsplit("_", 1)
    if torch.get_default_device().type == "meta":  # only the shape is needed
        return torch.empty(shape)
    if kind in ("scale", "shift"):
        return torch.full(shape, 1.0 if kind == "scale" else 0.0)
    generator = streams.torch_stream(seed, "initial weights", f"{part}.{name}")
    if kind == "state":
        return torch.empty(shape).normal_(generator=generator)
    fan = math.prod(shapes[f"{layer}_weight"][1:])
    if layer in ("input", "state"):  # as in torch's GRU, by the number of hidden units
        fan = shapes["state_weight"][1]
    return torch.empty(shape).uniform_(-1 / math.sqrt(fan), 1 / math.sqrt(fan), generator=generator)
