"""Subproblems as plain values, batched: what every layer above may hold.

A domain is the part of one clause's box in which some ReLUs have a given sign. Arrays are indexed [domain, ...], and
ReLUs by their flat number in the network.
"""

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from bough.domain.arrays import Arrays

INFEASIBLE = float("inf")  # the lower bound of a domain that holds no point

Carried = TypeVar("Carried", bound=Arrays)


@dataclass(frozen=True, eq=False)
class Bounds(Arrays):
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


@dataclass(frozen=True, eq=False)
class InputParts(Arrays):
    """The parts of their boxes that domains cover, [domains, inputs], and how their bounds depend on the inputs."""

    lower: Tensor
    upper: Tensor
    slope: Tensor  # the bound's coefficient on every input

    @property
    def width(self) -> Tensor:
        """The width of every input's interval."""
        return self.upper - self.lower


@dataclass(frozen=True, eq=False)
class DomainBatch(Arrays):
    """A batch of subproblems, as structure of arrays.

    `functional` is the combination of the clause's rows that the bound was proved for, and what branching rules look
    at; `start` is what the bounder that made the domains wants back when it bounds their children: a type of its own.
    """

    clause: Tensor  # int64 [domains]
    signs: Tensor  # int8 [domains, neurons]: +1 passing, -1 blocked, 0 not split
    bounds: Bounds
    lower: Tensor  # float64 [domains]
    functional: Tensor  # float64 [domains, outputs]
    depth: Tensor  # int64 [domains]
    last_split: Tensor  # int64 [domains, splits]: the ReLUs whose split made the domain, -1 where that is past
    start: Arrays

    def __len__(self) -> int:
        return len(self.clause)

    def carried(self, kind: type[Carried]) -> Carried:
        """What the bounder carries with the domains, which has to be of this kind."""
        if not isinstance(self.start, kind):
            raise TypeError(f"these domains carry {type(self.start).__name__}, not {kind.__name__}")
        return self.start

    @staticmethod
    def root(clause: int, bounds: Bounds, functional: Tensor, start: Arrays) -> "DomainBatch":
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

    def settled(self) -> "DomainBatch":
        """The same domains with their last split forgotten, as they wait to be split."""
        return replace(self, last_split=torch.full_like(self.last_split[:, :1], -1))


@dataclass(frozen=True, eq=False)
class Relaxation:
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
    def of(neurons: Tensor, wide: Tensor, point: Tensor, value: Tensor) -> "Relaxation":
        """The relaxation made of `wide` [6, domains, n], the arrays about ReLUs in their order."""
        zero, above, below, through, before, after = wide
        return Relaxation(neurons, zero, above, below, through, before, after, point, value)

    def __getitem__(self, rows: Tensor) -> "Relaxation":
        """The relaxation of some of the domains."""
        some = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "neurons"}
        return Relaxation(neurons=self.neurons, **some)


def split(domains: DomainBatch, neurons: Tensor) -> DomainBatch:
    """Both children, next to each other and the blocked one first, of domains split at the ReLUs `neurons` [domains].

    Only the bounds of the split ReLUs change here; bounders tighten the rest.
    """
    device = neurons.device
    children = domains[torch.arange(len(domains), device=device).repeat_interleave(2)]
    chosen = neurons.reshape(-1, 1).repeat_interleave(2, dim=0)
    passing = torch.arange(len(children), device=device)[:, None] % 2 == 1
    signs = children.signs.scatter(1, chosen, torch.where(passing, 1, -1).to(torch.int8))
    low = children.bounds.lower.gather(1, chosen)
    high = children.bounds.upper.gather(1, chosen)
    bounds = Bounds(
        children.bounds.lower.scatter(1, chosen, torch.where(passing, low.clamp(min=0), low)),
        children.bounds.upper.scatter(1, chosen, torch.where(passing, high, high.clamp(max=0))),
    )
    return replace(children, signs=signs, bounds=bounds, depth=children.depth + 1, last_split=chosen)
