"""The fields of PS-NOGS+'s training."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PlusConfig(BaseModel):
    """How a posterior becomes the network of PS-NOGS+, which chooses where to look."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    iterations: int = Field(2_000, ge=1)
    """Training iterations."""
    batch: int = Field(128, ge=1)
    """Images per iteration."""
    candidates: int = Field(8, ge=2)
    """Locations per step whose cross-entropy is learned: the chosen one and others."""
    core_rate: float = Field(3e-4, ge=0)
    """AdamW's largest step size for the posterior's network; 0 leaves it as it is."""
    learning_rate: float = Field(1e-3, gt=0)
    """AdamW's largest step size for the location head."""
    validate_every: int = Field(200, ge=1)
    """Iterations between validations."""
