"""What a branching rule is: a strategy that says, for each domain of a batch, which ReLU to split.

Rules have two clocks: `prepare` once per problem, `decide` at every step. A rule can only cost time: whatever it
answers, the search stays right, and a choice that cannot be split is replaced.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class Decision:
    """One ReLU per domain (flat number, int64 [domains]), and what the rule wants to remember for its next decision."""

    neurons: Tensor
    memory: Any


class AbstractBrancher(ABC):
    """A branching rule; its fields are its configuration, and what it remembers travels through the search's state."""

    @abstractmethod
    def prepare(self, problem: Problem) -> Any:
        """What the rule remembers before its first decision."""

    @abstractmethod
    def decide(self, memory: Any, domains: DomainBatch) -> Decision:
        """Choose an ambiguous ReLU in every domain; each of them has one."""
