"""The hard-attention network of section 2 (figure 1): embedder, GRU core, location network, baseline and classifier.

The image is read through `glimpse.cut` alone. All parameters carry the leading axis M of `stacked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from nogs.attention import policy
from nogs.attention.config import AttentionConfig
from nogs.attention.stacked import batch_norm, convolve, gru, linear, max_pool
from nogs.glimpse import Grid, cut
from nogs.runtime import streams
from nogs.runtime.errors import InputError

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Architecture:
    """Everything that fixes the shapes and the arithmetic of a network; stored beside its weights."""

    grid: Grid
    glimpses: int
    labels: int
    embedder: str = "paper"
    scales: int = 1
    hidden: int = 64
    embedding: int = 64
    location_hidden: int = 32
    policy: str = "categorical"
    mixture_components: int = 5

    @classmethod
    def of(cls, config: AttentionConfig, *, grid: Grid, glimpses: int, labels: int) -> Architecture:
        """The architecture that a recipe asks for."""
        names = ("embedder", "scales", "hidden", "embedding", "location_hidden", "policy", "mixture_components")
        return cls(grid, glimpses, labels, **{name: getattr(config, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "grid": self.grid.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Architecture:
        """Inverse of `to_json`."""
        return cls(**{**value, "grid": Grid.from_json(value["grid"])})


@dataclass
class Rollout:
    """What M networks did on a batch: `locations` are grid indices, `log_probabilities` those of each choice."""

    locations: Int[Tensor, "M B T"]
    log_probabilities: Float[Tensor, "M B T"]
    baselines: Float[Tensor, "M B T"]
    logits: Float[Tensor, "M B K"]
    entropies: Float[Tensor, "M B T"] | None = field(default=None)


class PaperEmbedder:
    """The paper's appendix: conv 3x3 to 16, ReLU, conv 3x3 to 32 with stride 2, ReLU, 2x2 max pool, linear."""

    def __init__(self, architecture: Architecture) -> None:
        self.channels = 3 * architecture.scales
        after = ((architecture.grid.glimpse - 2 - 3) // 2 + 1) // 2
        if after < 1:
            raise InputError(
                f"A glimpse of {architecture.grid.glimpse} px is too small for the embedder; use at least 7 px."
            )
        self.features = 32 * after * after
        self.out = architecture.embedding

    def shapes(self) -> Shapes:
        """Parameter names and shapes of one network."""
        return {
            "conv1_weight": (16, self.channels, 3, 3),
            "conv1_bias": (16,),
            "conv2_weight": (32, 16, 3, 3),
            "conv2_bias": (32,),
            "project_weight": (self.out, self.features),
            "project_bias": (self.out,),
        }

    def __call__(self, p: nn.ParameterDict, x: Float[Tensor, "M B g g C"]) -> Float[Tensor, "M B D"]:
        """Embed glimpses scaled to [-1, 1]."""
        x = torch.relu(convolve(x, p["conv1_weight"], p["conv1_bias"], stride=1))
        x = convolve(x, p["conv2_weight"], p["conv2_bias"], stride=2)
        x = torch.relu(max_pool(x))  # the maximum of ReLUs is the ReLU of the maximum, on a quarter of the numbers
        return linear(x.flatten(2), p["project_weight"], p["project_bias"])


class ReleaseEmbedder(PaperEmbedder):
    """The authors' release: batch norm and ReLU6 after each convolution and a 128-unit layer before the projection."""

    def shapes(self) -> Shapes:
        """Parameter names and shapes of one network."""
        return {
            **super().shapes(),
            "norm1_scale": (16,),
            "norm1_shift": (16,),
            "norm2_scale": (32,),
            "norm2_shift": (32,),
            "dense_weight": (128, self.features),
            "dense_bias": (128,),
            "project_weight": (self.out, 128),
        }

    def __call__(self, p: nn.ParameterDict, x: Float[Tensor, "M B g g C"]) -> Float[Tensor, "M B D"]:
        """Embed glimpses scaled to [-1, 1]."""
        for n, stride in ((1, 1), (2, 2)):
            x = convolve(x, p[f"conv{n}_weight"], p[f"conv{n}_bias"], stride=stride)
            x = nn.functional.relu6(batch_norm(x, p[f"norm{n}_scale"], p[f"norm{n}_shift"]))
        x = nn.functional.relu6(linear(max_pool(x).flatten(2), p["dense_weight"], p["dense_bias"]))
        return linear(x, p["project_weight"], p["project_bias"])


EMBEDDERS = {"paper": PaperEmbedder, "release": ReleaseEmbedder}


class Networks(nn.Module):
    """M hard-attention networks of one architecture, initialised from their own seeds."""

    def __init__(self, architecture: Architecture, *, seeds: Sequence[int] = (0,)) -> None:
        super().__init__()
        a = self.architecture = architecture
        self.embedder = EMBEDDERS[a.embedder](a)
        actions = len(a.grid) if a.policy == "categorical" else 5 * a.mixture_components
        self.embed_parameters = _parameters(self.embedder.shapes(), seeds, "embedder")
        self.core_parameters = _parameters(
            {
                "place1_weight": (a.location_hidden, 2),
                "place1_bias": (a.location_hidden,),
                "place2_weight": (a.embedding, a.location_hidden),
                "place2_bias": (a.embedding,),
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
        self.policy_parameters = _parameters(
            {
                "locate1_weight": (a.location_hidden, a.hidden),
                "locate1_bias": (a.location_hidden,),
                "locate2_weight": (actions, a.location_hidden),
                "locate2_bias": (actions,),
                "baseline_weight": (1, a.hidden),
                "baseline_bias": (1,),
            },
            seeds,
            "policy",
        )
        self.register_buffer("pixels", a.grid.pixels, persistent=False)
        self.register_buffer("coordinates", a.grid.coordinates, persistent=False)
        self.look: Callable[..., Any] = self._look
        self.pixels: Tensor
        self.coordinates: Tensor

    def __len__(self) -> int:
        return len(self.core_parameters["initial_state"])

    def start(self, batch: int) -> Float[Tensor, "M B H"]:
        """The learned state before any glimpse."""
        return self.core_parameters["initial_state"][:, None].repeat(1, batch, 1)

    def see(
        self, state: Float[Tensor, "M B H"], glimpses: UInt8[Tensor, "M B g g C"], locations: Int[Tensor, "M B"]
    ) -> Float[Tensor, "M B H"]:
        """The state after one more glimpse: relu(glimpse + location embedding) into the GRU."""
        p = self.core_parameters
        embedding = self.embedder(self.embed_parameters, glimpses * (2 / 255) - 1)
        place = torch.relu(linear(self.coordinates[locations], p["place1_weight"], p["place1_bias"]))
        x = torch.relu(linear(place, p["place2_weight"], p["place2_bias"]) + embedding)
        from_input = linear(x, p["input_weight"], p["input_bias"])
        return gru(from_input, linear(state, p["state_weight"], p["state_bias"]), state)

    def location_logits(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B L"]:
        """Unnormalised log-probabilities of the next location; no gradient reaches the state."""
        p = self.policy_parameters
        x = torch.relu(linear(state.detach(), p["locate1_weight"], p["locate1_bias"]))
        x = linear(x, p["locate2_weight"], p["locate2_bias"])
        if self.architecture.policy == "mixture":
            return policy.mixture_logits(x, self.coordinates, self.architecture.mixture_components)
        return x

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
        """Look T times at the images `rows` of `images`, then classify.

        Locations are drawn with `uniforms`, or are the most probable ones without; entries of `forced` that are not
        negative are taken as they are.
        """
        glimpses = self.architecture.glimpses
        state = self.start(rows.shape[1])
        states, steps = [], []
        for t in range(glimpses):
            states.append(state)
            uniform = None if uniforms is None else uniforms[..., t]
            state, *step = self.look(
                state, images, rows, uniform, None if forced is None else forced[..., t], flip, entropies=entropies
            )
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
        """One step: choose a location and see it. The next state, the location, its log-probability, the entropy."""
        grid = self.architecture.grid
        logits = self.location_logits(state)
        location, log_probability = policy.choose(logits, uniform, forced, width=grid.shape[1])
        patches = cut(
            images,
            self.pixels[location],
            glimpse=grid.glimpse,
            index=rows,
            flip=flip,
            scales=self.architecture.scales,
        )
        entropy = policy.entropy(logits) if entropies else None
        return self.see(state, patches, location), location, log_probability, entropy

    def fuse(self) -> None:
        """Compile the step of `forward`, which all T glimpses share; worth its minute of compilation on a GPU only."""
        self.look = torch.compile(self._look, fullgraph=True, dynamic=False)

    def select(self, networks: Sequence[int]) -> Networks:
        """Some of the networks, as a new module that shares no memory with this one."""
        out = Networks(self.architecture, seeds=[0] * len(networks)).to(self.coordinates.device)
        chosen = torch.tensor(list(networks), device=self.coordinates.device)
        out.load_state_dict({name: value[chosen] for name, value in self.state_dict().items()})
        return out


def _parameters(shapes: Shapes, seeds: Sequence[int], part: str) -> nn.ParameterDict:
    """Torch's own defaults, U(-1/sqrt(fan), 1/sqrt(fan)), drawn for each network from its seed and the name alone."""
    return nn.ParameterDict(
        {
            name: nn.Parameter(torch.stack([_initial(name, shape, shapes, seed, part) for seed in seeds]))
            for name, shape in shapes.items()
        }
    )


def _initial(name: str, shape: tuple[int, ...], shapes: Shapes, seed: int, part: str) -> Tensor:
    layer, kind = name.rsplit("_", 1)
    if kind in ("scale", "shift"):
        return torch.full(shape, 1.0 if kind == "scale" else 0.0)
    if kind == "state":
        return torch.zeros(shape)
    fan = math.prod(shapes[f"{layer}_weight"][1:])
    if layer in ("input", "state"):  # torch's GRU: by the number of hidden units
        fan = shapes["state_weight"][1]
    generator = streams.torch_stream(seed, "initial weights", f"{part}.{name}")
    return torch.empty(shape).uniform_(-1 / math.sqrt(fan), 1 / math.sqrt(fan), generator=generator)
