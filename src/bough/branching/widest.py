"""The ambiguous ReLU whose input has the widest bounds: a reference that looks at the relaxation, not at its effect."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from bough.branching.base import AbstractScoring, RuleEntry
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class Widest(AbstractScoring[None]):
    """The greatest u - l; of equals the ReLU with the lowest number."""

    def prepare(self, problem: Problem) -> None:
        """Nothing to remember."""
        del problem

    def scores(self, memory: None, domains: DomainBatch) -> Tensor:
        """Every ReLU's width."""
        del memory
        return domains.bounds.upper - domains.bounds.lower


RULES = (
    RuleEntry(
        name="widest",
        words="the ambiguous ReLU with the widest bounds",
        comparison=True,
        make=lambda settings: Widest(),
    ),
)
