"""Trees of splits as a certificate stores them: the patterns that a bound needs, with few numbers; nothing is proved.

A tree that grew holds more than its bound needs, since several leaves are split at a time. Its patterns are those
nodes, as near to the root as may be, that are at least as high as the bound; what lies below them is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.bounds.trees import TreeLeaves
from bough.search.leaves import COARSE_BITS, as_numpy, in_bytes, shortened
from bough.verdict.certificate import MOST_BYTES, MOST_LEAVES, TreeLemma

Array = NDArray[Any]
GIVEN_UP = 0.05  # of what a tree gains over its root, for which fewer patterns do


@dataclass(frozen=True, eq=False)
class Patterns:
    """The patterns of some sides of one layer, side after side, with slopes in common and each pattern's own."""

    lemma: TreeLemma  # by slopes in common: those of the lowest pattern of each side
    own: Array  # u1 [patterns, n]
    value: Array  # [patterns], as ascent computed it

    @cached_property
    def sides(self) -> Array:
        """The sides, ascending."""
        return np.unique(self.lemma.sides)

    @cached_property
    def of(self) -> Array:
        """Which of the sides each pattern is of."""
        return np.asarray(np.searchsorted(self.sides, self.lemma.sides))

    def headed(self, head: tuple[int, int]) -> "Patterns":
        """The same about a box, or a clause's unsafe points."""
        rows = self.lemma.weights.shape[1] if head[1] else 0
        return replace(self, lemma=replace(self.lemma, head=np.array(head), weights=self.lemma.weights[:, :rows]))

    def gain(self, values: Array, bounds: tuple[Array, Array]) -> Array:
        """What every side gains over bounds [neurons] by values of its patterns."""
        least = np.full(len(self.sides), np.inf)
        np.minimum.at(least, self.of, values)
        return np.asarray(np.maximum(least - self._before(bounds), 0))

    def worth(self, gain: Array, bounds: tuple[Array, Array], share: float) -> Array:
        """Which sides gain more than a share of the ReLU's width, or decide it."""
        lower, upper = bounds
        width = np.maximum((upper - lower)[self.sides >> 1], 1e-300)
        before = self._before(bounds)
        return np.flatnonzero((gain > share * width) | ((before < 0) & (before + gain >= 0)))

    def _before(self, bounds: tuple[Array, Array]) -> Array:
        """The bound of every side from below."""
        lower, upper = bounds
        return np.asarray(np.where(self.sides & 1, -upper[self.sides >> 1], lower[self.sides >> 1]))

    def with_own_slopes(self, some: Array | None = None) -> "Patterns":
        """Some sides, or all, by each pattern's own slopes; the others as they are."""
        chosen = np.isin(self.of, np.arange(len(self.sides)) if some is None else some)
        vector = np.where(chosen, len(self.lemma.slopes) + np.cumsum(chosen) - 1, self.lemma.vector)
        slopes = np.concatenate([self.lemma.slopes, self.own[chosen]])
        return replace(self, lemma=replace(self.lemma, vector=vector, slopes=slopes))

    def of_sides(self, some: Array) -> "Patterns":
        """The patterns of some sides, with the slopes that they use."""
        lemma, rows = self.lemma, np.flatnonzero(np.isin(self.of, some))
        entries = np.isin(np.repeat(np.arange(len(lemma)), lemma.splits), rows)
        used, vector = np.unique(lemma.vector[rows], return_inverse=True)
        part = replace(
            lemma,
            sides=lemma.sides[rows],
            vector=vector,
            splits=lemma.splits[rows],
            literals=lemma.literals[entries],
            signs=lemma.signs[entries],
            weights=lemma.weights[rows],
            slopes=lemma.slopes[used],
        )
        return Patterns(part, self.own[rows], self.value[rows])

    def parts(self) -> Iterator["Patterns"]:
        """The same in parts that a reader takes; a side that is too large by itself is left out."""
        size = 8 * (sum(np.asarray(array).size for array in vars(self.lemma).values()) + self.own.size)
        if len(self.lemma) <= MOST_LEAVES and size <= MOST_BYTES:
            yield self
        elif len(self.sides) > 1:
            for half in np.array_split(np.arange(len(self.sides)), 2):
                yield from self.of_sides(half).parts()


