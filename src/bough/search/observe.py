"""Observers see each state of a search and change nothing: progress lines, traces, labels."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bough.branching.base import LookAhead
    from bough.domain.batch import DomainBatch
    from bough.search.loop import SearchState


class AbstractObserver(ABC):
    """Sees every state the search goes through."""

    @abstractmethod
    def seen(self, state: "SearchState", seconds: float) -> None:
        """A step has ended, so many seconds after the search began."""

    def deciding(self, domains: "DomainBatch", look: "LookAhead") -> None:
        """These domains are about to be split. What is looked at here is not counted, and changes nothing."""
        del domains, look

    def told(self, line: str, seconds: float) -> None:
        """A line about work that has no states to look at, such as somebody else's solver's."""
        del line, seconds
