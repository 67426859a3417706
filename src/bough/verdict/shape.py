"""Whether the arrays of a chunk fit each other, the network and the property; nothing is believed that is in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bough.errors import CertificateError
from bough.network.graph import Network
from bough.problem.property import Property
from bough.verdict.certificate import DIRECT, EMPTY, FINE, LOCAL, MOST_LEAVES, SLOPES, Leaves, Lemma, TreeLemma

Array = NDArray[Any]
MOST_TIMES = 64  # an input is halved at most so often, since its halves are bits of one number
KINDS = 4  # there are so many kinds of slopes that follow from bounds
EFFORTS = 3  # there are so many ways to derive bounds again in a leaf


@dataclass(frozen=True, eq=False)
class Entries:
    """The splits and halvings of leaves: for every entry, its leaf."""

    of_split: Array
    of_halving: Array

    @staticmethod
    def of(leaves: Leaves) -> "Entries":
        """The entries of leaves; raises unless the counts fit."""
        counts = leaves.splits.astype(np.int64), leaves.halvings.astype(np.int64)
        lists = (leaves.literals, leaves.signs), (leaves.inputs, leaves.times, leaves.halves)
        for count, arrays in zip(counts, lists, strict=True):
            if len(count) != len(leaves) or any(int(count.sum()) != len(a) for a in arrays):
                raise CertificateError("a chunk of leaves has more or fewer splits than it counts")
        return Entries(*(np.repeat(np.arange(len(leaves)), count) for count in counts))


@dataclass(frozen=True)
class Shape:
    """The sizes of network and property that chunks have to fit."""

    neurons: int
    inputs: int
    rows: int  # of the clause that has most
    boxes: tuple[int, ...]  # of every clause

    @staticmethod
    def of(network: Network, prop: Property) -> "Shape":
        """The sizes of a network and a property."""
        rows = max(len(clause.offsets) for clause in prop.clauses)
        return Shape(network.neurons, network.inputs, rows, tuple(clause.box for clause in prop.clauses))

    def check_lemma(self, lemma: Lemma | TreeLemma) -> tuple[int, int | None]:
        """The lemma's box, and its clause if it has one; raises unless it fits."""
        head = lemma.head.astype(np.int64).tolist()
        fits = len(head) == 2 and head[1] <= len(self.boxes)
        fits = fits and (self.boxes[head[1] - 1] == head[0] if head[1] else head[0] in self.boxes)
        fits = fits and (self._plain_fits(lemma) if isinstance(lemma, Lemma) else self._trees_fit(lemma))
        rows = 2 * len(lemma.neurons) if isinstance(lemma, Lemma) else len(lemma)
        fits = fits and lemma.weights.shape == (rows, self.rows if head[1] else 0)
        fits = fits and _ascending(lemma.slots, self.neurons)
        if not (fits and bool((np.isfinite(lemma.weights) & (lemma.weights >= 0)).all())):
            raise CertificateError("bounds of ReLUs are claimed that do not fit the network and the property")
        return head[0], head[1] - 1 if head[1] else None

    def _plain_fits(self, lemma: Lemma) -> bool:
        size = (2 * len(lemma.neurons), len(lemma.slots))
        return lemma.slopes.shape == size and _ascending(lemma.neurons, self.neurons)

    def _trees_fit(self, lemma: TreeLemma) -> bool:
        """Whether the patterns' arrays fit each other, and name ReLUs, each split once in a pattern."""
        count = lemma.splits.astype(np.int64)
        fits = len(lemma) <= MOST_LEAVES and len(lemma.sides) == len(lemma.vector) == len(count)
        fits = fits and int(count.sum()) == len(lemma.literals) == len(lemma.signs)
        if not fits or lemma.slopes.shape[1] != len(lemma.slots):
            return False
        neuron = lemma.literals >> 1
        same = np.diff(np.repeat(np.arange(len(lemma)), count)) == 0
        named = bool((lemma.sides >> 1 < self.neurons).all()) and bool((neuron < self.neurons).all())
        once = bool((neuron[1:] > neuron[:-1])[same].all()) and bool((lemma.vector < len(lemma.slopes)).all())
        return named and once and bool(np.isfinite(lemma.signs).all())

    def check_leaves(self, leaves: Leaves) -> Entries:
        """Which leaf every split is of; raises unless the leaves fit."""
        entries = Entries.of(leaves)
        for wrong, sound in self._checks(leaves, entries):
            if not sound:
                raise CertificateError(f"a chunk of leaves has {wrong}")
        return entries

    def _checks(self, leaves: Leaves, entries: Entries) -> Iterator[tuple[str, bool]]:
        """What may be wrong, and whether it is right, in an order in which later checks rest on earlier ones."""
        count = len(leaves)
        n = len(leaves.slots)
        kind = leaves.kind
        vector = leaves.vector
        yield f"more than {MOST_LEAVES} leaves", count <= MOST_LEAVES
        sizes = len(kind) == len(vector) == count and leaves.weights.shape == (count, self.rows)
        yield "arrays of other lengths than leaves", sizes and leaves.coarse.shape[1] == leaves.fine.shape[1] == n
        yield "a clause that the property has not", bool((leaves.clause < len(self.boxes)).all())
        yield "slopes of ReLUs that the network has not", _ascending(leaves.slots, self.neurons)
        most = np.zeros(256, dtype=np.int64)
        most[[SLOPES, FINE, DIRECT]] = len(leaves.coarse) + 1, len(leaves.fine), len(leaves.fine)
        most[[LOCAL, EMPTY]] = KINDS * EFFORTS, 1
        yield "a proof of no kind", bool((vector < most[kind]).all())
        neuron = leaves.literals >> 1
        same = np.diff(entries.of_split) == 0
        yield "a split of no ReLU", bool((neuron < self.neurons).all())
        yield "two splits of one ReLU", bool((neuron[1:] > neuron[:-1])[same].all())
        times = leaves.times
        same = np.diff(entries.of_halving) == 0
        yield "a halving of no input", bool((leaves.inputs < self.inputs).all())
        yield "two halvings of one input", bool((leaves.inputs[1:] > leaves.inputs[:-1])[same].all())
        yield "an input halved too often", bool(((times >= 1) & (times <= MOST_TIMES)).all())
        yield "a half that there is not", bool((leaves.halves >> (times - 1).astype(np.uint64) <= 1).all())
        yield "a weight below 0", bool((np.isfinite(leaves.weights) & (leaves.weights >= 0)).all())
        finite = bool(np.isfinite(leaves.signs).all()) and not bool(np.isinf(leaves.fine).any())
        yield "a multiplier that is no number", finite and not bool(np.isnan(leaves.fine[vector[kind == FINE]]).any())


def _ascending(numbers: Array, below: int) -> bool:
    signed = numbers.astype(np.int64)
    return bool((np.diff(signed) > 0).all() and (signed < below).all())
