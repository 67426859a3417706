"""What a branching rule's look-ahead costs: the bounder's answers about children that are not there yet, counted."""

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.base import AbstractSession, Bounded
from bough.branching.base import AbstractLookAhead
from bough.budget import Deadline
from bough.domain.batch import DomainBatch, InputParts, Relaxation
from bough.search.stopwatch import Stopwatch

MOST_RELUS = 1 << 21  # ReLUs of all children bounded together, unless the search's own batch has more


@dataclass(frozen=True, eq=False)
class _Kept:
    """Children that were bounded for a decision, and may be those that it asks for."""

    rows: Tensor  # int64: the domains, as rows of the step's
    neurons: Tensor  # int64: where each is split
    children: Bounded


@dataclass
class _Ledger:
    """What the look-ahead of one step, and all parts of it, have asked for."""

    bounds: int = 0
    kept: list[_Kept] = field(default_factory=list)


@final
@dataclass(frozen=True, eq=False)
class CountedLookAhead(AbstractLookAhead):
    """Bounds of children of the domains of one step, counted: every one is a bound that the search paid for."""

    session: AbstractSession
    deadline: Deadline
    domains: DomainBatch  # of the step
    cutoff: float = 0.0
    batch: int = 1  # domains whose children the search itself bounds together
    deciding: Stopwatch = field(default_factory=Stopwatch)  # stands still while children are bounded that may be kept
    rows: Tensor | None = None  # the numbers of the domains that a rule decides for; None: all
    ledger: _Ledger = field(default_factory=_Ledger)

    @property
    def count(self) -> int:
        """How many bounds were paid for, but for those of children that `split` handed over."""
        return self.ledger.bounds

    def among(self, rows: Tensor) -> "CountedLookAhead":
        """The same look-ahead for a rule that decides for some of the domains."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def uncounted(self) -> "CountedLookAhead":
        """A look-ahead for those who only watch."""
        return replace(self, ledger=_Ledger())

    def estimate(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """Cheap bounds of both children of every candidate; where the session has none, the bounds themselves."""
        self.ledger.bounds += 2 * neurons.numel()
        estimates = self.session.capabilities.estimates
        if estimates is not None:
            value = estimates.estimate(domains, neurons, self.deadline)
        else:
            many = domains[torch.arange(len(domains), device=neurons.device).repeat_interleave(neurons.shape[1])]
            bounded = self.session.bound(self.session.split(many, neurons.reshape(-1)), torch.inf, self.deadline)
            value = bounded.domains.lower.reshape(*neurons.shape, 2)
        return value.masked_fill(~self.session.splittable(domains).gather(1, neurons)[..., None], -torch.inf)

    def bound(self, domains: DomainBatch, neurons: Tensor) -> Tensor:
        """Proved bounds of both children of every candidate, many domains and candidates at a time."""
        lower = domains.lower.new_full((*neurons.shape, 2), -torch.inf)
        at, column = self.session.splittable(domains).gather(1, neurons).nonzero(as_tuple=True)
        self.ledger.bounds += 2 * len(at)
        most = max(1, self.batch, MOST_RELUS // (2 * max(1, domains.signs.shape[1])))
        for first in range(0, len(at), most):
            self.deadline.check()
            piece = slice(first, first + most)
            children = self.session.split(domains[at[piece]], neurons[at[piece], column[piece]])
            bounded = self.session.bound(children, self.cutoff, self.deadline).domains.lower
            # What is not a number proves nothing, and a child is part of its parent.
            lower[at[piece], column[piece]] = torch.fmax(bounded, children.lower).reshape(-1, 2)
        return lower

    def children(self, rows: Tensor, neurons: Tensor) -> Tensor:
        """Proved bounds of both children of the domains `rows`, split at `neurons`; kept for `split`."""
        rows = rows if self.rows is None else self.rows[rows]
        lower = self.domains.lower.new_full((len(rows), 2), -torch.inf)
        possible = self.session.splittable(self.domains)[rows].gather(1, neurons[:, None])[:, 0].nonzero()[:, 0]
        if len(possible):
            with self.deciding.off(self.domains.lower.device):
                children = self.session.split(self.domains[rows[possible]], neurons[possible])
                bounded = self.session.bound(children, self.cutoff, self.deadline)
            lower[possible] = torch.fmax(bounded.domains.lower, children.lower).reshape(-1, 2)
            self.ledger.kept.append(_Kept(rows[possible], neurons[possible], bounded))
            self.ledger.bounds += len(children)
        return lower

    def split(self, neurons: Tensor) -> tuple[Bounded, Tensor]:
        """The children of the step's domains, split at `neurons` [domains], bounded, with those that were looked at
        already; and whose they are, int64 [domains]: rows of the domains in the order of their children. A rule only
        names numbers, so whatever it does these are the children of these domains.
        """
        left = torch.ones(len(self.domains), dtype=torch.bool, device=neurons.device)
        parts, order = [], []
        for kept in self.ledger.kept:
            same = (left[kept.rows] & (neurons[kept.rows] == kept.neurons)).nonzero()[:, 0]
            left[kept.rows[same]] = False
            if len(same):
                order.append(kept.rows[same])
                parts.append(kept.children if len(same) == len(kept.rows) else kept.children[_both(same)])
        self.ledger.bounds -= sum(len(part.domains) for part in parts)  # whoever takes all children in counts them
        rest = left.nonzero()[:, 0]
        if len(rest) or not parts:
            children = self.session.split(self.domains[rest] if parts else self.domains, neurons[rest])
            order.append(rest)
            parts.append(self.session.bound(children, self.cutoff, self.deadline))
        return (Bounded.concatenate(parts), torch.cat(order)) if len(parts) > 1 else (parts[0], order[0])

    def relaxed(self, domains: DomainBatch) -> Relaxation | None:
        """What is known of the domains anyway: no bound."""
        relaxations = self.session.capabilities.relaxations
        return None if relaxations is None else relaxations.relaxed(domains, self.deadline)

    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor] | None:
        """What is known of the domains anyway: no bound."""
        unsafe = self.session.capabilities.unsafe_boxes
        return None if unsafe is None else unsafe.unsafe_boxes(domains)

    def input_parts(self, domains: DomainBatch) -> InputParts:
        """What is known of the domains anyway: no bound."""
        parts = self.session.capabilities.input_parts
        if parts is None:
            raise TypeError("these bounds halve no inputs")
        return parts.parts(domains)


def _both(parents: Tensor) -> Tensor:
    """The numbers of these parents' children, where those of each stand next to each other."""
    return (2 * parents[:, None] + torch.tensor([0, 1], device=parents.device)).reshape(-1)
