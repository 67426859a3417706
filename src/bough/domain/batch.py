"""Subproblems as plain values, batched: what every layer above may hold.

A domain is the part of one clause's box in which some ReLUs have a given sign. Arrays are indexed [domain, ...], and
ReLUs by their flat number in the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

INFEASIBLE = float("inf")


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower and upper bound of every ReLU's input, float64 [domains, neurons]."""

    lower: Tensor
    upper: Tensor

    def ambiguous(self) -> Tensor:
        """Which ReLUs may be on either side of zero, bool [domains, neurons]."""
        return (self.lower < 0) & (self.upper > 0)

    def empty(self) -> Tensor:
        """Which domains hold no point, bool [domains]: some ReLU's bounds contradict each other."""
        return (self.lower > self.upper).any(dim=1)

    def intersect(self, other: "Bounds") -> "Bounds":
        """The tighter of both, element by element; what is not a number tightens nothing."""
        return Bounds(torch.fmax(self.lower, other.lower), torch.fmin(self.upper, other.upper))

    def __getitem__(self, rows: Tensor | slice) -> "Bounds":
        return Bounds(self.lower[rows], self.upper[rows])


@dataclass(frozen=True, eq=False)
class DomainBatch:
    """A batch of subproblems, as structure of arrays.

    `functional` is the combination of the clause's rows that the bound was proved for, and what branching rules look
    at; `start` is what the bounder that made a domain wants back when it bounds the children (a basis, dual
    variables).
    """

    clause: Tensor  # int64 [domains]
    signs: Tensor  # int8 [domains, neurons]: +1 passing, -1 blocked, 0 not split
    bounds: Bounds
    lower: Tensor  # float64 [domains]
    functional: Tensor  # float64 [domains, outputs]
    depth: Tensor  # int64 [domains]
    last_split: Tensor  # int64 [domains]: the ReLU whose split made the domain, -1 at the root
    start: tuple[object, ...]  # one per domain

    def __len__(self) -> int:
        return len(self.clause)

    def __getitem__(self, rows: Tensor) -> "DomainBatch":
        """The domains with these numbers (int64) or this mask (bool)."""
        numbers = rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows
        return DomainBatch(
            self.clause[numbers],
            self.signs[numbers],
            self.bounds[numbers],
            self.lower[numbers],
            self.functional[numbers],
            self.depth[numbers],
            self.last_split[numbers],
            tuple(self.start[int(i)] for i in numbers),
        )

    @staticmethod
    def root(clause: int, bounds: Bounds, functional: Tensor, start: object) -> "DomainBatch":
        """The one domain of a clause in which nothing is split: `bounds` [1, neurons], `functional` [outputs]."""
        return DomainBatch(
            clause=torch.tensor([clause]),
            signs=torch.zeros_like(bounds.lower, dtype=torch.int8),
            bounds=bounds,
            lower=torch.full((1,), -torch.inf, dtype=torch.float64),
            functional=functional[None],
            depth=torch.zeros(1, dtype=torch.int64),
            last_split=torch.full((1,), -1),
            start=(start,),
        )

    @staticmethod
    def concatenate(parts: Sequence["DomainBatch"]) -> "DomainBatch":
        """All domains of several batches, in order."""
        if len(parts) == 1:
            return parts[0]
        return DomainBatch(
            torch.cat([p.clause for p in parts]),
            torch.cat([p.signs for p in parts]),
            Bounds(torch.cat([p.bounds.lower for p in parts]), torch.cat([p.bounds.upper for p in parts])),
            torch.cat([p.lower for p in parts]),
            torch.cat([p.functional for p in parts]),
            torch.cat([p.depth for p in parts]),
            torch.cat([p.last_split for p in parts]),
            tuple(s for p in parts for s in p.start),
        )


def split(domains: DomainBatch, neurons: Tensor) -> DomainBatch:
    """Both children of every domain, blocked child first: [2 * domains], children of one domain next to each other.

    Only the split ReLU's own bounds change here; bounders tighten the rest.
    """
    rows = torch.arange(len(domains)).repeat_interleave(2)
    children = domains[rows]
    each, chosen = torch.arange(len(children)), neurons.repeat_interleave(2)
    blocked = (each % 2) == 0
    signs = children.signs.clone()
    signs[each, chosen] = torch.where(blocked, -1, 1).to(torch.int8)
    lower, upper = children.bounds.lower.clone(), children.bounds.upper.clone()
    zero = torch.zeros((), dtype=lower.dtype)
    lower[each, chosen] = torch.where(blocked, lower[each, chosen], torch.maximum(lower[each, chosen], zero))
    upper[each, chosen] = torch.where(blocked, torch.minimum(upper[each, chosen], zero), upper[each, chosen])
    return replace(children, signs=signs, bounds=Bounds(lower, upper), depth=children.depth + 1, last_split=chosen)
