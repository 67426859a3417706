"""What a search tells whoever writes its proof down, and what it is told back.

Bounds that are to stand in a certificate are those that the certificate itself proves; so where there is a witness, a
bounder goes on with the witness's bounds instead of its own, and a domain is closed only when the witness says so.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from bough.bounds.base import AbstractSession
from bough.bounds.trees import TreeLeaves
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch


class AbstractWitness(ABC):
    """Sees proofs, and answers with what it can prove by them."""

    @abstractmethod
    def begin(self, box: int) -> None:
        """What is told next is about this box."""

    @abstractmethod
    def ascended(self, neurons: Tensor, slots: Tensor, slopes: Tensor, proved: Tensor) -> None:
        """Lower slopes [2 m, n] of the ReLUs `slots` [n] prove lower bounds [2 m] of the inputs z of `neurons` [m] over
        the box at hand, then of -z.
        """

    @abstractmethod
    def by_trees(
        self, sides: Tensor, slots: Tensor, known: Tensor, trees: TreeLeaves, clauses: Tensor | None = None
    ) -> None:
        """Trees, with all that was split in them, bound `sides` [functionals]: twice a ReLU's number, plus one for -z.

        Their signs and duals are about the ReLUs `slots` [n]; signs `known` [functionals, n] are no splits. They hold
        over the box at hand, or each at the unsafe points of a clause [functionals].
        """

    @abstractmethod
    def root(self, box: int) -> Bounds:
        """The bounds [1, neurons] over a box, by all that was told of it."""

    @abstractmethod
    def at_unsafe(
        self, clauses: Tensor, neurons: Tensor, slots: Tensor, duals: tuple[Tensor, Tensor], proved: Tensor
    ) -> None:
        """The same at unsafe points, clause by clause: slopes [clauses, 2 m, n] with weights of its rows
        [clauses, 2 m, rows].
        """

    @abstractmethod
    def for_clauses(self, clauses: Tensor) -> Bounds:
        """The bounds [clauses, neurons] at the unsafe points of some clauses, by what was told last."""

    @abstractmethod
    def proved(self, session: AbstractSession, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Tensor:
        """The domains' lower bounds; those above the cutoff that cannot be written down come back as the cutoff."""
