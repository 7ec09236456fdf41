"""The fields of a bank: the generator of its images, their number, and how they are stored and encoded."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SEED = 0
"""Seed of a bank's images and PCA, fixed so that runs with several seeds share a bank."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Positive = Annotated[float, Field(gt=0)]

GeneratorName = Literal[
    "training-images", "trained", "digits", "stylegan", "finegan", "folder", "exported", "diffusers"
]


class TrainedConfig(BaseModel):
    """The generator that is trained here: an autoencoder, and flow matching in its latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    autoencoder_width: int = Field(64, ge=8)
    """Channels of the autoencoder's first level; twice and four times as many at the deeper levels."""
    autoencoder_iterations: int = Field(6_000, ge=1)
    """Training steps of the autoencoder."""
    width: int = Field(512, ge=32)
    """Width of the transformer that learns the flow; a multiple of 64, or 32."""
    depth: int = Field(12, ge=1)
    """Layers of that transformer."""
    iterations: int = Field(40_000, ge=1)
    """Training steps of the flow."""
    batch: int = Field(256, ge=1)
    """Images per step (an eighth as many for the autoencoder)."""
    seconds: float | None = Field(None, gt=0)
    """Limit of the training time in seconds: a third for the autoencoder, the rest for the flow. Each step size reaches
    zero by the end of its time. Encoding the images in between does not count. Such a run is not reproducible bit for
    bit."""
    learning_rate: float = Field(3e-4, gt=0)
    """Largest step size of AdamW."""
    steps: int = Field(40, ge=1)
    """Heun steps from noise to an image."""


class BankConfig(BaseModel):
    """The image bank; the defaults suit a user's own task."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    generator: GeneratorName = "training-images"
    """Source of the images: the training images (slightly changed), a generator trained on them, the digits renderer,
    StyleGAN or FineGAN with public weights, a folder of pictures, an ONNX file, or diffusers."""
    count: int = Field(100_000, ge=2, le=10**8)
    """Images in the bank."""
    batch: int = Field(64, ge=1)
    """Images generated at once."""
    components: int = Field(256, ge=1)
    """Number of principal components, the length of a code."""
    pixel_mean: tuple[float, float, float] = IMAGENET_MEAN
    """Mean of each channel, subtracted from pixels in [0, 1] before distances are computed."""
    pixel_std: tuple[Positive, Positive, Positive] = IMAGENET_STD
    """Standard deviation of each channel, by which pixels are then divided; v is in these units."""
    duplicate_rms: float = Field(4.0, ge=0)
    """Bank images closer than this to a held-out one are left out (grey levels, root mean square of 16 x 16 means)."""
    shift: int = Field(8, ge=0)
    """training-images: largest shift of a changed copy in px; 0 for aligned pictures, such as faces."""
    latent: int = Field(512, ge=1)
    """exported: length of the ONNX network's input, drawn from N(0, 1); its output is [n, 3, H, W] in -1..1."""
    trained: TrainedConfig = TrainedConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.count <= self.components:
            raise ValueError(
                f"bank.count is {self.count}, too few images for bank.components = {self.components}; raise bank.count "
                "or lower bank.components."
            )
        return self
