"""Principal components of a bank's images (Eqs. 14-16) in two passes of constant memory: one to fit, one to encode.

Images of 150,528 numbers are too wide for a covariance matrix C. A small sample gives a first guess Ω of its leading
subspace. The pass over all images accumulates C Ω. Nyström's formula, which is exact on that subspace, turns it into
components (Tropp, Yurtsever, Udell and Cevher, 2017). Part of Ω is random, for directions that the sample missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from nogs.bank.store import Images, stored_blocks
from nogs.runtime.errors import InputError
from nogs.runtime.headers import described
from nogs.runtime.streams import torch_stream
from nogs.runtime.tensors import load_tensors, save_tensors

__all__ = ["PCA", "fit_pca", "load_pca", "save_pca"]

FORMAT = "nogs bank pca 1"
LARGEST_CODE = 60_000.0  # float16 reaches 65,504


@dataclass(frozen=True)
class PCA:
    """Mean, orthonormal basis and variances of normalised pixels (x / 255 - centre) / scale, channel by channel."""

    mean: Float32[Tensor, " P"]
    basis: Float32[Tensor, "C P"]
    variance: Float32[Tensor, " C"]
    centre: tuple[float, float, float]
    scale: tuple[float, float, float]
    size: tuple[int, int]
    total_variance: float

    @property
    def components(self) -> int:
        """C, the length of a code."""
        return len(self.basis)

    @property
    def explained(self) -> float:
        """Share of the variance that the components explain."""
        return float(self.variance.sum()) / self.total_variance if self.total_variance else 1.0

    def to(self, device: torch.device) -> PCA:
        """A copy on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("mean", "basis", "variance")}
        return PCA(**{**vars(self), **moved})

    def encode(self, images: UInt8[Tensor, "n H W 3"]) -> Float32[Tensor, "n C"]:
        """Codes z = W (x - mean) of images (Eq. 14)."""
        return (normalise(images, self.centre, self.scale) - self.mean) @ self.basis.T

    def decode(self, codes: Float[Tensor, "n C"]) -> Float32[Tensor, "n H W 3"]:
        """Normalised pixels mean + Wᵀz (Eq. 15)."""
        return (codes.float() @ self.basis + self.mean).reshape(-1, *self.size, 3)


def normalise(
    images: UInt8[Tensor, "n H W 3"], centre: tuple[float, ...], scale: tuple[float, ...]
) -> Float32[Tensor, "n P"]:
    """(Pixels / 255 - `centre`) / `scale`, flattened in the order row, column, channel."""
    gain = torch.tensor([1 / (255 * s) for s in scale], device=images.device)
    shift = torch.tensor([c / s for c, s in zip(centre, scale)], device=images.device)
    return (images.float().mul_(gain).sub_(shift)).flatten(1)


def fit_pca(
    images: Images,
    *,
    components: int,
    centre: tuple[float, float, float],
    scale: tuple[float, float, float],
    seed: int = 0,
    block: int = 512,
    device: str | torch.device = "cpu",
    advance: Callable[[int], None] = lambda n: None,
) -> PCA:
    """Fit in one pass over `images`, `block` at a time, after a sample of 1,024 or 4 C of them."""
    number, width = len(images), 3 * images.size[0] * images.size[1]
    if not 1 <= components < min(number, width + 1):
        raise InputError(
            f"A bank of {number} images of {width} numbers can't have {components} principal components; "
            f"bank.components must be at most {min(number - 1, width)}."
        )
    generator = torch_stream(seed, "pca")
    sample_rows = torch.randperm(number, generator=generator)[: max(1024, 4 * components)].sort().values.numpy()
    pilot, omega = _first_guess(images, sample_rows, components, centre, scale, block, generator, device)

    product = torch.zeros_like(omega)  # C Ω, by images as rows: [s, P]
    total = torch.zeros(width, dtype=torch.float64, device=device)
    squares = torch.zeros((), dtype=torch.float64, device=device)
    for rows, pixels in stored_blocks(images, block=block):
        centred = normalise(pixels.to(device), centre, scale) - pilot
        product.addmm_((centred @ omega.T).T, centred)
        total += centred.sum(0)
        squares += centred.square().sum()
        advance(len(rows))
    offset = (total / number).float()  # of the mean from the pilot mean
    product = product / number - torch.outer(omega @ offset, offset)
    total_variance = float(squares / number - offset.double().square().sum())
    basis, variance = _nystrom(product, omega, components)
    return PCA(pilot + offset, basis, variance, centre, scale, images.size, total_variance)


