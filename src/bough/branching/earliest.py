"""The first ambiguous ReLU of the earliest layer that has one: a reference that looks at nothing."""

from dataclasses import dataclass
from typing import final

import torch

from bough.branching.base import BLIND, AbstractBrancher, Decision, LookAhead, highest
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class Earliest(AbstractBrancher):
    """In the order of the network, as a program that knows no better goes through its ReLUs."""

    def prepare(self, problem: Problem) -> None:
        """Nothing to remember."""
        del problem

    def decide(self, memory: None, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """ReLUs are numbered layer after layer, so the lowest number is the earliest."""
        ambiguous = domains.bounds.ambiguous()
        number = torch.arange(ambiguous.shape[1], device=ambiguous.device)
        return Decision(highest(-number.double().expand(ambiguous.shape), ambiguous, look.levels), memory)
