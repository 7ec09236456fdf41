"""The fields of a bank: which generator makes its images, how many, and how they are kept and coded."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SEED = 0
"""Of a bank's images and PCA: runs of several seeds share a bank."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Positive = Annotated[float, Field(gt=0)]

GeneratorName = Literal[
    "training-images", "trained", "digits", "stylegan", "finegan", "folder", "exported", "diffusers"
]


class TrainedConfig(BaseModel):
    """The generator that is trained here: an autoencoder, and flow matching in its latent space."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    autoencoder_width: int = Field(64, ge=8)
    """Channels of the autoencoder at the image's own size; twice and four times as many further in."""
    autoencoder_iterations: int = Field(6_000, ge=1)
    """Training steps of the autoencoder."""
    width: int = Field(512, ge=32)
    """Width of the transformer that learns the flow; a multiple of 64, or 32."""
    depth: int = Field(12, ge=1)
    """Its layers."""
    iterations: int = Field(40_000, ge=1)
    """Training steps of the flow."""
    batch: int = Field(256, ge=1)
    """Images a step (an eighth as many for the autoencoder)."""
    seconds: float | None = Field(None, gt=0)
    """Train for so many seconds at most, the autoencoder for a third of them; what it leaves is the flow's. Each one's
    step size reaches zero by then. Encoding the images in between is not counted. Such a run can't be repeated to the
    bit."""
    learning_rate: float = Field(3e-4, gt=0)
    """AdamW's largest step size."""
    steps: int = Field(40, ge=1)
    """Heun steps from noise to an image."""


class BankConfig(BaseModel):
    """The image bank; the defaults are made for a task of one's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    generator: GeneratorName = "training-images"
    """What makes the images: the task's training images (changed a little), a generator trained on them, the digits
    renderer, StyleGAN or FineGAN with their public weights, a folder of pictures, an ONNX file, diffusers."""
    count: int = Field(100_000, ge=2, le=10**8)
    """Images in the bank."""
    batch: int = Field(64, ge=1)
    """Images generated together."""
    components: int = Field(256, ge=1)
    """Principal components of a code."""
    pixel_mean: tuple[float, float, float] = IMAGENET_MEAN
    """Subtracted from pixels in [0, 1], by channel, before distances are taken."""
    pixel_std: tuple[Positive, Positive, Positive] = IMAGENET_STD
    """Then divided by; it gives v its meaning."""
    duplicate_rms: float = Field(4.0, ge=0)
    """A bank image this close (grey levels, root mean square of 16 x 16 means) to a held-out one is left out."""
    shift: int = Field(8, ge=0)
    """training-images: largest shift of a changed copy in px; 0 for pictures that are aligned, such as faces."""
    latent: int = Field(512, ge=1)
    """exported: numbers that the ONNX file takes, drawn from N(0, 1); it gives [n, 3, H, W] in -1..1."""
    trained: TrainedConfig = TrainedConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.count <= self.components:
            raise ValueError(
                f"bank.count is {self.count}, too few images for bank.components = {self.components}; raise the former "
                "or lower the latter."
            )
        return self
