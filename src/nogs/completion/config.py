"""The fields of completion: its kind, and the parameters of each kind (retrieval: algorithm 2)."""

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
    """Channels of the U-Net's first level; the next levels have twice and four times as many."""
    iterations: int = Field(20_000, ge=1)
    """Training steps."""
    batch: int = Field(64, ge=1)
    """Images per step."""
    learning_rate: float = Field(2e-4, gt=0)
    """AdamW's largest step size."""
    seconds: float | None = Field(None, gt=0)
    """Limit of the training time in seconds; such a run can't be repeated to the bit."""
    mask: bool = False
    """cgan: add a channel that marks the observed pixels, which the paper does not. A flow always has it."""
    l1: float = Field(100.0, ge=0)
    """cgan: weight of the mean absolute error besides the adversarial loss."""
    steps: int = Field(20, ge=1)
    """flow: Heun steps from noise to a completion."""


class HMCConfig(BaseModel):
    """Hamiltonian Monte Carlo in the latent space of the bank's generator; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    steps: int = Field(200, ge=1)
    """Leapfrog steps from one sample to the next."""
    step_size: float = Field(0.05, gt=0)
    """Size of a leapfrog step; NUTS starts with it and adapts it."""
    noise: float = Field(0.4, gt=0)
    """Standard deviation of an observed pixel around the generator's, in normalised units."""
    chains: int = Field(4, ge=1)
    """Chains for each image, started at different draws of the prior; each gives its share of the completions."""
    warmup: int = Field(10, ge=0)
    """Samples discarded at the start of each chain."""
    nuts: bool = False
    """Use the no-U-turn sampler, which chooses the number of steps itself."""


class CompletionConfig(BaseModel):
    """Completion of glimpses; the defaults are the paper's for CelebA-HQ, with the release's values of v."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    kind: Kind = "retrieval"
    """Method: images retrieved from the bank (the paper); the same images, moved by a Gaussian to agree with the
    glimpses; a conditional GAN; a flow conditioned on the glimpses; HMC in the latent space of the bank's generator."""
    drawn: int = Field(1000, ge=1)
    """K1: bank images drawn from the proposal, whose pixels are compared exactly."""
    kept: int = Field(200, ge=1)
    """K2: completions drawn from these images; equal ones are kept once, with their weight."""
    prior: int = Field(1000, ge=1)
    """Bank images used before the first glimpse. They decide the first location, which a task's sequences share."""
    temperatures: tuple[Annotated[float, Field(gt=0)], ...] = (5.0, 10.0, 20.0, 40.0)
    """v after 1, 2, ... glimpses in log p = -(squared distance of normalised pixels) / v; the last is kept later."""
    proposal: Literal["schedule", "tuned"] = "schedule"
    """v of the proposal: `temperatures`, or tuned so that its effective sample size is 0.8 to 1 times `drawn` (CUB)."""
    least_effective: float = Field(0.0, ge=0)
    """Minimum effective sample size of the exact comparison. Below it, v is raised for that image, until the size is
    reached or is as large as it gets. A bank without close images would otherwise leave one completion, and no
    uncertainty. 0 never raises v (the paper)."""
    flips: bool = True
    """Also compare each bank image's mirror image."""
    proposal_reach: int = Field(2, ge=0)
    """Largest shift of the proposal in px; every second one is tried; 0 for none."""
    exact_reach: int = Field(4, ge=0)
    """Largest shift of the exact comparison in px; 0 for none."""

    exact_range: Literal["centred", "one-sided"] = "centred"
    """Exact shifts from -reach to reach; the release takes them from 0 to 2 reach."""
    exact_join: Literal["product", "sum"] = "product"
    """How the likelihoods of glimpses are combined: by their product, or by their sum as in the release."""
    flipped_content: Literal["mirrored", "moved"] = "mirrored"
    """How the proposal flips a bank image: it mirrors patches and positions; the release mirrors positions alone."""

    network: NetworkConfig = NetworkConfig()
    hmc: HMCConfig = HMCConfig()

    @field_validator("temperatures")
    @classmethod
    def _some(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if not values:
            raise ValueError("give at least one value")
        return values

    def temperature(self, observed: int) -> float:
        """Temperature v after so many glimpses."""
        return self.temperatures[min(observed, len(self.temperatures)) - 1]

    @property
    def proposal_shifts(self) -> list[tuple[int, int]]:
        """Shifts (rows, columns) of the proposal."""
        reach = self.proposal_reach - self.proposal_reach % 2  # so that a shift of 0 is among them
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
