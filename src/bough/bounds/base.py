"""What a bounder is: a strategy that, prepared for one problem, bounds batches of domains and proves every bound."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bough.budget import Deadline
from bough.domain.batch import DomainBatch, Relaxed, split
from bough.problem.problem import Problem


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
        """All of several batches, in order."""
        starts = [0, *torch.tensor([len(p.domains) for p in parts]).cumsum(0).tolist()]
        return Bounded(
            DomainBatch.concatenate([p.domains for p in parts]),
            torch.cat([p.points for p in parts]),
            torch.cat([p.owners() + first for p, first in zip(parts, starts[:-1], strict=True)]),
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


class AbstractBounding(ABC):
    """A bounder at work on one problem. Results depend, up to rounding, on the domains handed in only."""

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
        """All children, next to each other, of domains split by choices [domains] or [domains, levels]."""
        return split(domains, choices)

    def estimate(self, domains: DomainBatch, neurons: Tensor, deadline: Deadline) -> Tensor:
        """What splitting each ReLU of `neurons` [domains, candidates] would make of the bound: the blocked and the
        passing child's, [domains, candidates, 2]. For choosing only, so it need not be proved.
        """
        many = domains[torch.arange(len(domains), device=neurons.device).repeat_interleave(neurons.shape[1])]
        bounded = self.bound(self.split(many, neurons.reshape(-1)), torch.inf, deadline)
        return bounded.domains.lower.reshape(*neurons.shape, 2)

    def parts(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """Lower and upper [domains, inputs] of what a domain is of its box; None where all are the whole of it."""
        del domains
        return None

    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """Input boxes, lower and upper [domains, inputs], outside of which the domains' bounds leave no unsafe point;
        None where the bounder cannot tell. For choosing only, so it need not be proved.
        """
        del domains
        return None

    def relaxed(self, domains: DomainBatch, deadline: Deadline) -> Relaxed | None:
        """What the relaxation says of domains that this bounder has bounded; None where it keeps no such thing."""
        del domains, deadline
        return None

    def evidence(self, domains: DomainBatch) -> Evidence | None:
        """What proves the bounds of domains that this bounder has bounded; None where it does not keep that."""
        del domains
        return None

    def supported(self, domains: DomainBatch, evidence: Evidence) -> Tensor | None:
        """Lower bounds, float64 [domains], that evidence for `evidence`'s slots proves, less several times what could
        be off by rounding, so that whoever derives them in another order finds them above 0, too; None: it cannot tell.
        """
        del domains, evidence
        return None

    def last_resort(self, domains: DomainBatch, deadline: Deadline) -> Evidence | None:
        """Other evidence of the same, dear to get; None where there is no more."""
        del domains, deadline
        return None

    def boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """Lower and upper sides of the domains' own boxes; None where nothing but ReLUs is split."""
        del domains
        return None

    def notes(self) -> Mapping[str, float]:
        """Figures about this bounder's own work, for the record."""
        return {}

    def pack(self, domains: DomainBatch) -> tuple[Tensor, ...]:
        """Open domains as arrays of one row each, as small as this bounder can have them."""
        return domains.columns()

    def unpack(self, columns: tuple[Tensor, ...]) -> DomainBatch:
        """Packed domains again."""
        return DomainBatch.from_columns(columns)


class AbstractBounder(ABC):
    """A frozen choice of method; `prepare` starts it on a problem."""

    @abstractmethod
    def prepare(self, problem: Problem) -> AbstractBounding:
        """Start on a problem."""
