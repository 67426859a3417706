"""What a bounder is: a strategy that, prepared for one problem, bounds batches of domains and proves every bound.

A session has to do six things. What only some sessions can do are capabilities: typed objects that a session hands
over (`AbstractSession.capabilities`), so that whoever needs one can see before a search whether it is there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from bough.bounds.intermediate import AbstractIntermediate
from bough.budget import Deadline
from bough.domain.arrays import Arrays
from bough.domain.batch import DomainBatch, InputParts, Relaxation, split
from bough.network.graph import Network
from bough.problem.problem import Problem
from bough.registry import Entry, Registry

if TYPE_CHECKING:
    from bough.bounds.witness import AbstractWitness


class Capability(Enum):
    """What a bounder may offer and a rule or an option may need; each value says it in words."""

    ESTIMATES = "cheap estimates of children"
    RELAXATION = "the multipliers of a relaxation"
    EVIDENCE = "evidence for certificates"
    INPUT_PARTS = "inputs that can be halved"
    SHADOW_PRICES = "an LP's shadow prices"
    UNSAFE_BOXES = "boxes around unsafe points"
    DEEPER_ROOTS = "tighter roots for more work"


@dataclass(frozen=True, eq=False)
class Bounded:
    """Domains with proved lower bounds (infinite where nothing is left), and input points of some worth trying."""

    domains: DomainBatch
    points: Tensor  # float64 [points, inputs], inside the box
    of: Tensor | None = None  # int64 [points]: the domain of each point; None where each domain has its own, in order

    def owners(self) -> Tensor:
        """The domain of each point."""
        return torch.arange(len(self.points), device=self.points.device) if self.of is None else self.of

    def __getitem__(self, rows: Tensor) -> "Bounded":
        """Some of the domains, by their numbers (int64), with their points."""
        if self.of is None:
            return Bounded(self.domains[rows], self.points[rows])
        place = torch.full((len(self.domains),), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        owners = place[self.of]
        return Bounded(self.domains[rows], self.points[owners >= 0], owners[owners >= 0])

    @staticmethod
    def concatenate(parts: Sequence["Bounded"]) -> "Bounded":
        """All domains of several batches, in order, with their points."""
        starts = [0, *torch.tensor([len(part.domains) for part in parts]).cumsum(0).tolist()]
        return Bounded(
            DomainBatch.concatenate([part.domains for part in parts]),
            torch.cat([part.points for part in parts]),
            torch.cat([part.owners() + first for part, first in zip(parts, starts[:-1], strict=True)]),
        )


@dataclass(frozen=True, eq=False)
class Evidence:
    """What proves the bounds of a batch of domains: weights of the rows, and numbers [domains, n] about `slots`.

    Of a ReLU that is not split the number is the slope of its lower line, of one that is split the multiplier of its
    sign; or, where they are `direct`, all are coefficients on the ReLUs' inputs, NaN where the bounds say enough.
    """

    slots: Tensor  # int64 [n], ascending
    numbers: Tensor
    weights: Tensor  # [domains, rows]
    direct: bool = False

    def __getitem__(self, rows: Tensor) -> "Evidence":
        return Evidence(self.slots, self.numbers[rows], self.weights[rows], self.direct)


class AbstractEstimates(ABC):
    """Knows, more cheaply than by bounding them, about where children's bounds would be."""

    @abstractmethod
    def estimate(self, domains: DomainBatch, choices: Tensor, deadline: Deadline) -> Tensor:
        """What splitting each of the choices [domains, candidates] would make of the bound: the first and the second
        child's, [domains, candidates, 2]. For choosing only, so it need not be proved.
        """


class AbstractRelaxations(ABC):
    """Keeps what the relaxation says of domains that were bounded."""

    @abstractmethod
    def relaxed(self, domains: DomainBatch, deadline: Deadline) -> Relaxation:
        """Multipliers and primal values of the domains' relaxation."""


class AbstractEvidence(ABC):
    """Has domains whose proofs can be written down: by what is kept of them, or derived again by whoever reads."""

    @abstractmethod
    def stored(self, domains: DomainBatch) -> Evidence | None:
        """What proves the domains' bounds; None where the session does not keep that."""

    def supported(self, domains: DomainBatch, evidence: Evidence) -> Tensor | None:
        """Lower bounds, float64 [domains], that evidence for `evidence`'s slots proves, less several times what could
        be off by rounding, so that whoever derives them in another order finds them above 0, too; None: it cannot tell.
        """
        del domains, evidence
        return None

    def last_resort(self, domains: DomainBatch, deadline: Deadline) -> Evidence | None:
        """Other evidence of the same bounds, dear to get; None where there is none."""
        del domains, deadline
        return None


class AbstractInputParts(ABC):
    """Has domains with boxes of their own, whose inputs can be halved: choice `neurons + k` halves input k."""

    @abstractmethod
    def parts(self, domains: DomainBatch) -> InputParts:
        """The boxes that the domains carry."""


