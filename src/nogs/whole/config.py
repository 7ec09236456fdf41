"""The fields of the whole-image reference: its size and its training."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class WholeConfig(BaseModel):
    """A residual CNN from scratch, or the posterior's VGG layers over the whole image where it has ImageNet weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    iterations: int = Field(2_000, ge=1)
    """Training iterations, over which the step size falls to zero."""
    seconds: float | None = Field(None, gt=0)
    """Train for so many seconds at most; the step size reaches zero by then. Such a run can't be repeated to the
    bit."""
    batch: int = Field(64, ge=2)
    """Images an iteration."""
    learning_rate: float = Field(3e-3, gt=0)
    """AdamW's largest step size."""
    width: int = Field(16, ge=1)
    """Channels of the residual CNN at half the image's side; they double wherever the side is halved."""
    pretrained_rate: float = Field(0.03, ge=0)
    """Factor on the step size of ImageNet weights; 0 leaves them as they are: the features of each image are computed
    once, neither mirrored nor changed, of as many training images as the time allows, and a linear layer is trained."""