def patterns_of(
    sides: Array, slots: Tensor, known: Tensor, trees: TreeLeaves, clauses: Array | None = None
) -> Iterator[tuple[int, Patterns]]:
    """What a certificate needs of trees that come with all that was split in them, by clause (-1: of the box)."""
    split = torch.where(known[trees.owner] == 0, trees.signs, 0)
    owner = as_numpy(trees.owner)
    value = as_numpy(trees.value.double())
    needed = _needed(as_numpy(split), owner, value)
    clause = np.full(len(sides), -1) if clauses is None else clauses
    for number in np.unique(clause[owner]).tolist():
        own = needed[clause[owner[needed]] == number]
        rows = own[np.lexsort((value[own], sides[owner[own]]))]  # of each side, the lowest first
        here = torch.from_numpy(rows).to(split.device)
        yield number, _patterns(sides[owner[rows]], slots, split[here], trees[here], value[rows])


def _patterns(sides: Array, slots: Tensor, split: Tensor, nodes: TreeLeaves, value: Array) -> Patterns:
    row, at = split.nonzero(as_tuple=True)
    numbers = nodes.duals.p.double().nan_to_num()
    own = as_numpy(in_bytes(numbers.where(split == 0, 0.0)))
    _, first, of = np.unique(sides, return_index=True, return_inverse=True)
    # Where the lowest pattern has a split, others of its side need a slope, and have the greatest of theirs.
    greatest = np.maximum.reduceat(own, first, axis=0) if len(own) else own
    common = np.where(as_numpy(split)[first] == 0, own[first], greatest)
    lemma = TreeLemma(
        head=np.zeros(2, np.int64),
        sides=sides,
        vector=of,
        splits=np.bincount(as_numpy(row), minlength=len(sides)),
        literals=as_numpy(2 * slots[at] + (split[row, at] > 0)),
        signs=as_numpy(shortened(numbers[row, at], COARSE_BITS)),
        weights=as_numpy(shortened(nodes.duals.logits.double().nan_to_num().clamp(min=0), COARSE_BITS)),
        slots=as_numpy(slots),
        slopes=common,
    )
    return Patterns(lemma, own, value)


def _needed(split: Array, owner: Array, value: Array) -> Array:
    """The nodes that are kept: high enough, and below none that is; together they cover what their trees do."""
    parent, key = _parents(split, owner)
    _, first = np.unique(key, return_index=True)  # a node that could not be split is there twice
    leaf = np.ones(len(owner), dtype=bool)
    leaf[parent[parent >= 0]] = False
    count = int(owner.max(initial=-1)) + 1
    least, root = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, owner[leaf], value[leaf])
    top = parent < 0
    root[owner[top]] = value[top]
    # A bound above 0 decides a ReLU, and half of it does so, too.
    enough = np.where(least > 0, least / 2, least - GIVEN_UP * (least - root))
    high = leaf | (value >= enough[owner])
    below = np.zeros(len(owner), dtype=bool)
    depth = (split != 0).sum(axis=1)
    for level in range(1, int(depth.max(initial=0)) + 1):
        some = np.flatnonzero(depth == level)
        below[some] = (below | high)[parent[some]]
    return np.intersect1d(first, np.flatnonzero(high & ~below))


def _parents(split: Array, owner: Array) -> tuple[Array, Array]:
    """The parent of every node, -1 of a root; and a number for every pattern of every tree.

    A node's parent is the node that lacks one of its splits. There is one such, since a tree's other splits there were
    made before.
    """
    random = np.random.default_rng(0)
    row, at = np.nonzero(split)
    number = random.integers(1 << 62, size=(split.shape[1],))[at] * split[row, at].astype(np.int64)
    key = random.integers(1 << 62, size=int(owner.max(initial=-1)) + 1)[owner]
    np.add.at(key, row, number)
    order = np.argsort(key, kind="stable")
    lacking = key[row] - number
    place: Array = np.searchsorted(key, lacking, sorter=order)
    found = order[place.clip(max=len(key) - 1)]
    here = key[found] == lacking
    parent = np.full(len(owner), -1)
    parent[row[here]] = found[here]
    return parent, key
