"""The claims of a certificate, derived again: bounds of ReLUs over boxes, and the bound of every leaf.

The search asks the same functions before it writes a leaf, so what it writes is what a checker will find.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from bough.errors import CertificateError
from bough.network.graph import Network
from bough.problem.property import Clause, Property
from bough.verdict.certificate import DIRECT, EMPTY, FINE, LOCAL, SLOPES, Leaves, Lemma, TreeLemma
from bough.verdict.check.layers import Array
from bough.verdict.check.proof import ADAPTIVE, ELEMENTS, Passing, Prover, Where
from bough.verdict.check.tree import Paths, find_gap
from bough.verdict.shape import EFFORTS, KINDS, Entries, Shape

ONCE, TWICE, STEP_BY_STEP = range(EFFORTS)  # how bounds are derived again in a leaf
STEPS = 255  # a slope stored in one byte counts in so many parts of 1


class Claims:
    """What a certificate has shown so far of one network and property."""

    def __init__(self, network: Network, prop: Property, *, exact: bool = False, writing: bool = False) -> None:
        self.network = network
        self.boxes = prop.boxes
        self.clauses: tuple[Clause, ...] = tuple(clause.scaled() for clause in prop.clauses)
        self.shape = Shape.of(network, prop)
        self._roots: dict[int, Where] = {}
        self._own: dict[int, tuple[Array, Array]] = {}  # bounds that hold at a clause's unsafe points, [1, neurons]
        self._exact, self._writing = exact, writing

    @cached_property
    def prover(self) -> Prover:
        """The prover of this network, made when first needed."""
        prover = Prover(self.network, exact=self._exact)
        if self._writing:  # what is written has to hold however another machine rounds
            prover.layers.rounding *= 2
        return prover

    def root(self, box: int) -> Where:
        """A whole box, with the bounds known there."""
        if box not in self._roots:
            self._roots[box] = self.prover.root(self.boxes[box])
        return self._roots[box]

    def of_clause(self, clause: int) -> Where:
        """The box of a clause, with bounds that hold wherever the clause is unsafe."""
        regions = self.root(self.clauses[clause].box)
        if clause not in self._own:
            return regions
        lower, upper = self._own[clause]
        # What was learnt of the box since holds there, too.
        lower = np.where(regions.lower > lower, regions.lower, lower)
        return regions.with_bounds(lower, np.where(regions.upper < upper, regions.upper, upper))

    def learn(self, lemma: Lemma | TreeLemma) -> None:
        """Derive the bounds of a lemma and believe them."""
        self.believe(lemma, self.tried(lemma))

    def believe(self, lemma: Lemma | TreeLemma, regions: Where) -> None:
        """Take what was derived from a lemma for known, where it holds."""
        box, clause = self.shape.check_lemma(lemma)
        if clause is None:
            self._roots[box] = self.prover.settled(regions)
        else:
            self._own[clause] = regions.lower, regions.upper

    def tried(self, lemma: Lemma | TreeLemma) -> Where:
        """The bounds of a lemma over its box, or at the unsafe points of its clause."""
        box, clause = self.shape.check_lemma(lemma)
        regions = self.root(box) if clause is None else self.of_clause(clause)
        if isinstance(lemma, TreeLemma):
            return self.by_patterns(regions, lemma, self.patterns(lemma))
        for i in self.network.relus:
            regions = self._learnt(regions, lemma, i, None if clause is None else self.clauses[clause])
        return regions

    def _learnt(self, regions: Where, lemma: Lemma, relu: int, clause: Clause | None) -> Where:
        """The bounds with those of one layer improved by a lemma."""
        part = self.network.slices[relu]
        source = self.network.nodes[relu].inputs[0]
        rows_of_layer = np.flatnonzero((lemma.neurons >= part.start) & (lemma.neurons < part.stop))
        lower, upper = regions.lower.copy(), regions.upper.copy()
        number = self.prover.layers.number
        step = max(1, ELEMENTS // self.prover.widest)
        for rows in _pieces(np.concatenate([rows_of_layer, len(lemma.neurons) + rows_of_layer]), step):
            numbers = rows % len(lemma.neurons)
            below = rows < len(lemma.neurons)
            neurons = lemma.neurons[numbers].astype(np.int64)
            f = self.prover.layers.zeros(1, len(rows), self.network.nodes[source].size)
            f[0, np.arange(len(rows)), neurons - part.start] = np.where(below, 1, -1)
            slope = np.repeat(self.prover.slopes(regions, ADAPTIVE), len(rows), axis=1)
            slope[0][:, lemma.slots] = number(lemma.slopes[rows] / STEPS)
            if clause is None:
                bounds = self.prover.least(regions, {source: f}, Passing(slope))
            else:
                weights = number(lemma.weights[rows])[None, :, : len(clause.offsets)]
                bounds = self.prover.least_of_rows(regions, clause, weights, Passing(slope), {source: f})
            low = neurons[below]
            minus_high = neurons[~below]
            lower[0, low] = np.where(bounds[0, below] > lower[0, low], bounds[0, below], lower[0, low])
            high = -bounds[0, ~below]
            upper[0, minus_high] = np.where(high < upper[0, minus_high], high, upper[0, minus_high])
        return regions.with_bounds(lower, upper)

    def _check_cover(self, lemma: TreeLemma) -> None:
        """Raise unless the patterns of every side hold all combinations of signs: then each point is in one of them."""
        if not len(lemma):
            return
        literals = lemma.literals.astype(np.int64)
        pattern = np.repeat(np.arange(len(lemma)), lemma.splits)
        paths = Paths(len(lemma), pattern, literals >> 1, literals & 1, np.full(len(literals), -1))
        gap = find_gap(paths, self.network.neurons, lemma.sides)
        if gap is not None:
            side = int(lemma.sides[gap.leaf])
            raise CertificateError(f"the splits that bound ReLU {side >> 1} from one side leave a gap")

    def by_patterns(self, regions: Where, lemma: TreeLemma, proved: Array) -> Where:
        """The bounds with those of every side improved by the least that its patterns prove, if these leave no gap."""
        self._check_cover(lemma)
        lower, upper = regions.lower.copy(), regions.upper.copy()
        sides, of = np.unique(lemma.sides.astype(np.int64), return_inverse=True)
        least = np.full(len(sides), np.inf, dtype=proved.dtype)
        np.minimum.at(least, of, proved)
        least = np.where(least == np.inf, -np.inf, least)  # then known bounds contradict each other anyway
        below = sides & 1 == 0
        low, minus_high = sides[below] >> 1, sides[~below] >> 1
        lower[0, low] = np.where(least[below] > lower[0, low], least[below], lower[0, low])
        high = -least[~below]
        upper[0, minus_high] = np.where(high < upper[0, minus_high], high, upper[0, minus_high])
        return regions.with_bounds(lower, upper)

    def patterns(self, lemma: TreeLemma) -> Array:
        """A lower bound of every pattern's functional where its splits hold, by what is known before the lemma."""
        box, clause = self.shape.check_lemma(lemma)
        regions = self.root(box) if clause is None else self.of_clause(clause)
        values = np.full(len(lemma), -np.inf, dtype=self.prover.layers.dtype)
        first = np.cumsum(lemma.splits, dtype=np.int64) - lemma.splits
        for i in self.network.relus:
            part = self.network.slices[i]
            own = np.flatnonzero((lemma.sides >> 1 >= part.start) & (lemma.sides >> 1 < part.stop))
            for piece in _pieces(own, max(1, ELEMENTS // self.prover.widest)):
                row = np.repeat(np.arange(len(piece)), lemma.splits[piece])
                # The numbers of a piece's splits: each pattern's stand together.
                start = np.cumsum(lemma.splits[piece], dtype=np.int64) - lemma.splits[piece]
                e = np.arange(len(row)) + np.repeat(first[piece] - start, lemma.splits[piece])
                values[piece] = self._in_patterns(regions, lemma, piece, (row, e), i, clause)
        return values

    def _in_patterns(
        self, regions: Where, lemma: TreeLemma, piece: Array, splits: tuple[Array, Array], relu: int, clause: int | None
    ) -> Array:
        """Lower bounds of some patterns that are about one layer; `splits` as `part` has them."""
        number, (row, e) = self.prover.layers.number, splits
        source = self.network.nodes[relu].inputs[0]
        shape = (len(piece), regions.low.shape[1])
        low, high = np.broadcast_to(regions.low, shape), np.broadcast_to(regions.high, shape)
        lower, upper = _cut_at_zero(regions, len(piece), row, lemma.literals[e])
        inside = replace(regions, low=low, high=high, lower=lower, upper=upper)
        sides = lemma.sides[piece].astype(np.int64)
        f = self.prover.layers.zeros(len(piece), 1, self.network.nodes[source].size)
        f[np.arange(len(piece)), 0, (sides >> 1) - self.network.slices[relu].start] = np.where(sides & 1 == 1, -1, 1)
        slope = self.prover.slopes(inside, ADAPTIVE)
        slope[:, 0, lemma.slots] = number(lemma.slopes[lemma.vector[piece]] / STEPS)
        sign = self.prover.layers.zeros(*slope.shape)
        sign[row, 0, lemma.literals[e] >> 1] = number(lemma.signs[e])
        passing = Passing(slope, sign)
        if clause is None:
            value = self.prover.least(inside, {source: f}, passing)[:, 0]
        else:
            weights = number(lemma.weights[piece])[:, None, : len(self.clauses[clause].offsets)]
            value = self.prover.least_of_rows(inside, self.clauses[clause], weights, passing, {source: f})[:, 0]
        return np.where(inside.empty, np.inf, value)

    def bounds(self, leaves: Leaves) -> Array:
        """A lower bound for every leaf, of what is above 0 only where the leaf holds no unsafe point."""
        entries = self.shape.check_leaves(leaves)
        values = np.full(len(leaves), -np.inf, dtype=self.prover.layers.dtype)
        effort = np.where(leaves.kind == LOCAL, 1 + leaves.vector // KINDS, 0)  # equal in a piece
        order = np.lexsort((effort, leaves.clause))
        cuts = np.flatnonzero((np.diff(leaves.clause[order]) != 0) | (np.diff(effort[order]) != 0)) + 1
        for same in np.split(order, cuts) if len(order) else ():
            for piece in self.pieces(same, local=bool(leaves.kind[same[0]] == LOCAL)):
                values[piece] = self._bounds(leaves, entries, piece)
        return values

    def pieces(self, rows: Array, *, local: bool) -> Iterator[Array]:
        """Leaves in pieces that fit a cache; deriving all bounds again takes many functionals of each."""
        elements = self.prover.widest * (min(self.prover.widest, 64) if local else 1)
        return _pieces(rows, max(1, ELEMENTS // elements))

    def _bounds(self, leaves: Leaves, entries: Entries, piece: Array) -> Array:
        """Lower bounds of leaves of one clause, all of them LOCAL (and with the same effort) or none."""
        clause = int(leaves.clause[piece[0]])
        number = self.prover.layers.number
        regions, splits = self.part(leaves, entries, piece)
        weights = number(leaves.weights[piece])[:, None, : len(self.clauses[clause].offsets)]
        kind = leaves.kind[piece]
        vector = leaves.vector[piece].astype(np.int64)
        empty = regions.empty
        if (kind == EMPTY).all():
            return np.where(empty, np.inf, -np.inf)
        if kind[0] == LOCAL:
            regions = self.inside(regions, clause, int(vector[0]) // KINDS)
            empty = empty | regions.empty
            slopes = [self.prover.slopes(regions, k) for k in range(KINDS)]
            passing = Passing(np.stack(slopes)[vector % KINDS, np.arange(len(piece))])
        else:
            passing = self._passing(leaves, regions, kind, vector, splits)
        # Contradicting bounds have no values between them; what is computed there does not count.
        value = self.prover.least_of_rows(regions, self.clauses[clause], weights, passing)[:, 0]
        return np.where(empty, np.inf, np.where(kind == EMPTY, -np.inf, value))

    def inside(self, regions: Where, clause: int, effort: int) -> Where:
        """Bounds derived again in leaves of a clause: at once, twice over, or on the way from the whole box."""
        box = self.root(self.clauses[clause].box)
        if effort == STEP_BY_STEP:
            return self.prover.step_by_step(regions, box.low[0], box.high[0])
        return self.prover.local(self.prover.local(regions) if effort == TWICE else regions)

    def part(self, leaves: Leaves, entries: Entries, piece: Array) -> tuple[Where, tuple[Array, Array]]:
        """Where leaves of one clause are; and their splits, as (place in the piece, entry)."""
        place = np.full(len(leaves), -1)
        place[piece] = np.arange(len(piece))
        e, h = (np.flatnonzero(place[of] >= 0) for of in (entries.of_split, entries.of_halving))
        row, halved = place[entries.of_split[e]], place[entries.of_halving[h]]
        clause = int(leaves.clause[piece[0]])
        regions = self.of_clause(clause)
        lower, upper = _cut_at_zero(regions, len(piece), row, leaves.literals[e])
        shape = (len(piece), regions.low.shape[1])
        low, high = np.broadcast_to(regions.low, shape), np.broadcast_to(regions.high, shape)
        if len(h):
            box = self.boxes[self.clauses[clause].box]
            k = leaves.inputs[h].astype(np.int64)
            ends = halved_sides(box.lower.numpy()[k], box.upper.numpy()[k], leaves.times[h], leaves.halves[h])
            low, high = low.copy(), high.copy()
            low[halved, k], high[halved, k] = (self.prover.layers.number(end) for end in ends)
        return replace(regions, low=low, high=high, lower=lower, upper=upper), (row, e)

    def _passing(
        self, leaves: Leaves, regions: Where, kind: Array, vector: Array, splits: tuple[Array, Array]
    ) -> Passing:
        """How the leaves' functionals pass ReLUs: slopes and multipliers as they are stored, or direct ones."""
        number, (row, e) = self.prover.layers.number, splits
        slope = self.prover.slopes(regions, ADAPTIVE)
        for which, table, first in ((SLOPES, leaves.coarse, 1), (FINE, leaves.fine, 0)):
            rows = np.flatnonzero((kind == which) & (vector >= first))
            if len(rows):
                values = table[vector[rows] - first]
                values = values / STEPS if which == SLOPES else values
                slope[rows[:, None], 0, leaves.slots[None]] = number(values)
        sign = self.prover.layers.zeros(*slope.shape)
        sign[row, 0, leaves.literals[e] >> 1] = number(leaves.signs[e])
        direct = np.flatnonzero(kind == DIRECT)
        if not len(direct):
            return Passing(slope, sign)
        values = leaves.fine[vector[direct]]
        is_given = np.zeros(slope.shape, dtype=bool)
        is_given[direct[:, None], 0, leaves.slots[None]] = ~np.isnan(values)
        given = self.prover.layers.zeros(*slope.shape)
        given[direct[:, None], 0, leaves.slots[None]] = number(np.nan_to_num(values))
        return Passing(slope, sign, given, is_given)


def halved_sides(low: Array, high: Array, times: Array, halves: Array) -> tuple[Array, Array]:
    """The sides of inputs halved so many times; the middle is what float64 makes of it, and belongs to both halves."""
    low, high = low.copy(), high.copy()
    for t in range(int(times.max(initial=0))):
        active = times > t
        shift = np.where(active, times.astype(np.int64) - 1 - t, 0).astype(np.uint64)
        second = ((halves >> shift) & np.uint64(1)) == 1
        middle = low / 2 + high / 2
        if not bool(((low <= middle) & (middle <= high))[active].all()):
            raise CertificateError("a chunk of leaves halves an input that has no middle")
        low = np.where(active & second, middle, low)
        high = np.where(active & ~second, middle, high)
    return low, high


def _cut_at_zero(regions: Where, count: int, row: Array, literals: Array) -> tuple[Array, Array]:
    """The bounds of one region so many times, those in each row cut at 0 by its splits."""
    lower, upper = (np.repeat(side, count, axis=0) for side in (regions.lower, regions.upper))
    neuron = literals.astype(np.int64) >> 1
    on = (literals & 1) == 1
    lower[row[on], neuron[on]] = np.maximum(lower[row[on], neuron[on]], 0)
    upper[row[~on], neuron[~on]] = np.minimum(upper[row[~on], neuron[~on]], 0)
    return lower, upper


def _pieces(rows: Array, step: int) -> Iterator[Array]:
    for first in range(0, len(rows), step):
        yield rows[first : first + step]
