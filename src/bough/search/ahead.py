"""What a branching rule's look-ahead costs: the bounder's answers about children that are not there yet, counted."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bough.bounds.base import AbstractBounding
from bough.branching.base import LookAhead
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, Relaxed

MOST_RELUS = 1 << 21  # of all children bounded together, unless the search's own batch has more


@dataclass
class Counted:
    """Bounds of children, counted: every one is a bound that the search paid for."""

    bounding: AbstractBounding
    deadline: Deadline
    cutoff: float = 0.0
    batch: int = 1  # domains whose children the search itself bounds together
    count: int = 0

    def look(self, levels: int = 1) -> LookAhead:
        """What a rule is handed."""
        return LookAhead(self.estimate, levels, self.bounding.unsafe_boxes, self.bound, self.cutoff, self.relaxed)

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

    def relaxed(self, domains: DomainBatch) -> Relaxed | None:
        """What is known of the domains anyway: no bound."""
        return self.bounding.relaxed(domains, self.deadline)

    def _most(self, domains: DomainBatch) -> int:
        """Candidates whose children fit together: a step's own batch does, and so do a few megabytes."""
        return max(1, self.batch, MOST_RELUS // (2 * max(1, domains.signs.shape[1])))
