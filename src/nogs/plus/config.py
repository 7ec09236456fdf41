"""The fields of PS-NOGS+'s training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class PlusConfig(BaseModel):
    """Training of the network of PS-NOGS+ from a posterior."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    iterations: int = Field(2_000, ge=1)
    """Training iterations."""
    batch: int = Field(128, ge=1)
    """Images per iteration."""
    candidates: int = Field(8, ge=2)
    """Locations per step whose cross-entropy is learned: the chosen one and some others."""
    core_rate: float = Field(3e-4, ge=0)
    """AdamW's largest step size for the posterior's network; 0 leaves it as it is."""
    learning_rate: float = Field(1e-3, gt=0)
    """AdamW's largest step size for the location head."""
    average: float = Field(0.0, ge=0, lt=1)
    """Decay of a running average of the weights, which is validated and kept instead of the weights; 0: no average."""
    validate_every: int = Field(200, ge=1)
    """Iterations between validations."""
    shared: bool = False
    """fixed and ps-nogs+: one policy for all attributes together, instead of one for each."""

    def made_from(self, method: str, attributes: Sequence[str | None]) -> dict[str, Any]:
        """What a method's network for these attributes depends on."""
        out = self.model_dump(mode="json", exclude={"shared"}) if method == "ps-nogs+" else {}
        together = self.shared and len(attributes) > 1 and method in ("fixed", "ps-nogs+")
        return out | ({"shared": sorted(map(str, attributes))} if together else {})
