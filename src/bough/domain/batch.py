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

    def to(self, device: torch.device) -> "Bounds":
        """The same on a device."""
        return Bounds(self.lower.to(device), self.upper.to(device))


@dataclass(frozen=True, eq=False)
class DomainBatch:
    """A batch of subproblems, as structure of arrays.

    `functional` is the combination of the clause's rows that the bound was proved for, and what branching rules look
    at; `start` is what the bounder that made the domains wants back when it bounds their children (the number of a
    basis, dual variables), as arrays of one row per domain.
    """

    clause: Tensor  # int64 [domains]
    signs: Tensor  # int8 [domains, neurons]: +1 passing, -1 blocked, 0 not split
    bounds: Bounds
    lower: Tensor  # float64 [domains]
    functional: Tensor  # float64 [domains, outputs]
    depth: Tensor  # int64 [domains]
    last_split: Tensor  # int64 [domains, levels]: the ReLUs whose split made the domain, -1 where that is past
    start: tuple[Tensor, ...]  # each [domains, ...]

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
            tuple(column[numbers] for column in self.start),
        )

    @staticmethod
    def root(clause: int, bounds: Bounds, functional: Tensor, start: tuple[Tensor, ...]) -> "DomainBatch":
        """The one domain of a clause in which nothing is split: `bounds` [1, neurons], `functional` [outputs]."""
        device = bounds.lower.device
        return DomainBatch(
            clause=torch.tensor([clause], device=device),
            signs=torch.zeros_like(bounds.lower, dtype=torch.int8),
            bounds=bounds,
            lower=bounds.lower.new_full((1,), -torch.inf),
            functional=functional[None],
            depth=torch.zeros(1, dtype=torch.int64, device=device),
            last_split=torch.full((1, 1), -1, device=device),
            start=start,
        )

    def to(self, device: torch.device) -> "DomainBatch":
        """The same domains on a device."""
        return replace(
            DomainBatch.from_columns([column.to(device) for column in self.columns()]),
            last_split=self.last_split.to(device),
        )

    def columns(self) -> tuple[Tensor, ...]:
        """Everything that stays true of an open domain, as arrays; `from_columns` reads them back."""
        kept = (self.clause, self.signs, self.bounds.lower, self.bounds.upper, self.lower, self.functional, self.depth)
        return (*kept, *self.start)

    @staticmethod
    def from_columns(columns: Sequence[Tensor]) -> "DomainBatch":
        """The domains again, their last split forgotten."""
        clause, signs, low, high, lower, functional, depth, *start = columns
        past = torch.full((len(clause), 1), -1, device=clause.device)
        return DomainBatch(clause, signs, Bounds(low, high), lower, functional, depth, past, tuple(start))

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
            tuple(torch.cat(columns) for columns in zip(*(p.start for p in parts), strict=True)),
        )


@dataclass(frozen=True, eq=False)
class Relaxed:
    """What the relaxation of a batch of domains says at its best duals: for choosing only, nothing here is proved.

    Arrays are [domains, n], about the ReLUs `neurons`, all that may be ambiguous. Of an ambiguous ReLU with input z and
    output x the relaxation knows `x >= 0`, `x >= z` and `x <= chord(z)`; `zero`, `above` and `below` are their
    multipliers, not negative, so `zero + above - below` is the coefficient nu on x of what is bounded; elsewhere all
    three are 0. `through` is the coefficient on z that takes its place further back, `before` and `after` are z and x
    at the relaxation's own minimum; these are known of ReLUs that are split, too.
    """

    neurons: Tensor  # int64 [n]
    zero: Tensor
    above: Tensor
    below: Tensor
    through: Tensor
    before: Tensor
    after: Tensor
    point: Tensor  # [domains, inputs]: where the minimum is
    value: Tensor  # [domains]: the minimum

    @staticmethod
    def of(neurons: Tensor, wide: Tensor, point: Tensor, value: Tensor) -> "Relaxed":
        """From `wide` [6, domains, n], the arrays about ReLUs in their order."""
        zero, above, below, through, before, after = wide
        return Relaxed(neurons, zero, above, below, through, before, after, point, value)

    def __getitem__(self, rows: Tensor) -> "Relaxed":
        """Of some domains."""
        mine = {name: getattr(self, name)[rows] for name in vars(self) if name != "neurons"}
        return Relaxed(neurons=self.neurons, **mine)


def split(domains: DomainBatch, neurons: Tensor) -> DomainBatch:
    """All children, next to each other, of domains whose ReLUs `neurons` [domains, levels] (or [domains]) are split.

    Of one split the blocked child comes first; of several, the first column changes slowest. Only the bounds of the
    split ReLUs change here; bounders tighten the rest.
    """
    neurons = neurons.reshape(len(domains), -1)
    levels = neurons.shape[1]
    children = domains[torch.arange(len(domains), device=neurons.device).repeat_interleave(2**levels)]
    chosen = neurons.repeat_interleave(2**levels, dim=0)
    place = torch.arange(levels - 1, -1, -1, device=neurons.device)
    passing = (torch.arange(len(children), device=neurons.device)[:, None] >> place) % 2 == 1
    signs = children.signs.scatter(1, chosen, torch.where(passing, 1, -1).to(torch.int8))
    low, high = children.bounds.lower.gather(1, chosen), children.bounds.upper.gather(1, chosen)
    bounds = Bounds(
        children.bounds.lower.scatter(1, chosen, torch.where(passing, low.clamp(min=0), low)),
        children.bounds.upper.scatter(1, chosen, torch.where(passing, high, high.clamp(max=0))),
    )
    return replace(children, signs=signs, bounds=bounds, depth=children.depth + levels, last_split=chosen)
