"""Algorithm 2: completions of an image by retrieval from a bank, as importance sampling.

K1 images are drawn from a proposal over the whole bank in code space. Their pixels give exact likelihoods, and K2 are
drawn by the importance weights log w = log p - log q + log count. Random numbers are keyed by (seed, image id, number
of glimpses), and each step has one shape for an image, so that its completions do not depend on the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8
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
_TOGETHER, _GLIMPSES = 16, 4  # images at once on a GPU, of so many glimpses each
_RISE, _RISES = 1.2, 48  # v may rise in steps of 20 %, to 5,000 times its value


@dataclass(frozen=True)
class _Drawn:
    """K distinct draws from the proposal for each of B images: rows, mirrored or not, and log count - log q, which is
    minus infinity where an entry is not used."""

    rows: Int64[Tensor, "B K"]
    flipped: Bool[Tensor, "B K"]
    correction: Float64[Tensor, "B K"]
    effective: Float64[Tensor, " B"]
    temperature: Float64[Tensor, " B"]


class Retrieval:
    """r_img of the paper, over one bank. A `Completion`."""

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
        # a GPU takes as many images at once as their distances fit in memory, always the same number
        self.together = 1
        if bank.device.type == "cuda":
            row = _GLIMPSES * len(self.space.flips) * len(self.space.shifts) * len(bank) * 4
            room = torch.cuda.get_device_properties(bank.device).total_memory // 64
            self.together = min(_TOGETHER, max(1, room // row))

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
        query = torch.cat([self.query(images[few], pixels[few])[:keep] for few, keep in self._chunks(len(images))])
        log_q = None
        if self.config.proposal == "schedule":
            v = self.config.temperature(observed)
            log_q = self.space.log_likelihood(query, pixels, temperature=v).flatten(1)
        parts = []
        for few, keep in self._chunks(len(images)):
            tuned = self._tuned(query[few], pixels[few]) if log_q is None else (log_q[few], [v] * len(few))
            names = [ids[b] for b in few]
            drawn = self._draw(*tuned, ids=names, step=observed)
            parts.append(self._keep(drawn, glimpses[few], pixels[few].tolist(), ids=names, number=keep))
        return self._join(parts)

    def _chunks(self, number: int) -> Iterator[tuple[list[int], int]]:
        """Images in order, always `together` of them (the last one is repeated), and how many of these count."""
        for start in range(0, number, self.together):
            yield [min(start + n, number - 1) for n in range(self.together)], min(self.together, number - start)

    def query(self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"]) -> Float32[Tensor, "B T p"]:
        """Normalised patches that the proposal compares: of the images' PCA reconstructions."""
        pca = self.bank.pca
        rebuilt = pca.decode(pca.encode(images))
        steps = torch.arange(self.glimpse, device=rebuilt.device)
        rows, columns = (part[..., None] + steps for part in pixels.to(rebuilt.device).unbind(-1))  # B T g
        image = torch.arange(len(images), device=rebuilt.device)[:, None, None, None]
        return rebuilt[image, rows[..., :, None], columns[..., None, :]].flatten(2)

    def _tuned(self, query: Float32[Tensor, "B T p"], pixels: Int64[Tensor, "B T 2"]) -> tuple[Tensor, list[float]]:
        """The proposal at a v, found by bisection of log v, where its effective size is 0.8 to 1 times K1."""
        distances, gates = self.space.all_distances(query, pixels)
        if distances.shape[3] == 1:
            # without shifts the sum over glimpses is all that is needed
            distances, gates = distances.sum(1, keepdim=True), gates[:, :1]

        def proposal(v: list[float]) -> Tensor:
            temperature = torch.tensor(v, dtype=torch.float64, device=distances.device)[:, None]
            return joined(distances, gates, temperature).sum(1).flatten(1)

        most = min(self.config.drawn, distances.shape[2] * distances.shape[4])
        low, high = ([math.log(bound)] * len(query) for bound in _SEARCH)
        v, found = [0.0] * len(query), [False] * len(query)
        for _ in range(_STEPS):
            v = [old if done else math.exp((a + b) / 2) for old, done, a, b in zip(v, found, low, high)]
            logits = proposal(v)
            for b, size in enumerate(effective_size(logits.double()).tolist()):
                found[b] |= 0.8 * most <= size <= most
                if size < 0.8 * most:
                    low[b] = math.log(v[b])
                else:
                    high[b] = math.log(v[b])
            if all(found):
                break
        return logits, v

    def _draw(self, logits: Float32[Tensor, "B M"], temperature: list[float], *, ids: list[str], step: int) -> _Drawn:
        """SampleProposal of algorithm 2."""
        log_q = torch.log_softmax(logits.double(), 1)
        counts = resample(log_q, self.config.drawn, key=self._keys("completion/proposal", ids, step))
        # on a GPU always as many, so that no sum's order depends on the batch
        width = None if self.together == 1 else min(self.config.drawn, counts.shape[1])
        chosen, used = _packed(counts > 0, width)
        correction = counts.gather(1, chosen).double().log() - log_q.gather(1, chosen)
        return _Drawn(
            chosen % len(self.bank),
            chosen >= len(self.bank),
            torch.where(used, correction, -torch.inf),
            effective_size(log_q),
            torch.tensor(temperature, dtype=torch.float64, device=logits.device),
        )

    def _keep(
        self, drawn: _Drawn, glimpses: Tensor, pixels: list[list[tuple[int, int]]], *, ids: list[str], number: int
    ) -> Completions:
        """The rest of SampleImages, for the first `number` of the images: exact weights of the draws, and K2 draws from
        those."""
        pool, index = pixels_of(self.bank, drawn.rows.flatten())
        index, shifts, scale = index.view_as(drawn.rows), self.config.exact_shifts, self.bank.pca.scale
        distances = [
            squared_distances(pool, index, drawn.flipped, glimpses=seen, pixels=where, shifts=shifts, scale=scale)
            for seen, where in zip(glimpses.unbind(1), zip(*pixels))
        ]
        log_w = self._weights(drawn.correction, distances)
        counts = resample(log_w, self.config.kept, key=self._keys("completion/kept", ids, len(distances)))
        kept, used = (part[:number] for part in _packed(counts > 0, self.config.kept))
        rows = torch.where(used, drawn.rows[:number].gather(1, kept), -1)
        index = torch.where(used, index[:number].gather(1, kept), 0)
        if not isinstance(self.bank.images, ResidentImages):
            needed, index[used] = torch.unique(index[used], return_inverse=True)
            pool = pool[needed]
        return Completions(
            pool,
            index,
            used & drawn.flipped[:number].gather(1, kept),
            torch.where(used, counts[:number].gather(1, kept), 0) / self.config.kept,
            rows,
            effective_size(log_w)[:number].float(),
            drawn.effective[:number].float(),
            drawn.temperature[:number].float(),
            sources_of(self.bank, rows),
        )

    def _keys(self, purpose: str, ids: list[str], step: int) -> Int64[Tensor, " B"]:
        return torch.tensor([key(self.seed, purpose, id, step) for id in ids])

    def _weights(
        self, correction: Float64[Tensor, "B K"], distances: list[Float32[Tensor, "B K S"]]
    ) -> Float64[Tensor, "B K"]:
        """Importance weights log p - log q + log count, at the smallest v that makes enough of them effective."""
        v, join = self.config.temperature(len(distances)), self.config.exact_join
        if not self.config.least_effective:
            return log_likelihood(distances, temperature=v, join=join).double() + correction
        # too large a v lowers the effective size too, since the proposal favours images that agree
        rising = v * _RISE ** torch.arange(_RISES, device=correction.device, dtype=torch.float32)[:, None, None, None]
        weights = log_likelihood(distances, temperature=rising, join=join).double() + correction
        sizes = effective_size(weights)
        enough = sizes >= self.config.least_effective
        best = torch.where(enough.any(0), enough.long().argmax(0), sizes.argmax(0))
        return weights[best, torch.arange(len(best), device=best.device)]

    def _join(self, parts: list[Completions]) -> Completions:
        """Concatenate the completions of several chunks of images."""
        if isinstance(self.bank.images, ResidentImages):
            pool, offsets = parts[0].pool, [0] * len(parts)
        else:
            pool = torch.cat([part.pool for part in parts])
            offsets = [0, *accumulate(len(part.pool) for part in parts)][:-1]

        def together(name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        index = [torch.where(part.rows >= 0, part.index + start, 0) for part, start in zip(parts, offsets)]
        return Completions(
            pool,
            torch.cat(index),
            together("flipped"),
            together("weights"),
            together("rows"),
            together("effective"),
            together("proposed"),
            together("temperature"),
            None if self.bank.sources is None else together("sources"),
        )


def _packed(wanted: Bool[Tensor, "B M"], width: int | None) -> tuple[Int64[Tensor, "B K"], Bool[Tensor, "B K"]]:
    """Indices of the wanted entries of each row, in order, and which of K = `width` (as many as needed) are used."""
    row, entry = wanted.nonzero(as_tuple=True)
    place = wanted.cumsum(1)[row, entry] - 1
    if width is None:
        width = int(wanted.sum(1).amax())
    index = torch.full((len(wanted), width), -1, dtype=torch.int64, device=wanted.device)
    index[row, place] = entry
    return index.clamp(min=0), index >= 0
