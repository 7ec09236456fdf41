"""`DataConfig`: all settings that determine a task's prepared images, labels, splits and locations."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from nogs.glimpse import Grid
from nogs.runtime.errors import InputError


class DataConfig(BaseModel):
    """The data part of a recipe. The folder of the files is not part of it, but an argument of `load_task`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["celeba-hq", "cub", "folder", "digits"] = Field(description="Which loader reads the data.")
    image_size: int = Field(ge=1, description="Side of the prepared square images, in pixels.")
    glimpse: int = Field(ge=1, description="Side of a glimpse, in pixels.")
    grid_count: int | None = Field(
        default=None, ge=1, description="Locations per axis; with grid_spacing, the largest number."
    )
    grid_last: int | None = Field(
        default=None, ge=0, description="Last position on an axis, in pixels; by default the largest that fits."
    )
    grid_spacing: int | None = Field(
        default=None, ge=1, description="Pixels between locations; by default they are spaced evenly."
    )
    annotated: int = Field(default=600, ge=0, description="Number of training images that get glimpse sequences.")
    split_seed: int = Field(default=0, description="Seed of the splits that are drawn at random (cub, folder).")
    skip_corrupt: bool = Field(
        default=False, description="Skip pictures that can't be read; a run that skipped some records it here."
    )

    labels: str | None = Field(
        default=None, description="folder: CSV of labels, relative to the data; by default class folders."
    )
    image_column: str = Field(default="image", description="folder: column of the CSV with the image's path.")
    label_column: str = Field(default="label", description="folder: column of the CSV with the label.")
    split_column: str = Field(
        default="split", description="folder: column with train, validation or test, used if it exists."
    )
    validation_share: float = Field(default=0.1, gt=0, lt=1, description="folder: share of the images for validation.")
    test_share: float = Field(default=0.2, gt=0, lt=1, description="folder: share of the images for testing.")
    fit: Literal["crop", "pad", "stretch"] = Field(
        default="crop", description="folder: how a picture becomes square: centre crop, black borders, or stretched."
    )

    count: int = Field(default=10_000, ge=1, le=10**7, description="digits: number of images.")
    fragments: int = Field(default=8, ge=0, description="digits: fragments of other digits on each image.")

    @property
    def grid(self) -> Grid:
        """The allowed locations: `grid_spacing` px apart if it is given, else `grid_count` evenly placed ones."""
        if self.grid_spacing is not None:
            return Grid.spaced(
                image=self.image_size, glimpse=self.glimpse, spacing=self.grid_spacing, count=self.grid_count
            )
        assert self.grid_count is not None
        return Grid.even(image=self.image_size, glimpse=self.glimpse, count=self.grid_count, last=self.grid_last)

    def check_glimpses(self, glimpses: int) -> None:
        """Refuse more glimpses than there are locations."""
        if glimpses > len(self.grid):
            raise InputError(
                f"--glimpses is {glimpses}, but the grid has only {len(self.grid)} locations; lower --glimpses or "
                "--data.grid-spacing."
            )

    def remembering(self, skipped: bool) -> Self:
        """A copy that records whether pictures were skipped, for a run's recipe but not its fingerprint."""
        return self.model_copy(update={"skip_corrupt": skipped})

    @model_serializer(mode="wrap")
    def _dump(self, fields: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write `skip_corrupt` only into files and only if true: recipes that differ in it count as the same."""
        out: dict[str, Any] = fields(self)
        if not self.skip_corrupt or info.mode != "json":
            del out["skip_corrupt"]
        return out

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.grid_count is None and self.grid_spacing is None:
            raise ValueError("The data needs grid_count or grid_spacing, to say where glimpses may lie.")
        if self.grid_last is not None and self.grid_spacing is not None:
            raise ValueError("grid_last and grid_spacing exclude each other; leave one of them out.")
        if self.validation_share + self.test_share >= 1:
            raise ValueError("validation_share and test_share must leave images for training: their sum is 1 or more.")
        _ = self.grid  # a grid that does not fit is refused here, not hours later
        return self


CELEBA_HQ = DataConfig(kind="celeba-hq", image_size=224, glimpse=16, grid_count=50, grid_last=207, annotated=600)
"""The paper's CelebA-HQ: 224 px, 16 px glimpses at 50 x 50 locations, 600 annotated images."""

CUB = DataConfig(kind="cub", image_size=128, glimpse=32, grid_count=13, grid_spacing=8, annotated=1000)
"""The paper's CUB: 128 px, 32 px glimpses at 13 x 13 locations (grid_count 12 is the paper's text), 1,000 annotated."""
