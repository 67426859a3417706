"""The first ambiguous ReLU of the earliest layer that has one: a reference that looks at nothing."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.branching.base import AbstractScoring, RuleEntry
from bough.domain.batch import DomainBatch
from bough.problem.problem import Problem


@final
@dataclass(frozen=True)
class Earliest(AbstractScoring[None]):
    """In the order of the network, as a program that knows no better goes through its ReLUs."""

    def prepare(self, problem: Problem) -> None:
        """Nothing to remember."""
        del problem

    def scores(self, memory: None, domains: DomainBatch) -> Tensor:
        """ReLUs are numbered layer after layer, so the lowest number is the earliest."""
        del memory
        number = torch.arange(domains.signs.shape[1], device=domains.signs.device)
        return -number.double().expand(domains.signs.shape)


RULES = (
    RuleEntry(
        name="earliest",
        words="the first ambiguous ReLU of the earliest layer that has one",
        comparison=True,
        make=lambda settings: Earliest(),
    ),
)
