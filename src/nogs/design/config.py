"""The fields of the design: which search, how sure it must be, and the shapes in which it computes."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class DesignConfig(BaseModel):
    """Where to look next (algorithm 1); how many completions there are is the completion's `kept`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    search: Literal["grid", "race", "coarse-to-fine", "bayesopt"] = "race"
    """Every location on every completion (the paper), or one of the cheaper ways to the same location."""
    overlap: float = Field(1.0, ge=0, le=1)
    """Largest share of a new glimpse that one of the earlier ones may have shown already; 1 allows any (the paper's).
    Where no location is left, the least overlap there is. Posteriors that were not trained with `overlapping` glimpses
    take what they see twice for more evidence."""
    keep_maps: bool = False
    """Keep the expected posterior entropy of every location, step and image, in maps.safetensors."""

    growth: float = Field(1.5, gt=1)
    """race: how many times as many completions each round has seen as the one before."""
    share: float = Field(1.0, gt=0, le=1)
    """race: share of the grid's evaluations that a step should not exceed; where more would be needed to be sure, the
    least promising locations are dropped. The first look at the locations that start is had in any case."""
    stride: int | None = Field(None, ge=1)
    """race, coarse-to-fine: begin with every so many-th row and column, and go on around the best of them, at half of
    it; relies on smooth maps. By default 1 (all locations) and 4."""
    slack: float = Field(0.75, ge=0)
    """race with a stride: how far below a location the map may fall between it and its neighbours, as a multiple of its
    largest difference to one of them."""
    refine: float | None = Field(None, gt=0, le=1)
    """race with a stride: after the race among every so many-th row and column a smooth map is drawn through what it
    found, and the lowest share of the grid, so large, races next. By default the neighbours of those left, as `slack`
    has it."""

    images: int = Field(32, ge=1)
    """Images annotated together, a block: the piece of work that is done by one worker and lost by a crash."""
    batch: int | None = Field(None, ge=64)
    """Evaluations of the posterior at once, always so many; by default 12,288 on a GPU and 512 elsewhere, where more
    are not taken, for a cnn in parts of 2,048 and 64; of K cross-fitted networks each is asked a K-th of it at once."""
    compile: bool = False
    """Compile the posterior (torch.compile); worth its minute for long work on a GPU."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.refine is not None and self.search == "race" and self.stride in (None, 1):
            raise ValueError("refine is for a race with a stride; give design.stride above 1, or refine None.")
        return self

    def batch_on(self, device_type: str) -> int:
        """Evaluations at once on a kind of device."""
        if device_type == "cuda":
            return self.batch or 3 << 12
        return min(self.batch or 512, 512)
