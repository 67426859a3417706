"""What a falsifier is: it proposes points, never verdicts."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import Tensor

from bough.budget import Deadline
from bough.problem.problem import Problem


class AbstractFalsifier(ABC):
    """Proposes points worth trying."""

    @abstractmethod
    def candidates(self, problem: Problem, deadline: Deadline, turn: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Box numbers and points [n, inputs] of that box, the most promising of each kind as soon as it is known.

        `turn` counts the attacks of one search; a later one tries other points.
        """


@final
@dataclass(frozen=True)
class NoAttack(AbstractFalsifier):
    """A falsifier that leaves all to the search."""

    def candidates(self, problem: Problem, deadline: Deadline, turn: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Propose no points at all."""
        del problem, deadline, turn
        return iter(())
