"""Leaves and lemmas as a certificate stores them, from domains and duals as a search has them; nothing is proved here.

Numbers lose their last bits, since few of them matter to a proof; whoever calls this tries whether they do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.bounds.base import AbstractSession, Evidence
from bough.domain.batch import DomainBatch
from bough.verdict.certificate import DIRECT, EMPTY, FINE, MOST_BYTES, MOST_LEAVES, SLOPES, Leaves, Lemma
from bough.verdict.check.claims import STEPS, Claims, halved_sides
from bough.verdict.shape import MOST_TIMES, Entries

Array = NDArray[Any]
PER_LEAF = ("clause", "splits", "halvings", "weights")  # columns of `Leaves`
PER_SPLIT = ("literals", "signs")
PER_HALVING = ("inputs", "times", "halves")
SHARED = 2  # times that leaves are offered slopes in common, those left over others
COARSE_BITS, SINGLE_BITS = 45, 29  # cut off from float64's 53: what is left is 8, and float32's 24


@dataclass(frozen=True, eq=False)
class Tried:
    """Something that may prove some leaves: as it would be written for those of them, by place, that it does prove."""

    leaves: Callable[[Array], Leaves]
    evidence: Evidence | None = None  # the same numbers, for the bounder that found the leaves


Attempt = Callable[[Array], Tried]  # of the leaves in some rows


def as_numpy(tensor: Tensor) -> Array:
    """The same numbers on the host."""
    return np.asarray(tensor.detach().cpu().numpy())


def lemma_of(head: tuple[int, int], neurons: Array, slots: Array, slopes: Array, weights: Array) -> Lemma:
    """A lemma with slopes in bytes and short weights."""
    short = shortened(torch.from_numpy(weights), COARSE_BITS).numpy()
    return Lemma(np.array(head), neurons, slots, in_bytes(torch.from_numpy(slopes)).numpy(), short)


def in_bytes(slopes: Tensor) -> Tensor:
    """Slopes in 255ths, as bytes."""
    return (slopes.nan_to_num().clamp(0, 1) * STEPS).round().to(torch.uint8)


def shortened(numbers: Tensor, bits: int) -> Tensor:
    """Float64 numbers with so many of their last bits rounded off; not below 0 where they were not."""
    given = numbers.double()
    if not bits:
        return given
    rounded = ((given.view(torch.int64) + (1 << (bits - 1))) & -(1 << bits)).view(torch.float64)
    return rounded.where(rounded.isfinite(), given)


def unproved(claims: Claims, session: AbstractSession, domains: DomainBatch) -> Leaves:
    """The domains as leaves with their splits, and no proof yet."""
    row, neuron = split = domains.signs.nonzero(as_tuple=True)
    clause = as_numpy(domains.clause)
    passing = as_numpy(domains.signs[split] > 0)
    count = len(clause)
    none = np.zeros(0, np.int64)
    halvings = {"halvings": np.zeros(count, np.int64), "inputs": none, "times": none, "halves": np.zeros(0, np.uint64)}
    source = session.capabilities.input_parts
    if source is not None:
        parts = source.parts(domains)
        boxes = [claims.boxes[claims.clauses[c].box] for c in clause.tolist()]
        whole = tuple(np.stack([getattr(b, side).numpy() for b in boxes]) for side in ("lower", "upper"))
        halvings = _halvings(whole[0], whole[1], as_numpy(parts.lower), as_numpy(parts.upper))
    return Leaves(
        clause=clause,
        kind=np.full(count, EMPTY),
        vector=np.zeros(count, np.int64),
        splits=np.bincount(as_numpy(row), minlength=count),
        literals=2 * as_numpy(neuron) + passing,
        signs=np.zeros(len(row)),
        weights=np.zeros((count, claims.shape.rows)),
        slots=none,
        coarse=np.zeros((0, 0), np.uint8),
        fine=np.zeros((0, 0)),
        **halvings,
    )


def _halvings(low: Array, high: Array, lower: Array, upper: Array) -> dict[str, Array]:
    """How sides low, high became lower, upper by halving, all [leaves, inputs]: as the fields of `Leaves`."""
    times, halves = np.zeros(low.shape, np.int64), np.zeros(low.shape, np.uint64)
    whole = low, high
    for _ in range(MOST_TIMES):
        more = (low != lower) | (high != upper)
        if not more.any():
            break
        middle = low / 2 + high / 2
        second = lower >= middle
        low = np.where(more & second, middle, low)
        high = np.where(more & ~second, middle, high)
        times += more
        halves = np.where(more, (halves << np.uint64(1)) | second.astype(np.uint64), halves)
    row, at = halved = np.nonzero(times)
    made = halved_sides(whole[0][halved], whole[1][halved], times[halved], halves[halved])
    if not (np.array_equal(made[0], lower[halved]) and np.array_equal(made[1], upper[halved])):
        raise AssertionError("a domain's box is no part of its clause's by halving")
    count = np.bincount(row, minlength=len(low))
    return {"halvings": count, "inputs": at, "times": times[halved], "halves": halves[halved]}


def take(leaves: Leaves, rows: Array) -> Leaves:
    """Some of the leaves, ascending, with the vectors they use."""
    entries = Entries.of(leaves)
    chosen = np.zeros(len(leaves), dtype=bool)
    chosen[rows] = True
    e, h = chosen[entries.of_split], chosen[entries.of_halving]
    columns = {}
    kind = leaves.kind[rows]
    vector = leaves.vector[rows].copy()
    for name, table, kinds, first in (
        ("coarse", leaves.coarse, kind == SLOPES, 1),
        ("fine", leaves.fine, (kind == FINE) | (kind == DIRECT), 0),
    ):
        users = kinds & (vector >= first)
        used, places = np.unique(vector[users] - first, return_inverse=True)
        vector[users] = places + first
        columns[name] = table[used]
    for names, at in ((PER_LEAF, rows), (PER_SPLIT, e), (PER_HALVING, h)):
        columns |= {name: getattr(leaves, name)[at] for name in names}
    return replace(leaves, kind=kind, vector=vector, **columns)


def in_parts(leaves: Leaves) -> Iterator[Leaves]:
    """The same leaves in chunks that a reader takes."""
    size = 8 * sum(np.asarray(array).size for array in vars(leaves).values())
    if len(leaves) <= 1 or (len(leaves) <= MOST_LEAVES and size <= MOST_BYTES):
        yield leaves
        return
    for half in np.array_split(np.arange(len(leaves)), 2):
        yield from in_parts(take(leaves, half))


def joined(parts: list[Leaves]) -> Leaves:
    """Several sets of leaves, at least one, about the same slots, as one."""
    coarse = 0
    fine = 0
    vectors = []
    for part in parts:
        shift = np.where(part.kind == SLOPES, np.where(part.vector > 0, coarse, 0), fine)
        vectors.append(part.vector + np.where(np.isin(part.kind, (SLOPES, FINE, DIRECT)), shift, 0))
        coarse, fine = coarse + len(part.coarse), fine + len(part.fine)
    names = (*PER_LEAF, *PER_SPLIT, *PER_HALVING, "kind", "coarse", "fine")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Leaves(vector=np.concatenate(vectors), slots=parts[0].slots, **columns)


def by_duals(leaves: Leaves, evidence: Evidence) -> Iterator[Attempt]:
    """Slopes in common, then of one's own, then finer; with the multipliers of splits, and the rows' weights."""
    duals = _Duals(leaves, evidence)
    yield from [duals.shared] * SHARED
    yield duals.own
    yield partial(duals.finer, SINGLE_BITS)
    yield partial(duals.finer, 0)


class _Duals:
    """The numbers of many leaves, which stay where they are: only what is written comes to the host."""

    def __init__(self, leaves: Leaves, evidence: Evidence) -> None:
        self._leaves = leaves
        self._slots = evidence.slots
        self._weights = evidence.weights
        self._numbers = evidence.numbers.double().nan_to_num()
        self._free = torch.ones_like(self._numbers, dtype=torch.bool)  # where the number is a slope
        self._signs = self._numbers.new_zeros(len(leaves.literals))
        if len(evidence.slots):
            at = torch.searchsorted(evidence.slots, self._here(leaves.literals >> 1))
            of = self._here(Entries.of(leaves).of_split)
            self._free[of, at] = False
            self._signs = self._numbers[of, at]

    def _here(self, numbers: Array) -> Tensor:
        return torch.from_numpy(numbers).to(self._slots.device)

    def shared(self, rows: Array) -> Tried:
        """The mean slopes of each clause."""
        members = self._here(rows)
        clauses, which = np.unique(self._leaves.clause[rows], return_inverse=True)
        free = self._free[members]
        total, count = (
            self._numbers.new_zeros(len(clauses), len(self._slots)).index_add(0, self._here(which), part)
            for part in (self._numbers[members].where(free, 0.0), free.double())
        )
        return self._tried(rows, SLOPES, COARSE_BITS, in_bytes(total / count.clamp(min=1)), which)

    def own(self, rows: Array) -> Tried:
        """Slopes of each leaf, in bytes."""
        members = self._here(rows)
        table = in_bytes(self._numbers[members].where(self._free[members], 0.0))
        return self._tried(rows, SLOPES, COARSE_BITS, table, np.arange(len(rows)))

    def finer(self, bits: int, rows: Array) -> Tried:
        """Slopes of each leaf with all bits but some."""
        members = self._here(rows)
        table = shortened(self._numbers[members].clamp(0, 1).where(self._free[members], 0.0), bits)
        return self._tried(rows, FINE, bits, table, np.arange(len(rows)))

    def _tried(self, rows: Array, kind: int, bits: int, table: Tensor, which: Array) -> Tried:
        """What slopes may prove: for the leaf in row k, those at place `which[k]` of a table."""
        members = self._here(rows)
        slopes = (table.double() / STEPS if kind == SLOPES else table)[self._here(which)]
        numbers = slopes.where(self._free[members], shortened(self._numbers[members], bits))
        evidence = Evidence(self._slots, numbers, shortened(self._weights[members], bits))
        return Tried(lambda good: self._written(rows[good], kind, bits, table, which[good]), evidence)

    def _written(self, rows: Array, kind: int, bits: int, table: Tensor, which: Array) -> Leaves:
        """Leaves as they are stored, with slopes by their places in a table."""
        of_rows = self._weights[self._here(rows)]
        signs, weights = (as_numpy(shortened(numbers, bits)) for numbers in (self._signs, of_rows))
        part = take(replace(self._leaves, signs=signs), rows)
        used, vector = np.unique(which, return_inverse=True)
        slopes = as_numpy(table[self._here(used)])
        slots = as_numpy(self._slots)
        part = replace(part, kind=np.full(len(rows), kind), weights=weights, slots=slots)
        if kind == SLOPES:
            return replace(part, vector=vector + 1, coarse=slopes, fine=np.zeros((0, len(slots))))
        return replace(part, vector=vector, coarse=np.zeros((0, len(slots)), np.uint8), fine=slopes)


def by_multipliers(leaves: Leaves, evidence: Evidence, given: Array) -> Iterator[Attempt]:
    """Multipliers of the ReLUs' inputs, first with few bits; the evidence is about the leaves `given`."""
    numbers = evidence.numbers.cpu()
    weights = evidence.weights.cpu().nan_to_num()
    given_columns = numbers.isfinite().any(dim=0).nonzero()[:, 0]
    values = numbers[:, given_columns]
    slots = as_numpy(evidence.slots.cpu()[given_columns])
    place = np.full(len(leaves), -1)
    place[given] = np.arange(len(given))
    for bits in (COARSE_BITS, SINGLE_BITS, 0):

        def attempt(rows: Array, bits: int = bits) -> Tried:
            members = torch.from_numpy(place[rows])
            given_values = values[members]
            cut = shortened(given_values.nan_to_num(0.0, 0.0, 0.0), bits).where(given_values.isfinite(), torch.nan)
            made = replace(
                take(leaves, rows),
                kind=np.full(len(rows), DIRECT),
                vector=np.arange(len(rows)),
                weights=as_numpy(shortened(weights[members], bits)),
                slots=slots,
                coarse=np.zeros((0, len(given_columns)), np.uint8),
                fine=as_numpy(cut),
            )
            return Tried(partial(take, made))

        yield attempt
