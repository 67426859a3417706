"""How a linear functional passes a ReLU: the choice of slopes, and what any choice costs.

Glossary, at one ReLU with input z in [l, u] and output x = max(z, 0): `nu` is the functional's coefficient on x,
`lam` the coefficient it is given on z. For *every* lam the functional loses at most `min over the ReLU's graph of nu
x - lam z`, which is attained at z in {l, 0, u}. So slopes, LP multipliers and rounded numbers are all valid; they
differ only in what they lose.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor


class AbstractSlopes(ABC):
    """A rule for `lam` at ambiguous ReLUs when a functional is bounded from below."""

    symmetric: ClassVar[bool]
    """Whether `lam` of -nu is minus that of nu, so that one pass bounds a functional from both sides."""

    @abstractmethod
    def __call__(self, nu: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """`lam` for coefficients `nu` [..., neurons], at ReLUs with `lower < 0 < upper`."""


@final
@dataclass(frozen=True)
class ParallelSlopes(AbstractSlopes):
    """Both lines with the slope of the chord (Fast-Lin, Wong & Kolter; the paper's Figure 1b)."""

    symmetric: ClassVar[bool] = True

    def __call__(self, nu: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The chord's slope times nu."""
        return nu * chord(lower, upper)


@final
@dataclass(frozen=True)
class AdaptiveSlopes(AbstractSlopes):
    """The chord from above; from below the line through 0 of slope 0 or 1 that cuts off less (CROWN, Zhang et al.
    2018).
    """

    symmetric: ClassVar[bool] = False  # each side takes another line

    def __call__(self, nu: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        """The chord where nu is negative, else slope 0 or 1."""
        return nu * torch.where(nu < 0, chord(lower, upper), (upper > -lower).to(nu.dtype))


def chord(lower: Tensor, upper: Tensor) -> Tensor:
    """Slope of the line from (l, 0) to (u, u), for any l <= u: 0 for blocked ReLUs, 1 for passing ones (facts 3.1)."""
    above, below = upper.clamp(min=0), lower.clamp(max=0)
    # Only l = u = 0 has no chord; any slope is right there.
    width = above - below
    return torch.where(width > 0, above / torch.where(width > 0, width, torch.ones_like(width)), torch.ones_like(width))


def extremes(
    nu: Tensor, lam: Tensor, lower: Tensor, upper: Tensor, *, below_only: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Least and greatest value of `nu x - lam z` over x = max(z, 0), z in [lower, upper]; or the least only."""
    at_lower = nu * lower.relu() - lam * lower
    at_upper = nu * upper.relu() - lam * upper
    kink = torch.minimum(torch.maximum(lower, torch.zeros_like(lower)), upper)
    at_kink = nu * kink.relu() - lam * kink
    least = torch.minimum(torch.minimum(at_lower, at_upper), at_kink)
    if below_only:
        return least, None
    greatest = torch.maximum(torch.maximum(at_lower, at_upper), at_kink)
    return least, greatest
