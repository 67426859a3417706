"""Branching at random among the ambiguous ReLUs: the reference that every rule must beat."""

from dataclasses import dataclass
from typing import final

import torch

from bough.branching.base import BLIND, AbstractBrancher, Decision, LookAhead
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class RandomChoice(AbstractBrancher):
    """Uniform over the ambiguous ReLUs of a domain; the same seed gives the same tree."""

    seed: int = 0

    def prepare(self, problem: Problem) -> torch.Tensor:
        """The state of a fresh generator."""
        del problem
        return torch.Generator().manual_seed(self.seed).get_state()

    def decide(self, memory: torch.Tensor, domains: DomainBatch, look: LookAhead = BLIND) -> Decision:
        """Draw the ReLUs of every domain."""
        generator = torch.Generator()
        generator.set_state(memory)
        ambiguous = domains.bounds.ambiguous()
        neurons = torch.multinomial(ambiguous.double().cpu(), look.levels, generator=generator).to(ambiguous.device)
        return Decision(neurons, generator.get_state())
