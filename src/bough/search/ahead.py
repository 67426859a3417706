"""What a branching rule's look-ahead costs: the bounder's answers about children that are not there yet, counted."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounding, Bounded
from bough.branching.base import LookAhead
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, Relaxed
from bough.search.stopwatch import Stopwatch

MOST_RELUS = 1 << 21  # of all children bounded together, unless the search's own batch has more


@dataclass
class Counted:
    """Bounds of children, counted: every one is a bound that the search paid for."""

    bounding: AbstractBounding
    deadline: Deadline
    cutoff: float = 0.0
    batch: int = 1  # domains whose children the search itself bounds together
    domains: DomainBatch | None = None  # those of the step
    deciding: Stopwatch = field(default_factory=Stopwatch)  # stands still while children are bounded that may be kept
    count: int = 0
    _kept: list[tuple[Tensor, Tensor, Bounded]] = field(default_factory=list, init=False)  # domains, ReLUs, children

    def look(self, levels: int = 1) -> LookAhead:
        """What a rule is handed."""
        unsafe_boxes = self.bounding.unsafe_boxes
        return LookAhead(self.estimate, levels, unsafe_boxes, self.bound, self.cutoff, self.relaxed, self.children)

    def estimate(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """Cheap bounds of both children of every candidate."""
        self.count += 2 * neurons.numel()
        return self.bounding.estimate(domains, neurons, self.deadline)

    def bound(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """Proved bounds of both children of every candidate, many domains and candidates at a time."""
        found = domains.lower.new_full((*neurons.shape, 2), -torch.inf)
        at, column = self.bounding.splittable(domains).gather(1, neurons).nonzero(as_tuple=True)
        self.count, most = self.count + 2 * len(at), self._most(domains)
        for first in range(0, len(at), most):
            self.deadline.check()
            piece = slice(first, first + most)
            children = self.bounding.split(domains[at[piece]], neurons[at[piece], column[piece]])
            bounded = self.bounding.bound(children, self.cutoff, self.deadline).domains.lower
            # What is not a number proves nothing, and a child is part of its parent.
            found[at[piece], column[piece]] = torch.fmax(bounded, children.lower).reshape(-1, 2)
        return found

    def children(self, rows: Tensor, neurons: Tensor) -> Tensor:
        """Proved bounds of both children of the step's domains `rows`, split at `neurons`; kept for `split`."""
        domains = self._step()
        found = domains.lower.new_full((len(rows), 2), -torch.inf)
        can = self.bounding.splittable(domains)[rows].gather(1, neurons[:, None])[:, 0].nonzero()[:, 0]
        if len(can):
            with self.deciding.off(domains.lower.device):
                children = self.bounding.split(domains[rows[can]], neurons[can])
                bounded = self.bounding.bound(children, self.cutoff, self.deadline)
            found[can] = torch.fmax(bounded.domains.lower, children.lower).reshape(-1, 2)
            self._kept.append((rows[can], neurons[can], bounded))
            self.count += len(children)
        return found

    def split(self, neurons: Tensor) -> tuple[Bounded, Tensor]:
        """The children of the step's domains, split at `neurons` [domains, levels], bounded, with those that were
        looked at already; and whose they are, int64 [domains]: rows of the domains in the order of their children. A
        rule only names numbers, so whatever it does these are the children of these domains.
        """
        domains = self._step()
        left, parts, order = torch.ones(len(domains), dtype=torch.bool, device=neurons.device), [], []
        for rows, tried, bounded in self._kept if neurons.shape[1] == 1 else ():
            same = (left[rows] & (neurons[rows, 0] == tried)).nonzero()[:, 0]
            left[rows[same]] = False
            if len(same):
                order.append(rows[same])
                parts.append(bounded if len(same) == len(rows) else bounded[_both(same)])
        self.count -= sum(len(part.domains) for part in parts)  # whoever takes all children in counts them
        rest = left.nonzero()[:, 0]
        if len(rest) or not parts:
            children = self.bounding.split(domains[rest] if parts else domains, neurons[rest])
            order.append(rest)
            parts.append(self.bounding.bound(children, self.cutoff, self.deadline))
        return (Bounded.concatenate(parts), torch.cat(order)) if len(parts) > 1 else (parts[0], order[0])

    def relaxed(self, domains: DomainBatch) -> Relaxed | None:
        """What is known of the domains anyway: no bound."""
        return self.bounding.relaxed(domains, self.deadline)

    def _step(self) -> DomainBatch:
        if self.domains is None:
            raise ValueError("this look-ahead was made without the domains of a step")
        return self.domains

    def _most(self, domains: DomainBatch) -> int:
        """Candidates whose children fit together: a step's own batch does, and so do a few megabytes."""
        return max(1, self.batch, MOST_RELUS // (2 * max(1, domains.signs.shape[1])))


def _both(parents: Tensor) -> Tensor:
    """The numbers of these parents' children, where those of each stand next to each other."""
    return (2 * parents[:, None] + torch.tensor([0, 1], device=parents.device)).reshape(-1)
