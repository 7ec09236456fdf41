import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA as Reference

from nogs.bank.pca import fit_pca, load_pca, normalise, save_pca
from nogs.bank.store import ResidentImages
from nogs.data.digits import render_digits
from nogs.runtime.errors import InputError

CENTRE, SCALE = (0.4, 0.45, 0.5), (0.2, 0.25, 0.3)


@pytest.fixture(scope="module")
def images():
    pixels, _, _ = render_digits(range(1500), pool="train", seed=0, fragments=4, image_size=16)
    return ResidentImages(torch.from_numpy(pixels))


@pytest.fixture(scope="module")
def flat(images):
    pixels = images.pixels.double() / 255
    return ((pixels - torch.tensor(CENTRE)) / torch.tensor(SCALE)).reshape(len(images), -1).numpy()


@pytest.mark.parametrize("components", [1, 16, 48])
def test_components_agree_with_scikit_learn(images, flat, components):
    found = fit_pca(images, components=components, centre=CENTRE, scale=SCALE, block=300)
    exact = Reference(components, svd_solver="full").fit(flat)
    assert np.allclose(found.mean, exact.mean_, atol=1e-5)
    assert np.allclose(found.variance, exact.explained_variance_, rtol=0.01)
    assert found.explained == pytest.approx(exact.explained_variance_ratio_.sum(), rel=2e-3)
    assert torch.allclose(found.basis @ found.basis.T, torch.eye(components), atol=1e-4)
    rebuilt = found.decode(found.encode(images.pixels)).flatten(1).numpy()
    error = np.mean((rebuilt - flat) ** 2)
    least = np.mean((exact.inverse_transform(exact.transform(flat)) - flat) ** 2)
    assert least * (1 - 1e-5) <= error <= least * 1.001
    leading = np.abs(np.sum(found.basis[: components // 4 + 1].numpy() * exact.components_[: components // 4 + 1], 1))
    assert leading.min() > 0.98


def test_a_direction_that_few_images_show_is_found():
    """Low-rank images are reconstructed exactly, although few have the rare direction."""
    rng = np.random.default_rng(0)
    base = rng.integers(60, 190, (1, 16, 16, 3))
    directions = rng.integers(-3, 4, (5, 16, 16, 3))
    factors = rng.integers(-3, 4, (3000, 5))
    factors[20:, 4] = 0
    images = (base + np.tensordot(factors, directions, 1)).astype(np.uint8)
    found = fit_pca(
        ResidentImages(torch.from_numpy(images)), components=8, centre=(0.0, 0.0, 0.0), scale=(1.0, 1.0, 1.0)
    )
    rebuilt = found.decode(found.encode(torch.from_numpy(images[:3]))) * 255
    assert np.abs(rebuilt.numpy() - images[:3]).max() < 0.5
    assert found.explained == pytest.approx(1, abs=1e-4)


def test_fit_depends_on_the_seed_alone(images):
    first, second = (fit_pca(images, components=4, centre=CENTRE, scale=SCALE, seed=1) for _ in range(2))
    assert torch.equal(first.basis, second.basis)


def test_blocks_do_not_matter(images):
    first = fit_pca(images, components=8, centre=CENTRE, scale=SCALE, block=100)
    second = fit_pca(images, components=8, centre=CENTRE, scale=SCALE, block=1500)
    assert torch.allclose(first.basis, second.basis, atol=1e-3)


def test_file_reads_back(images, tmp_path):
    found = fit_pca(images, components=3, centre=CENTRE, scale=SCALE)
    save_pca(tmp_path / "pca.safetensors", found)
    again = load_pca(tmp_path / "pca.safetensors")
    for name, value in vars(found).items():
        other = getattr(again, name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name


def test_too_many_components_are_refused(images):
    with pytest.raises(InputError, match=r"bank\.components must be at most 768"):
        fit_pca(images, components=1400, centre=CENTRE, scale=SCALE)


def test_normalised_pixels_are_in_the_order_of_the_image(images, flat):
    assert np.allclose(normalise(images.pixels[:10], CENTRE, SCALE), flat[:10], atol=1e-5)


@pytest.mark.slow
def test_memory_stays_bounded_for_many_wide_images():
    """3,000 images of 49,152 numbers, 590 MB as float32, are fitted within 450 MB above the bare process."""
    program = """
import resource, numpy as np, torch
from nogs.bank.pca import fit_pca
torch.set_num_threads(1)
class Made:
    size = (128, 128)
    def __len__(self): return 3000
    def read(self, rows):
        g = torch.Generator().manual_seed(int(rows[0]))
        return torch.randint(0, 256, (len(rows), 1, 1, 3), dtype=torch.uint8, generator=g).expand(-1, 128, 128, 3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fit_pca(Made(), components=4, centre=(0.5,) * 3, scale=(0.5,) * 3, block=64)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 450_000
