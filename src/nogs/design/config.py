"""The fields of the design: the search with its parameters, and the shapes in which it computes."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class DesignConfig(BaseModel):
    """The choice of the next location (algorithm 1); the number of completions is the completion's `kept`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    search: Literal["grid", "race", "coarse-to-fine", "bayesopt"] = "race"
    """grid (the paper) evaluates every location on every completion; the others find the location at less cost."""
    overlap: float = Field(1.0, ge=0, le=1)
    """Largest share of a new glimpse that an earlier one may have shown already; 1 allows any (the paper's). If no
    location is left, those of least overlap are allowed. A posterior that was not trained with `overlapping` glimpses
    counts pixels that it sees twice as more evidence."""
    keep_maps: bool = False
    """Keep the expected posterior entropy of every location, step and image, in maps.safetensors."""

    growth: float = Field(1.5, gt=1)
    """race: factor by which the completions seen grow from one round to the next."""
    share: float = Field(1.0, gt=0, le=1)
    """race: largest share of the grid's evaluations for a step. If more were needed, the least promising locations are
    dropped. The first round of the starting locations always takes place."""
    stride: int | None = Field(None, ge=1)
    """race, coarse-to-fine: start with every `stride`-th row and column, and continue around the best at half the
    stride; relies on smooth maps. By default 1 (all locations) and 4."""
    slack: float = Field(0.75, ge=0)
    """race with a stride: how far below a location the map may fall between it and its neighbours, as a multiple of its
    largest difference to one of them."""
    refine: float | None = Field(None, gt=0, le=1)
    """race with a stride: the share of the grid that races after every `stride`-th row and column. It is the lowest
    part of a smooth map through the results. By default, the neighbours of the locations left race, by `slack`."""

    images: int = Field(32, ge=1)
    """Images per block: the unit of work of one worker, which a crash loses."""
    batch: int | None = Field(None, ge=64)
    """Evaluations of the posterior per call, a fixed number: by default 12,288 on a GPU, and 512 elsewhere, which is
    the most there. A cnn takes them in parts of 2,048 and 64. Each of K cross-fitted networks takes a K-th per call."""
    compile: bool = False
    """Compile the posterior (torch.compile), which takes a minute and pays for long work on a GPU."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.refine is not None and self.search == "race" and self.stride in (None, 1):
            raise ValueError("refine is for a race with a stride; set design.stride above 1, or refine to None.")
        return self

    def batch_on(self, device_type: str) -> int:
        """Evaluations per call on a kind of device."""
        if device_type == "cuda":
            return self.batch or 3 << 12
        return min(self.batch or 512, 512)