def _first_guess(
    images: Images,
    sample: np.ndarray,
    components: int,
    centre: tuple[float, float, float],
    scale: tuple[float, float, float],
    block: int,
    generator: torch.Generator,
    device: str | torch.device,
) -> tuple[Tensor, Tensor]:
    """Mean of a sample, and Ω: 7/8 its components and 1/8 random directions, orthonormal rows [s, P]."""
    rows = torch.empty(len(sample), 3 * images.size[0] * images.size[1], device=device)
    for first in range(0, len(sample), block):
        part = slice(first, first + block)
        rows[part] = normalise(images.read(sample[part]).to(device), centre, scale)
    pilot = rows.mean(0)
    rows -= pilot
    _, vectors = torch.linalg.eigh((rows @ rows.T).double())  # Gram matrix of the sample: small
    sketch = min(max(2 * components, components + 128), rows.shape[1])
    wanted = min(sketch - sketch // 8, len(rows) - 1)
    leading = vectors.flip(1)[:, :wanted].float().T @ rows
    extra = sketch - wanted
    del rows
    if extra > 0:
        leading = torch.cat([leading, torch.randn(extra, leading.shape[1], generator=generator).to(device)])
    return pilot, _orthonormal(leading)


def _orthonormal(rows: Tensor) -> Tensor:
    """An orthonormal basis of the rows' span, by the Gram matrix twice, which is fast and as exact as QR."""
    for _ in range(2):
        rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)
        values, vectors = torch.linalg.eigh((rows @ rows.T).double())
        kept = values > 1e-6 * values[-1]
        rows = (vectors[:, kept] / values[kept].sqrt()).float().T @ rows
    return rows


def _nystrom(product: Tensor, omega: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Leading eigenvectors [C, P] and eigenvalues of Nyström's C Ω (Ωᵀ C Ω)⁺ (C Ω)ᵀ, which is kept definite by ν."""
    nu = 1e-6 * float(product.norm())  # well above the rounding of float32 sums
    shifted = product + nu * omega
    core = (omega @ shifted.T).double()
    values, vectors = torch.linalg.eigh((core + core.T) / 2)
    kept = values > 0.5 * nu
    root = vectors[:, kept] / values[kept].sqrt()  # core^-1/2 on the kept directions
    # float64, since dividing by the small values of the core magnifies rounding; in slices, since the rows are long
    inner = sum((part := piece.double()) @ part.T for piece in shifted.split(1 << 14, dim=1))
    gram = root.T @ inner @ root
    spectrum, turn = torch.linalg.eigh(gram)
    spectrum, turn = spectrum.flip(0)[:components], turn.flip(1)[:, :components]
    basis = (root @ turn / spectrum.sqrt().clamp_min(1e-30)).float().T @ shifted
    variance = (spectrum - nu).clamp_min(0).float()
    if len(basis) < components:  # fewer directions than asked for: the images lie in a smaller space
        missing = components - len(basis)
        basis = torch.cat([basis, torch.zeros(missing, basis.shape[1], device=basis.device)])
        variance = torch.cat([variance, torch.zeros(missing, device=variance.device)])
    return basis, variance


def save_pca(path: Path, pca: PCA) -> None:
    """Write mean, basis, variances and normalisation as safetensors."""
    tensors = {"mean": pca.mean, "basis": pca.basis, "variance": pca.variance}
    tensors |= {"centre": torch.tensor(pca.centre, dtype=torch.float64)}
    tensors |= {"scale": torch.tensor(pca.scale, dtype=torch.float64), "size": torch.tensor(pca.size)}
    tensors |= {"total_variance": torch.tensor(pca.total_variance, dtype=torch.float64)}
    save_tensors(path, tensors, {"format": FORMAT})


def load_pca(path: Path, *, device: str | torch.device = "cpu") -> PCA:
    """Load what `save_pca` wrote."""
    tensors, metadata = load_tensors(path, device)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} is not the PCA of a bank of this version; build the bank again.")
    with described(path, "the PCA of a bank of this version"):
        red, green, blue = tensors["centre"].tolist()
        a, b, c = tensors["scale"].tolist()
        height, width = tensors["size"].tolist()
        count = len(tensors["basis"])
        shapes = {"mean": (3 * height * width,), "basis": (count, 3 * height * width), "variance": (count,)}
        for name, shape in shapes.items():
            if tensors[name].shape != shape or not tensors[name].isfinite().all():
                raise InputError(f"its tensor {name!r} is misshapen or not finite")
        return PCA(
            tensors["mean"],
            tensors["basis"],
            tensors["variance"],
            (red, green, blue),
            (a, b, c),
            (height, width),
            float(tensors["total_variance"]),
        )
