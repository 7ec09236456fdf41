"""The fields of completion: what makes it, and by retrieval how (algorithm 2)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Kind = Literal["retrieval", "corrected", "cgan", "flow", "hmc"]
LEARNED = ("cgan", "flow")
"""Kinds that nogs bank build trains a network for."""


class NetworkConfig(BaseModel):
    """The network of a learned completion: a conditional GAN (pix2pix) or a flow."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    width: int = Field(64, ge=8)
    """Channels of the U-Net's first level; twice and four times as many further in."""
    iterations: int = Field(20_000, ge=1)
    """Training steps."""
    batch: int = Field(64, ge=1)
    """Images a step."""
    learning_rate: float = Field(2e-4, gt=0)
    """AdamW's largest step size."""
    seconds: float | None = Field(None, gt=0)
    """Train for so many seconds at most; such a run can't be repeated to the bit."""
    mask: bool = False
    """cgan: say which pixels were observed in a channel of its own; the paper does not. A flow always does."""
    l1: float = Field(100.0, ge=0)
    """cgan: weight of the mean absolute error beside the adversarial loss."""
    steps: int = Field(20, ge=1)
    """flow: Heun steps from noise to a completion."""


class HMCConfig(BaseModel):
    """Hamiltonian Monte Carlo in the latent space of the bank's generator; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    steps: int = Field(200, ge=1)
    """Leapfrog steps from one sample to the next."""
    step_size: float = Field(0.05, gt=0)
    """Their size; NUTS begins with it and adapts it."""
    noise: float = Field(0.4, gt=0)
    """Standard deviation of an observed pixel, normalised, around the generator's."""
    chains: int = Field(4, ge=1)
    """Chains for each image, from different draws of the prior; each gives its share of the completions."""
    warmup: int = Field(10, ge=0)
    """Samples at the start of each chain that are thrown away."""
    nuts: bool = False
    """The no-U-turn sampler, which chooses the number of steps itself."""


class CompletionConfig(BaseModel):
    """Completion of glimpses; the defaults are the paper's for CelebA-HQ, with the release's values of v."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: Kind = "retrieval"
    """What completes glimpses: images retrieved from the bank (the paper); those, moved by a Gaussian to agree with the
    glimpses; a conditional GAN; a flow conditioned on the glimpses; HMC in the latent space of the bank's generator."""
    drawn: int = Field(1000, ge=1)
    """K1: bank images drawn from the proposal, whose pixels are compared exactly."""
    kept: int = Field(200, ge=1)
    """K2: completions drawn from those; equal ones are kept once, with their weight."""
    prior: int = Field(1000, ge=1)
    """Images of the bank before anything is seen. The first location is chosen with them once for a whole task, and a
    mistake there is in all of its sequences."""
    temperatures: tuple[Annotated[float, Field(gt=0)], ...] = (5.0, 10.0, 20.0, 40.0)
    """v after 1, 2, ... glimpses in log p = -(squared distance of normalised pixels) / v; the last one holds on."""
    proposal: Literal["schedule", "tuned"] = "schedule"
    """v of the proposal: the same, or searched so that its effective sample size is 0.8 to 1 times `drawn` (CUB)."""
    least_effective: float = Field(0.0, ge=0)
    """Effective sample size below which v of the exact comparison is raised, image by image, until it is reached or
    as near as can be: from a bank that holds nothing close, one completion would be left else, and no uncertainty.
    0 never raises it (the paper)."""
    flips: bool = True
    """Compare each bank image's mirror image as well."""
    proposal_reach: int = Field(2, ge=0)
    """Farthest shift of the proposal in px, of which every second is tried; 0 for none."""
    exact_reach: int = Field(4, ge=0)
    """Farthest shift of the exact comparison in px; 0 for none."""

    exact_range: Literal["centred", "one-sided"] = "centred"
    """Exact shifts from -reach to reach; the release takes them from 0 to 2 reach."""
    exact_join: Literal["product", "sum"] = "product"
    """How glimpses join: the product of their likelihoods; the release adds them up."""
    flipped_content: Literal["mirrored", "moved"] = "mirrored"
    """A flipped bank image in the proposal: mirrored; the release moves the patch and leaves its content as it was."""

    network: NetworkConfig = NetworkConfig()
    hmc: HMCConfig = HMCConfig()

    @field_validator("temperatures")
    @classmethod
    def _some(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values:
            raise ValueError("give at least one value")
        return values

    def temperature(self, observed: int) -> float:
        """V after so many glimpses."""
        return self.temperatures[min(observed, len(self.temperatures)) - 1]

    @property
    def proposal_shifts(self) -> list[tuple[int, int]]:
        """Shifts (rows, columns) of the proposal."""
        reach = self.proposal_reach - self.proposal_reach % 2  # so that no shift is one of them
        return _square(-reach, reach, step=2)

    @property
    def exact_shifts(self) -> list[tuple[int, int]]:
        """Shifts (rows, columns) of the exact comparison."""
        if self.exact_range == "one-sided":
            return _square(0, 2 * self.exact_reach)
        return _square(-self.exact_reach, self.exact_reach)


def _square(first: int, last: int, step: int = 1) -> list[tuple[int, int]]:
    steps = range(first, last + 1, step)
    return [(row, column) for row in steps for column in steps]
