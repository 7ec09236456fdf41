"""Small banks of invented pictures for tests of completion, with the obvious, slow way to each number."""

from __future__ import annotations

import numpy as np
import torch

from nogs.bank.bank import Bank, make_bank
from nogs.bank.pca import PCA, fit_pca
from nogs.bank.store import ResidentImages

CENTRE, SCALE = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def pictures(number: int, *, height: int = 12, width: int = 14, seed: int = 0) -> np.ndarray:
    """Smooth random colour pictures, uint8 [N, H, W, 3]."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    out = np.full((number, height, width, 3), 128.0)
    for _ in range(4):
        frequency = rng.normal(0, 0.4, (number, 1, 1, 2))
        phase = rng.uniform(0, 6.3, (number, 1, 1))
        wave = np.sin(frequency[..., 0] * rows + frequency[..., 1] * columns + phase)
        out += wave[..., None] * rng.normal(0, 35, (number, 1, 1, 3))
    return out.clip(0, 255).astype(np.uint8)


def fitted(images: np.ndarray, components: int) -> PCA:
    return fit_pca(ResidentImages(torch.from_numpy(images)), components=components, centre=CENTRE, scale=SCALE)


def bank(number: int = 60, *, components: int = 12, seed: int = 0, height: int = 12, width: int = 14) -> Bank:
    images = pictures(number, seed=seed, height=height, width=width)
    return make_bank(torch.from_numpy(images), pca=fitted(images, components))


def normalised(images: np.ndarray) -> np.ndarray:
    return (images / 255.0 - np.array(CENTRE)) / np.array(SCALE)


def rebuilt(bank: Bank) -> np.ndarray:
    """Normalised pictures [N, H, W, 3] that the codes stand for, in float64."""
    flat = bank.codes.double().numpy() @ bank.pca.basis.double().numpy() + bank.pca.mean.double().numpy()
    return flat.reshape(len(bank), *bank.pca.size, 3)


def slow_log_likelihood(
    pictures: np.ndarray, query: np.ndarray, pixels: np.ndarray, *, shifts: list, v: float, join: str = "product"
) -> np.ndarray:
    """log p [2, N], of pictures and of their mirror images: loops over everything."""
    number, height, width, _ = pictures.shape
    side = query.shape[1]
    out = np.zeros((2, number))
    for flip in range(2):
        seen = pictures[:, :, ::-1] if flip else pictures
        for n in range(number):
            terms = []
            for y, (row, column) in zip(query, pixels):
                likelihoods = []
                for down, right in shifts:
                    r, c = row + down, column + right
                    if 0 <= r <= height - side and 0 <= c <= width - side:
                        d = np.sum((y - seen[n, r : r + side, c : c + side]) ** 2)
                        likelihoods.append(np.exp(-d / v))
                terms.append(np.mean(likelihoods))
            out[flip, n] = np.log(np.prod(terms) if join == "product" else np.sum(terms))
    return out
