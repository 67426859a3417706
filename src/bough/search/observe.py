"""Observers see each state of a search and change nothing: progress lines, traces, labels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from bough.branching.base import AbstractLookAhead, Decision
    from bough.domain.batch import DomainBatch
    from bough.search.loop import SearchState


@dataclass(frozen=True, eq=False)
class Split:
    """How the domains of a step were split; domains are known by the numbers that the frontier gave them."""

    domains: "DomainBatch"
    numbers: Tensor  # int64 [domains]
    choices: Tensor  # int64 [domains]: ReLUs by their flat numbers, beyond them what else the bounder splits
    order: Tensor  # int64 [domains]: whose children come first, second, ...: rows of `domains`
    decision: "Decision[Any]"  # what the rule said, which `choices` need not follow


@dataclass(frozen=True, eq=False)
class Family:
    """What one step made: the children of its domains, those of one parent next to each other, as they were absorbed;
    or the roots.
    """

    children: "DomainBatch"  # with their bounds
    closed: Tensor  # bool [children]
    opened: Tensor  # bool [children]; what is neither is stuck
    first: int  # number of the first child that was opened; the others have those that follow
    cutoff: float
    split: Split | None = None  # None: these are the roots


class AbstractObserver(ABC):
    """Sees every state the search goes through."""

    @abstractmethod
    def seen(self, state: "SearchState", seconds: float) -> None:
        """A step has ended, so many seconds after the search began."""

    def deciding(self, domains: "DomainBatch", look: "AbstractLookAhead") -> None:
        """These domains are about to be split. What is looked at here is not counted, and changes nothing."""
        del domains, look

    def born(self, family: Family) -> None:
        """These domains were bounded and taken in; the step's `seen` follows."""
        del family

    def told(self, line: str, seconds: float) -> None:
        """A line about work that has no states to look at, such as somebody else's solver's."""
        del line, seconds
