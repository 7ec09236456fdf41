import pytest
import torch
from safetensors.torch import save_file

from nogs.posterior.config import PosteriorConfig


@pytest.fixture
def vgg_file():
    """Writes random weights of VGG-16's first three convolutions, by torchvision's names: a posterior's fields."""

    def write(path):
        torch.manual_seed(0)
        sizes = {0: (64, 3), 2: (64, 64), 5: (128, 64)}
        kernels = {f"features.{n}.weight": torch.randn(o, i, 3, 3) / (3 * i**0.5) for n, (o, i) in sizes.items()}
        save_file(kernels | {f"features.{n}.bias": torch.randn(o) / 10 for n, (o, _) in sizes.items()}, path)
        return PosteriorConfig(stem="vgg", stem_layers=3, stem_scale=2, token=4, weights=str(path))

    return write
