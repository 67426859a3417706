"""The open subproblems, lowest bound first."""

import heapq
from typing import final

import torch

from bough.domain.batch import DomainBatch


@final
class Frontier:
    """A best-first queue of domains (the paper's `pick_out`); among equal bounds the newest goes first, as in the
    authors' code.

    The one mutable part of a search's state: copying a queue at every step would cost more than the steps.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, DomainBatch]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def lowest(self) -> float:
        """The lowest bound of any open domain; infinity when there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def push(self, domains: DomainBatch) -> None:
        """Open these domains."""
        for d in range(len(domains)):
            self._pushed += 1
            heapq.heappush(self._heap, (float(domains.lower[d]), -self._pushed, domains[torch.tensor([d])]))

    def pick(self, count: int) -> DomainBatch:
        """Take out up to `count` domains with the lowest bounds."""
        taken = [heapq.heappop(self._heap)[2] for _ in range(min(count, len(self._heap)))]
        return DomainBatch.concatenate(taken)

    def prune(self, cutoff: float) -> float:
        """Drop the domains above a cutoff; returns the lowest bound dropped."""
        dropped = [entry[0] for entry in self._heap if entry[0] > cutoff]
        if dropped:
            self._heap = [entry for entry in self._heap if entry[0] <= cutoff]
            heapq.heapify(self._heap)
        return min(dropped, default=float("inf"))
