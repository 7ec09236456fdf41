"""`race`: locations run against each other on the same completions, and those that can't win any more drop out.

After m of N completions, the difference of a location's mean over all N to the leader's is known up to the completions
not seen yet: their mean is predicted by the seen ones', with the error of a sample without replacement. A location
stays while it may still be better than the leader by more than the tolerance. After the last completion nothing is left
to chance, so a race that nobody leaves early is the grid.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from nogs.design.entropies import Entropies
from nogs.design.epe import first_minimum
from nogs.design.search import Choice, conclude, every, means, neighbours

__all__ = ["Race", "student_quantile"]

_PATIENCE = 2  # rounds between two halvings of the stride: too early, and those that join are too many


class Race:
    """Successive elimination by paired differences to the leader.

    For each location that is better than the leader by more than `tolerance` (on all completions), the chance of being
    dropped is at most 1 - `confidence`, shared evenly among the rounds: Student's quantile of normal theory. Rounds see
    `first` completions, and then each `growth` times as many as the one before. With a `stride` above 1 only some
    locations start; every other round the neighbours of those still racing join, at half the stride, down to 1.
    """

    def __init__(
        self,
        *,
        confidence: float = 0.99,
        tolerance: float = 0.002,
        first: int = 8,
        growth: float = 1.5,
        stride: int = 1,
    ) -> None:
        self.confidence, self.tolerance, self.first, self.growth = confidence, tolerance, first, growth
        self.stride = stride

    def rounds(self, completions: int) -> list[int]:
        """Completions seen after each round."""
        out, seen = [], float(self.first)
        while seen < completions:
            out.append(int(seen))
            seen = max(seen * self.growth, seen + 1)
        return [*out, completions]

    def search(self, entropies: Entropies, allowed: Bool[Tensor, "B L"]) -> Choice:
        """See `LocationSearch`. What happens to an image does not depend on those beside it."""
        shape, stride = entropies.posterior.grid.shape, self.stride
        allowed = allowed.to(entropies.values.device)
        alive = every(allowed, shape, stride)
        joined = alive.clone()
        winner = first_minimum(torch.where(alive, 0.0, torch.inf))
        rounds = self.rounds(entropies.weights.shape[1])
        for number, seen in enumerate(rounds, 1):
            racing = alive.sum(1) > 1
            entropies.fill(alive & racing[:, None], seen)
            leader, stays = self._judge(entropies, alive, seen, rounds=len(rounds))
            winner = torch.where(racing, leader, winner)
            alive = torch.where(racing[:, None], stays, alive)
            if stride > 1 and number % _PATIENCE == 0:
                stride = max(1, stride // 2)
                alive |= neighbours(alive, shape, stride) & allowed & ~joined
            elif stride == 1 < self.stride:
                alive |= neighbours(_only(winner, alive), shape, 1) & allowed & ~joined
            joined |= alive
            if stride == 1 and not (alive.sum(1) > 1).any():
                break
        settled = alive.sum(1) == 1
        while self.stride > 1:  # a neighbour that never raced may still be better
            here = _only(winner, alive)
            near = here | (neighbours(here, shape, 1) & allowed & ~joined)
            if not (near & ~here).any():
                break
            entropies.fill(near)
            joined |= near
            winner = first_minimum(means(entropies, near))
        return conclude(entropies, allowed, winner, settled=settled)

    def _judge(
        self, entropies: Entropies, alive: Bool[Tensor, "B L"], seen: int, *, rounds: int
    ) -> tuple[Int64[Tensor, " B"], Bool[Tensor, "B L"]]:
        """Each image's leader, and the locations that may still beat it, after `seen` completions."""
        weights = entropies.weights
        shown, hidden = weights[:, :seen], weights[:, seen:]
        mass = shown.sum(1, keepdim=True)
        share = shown / mass  # [B, m]
        values = torch.where((shown > 0)[..., None], entropies.values[:, :seen], 0.0)
        mean = (share[:, None] @ values.double())[:, 0]
        leader = first_minimum(torch.where(alive, mean, torch.inf))
        gaps = values.double() - values.gather(2, leader[:, None, None].expand(-1, seen, 1)).double()
        gap = (share[:, None] @ gaps)[:, 0]
        squares = share.square().sum(1, keepdim=True)
        spread = (share[:, None] @ (gaps - gap[:, None]).square())[:, 0] / (1 - squares).clamp_min(1e-12)
        # the prediction's variance: that of the mean of the hidden ones, and that of the shown ones' mean
        rest = (1 - mass).clamp_min(0)
        error = (spread * (hidden.square().sum(1, keepdim=True) + rest.square() * squares)).sqrt()
        quantile = student_quantile(self.confidence, freedom=1 / squares - 1, parts=rounds)
        # nothing hidden is nothing left to chance, even where one completion has no spread to speak of
        bound = torch.where(rest > 1e-9, quantile * error, 0.0)
        stays = alive & (gap - bound < -self.tolerance)
        return leader, stays.scatter(1, leader[:, None], True)


def _only(winner: Int64[Tensor, " B"], like: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    return torch.zeros_like(like).scatter(1, winner[:, None], True)


def student_quantile(confidence: float, *, freedom: Float64[Tensor, "*batch"], parts: int) -> Float64[Tensor, "*batch"]:
    """The quantile of Student's distribution beyond which lies (1 - confidence) / parts (Wallace's approximation)."""
    tail = torch.tensor((1 - confidence) / parts, dtype=torch.float64)
    normal = -torch.special.ndtri(tail).to(freedom.device)
    adjusted = normal * (8 * freedom + 3) / (8 * freedom + 1)
    return (freedom * torch.expm1(adjusted.square() / freedom.clamp_min(1e-3))).sqrt()
