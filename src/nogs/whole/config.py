"""The fields of the whole-image reference: its size and its training."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class WholeConfig(BaseModel):
    """A residual CNN from scratch, or the posterior's VGG layers on the whole image if they have ImageNet weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    iterations: int = Field(2_000, ge=1)
    """Training iterations, over which the step size decays to zero."""
    seconds: float | None = Field(None, gt=0)
    """Limit of the training time in seconds; the step size reaches zero by then. Such a run is not reproducible bit for
    bit."""
    batch: int = Field(64, ge=2)
    """Images per iteration."""
    learning_rate: float = Field(3e-3, gt=0)
    """Largest step size of AdamW."""
    width: int = Field(16, ge=1)
    """Channels of the residual CNN at half the image's side; they double whenever the side is halved."""
    pretrained_rate: float = Field(0.03, ge=0)
    """Factor on the step size of ImageNet weights; 0 freezes them and trains only a linear layer. The features are then
    computed once, of unchanged images, for as many training images as the time allows."""
