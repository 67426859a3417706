"""Branching at random among the ambiguous ReLUs: the reference that every rule must beat."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.branching.base import BLIND, AbstractBrancher, AbstractLookAhead, Decision, RuleEntry
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class RandomChoice(AbstractBrancher[Tensor]):
    """Uniform over the ambiguous ReLUs of a domain; the same seed gives the same tree."""

    seed: int = 0

    def prepare(self, problem: Problem) -> Tensor:
        """The state of a fresh generator."""
        del problem
        return torch.Generator().manual_seed(self.seed).get_state()

    def decide(self, memory: Tensor, domains: DomainBatch, look: AbstractLookAhead = BLIND) -> Decision[Tensor]:
        """Draw the ReLU of every domain."""
        del look
        generator = torch.Generator()
        generator.set_state(memory)
        ambiguous = domains.bounds.ambiguous()
        neurons = torch.multinomial(ambiguous.double().cpu(), 1, generator=generator)[:, 0]
        return Decision(neurons.to(ambiguous.device), generator.get_state())


RULES = (
    RuleEntry(
        name="random",
        words="any ambiguous ReLU, by --seed",
        comparison=True,
        make=lambda settings: RandomChoice(settings.seed),
        draws=True,
    ),
)
