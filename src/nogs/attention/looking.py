"""`Looking`: the interface of every network that looks glimpse by glimpse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

if TYPE_CHECKING:
    from nogs.glimpse import Grid

__all__ = ["Looking"]


class Looking(nn.Module):
    """M networks, each with a state: `start` it, choose by `location_logits`, `see` a glimpse, `classify`.

    `architecture` has grid, glimpses, labels, the size of a state (hidden) and the kind of embedder.
    """

    architecture: Any
    pixels: Tensor
    coordinates: Tensor
    policy: Literal["sample", "argmax"] = "sample"
    """How locations are chosen by default."""

    def __len__(self) -> int:
        return 1

    def enough(self, trajectories: int) -> int:
        """How many of so many trajectories an image needs: one, if the network's default policy draws nothing."""
        return trajectories if self.policy == "sample" else 1

    @property
    def grid(self) -> Grid:
        """Image size, glimpse size and allowed locations."""
        found: Grid = self.architecture.grid
        return found

    def start(self, batch: int) -> Float[Tensor, "M B H"]:
        """The state before any glimpse."""
        raise NotImplementedError

    def see(
        self, state: Float[Tensor, "M B H"], glimpses: UInt8[Tensor, "M B g g 3"], locations: Int[Tensor, "M B"]
    ) -> Float[Tensor, "M B H"]:
        """The state after seeing a glimpse at each location (grid indices)."""
        raise NotImplementedError

    def location_logits(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B L"]:
        """Unnormalised log-probabilities of the next location."""
        raise NotImplementedError

    def classify(self, state: Float[Tensor, "M B H"]) -> Float[Tensor, "M B K"]:
        """Unnormalised log-probabilities of the labels."""
        raise NotImplementedError
