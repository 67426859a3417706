"""The open subproblems, lowest bound first: rows of a few arrays on the device, the best-bounded part in host memory.

Domains come in packed form, as their bounder defines it. Nothing here looks at one domain at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from bough.bounds.base import AbstractSession
from bough.budget import OutOfMemory
from bough.domain.arrays import Arrays
from bough.domain.batch import DomainBatch

MOVED = 1 << 16  # rows at a time
FIRST_CAPACITY = 1024
INFINITE = float("inf")


@dataclass(frozen=True, eq=False)
class Waiting(Arrays):
    """Open domains in packed form, with what they are sorted by."""

    rows: Arrays
    age: Tensor  # int64: the number that each was opened under
    lower: Tensor  # last, since a row of a pool counts as free until this is written


@final
class RowPool:
    """Rows in arrays that grow by doubling. A free row has an infinite bound, which no open domain has."""

    def __init__(self, like: Waiting, device: torch.device) -> None:
        self._held = like.map(lambda c: torch.zeros(FIRST_CAPACITY, *c.shape[1:], dtype=c.dtype, device=device))
        self._held.lower.fill_(INFINITE)
        self._free = torch.arange(FIRST_CAPACITY, device=device)  # a stack: the first `capacity - used` are free
        self.used = 0

    @property
    def row_bytes(self) -> int:
        """Memory of one domain."""
        return 8 + sum(column[0].numel() * column.element_size() for column in self._held.tensors())

    @property
    def free(self) -> int:
        """Rows that can be added without growing."""
        return len(self._free) - self.used

    @property
    def lowest(self) -> float:
        """The lowest bound held."""
        return float(self._held.lower.min())

    def push(self, new: Waiting) -> None:
        """Add these rows."""
        count = len(new.lower)
        while count > self.free:
            self._grow()
        at = self._free[self.free - count : self.free]
        for column, more in zip(self._held.tensors(), new.tensors(), strict=True):
            column[at] = more.to(at.device)
        self.used += count

    def take(self, count: int, *, lowest: bool = True) -> Waiting:
        """Remove up to `count` rows with the lowest (or highest) bounds; the newest of equals first."""
        count = min(count, self.used)
        key = self._held.lower
        if not lowest:  # a bound of minus infinity must not look like a free row
            key = torch.where(key == INFINITE, INFINITE, (-key).clamp(max=torch.finfo(key.dtype).max))
        last = key.kthvalue(max(count, 1)).values
        near = (key <= last).nonzero()[:, 0]
        near = near[self._held.age[near].argsort(descending=True)]
        at = near[key[near].argsort(stable=True)][:count]
        taken, used = self._held[at], self.used
        try:
            self._release(at)
            return taken  # noqa: TRY300 - an interrupt may come at any line after rows were freed
        except BaseException:
            self._held.lower[at] = taken.lower
            self.used = used
            raise

    def drop_above(self, cutoff: float) -> float:
        """Forget rows above the cutoff; the lowest bound among them."""
        held = self._held.lower
        at = ((held > cutoff) & (held != INFINITE)).nonzero()[:, 0]
        if not len(at):
            return INFINITE
        lowest = float(held[at].min())
        self._release(at)
        return lowest

    def _release(self, at: Tensor) -> None:
        self._free[self.free : self.free + len(at)] = at
        self._held.lower[at] = INFINITE
        self.used -= len(at)

    def _grow(self) -> None:
        """Double the arrays, all of them or none; the free rows' numbers stay below all used entries of the stack."""
        old = len(self._free)
        free = self._free[: self.free]
        fresh = torch.arange(old, 2 * old, device=free.device)
        stack = torch.cat([free, fresh, torch.zeros(self.used, dtype=torch.int64, device=free.device)])
        held = self._held.map(lambda column: torch.cat([column, torch.zeros_like(column)]))
        held.lower[old:] = INFINITE
        self._held, self._free = held, stack


@final
class Frontier:
    """A best-first queue of domains (the paper's `pick_out`); among equal bounds the newest goes first, as in the
    authors' code.

    The one mutable part of a search's state: copying a queue at every step would cost more than the steps. Beyond
    `device_bytes`, or what others leave of the device's memory, the best-bounded half moves to host memory, and comes
    back when the rest is nearly done; beyond `host_bytes` there is `OutOfMemory`.
    """

    def __init__(self, session: AbstractSession, device_bytes: float = INFINITE, host_bytes: float = INFINITE) -> None:
        self._session = session
        self._limits = device_bytes, host_bytes
        self._near: RowPool | None = None
        self._far: RowPool | None = None
        self.pushed = 0  # domains opened so far: each has the number it was opened under
        self.picked = torch.zeros(0, dtype=torch.int64)  # the numbers of the domains picked last

    def __len__(self) -> int:
        return sum(pool.used for pool in self._pools())

    def _pools(self) -> Sequence[RowPool]:
        return [pool for pool in (self._near, self._far) if pool is not None]

    @property
    def lowest(self) -> float:
        """The lowest bound of any open domain; infinity when there is none."""
        return min((pool.lowest for pool in self._pools() if pool.used), default=INFINITE)

    def push(self, domains: DomainBatch) -> None:
        """Open these domains."""
        if not len(domains):
            return
        age = self.pushed + torch.arange(len(domains), device=domains.lower.device)
        new = Waiting(self._session.pack(domains), age, domains.lower)
        if self._near is None:
            self._near = RowPool(new, domains.lower.device)
        self.pushed += len(domains)
        try:
            self._near.push(new)
        except torch.OutOfMemoryError:
            self._spill(self._near, new)
            self._near.push(new)
        if self._near.used * self._near.row_bytes > self._limits[0]:
            self._spill(self._near, new)

    def _spill(self, near: RowPool, like: Waiting) -> None:
        if self._far is None:
            self._far = RowPool(like, torch.device("cpu"))
        _move(near, self._far, near.used // 2, lowest=False)
        if self._far.used * self._far.row_bytes > self._limits[1]:
            raise OutOfMemory(f"{len(self)} open domains fill the memory budget")

    def pick(self, count: int) -> DomainBatch:
        """Take out up to `count` domains with the lowest bounds (of those on the device, while it holds enough)."""
        if self._near is None:
            raise IndexError("the frontier is empty")
        if self._far is not None and self._near.used < count:
            room = max(count, int(min(self._near.free, self._limits[0] / self._near.row_bytes / 2)))
            _move(self._far, self._near, min(room, self._far.used))
        taken = None
        try:
            taken = self._near.take(count)
            self.picked = taken.age
            return self._session.unpack(taken.rows)
        except BaseException:
            if taken is not None:  # unpacking takes memory, and may be interrupted: the domains stay open
                self._near.push(taken)
            raise

    def prune(self, cutoff: float) -> float:
        """Drop the domains above a cutoff; returns the lowest bound dropped."""
        return min((pool.drop_above(cutoff) for pool in self._pools() if pool.used), default=INFINITE)


def _move(source: RowPool, target: RowPool, count: int, *, lowest: bool = True) -> None:
    """Move rows, a few at a time, since a copy of all would take the memory that is short; none is ever in neither."""
    while count > 0:
        taken = source.take(min(count, MOVED), lowest=lowest)
        try:
            target.push(taken)
        except BaseException:
            source.push(taken)
            raise
        count -= MOVED
