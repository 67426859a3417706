"""What a bounder is: a strategy that, prepared for one problem, bounds batches of domains and proves every bound."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Bounded:
    """Domains with proved lower bounds (infinite where nothing is left), and an input point of each worth trying."""

    domains: DomainBatch
    points: Tensor  # float64 [domains, inputs], inside the box

    @staticmethod
    def concatenate(parts: Sequence["Bounded"]) -> "Bounded":
        """All of several batches, in order."""
        return Bounded(DomainBatch.concatenate([p.domains for p in parts]), torch.cat([p.points for p in parts]))


class AbstractBounding(ABC):
    """A bounder at work on one problem. Results depend, up to rounding, on the domains handed in only."""

    @abstractmethod
    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """One domain per clause: its whole box."""

    @abstractmethod
    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """The same domains with their lower bounds; those above `cutoff` need not be as high as they could be."""


class AbstractBounder(ABC):
    """A frozen choice of method; `prepare` starts it on a problem."""

    @abstractmethod
    def prepare(self, problem: Problem) -> AbstractBounding:
        """Start on a problem."""
