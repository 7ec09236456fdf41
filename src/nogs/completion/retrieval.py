"""Algorithm 2: completions of an image by retrieval from a bank, as importance sampling.

A proposal over the whole bank in code space; K1 draws from it; exact likelihoods on the pixels of those; K2 draws by
their importance weights log w = log p - log q + log count. Every random number is named by (seed, image id, number of
glimpses), and every step works on one image in one shape, so that the images beside it don't matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int64, UInt8
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.bank.store import ResidentImages
from nogs.completion.config import CompletionConfig
from nogs.completion.exact import log_likelihood, squared_distances
from nogs.completion.prior import pixels_of, prior, sources_of
from nogs.completion.proposal import CodeSpace, joined
from nogs.completion.protocol import Completions
from nogs.completion.resampling import effective_size, resample
from nogs.glimpse import cut
from nogs.runtime.errors import InputError
from nogs.runtime.fingerprint import fingerprint
from nogs.runtime.streams import key

__all__ = ["Retrieval"]

_SEARCH = (1e-3, 1e7)  # bounds of the search over v
_STEPS = 60
_RISE, _RISES = 1.2, 48  # v may rise in steps of a fifth, to 5,000 times what it was


@dataclass(frozen=True)
class _Drawn:
    """K1 draws from the proposal, each bank entry once: rows, mirrored or not, log q and log count."""

    rows: Int64[Tensor, " K"]
    flipped: Tensor
    log_q: Tensor
    log_count: Tensor
    effective: float
    temperature: float


class Retrieval:
    """r_img of the paper, over one bank. `complete` is its `Completion`."""

    def __init__(self, bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0) -> None:
        height, width = bank.pca.size
        if glimpse > min(height, width):
            raise InputError(f"A glimpse of {glimpse} px does not fit the bank's images of {height} x {width} px.")
        self.bank, self.config, self.glimpse, self.seed = bank, config, glimpse, seed
        self.space = CodeSpace(
            bank,
            glimpse=glimpse,
            shifts=config.proposal_shifts,
            flips=config.flips,
            mirrored=config.flipped_content == "mirrored",
        )

    @property
    def fingerprint(self) -> str:
        """Changes with the bank, the fields, the glimpse size or the seed."""
        return fingerprint("retrieval", self.bank.fingerprint, self.config, self.glimpse, self.seed)

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """Completions of `images` seen at the top-left `pixels` only; without glimpses, draws from the bank itself."""
        if len(ids) != len(images) or len(pixels) != len(images):
            raise ValueError(f"{len(images)} images, {len(pixels)} sets of locations and {len(ids)} ids don't match.")
        if images.shape[1:3] != self.bank.pca.size:
            raise InputError(
                f"The images are {tuple(images.shape[1:3])} px, but the bank's are {self.bank.pca.size} px; build a "
                "bank for this task."
            )
        observed = pixels.shape[1]
        if observed == 0:
            return prior(self.bank, len(images), config=self.config, seed=self.seed)
        images, pixels = images.to(self.bank.device), pixels.cpu()
        glimpses = cut(images, pixels.to(images.device), glimpse=self.glimpse)
        query = self.query(images, pixels)
        if self.config.proposal == "schedule":
            temperature = self.config.temperature(observed)
            log_q = self.space.log_likelihood(query, pixels, temperature=temperature)
            proposals = ((log_q[b].flatten(), temperature) for b in range(len(images)))
        else:
            proposals = (self._tuned(query[b], pixels[b]) for b in range(len(images)))
        parts = []
        for b, (logits, temperature) in enumerate(proposals):
            drawn = self._draw(logits, temperature, id=ids[b], step=observed)
            corners = [(int(row), int(column)) for row, column in pixels[b].tolist()]
            parts.append(self._keep(drawn, glimpses[b], corners, id=ids[b]))
        return self._join(parts)

    def query(self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"]) -> Float32[Tensor, "B T p"]:
        """Normalised patches that the proposal compares: of the images' PCA reconstructions."""
        pca = self.bank.pca
        rebuilt = [pca.decode(pca.encode(image[None])) for image in images]
        side = self.glimpse
        patches = [
            rebuilt[b][0, row : row + side, column : column + side].flatten()
            for b, corners in enumerate(pixels.tolist())
            for row, column in corners
        ]
        return torch.stack(patches).unflatten(0, pixels.shape[:2])

    def _tuned(self, query: Tensor, pixels: Tensor) -> tuple[Tensor, float]:
        """The proposal at a v, found by bisection of log v, where its effective size is 0.8 to 1 times K1."""
        distances, gates = self.space.all_distances(query, pixels)
        if distances.shape[2] == 1:
            distances = distances.sum(0, keepdim=True)  # without shifts the sum over glimpses is all that is needed

        def proposal(v: float) -> Tensor:
            parts = [joined(part, gate, v) for part, gate in zip(distances, gates)]
            return torch.stack(parts).sum(0).flatten()

        most = min(self.config.drawn, distances.shape[1] * distances.shape[3])
        low, high = (math.log(bound) for bound in _SEARCH)
        for _ in range(_STEPS):
            v = math.exp((low + high) / 2)
            logits = proposal(v)
            size = float(effective_size(logits.double()))
            if 0.8 * most <= size <= most:
                break
            low, high = (math.log(v), high) if size < 0.8 * most else (low, math.log(v))
        return logits, v

    def _draw(self, logits: Tensor, temperature: float, *, id: str, step: int) -> _Drawn:
        """SampleProposal of algorithm 2."""
        number = len(self.bank)
        log_q = torch.log_softmax(logits.double(), 0)
        counts = resample(log_q, self.config.drawn, key=key(self.seed, "completion/proposal", id, step))
        chosen = counts.nonzero()[:, 0]
        return _Drawn(
            chosen % number,
            chosen >= number,
            log_q[chosen],
            counts[chosen].double().log(),
            float(effective_size(log_q)),
            temperature,
        )

    def _keep(
        self, drawn: _Drawn, glimpses: Tensor, pixels: list[tuple[int, int]], *, id: str
    ) -> tuple[_Drawn, Tensor, Tensor, Tensor, Tensor, float]:
        """The rest of SampleImages: exact weights of the draws, and K2 draws from those."""
        pool, index = pixels_of(self.bank, drawn.rows)
        shifts, scale = self.config.exact_shifts, self.bank.pca.scale
        distances = [
            squared_distances(pool, index, drawn.flipped, glimpse=glimpse, pixel=pixel, shifts=shifts, scale=scale)
            for glimpse, pixel in zip(glimpses, pixels)
        ]
        log_w = self._weights(drawn, distances)
        counts = resample(log_w, self.config.kept, key=key(self.seed, "completion/kept", id, len(pixels)))
        kept = counts.nonzero()[:, 0]
        return drawn, kept, counts[kept], pool, index, float(effective_size(log_w))

    def _weights(self, drawn: _Drawn, distances: list[Tensor]) -> Tensor:
        """Importance weights log p - log q + log count, at the smallest v that leaves enough of them."""
        v, join = self.config.temperature(len(distances)), self.config.exact_join
        correction = drawn.log_count - drawn.log_q
        found = log_likelihood(distances, temperature=v, join=join).double() + correction
        if not self.config.least_effective:
            return found
        # too large a v wastes the draws as well: the proposal is made for images that agree
        rising = v * _RISE ** torch.arange(_RISES, device=found.device, dtype=torch.float32)[:, None, None]
        weights = log_likelihood(distances, temperature=rising, join=join).double() + correction
        sizes = effective_size(weights)
        enough = sizes >= self.config.least_effective
        return weights[torch.where(enough.any(), enough.long().argmax(), sizes.argmax())]

    def _join(self, parts: list[tuple[_Drawn, Tensor, Tensor, Tensor, Tensor, float]]) -> Completions:
        number, device = self.config.kept, self.bank.device
        shared = isinstance(self.bank.images, ResidentImages)
        shape = (len(parts), number)
        index = torch.zeros(shape, dtype=torch.int64, device=device)
        rows = torch.full(shape, -1, dtype=torch.int64, device=device)
        flipped = torch.zeros(shape, dtype=torch.bool, device=device)
        weights = torch.zeros(shape, device=device)
        pools, offset = [], 0
        for b, (drawn, kept, counts, pool, where, _) in enumerate(parts):
            n = len(kept)
            rows[b, :n], flipped[b, :n] = drawn.rows[kept], drawn.flipped[kept]
            weights[b, :n] = counts / number
            if shared:
                index[b, :n] = where[kept]
                continue
            needed, inside = torch.unique(where[kept], return_inverse=True)
            index[b, :n] = inside + offset
            pools.append(pool[needed])
            offset += len(needed)
        return Completions(
            parts[0][3] if shared else torch.cat(pools),
            index,
            flipped,
            weights,
            rows,
            torch.tensor([part[5] for part in parts], device=device),
            torch.tensor([part[0].effective for part in parts], device=device),
            torch.tensor([part[0].temperature for part in parts], device=device),
            sources_of(self.bank, rows),
        )
