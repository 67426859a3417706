"""The ambiguous ReLU whose input has the widest bounds: a reference that looks at the relaxation, not at its effect."""

from dataclasses import dataclass
from typing import final

from bough.branching.base import BLIND, AbstractBrancher, Decision, LookAhead, highest
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class Widest(AbstractBrancher):
    """The greatest u - l; of equals the ReLU with the lowest number."""

    def prepare(self, problem: Problem) -> None:
        """Nothing to remember."""
        del problem

    def decide(self, memory: None, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """Compare widths."""
        bounds = domains.bounds
        return Decision(highest(bounds.upper - bounds.lower, bounds.ambiguous(), look.levels), memory)
