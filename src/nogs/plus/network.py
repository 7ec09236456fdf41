"""The network of PS-NOGS+: the posterior's tokens and transformer classify after every glimpse, and `Looks` chooses.

Its state holds the tokens of the glimpses so far. So a step needs one patch and its location, as with the paper's GRU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32, Int, UInt8
from torch import Tensor, nn

from nogs.attention.looking import Looking
from nogs.attention.network import Rollout
from nogs.glimpse import Grid
from nogs.glimpse.changes import Changes
from nogs.plus.looks import TEMPERATURE, Looks, context
from nogs.posterior.network import Architecture as PosteriorArchitecture
from nogs.posterior.network import NetworkPosterior
from nogs.posterior.tokens import GlimpseTokens

_SEEN = 1e4  # added to the score of a location that was seen


@dataclass(frozen=True)
class Architecture:
    """The shapes of a network, for its users."""

    grid: Grid
    glimpses: int
    labels: int
    hidden: int
    posterior: PosteriorArchitecture
    embedder: str = "tokens"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return self.posterior.to_json()


class TokenNetwork(Looking):
    """A posterior's core with its calibration, and a policy for each of some label variables.

    `variables` are indices of the posterior's label variables. `attribute` is the position among them of the one that
    `start`, `see`, `classify` and `location_logits` use. `inverse_temperature` has a column for each.
    """

    def __init__(
        self,
        core: GlimpseTokens,
        architecture: PosteriorArchitecture,
        looks: Looks,
        *,
        variables: Sequence[int] = (0,),
        inverse_temperature: Float32[Tensor, "T1 A"],
    ) -> None:
        super().__init__()
        self.core, self.looks, self.posterior = core, looks, architecture
        self.variables, self.attribute = tuple(variables), 0
        grid, glimpses = architecture.grid, looks.table.shape[1]
        self.tokens, self.width = len(core.centres), core.prior.numel()
        categorical = architecture.head.space.kind == "categorical"
        self.architecture = Architecture(
            grid,
            glimpses,
            labels=len(architecture.head.space.names) if categorical else 2,
            hidden=glimpses * self.tokens * self.width + glimpses + len(grid),
            posterior=architecture,
        )
        self.inverse_temperature = nn.Parameter(
            inverse_temperature[: glimpses + 1].expand(-1, len(variables)).clone(), requires_grad=False
        )
        self.register_buffer("pixels", grid.pixels.clone(), persistent=False)
        self.register_buffer("coordinates", grid.coordinates.clone(), persistent=False)
        self.register_buffer("variable", torch.tensor(self.variables), persistent=False)
        self.variable: Tensor
        self.policy = "sample" if looks.sampled else "argmax"

    @classmethod
    def on(
        cls,
        posterior: NetworkPosterior,
        table: Float32[Tensor, "A T L"],
        *,
        variables: Sequence[int] = (0,),
        sampled: bool = False,
    ) -> TokenNetwork:
        """A network with the locations of a table and the predictions of a posterior."""
        core = posterior.network
        assert isinstance(core, GlimpseTokens)
        looks = Looks(core, table, sampled=sampled)
        scale = posterior.inverse_temperature
        made = cls(core, posterior.architecture, looks, variables=variables, inverse_temperature=scale)
        return made.to(posterior.device)

    # for training and evaluation: many images at once

    def read(
        self,
        images: UInt8[Tensor, "N H W 3"],
        rows: Int[Tensor, " B"],
        locations: Int[Tensor, "B k"],
        *,
        flip: Bool[Tensor, " B"] | None = None,
        changes: Changes | None = None,
    ) -> Float[Tensor, "B k n D"]:
        """Tokens of the glimpses at k locations of each image."""
        pixels = self.pixels[locations]
        glimpses = self.core.read(images, pixels, rows, flip, changes)
        return self.core.encode(glimpses.flatten(0, 1), pixels.flatten(0, 1)).unflatten(0, locations.shape)

    def states(self, tokens: Float[Tensor, "B k n D"]) -> Float[Tensor, "B D"]:
        """The states after k glimpses."""
        return context(self.core.prior, self.core.blocks, tokens.flatten(1, 2))

    def answers(
        self, state: Float[Tensor, "B D"], attribute: Int[Tensor, " B"], step: Int[Tensor, " B"] | int
    ) -> Float32[Tensor, "B C"]:
        """Log-probabilities of the attribute's values after `step` glimpses."""
        scale = self.inverse_temperature[step, attribute][:, None]
        found = self.posterior.head.log_probabilities(self.core.classify(state), scale)
        if found.shape[1] == 1:
            return found[:, 0]
        which = self.variable[attribute][:, None, None].expand(-1, 1, found.shape[2])
        return found.gather(1, which)[:, 0]

    def all_answers(self, state: Float[Tensor, "B D"], step: int | None = None) -> Float32[Tensor, "B A C"]:
        """Log-probabilities of all attributes' values after `step` glimpses; None: without calibration."""
        scale = None if step is None else self.inverse_temperature[step].expand(len(state), -1)
        logits = self.core.classify(state)
        if self.posterior.head.space.kind == "categorical":
            return self.posterior.head.log_probabilities(logits, scale)
        found = self.posterior.head.log_probabilities(logits)[:, self.variable]
        return found if scale is None else (found * scale[..., None]).log_softmax(-1)

    def scores(
        self,
        tokens: Float[Tensor, "B k n D"],
        attribute: Int[Tensor, " B"],
        seen: Int[Tensor, "B k"],
        *,
        state: Float[Tensor, "B D"] | None = None,
    ) -> Float32[Tensor, "B L"]:
        """Score of every location after the k glimpses at `seen`, which are ranked behind all others."""
        if state is None and self.looks.head is not None:
            with torch.no_grad():
                state = self.states(tokens)
        found = self.looks(state, tokens.flatten(1, 2), attribute, tokens.shape[1])
        return found + torch.zeros_like(found).scatter(1, seen, _SEEN)

    @torch.no_grad()
    def look(
        self,
        images: UInt8[Tensor, "N H W 3"],
        rows: Int[Tensor, " B"],
        attribute: Int[Tensor, " B"] | None,
        *,
        uniforms: Float[Tensor, "B T"] | None = None,
    ) -> tuple[Float32[Tensor, "B T *A C"], Int[Tensor, "B T"], Float32[Tensor, "B T"]]:
        """T glimpses of each image: answers after each, locations, entropies of the policy.

        Locations are drawn with `uniforms`, or are the best ones without. Where all attributes share a policy, the
        `attribute` None gives answers for all of them.
        """
        assert attribute is not None or self.looks.shared
        way = rows.new_zeros(len(rows)) if attribute is None else attribute
        tokens = self.read(images, rows, rows.new_zeros(len(rows), 0))
        seen, state = rows.new_zeros(len(rows), 0), self.states(tokens)
        said, entropies = [], []
        for step in range(self.architecture.glimpses):
            logits = -self.scores(tokens, way, seen, state=state) / TEMPERATURE
            log_policy = logits.log_softmax(-1)
            entropies.append(-(log_policy.exp() * log_policy).sum(-1))
            if uniforms is None:
                location = logits.argmax(-1, keepdim=True)
            else:
                ends = log_policy.exp().cumsum(-1)
                drawn = torch.searchsorted(ends, (uniforms[:, step, None] * ends[:, -1:]).contiguous(), right=True)
                location = drawn.clamp(max=logits.shape[1] - 1)
            seen = torch.cat([seen, location], 1)
            tokens = torch.cat([tokens, self.read(images, rows, location)], 1)
            state = self.states(tokens)
            every = attribute is None
            said.append(self.all_answers(state, step + 1) if every else self.answers(state, way, step + 1))
        return torch.stack(said, 1), seen, torch.stack(entropies, 1)

    # step by step, as `nogs.attention.network.Networks` with M = 1

    def start(self, batch: int) -> Float[Tensor, "1 B H"]:
        """The state before any glimpse."""
        return torch.zeros(1, batch, self.architecture.hidden, device=self.pixels.device)

    def see(
        self, state: Float[Tensor, "1 B H"], patches: UInt8[Tensor, "1 B g g 3"], locations: Int[Tensor, "1 B"]
    ) -> Float[Tensor, "1 B H"]:
        """The state after seeing a patch at each location; after T glimpses the last one is replaced."""
        tokens, taken, visited = self._parts(state)
        last = self.core.encode(patches[0], self.pixels[locations[0]]).to(tokens.dtype)
        slot = (torch.arange(taken.shape[1], device=taken.device) == self._step(taken)[:, None]).to(tokens.dtype)
        keep = (1 - slot)[:, :, None, None]
        tokens = tokens * keep + last[:, None] * slot[:, :, None, None]
        here = torch.arange(visited.shape[1], device=taken.device) == locations[0][:, None]
        visited = torch.maximum(visited, here.to(visited.dtype))
        return torch.cat([tokens.flatten(1), torch.maximum(taken, slot), visited], 1)[None]

    def classify(self, state: Float[Tensor, "1 B H"]) -> Float[Tensor, "1 B K"]:
        """Calibrated log-probabilities of the labels."""
        tokens, taken, _ = self._parts(state)
        known = self._masked(tokens, taken)
        return self.answers(known, self._attributes(state), taken.sum(1).round().long())[None]

    def location_logits(self, state: Float[Tensor, "1 B H"]) -> Float[Tensor, "1 B L"]:
        """Log-probabilities of the next location, up to a constant, where locations are drawn."""
        tokens, taken, visited = self._parts(state)
        seen = (taken > 0.5).repeat_interleave(self.tokens, 1)
        known = None if self.looks.head is None else self._masked(tokens, taken)
        scores = self.looks(known, tokens.flatten(1, 2), self._attributes(state), self._step(taken), seen)
        return -(scores + _SEEN * visited)[None] / TEMPERATURE

    def forward(
        self,
        images: UInt8[Tensor, "N H W 3"],
        rows: Int[Tensor, "1 B"],
        *,
        uniforms: Float[Tensor, "1 B T"] | None = None,
        entropies: bool = False,
    ) -> Rollout:
        """The rollout on some images, as `Networks` returns it."""
        attribute = self._attributes(rows[..., None])
        uniform = uniforms[0] if uniforms is not None and self.looks.sampled else None
        said, locations, spread = self.look(images, rows[0], attribute, uniforms=uniform)
        nothing = torch.zeros_like(spread)[None]
        return Rollout(locations[None], nothing, nothing, said[None, :, -1], spread[None] if entropies else None)

    def _parts(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens `[B, T, n, D]`, which of the T are present, and which locations were seen."""
        glimpses = self.architecture.glimpses
        tokens, taken, visited = state[0].split(
            [glimpses * self.tokens * self.width, glimpses, len(self.architecture.grid)], 1
        )
        return tokens.reshape(-1, glimpses, self.tokens, self.width), taken, visited

    def _masked(self, tokens: Tensor, taken: Tensor) -> Tensor:
        seen = (taken > 0.5).repeat_interleave(self.tokens, 1)
        return context(self.core.prior, self.core.blocks, tokens.flatten(1, 2), seen)

    def _step(self, taken: Tensor) -> Tensor:
        """Number of the next glimpse; after all T, the last one."""
        return taken.sum(1).round().long().clamp(max=self.architecture.glimpses - 1)

    def _attributes(self, state: Tensor) -> Tensor:
        return torch.full((state.shape[1],), self.attribute, dtype=torch.int64, device=state.device)
