"""What a bounder is: a strategy that, prepared for one problem, bounds batches of domains and proves every bound."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from bough.budget import Deadline
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Bounded:
    """Domains with proved lower bounds (infinite where nothing is left), and an input point of each worth trying."""

    domains: DomainBatch
    points: Tensor  # float64 [domains, inputs], inside the box


class AbstractBounding(ABC):
    """A bounder at work on one problem. Results depend on the domains handed in only, not on what was bounded
    before.
    """

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
