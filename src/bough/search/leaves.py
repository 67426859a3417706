"""Leaves and lemmas as a certificate stores them, from domains and duals as a search has them; nothing is proved here.

Numbers lose their last bits, since few of them matter to a proof; whoever calls this tries whether they do.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bough.bounds.base import AbstractBounding, Evidence
from bough.domain.batch import DomainBatch
from bough.verdict.certificate import DIRECT, EMPTY, FINE, MOST_BYTES, MOST_LEAVES, SLOPES, Leaves, Lemma
from bough.verdict.check.claims import STEPS, Claims, halved_sides
from bough.verdict.shape import MOST_TIMES, Entries

Array = NDArray[Any]
Attempt = Callable[[Array], Leaves]  # the leaves of some rows, with something that may prove them
SHARED = 2  # times that leaves are offered slopes in common, those left over others
COARSE_BITS, SINGLE_BITS = 45, 29  # cut off from float64's 53: what is left is 8, and float32's 24


def as_numpy(tensor: Tensor) -> Array:
    """The same numbers on the host."""
    return np.asarray(tensor.detach().cpu().numpy())


def lemma_of(head: tuple[int, int], neurons: Array, slots: Array, slopes: Array, weights: Array) -> Lemma:
    """A lemma with slopes in bytes and short weights."""
    return Lemma(np.array(head), neurons, slots, _coarse(slopes), _cut(weights, COARSE_BITS))


def _coarse(slopes: Array) -> Array:
    """In 255ths."""
    return np.asarray(np.rint(np.clip(np.nan_to_num(slopes), 0, 1) * STEPS), dtype=np.uint8)


def _cut(numbers: Array, bits: int) -> Array:
    """Float64 numbers with so many of their last bits rounded off; not below 0 where they were not."""
    given = np.ascontiguousarray(numbers, dtype=np.float64)
    if not bits or not given.size:
        return given
    half, mask = np.uint64(1 << (bits - 1)), np.uint64((1 << 64) - (1 << bits))
    rounded = ((given.view(np.uint64) + half) & mask).view(np.float64)
    return np.asarray(np.where(np.isfinite(rounded), rounded, given))


def unproved(claims: Claims, bounding: AbstractBounding, domains: DomainBatch) -> Leaves:
    """The domains as leaves with their splits, and no proof yet."""
    signs, clause = as_numpy(domains.signs), as_numpy(domains.clause)
    row, neuron = np.nonzero(signs)
    count, none = len(clause), np.zeros(0, np.int64)
    halvings: tuple[Array, ...] = (np.zeros(count, np.int64), none, none, np.zeros(0, np.uint64))
    sides = bounding.boxes(domains)
    if sides is not None:
        boxes = [claims.boxes[claims.clauses[c].box] for c in clause.tolist()]
        whole = tuple(np.stack([getattr(b, side).numpy() for b in boxes]) for side in ("lower", "upper"))
        halvings = _halvings(whole[0], whole[1], *(as_numpy(side) for side in sides))
    return Leaves(
        clause=clause,
        kind=np.full(count, EMPTY),
        vector=np.zeros(count, np.int64),
        splits=np.bincount(row, minlength=count),
        literals=2 * neuron + (signs[row, neuron] > 0),
        signs=np.zeros(len(row)),
        halvings=halvings[0],
        inputs=halvings[1],
        times=halvings[2],
        halves=halvings[3],
        weights=np.zeros((count, claims.shape.rows)),
        slots=none,
        coarse=np.zeros((0, 0), np.uint8),
        fine=np.zeros((0, 0)),
    )


def _halvings(low: Array, high: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
    """How sides low, high became lower, upper by halving, all [leaves, inputs]: as the fields of `Leaves`."""
    times, halves = np.zeros(low.shape, np.int64), np.zeros(low.shape, np.uint64)
    whole = low, high
    for _ in range(MOST_TIMES):
        more = (low != lower) | (high != upper)
        if not more.any():
            break
        middle = low / 2 + high / 2
        second = lower >= middle
        low, high = np.where(more & second, middle, low), np.where(more & ~second, middle, high)
        times += more
        halves = np.where(more, (halves << np.uint64(1)) | second.astype(np.uint64), halves)
    row, at = np.nonzero(times)
    made = halved_sides(whole[0][row, at], whole[1][row, at], times[row, at], halves[row, at])
    if not (np.array_equal(made[0], lower[row, at]) and np.array_equal(made[1], upper[row, at])):
        raise AssertionError("a domain's box is no part of its clause's by halving")
    return np.bincount(row, minlength=len(low)), at, times[row, at], halves[row, at]


def take(leaves: Leaves, rows: Array) -> Leaves:
    """Some of the leaves, ascending, with the vectors they use."""
    entries, chosen = Entries.of(leaves), np.zeros(len(leaves), dtype=bool)
    chosen[rows] = True
    e, h = chosen[entries.of_split], chosen[entries.of_halving]
    kind, vector = leaves.kind[rows], leaves.vector[rows].copy()
    tables = {}
    for name, table, mine, first in (
        ("coarse", leaves.coarse, kind == SLOPES, 1),
        ("fine", leaves.fine, (kind == FINE) | (kind == DIRECT), 0),
    ):
        users = mine & (vector >= first)
        used, where = np.unique(vector[users] - first, return_inverse=True)
        vector[users] = where + first
        tables[name] = table[used]
    return Leaves(
        leaves.clause[rows],
        kind,
        vector,
        leaves.splits[rows],
        leaves.literals[e],
        leaves.signs[e],
        leaves.halvings[rows],
        leaves.inputs[h],
        leaves.times[h],
        leaves.halves[h],
        leaves.weights[rows],
        leaves.slots,
        tables["coarse"],
        tables["fine"],
    )


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
    coarse, fine, vectors = 0, 0, []
    for part in parts:
        shift = np.where(part.kind == SLOPES, np.where(part.vector > 0, coarse, 0), fine)
        vectors.append(part.vector + np.where(np.isin(part.kind, (SLOPES, FINE, DIRECT)), shift, 0))
        coarse, fine = coarse + len(part.coarse), fine + len(part.fine)
    names = ("clause", "kind", "splits", "literals", "signs", "halvings", "inputs", "times", "halves", "weights")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    tables = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("coarse", "fine")}
    return Leaves(vector=np.concatenate(vectors), slots=parts[0].slots, **columns, **tables)


def by_duals(leaves: Leaves, evidence: Evidence) -> Iterator[Attempt]:
    """Slopes in common, then of one's own, then finer; with the multipliers of splits, and the rows' weights."""
    slots, numbers, weights = (
        as_numpy(evidence.slots),
        as_numpy(evidence.numbers).astype(np.float64),
        as_numpy(evidence.weights),
    )
    place = np.zeros(int(max(slots.max(initial=0), (leaves.literals >> 1).max(initial=0))) + 1, np.int64)
    place[slots] = np.arange(len(slots))
    of = Entries.of(leaves).of_split
    signs = np.nan_to_num(numbers[of, place[leaves.literals >> 1]]) if len(slots) else np.zeros(len(of))
    free = np.ones(numbers.shape, dtype=bool)  # where the number is a slope
    if len(slots):
        free[of, place[leaves.literals >> 1]] = False
    base = replace(leaves, slots=slots, coarse=np.zeros((0, len(slots)), np.uint8), fine=np.zeros((0, len(slots))))
    coarse = replace(
        base, kind=np.full(len(leaves), SLOPES), signs=_cut(signs, COARSE_BITS), weights=_cut(weights, COARSE_BITS)
    )

    def shared(rows: Array) -> Leaves:
        clauses, which = np.unique(leaves.clause[rows], return_inverse=True)
        table = np.zeros((len(clauses), len(slots)), np.uint8)
        for k in range(len(clauses)):
            mine = rows[which == k]
            counted = free[mine].sum(axis=0)
            table[k] = _coarse(np.where(free[mine], numbers[mine], 0).sum(axis=0) / np.maximum(counted, 1))
        vector = np.zeros(len(leaves), np.int64)
        vector[rows] = which + 1
        return take(replace(coarse, coarse=table, vector=vector), rows)

    def own(rows: Array) -> Leaves:
        return take(
            replace(coarse, coarse=_coarse(np.where(free, numbers, 0)), vector=1 + np.arange(len(leaves))), rows
        )

    def finer(bits: int) -> Attempt:
        def made(rows: Array) -> Leaves:
            fine = _cut(np.where(free, np.clip(np.nan_to_num(numbers), 0, 1), 0), bits)
            kind, cut = np.full(len(leaves), FINE), _cut(weights, bits)
            tried = replace(
                base, kind=kind, vector=np.arange(len(leaves)), fine=fine, signs=_cut(signs, bits), weights=cut
            )
            return take(tried, rows)

        return made

    yield from [shared] * SHARED
    yield own
    yield finer(SINGLE_BITS)
    yield finer(0)


def by_multipliers(leaves: Leaves, evidence: Evidence, given: Array) -> Iterator[Attempt]:
    """Multipliers of the ReLUs' inputs, first with few bits; the evidence is about the leaves `given`."""
    numbers, weights = as_numpy(evidence.numbers), np.nan_to_num(as_numpy(evidence.weights))
    told = np.flatnonzero(np.isfinite(numbers).any(axis=0))
    values = np.where(np.isfinite(numbers[:, told]), numbers[:, told], np.nan)
    place = np.full(len(leaves), -1)
    place[given] = np.arange(len(given))
    for bits in (COARSE_BITS, SINGLE_BITS, 0):

        def made(rows: Array, bits: int = bits) -> Leaves:
            mine = values[place[rows]]
            return replace(
                take(leaves, rows),
                kind=np.full(len(rows), DIRECT),
                vector=np.arange(len(rows)),
                weights=_cut(weights[place[rows]], bits),
                slots=as_numpy(evidence.slots)[told],
                coarse=np.zeros((0, len(told)), np.uint8),
                fine=np.where(np.isnan(mine), mine, _cut(np.nan_to_num(mine), bits)),
            )

        yield made
