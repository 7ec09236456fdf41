"""Retrieval with a Gaussian correction: each retrieved image moves to agree with the glimpses, and keeps its texture.

The bank's PCA and isotropic noise are a Gaussian of low rank, N(μ, VᵀV + σ²I) (Tipping and Bishop, 1999). An image x is
moved by its conditional mean, x + cov(x, y) cov(y, y)⁻¹ (y - x_o), where x_o is what x shows at the observed pixels
(Matheron's rule). The observed pixels then agree exactly. Hidden pixels take one linear solve of the size of a code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor

from nogs.bank.bank import Bank
from nogs.bank.pca import PCA
from nogs.completion.config import CompletionConfig
from nogs.completion.protocol import Completions
from nogs.completion.retrieval import Retrieval
from nogs.glimpse import mask
from nogs.runtime.fingerprint import fingerprint

__all__ = ["Corrected", "Gaussian"]


class Gaussian:
    """The Gaussian of a bank's normalised pixels: rank C, and noise for the variance that the components leave out.

    The residual is correlated between neighbouring pixels. Independent noise of its mean variance would be far too
    small: the codes would fit the residual, and hidden pixels would overshoot. `noise` is therefore the largest
    variance that a direction left out can have, that of the last component.
    """

    def __init__(self, pca: PCA, *, noise: float | None = None) -> None:
        # at least the variance of rounding to whole grey levels, 1/12
        rounding = sum(1 / (12 * (255 * s) ** 2) for s in pca.scale) / 3
        self.noise = max(float(pca.variance[-1]) if noise is None else noise, rounding)
        """σ², the variance of each pixel that the components leave out."""
        self.root: Float32[Tensor, "C P"] = pca.basis * (pca.variance - self.noise).clamp_min(0).sqrt()[:, None]
        """V, where VᵀV is the components' part of the covariance."""
        self.home = torch.device("cpu") if pca.basis.device.type == "mps" else pca.basis.device

    def moved(self, difference: Float32[Tensor, "N P"], observed: Bool[Tensor, " P"]) -> Float32[Tensor, "N P"]:
        """The changes of N images, given `difference` = y - x at the observed pixels, where the change equals it."""
        seen = self.root[:, observed]
        away = difference[:, observed]
        # float64, since the noise may be smaller than the rounding of float32; not every device has it
        precise = seen.to(self.home).double()
        gram, target = precise @ precise.T, precise @ away.T.to(self.home).double()
        gram.diagonal().add_(self.noise)
        codes = torch.cholesky_solve(target, torch.linalg.cholesky(gram)).float().to(seen.device)
        out = codes.T @ self.root
        out[:, observed] = away
        return out


class Corrected:
    """Retrieval over one bank, followed by the correction. A `Completion`."""

    def __init__(self, bank: Bank, *, config: CompletionConfig, glimpse: int, seed: int = 0) -> None:
        self.retrieval = Retrieval(bank, config=config, glimpse=glimpse, seed=seed)
        self.bank, self.glimpse, self.gaussian = bank, glimpse, Gaussian(bank.pca)

    @property
    def fingerprint(self) -> str:
        """Changes with whatever changes the retrieval."""
        return fingerprint("corrected 2", self.retrieval.fingerprint)

    def complete(
        self, images: UInt8[Tensor, "B H W 3"], pixels: Int64[Tensor, "B T 2"], *, ids: Sequence[str]
    ) -> Completions:
        """Completions of `images` seen at the top-left `pixels` only; without glimpses, draws from the bank itself."""
        found = self.retrieval.complete(images, pixels, ids=ids)
        if not pixels.shape[1]:
            return found
        device, (number, kept) = self.bank.device, found.index.shape
        images, (height, width) = images.to(device), images.shape[1:3]
        seen = mask(pixels.to(device), glimpse=self.glimpse, height=height, width=width)
        pool = torch.empty((number * kept, height, width, 3), dtype=torch.uint8, device=device)
        for b in range(number):  # image by image, in one shape, so that the result does not depend on the batch
            pool[b * kept : (b + 1) * kept] = self._corrected(found, b, images[b], seen[b])
        index = torch.arange(number * kept, device=device).reshape(number, kept)
        # two images that retrieve the same bank image now have different completions
        unmarked = torch.full_like(found.rows, -1)
        return replace(found, pool=pool, index=index, flipped=torch.zeros_like(found.flipped), rows=unmarked)

    def _corrected(
        self, found: Completions, b: int, image: UInt8[Tensor, "H W 3"], seen: Bool[Tensor, "H W"]
    ) -> UInt8[Tensor, "N H W 3"]:
        pictures = found.pool[found.index[b]]
        pictures = torch.where(found.flipped[b][:, None, None, None], pictures.flip(2), pictures).float()
        grey = 255 * torch.tensor(self.bank.pca.scale, device=image.device)  # grey levels of a normalised unit
        away = ((image - pictures) / grey).flatten(1)
        moved = self.gaussian.moved(away, seen[..., None].expand(image.shape).flatten())
        return (pictures + moved.reshape(pictures.shape) * grey).round().clamp(0, 255).to(torch.uint8)