class AbstractUnsafeBoxes(ABC):
    """Knows where in the input space unsafe points can be."""

    @abstractmethod
    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor]:
        """Input boxes, lower and upper [domains, inputs], outside of which the domains' bounds leave no unsafe point.
        For choosing only, so it need not be proved.
        """


class AbstractDeeperRoots(ABC):
    """Knows tighter bounds of its roots, for more work."""

    @abstractmethod
    def deepened(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """The roots again and again, each time with the bounds of more work, as long as it is likely to pay."""

    @abstractmethod
    def tighten(self, branches: int, cutoff: float, deadline: Deadline) -> None:
        """Tighten what the open domains of a search stand on, if it is time to after so many branches."""


@dataclass(frozen=True)
class Capabilities:
    """What a session can do beside bounding; None: it cannot."""

    estimates: AbstractEstimates | None = None
    relaxations: AbstractRelaxations | None = None
    evidence: AbstractEvidence | None = None
    input_parts: AbstractInputParts | None = None
    unsafe_boxes: AbstractUnsafeBoxes | None = None
    deeper_roots: AbstractDeeperRoots | None = None


class AbstractSession(ABC):
    """A bounder at work on one problem. Results depend, up to rounding, on the domains handed in only."""

    @property
    def capabilities(self) -> Capabilities:
        """What this session can do beside bounding."""
        return Capabilities()

    @abstractmethod
    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """One domain per clause: its whole box."""

    @abstractmethod
    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """The same domains with their lower bounds; those above `cutoff` need not be as high as they could be."""

    def splittable(self, domains: DomainBatch) -> Tensor:
        """Which choices there are, bool [domains, choices]: ReLUs by their flat numbers, and what else a bounder can
        split beyond them. A domain without any cannot be worked on.
        """
        return domains.bounds.ambiguous()

    def split(self, domains: DomainBatch, choices: Tensor) -> DomainBatch:
        """Both children, next to each other, of domains split by choices [domains]."""
        return split(domains, choices)

    def pack(self, domains: DomainBatch) -> Arrays:
        """Open domains as arrays of one row each, as small as this bounder can have them."""
        return domains.settled()

    def unpack(self, packed: Arrays) -> DomainBatch:
        """Packed domains again."""
        if not isinstance(packed, DomainBatch):
            raise TypeError(f"{type(packed).__name__} was packed by another bounder")
        return packed

    def notes(self) -> Mapping[str, float]:
        """Figures about this session's own work, for the record."""
        return {}


def deepest_root(session: AbstractSession, cutoff: float, deadline: Deadline) -> Bounded:
    """The session's roots after all the work on them that pays."""
    roots = session.root(cutoff, deadline)
    work = session.capabilities.deeper_roots
    if work is not None:
        for better in work.deepened(roots, cutoff, deadline):
            roots = better
    return roots


class AbstractBounder(ABC):
    """A frozen choice of method; `prepare` starts it on a problem."""

    offers: ClassVar[frozenset[Capability]] = frozenset()
    """What the sessions of this bounder are capable of."""

    device: str = "cpu"

    intermediate: AbstractIntermediate | None = None
    """The policy of its ReLU bounds, where it has one."""

    @abstractmethod
    def prepare(self, problem: Problem, witness: "AbstractWitness | None" = None) -> AbstractSession:
        """Start on a problem. A witness is told what proves root bounds; what it wrote down of them replaces them."""


@dataclass(frozen=True)
class BounderSettings:
    """What a bounder is made from when it is asked for by name."""

    relu_bounds: AbstractIntermediate
    device: str = "cpu"
    halves: bool = False  # whether the branching rule halves inputs


@dataclass(frozen=True, kw_only=True)
class BounderEntry(Entry):
    """A bounder by name, and what goes with it unless something else is asked for."""

    make: Callable[[BounderSettings], AbstractBounder]
    offers: frozenset[Capability]
    halved: frozenset[Capability] = frozenset()  # what it offers to rules that halve inputs; nothing: it cannot
    usual_rule: str
    usual_relu_bounds: str | None  # None: it takes none, and to ask for some is refused
    certified_relu_bounds: str | None  # the same where a certificate is asked for
    batch: Callable[[Network, str], int]  # domains split per step, by the network and the device
    learnt_rule: str | None = None  # instead of the usual rule, where weights are for such networks
    gpu: bool = False  # whether it runs on a GPU

    def offered(self, needs: frozenset[Capability]) -> frozenset[Capability]:
        """What it offers to a rule with these needs."""
        return self.halved if Capability.INPUT_PARTS in needs else self.offers


KNOWN_BOUNDERS = Registry("bounds", "BOUNDERS", ("bough.bounds",), BounderEntry)
