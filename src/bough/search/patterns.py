"""Trees of splits as a certificate stores them: the patterns that a bound needs, with few numbers; nothing is proved.

A tree that grew holds more than its bound needs, since several leaves are split at a time. Its patterns are those
nodes, as near to the root as may be, that are high enough; what lies below them is left out. A lower bound takes fewer
patterns, so the share of the gain that is kept is what is best worth the bytes.
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
PATTERN_GAIN = 3e-4  # of a ReLU's width, for which a pattern is worth its bytes
SHARES = (1.0, 0.95, 0.85, 0.7, 0.5, 0.3)  # of what a tree gains, that are tried


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

    def better(self, values: Array, others: Array, bounds: tuple[Array, Array], factor: float) -> Array:
        """The sides that patterns' values make gain so many times what others make, or decide as others do not."""
        gain, less = (self._least(v) - _before(self.sides, bounds)[0] for v in (values, others))
        decided = (self._least(values) >= 0) & (self._least(others) < 0)
        return np.flatnonzero((gain > 0) & ((gain > factor * less) | decided))

    def worth(self, values: Array, bounds: tuple[Array, Array], share: float) -> Array:
        """The sides that patterns' values make gain more than a share of the ReLU's width, or decide."""
        known, width = _before(self.sides, bounds)
        least = self._least(values)
        return np.flatnonzero((least - known > share * width) | ((known < 0) & (least >= 0)))

    def _least(self, values: Array) -> Array:
        """The least value of every side."""
        least = np.full(len(self.sides), np.inf)
        np.minimum.at(least, self.of, values)
        return least

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
        """The patterns in parts that a reader takes; a side that is too large by itself is left out."""
        size = 8 * (sum(np.asarray(array).size for array in vars(self.lemma).values()) + self.own.size)
        if len(self.lemma) <= MOST_LEAVES and size <= MOST_BYTES:
            yield self
        elif len(self.sides) > 1:
            for half in np.array_split(np.arange(len(self.sides)), 2):
                yield from self.of_sides(half).parts()


def patterns_of(
    head: tuple[int, int],
    sides: Array,
    slots: Tensor,
    known: Tensor,
    trees: TreeLeaves,
    bounds: tuple[Array, Array],
) -> Patterns:
    """What a certificate needs of trees that come with all that was split in them, beyond bounds [neurons]."""
    split = torch.where(known[trees.owner] == 0, trees.signs, 0)
    owner = as_numpy(trees.owner)
    value = as_numpy(trees.value.double())
    needed = _needed(as_numpy(split), owner, value, *_before(sides, bounds))
    rows = needed[np.lexsort((value[needed], sides[owner[needed]]))]  # of each side, the lowest first
    here = torch.from_numpy(rows).to(split.device)
    return _patterns(head, sides[owner[rows]], slots, split[here], trees[here], value[rows])


def _before(sides: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
    """The bound of every side by bounds [neurons], and the width of its ReLU."""
    lower, upper = (side[sides >> 1] for side in bounds)
    return np.where(sides & 1, -upper, lower), np.maximum(upper - lower, 1e-300)


def _patterns(
    head: tuple[int, int], sides: Array, slots: Tensor, split: Tensor, nodes: TreeLeaves, value: Array
) -> Patterns:
    row, at = split.nonzero(as_tuple=True)
    numbers = nodes.duals.p.double().nan_to_num()
    weights = nodes.duals.logits.double().nan_to_num().clamp(min=0)
    own = as_numpy(in_bytes(numbers.where(split == 0, 0.0)))
    _, first, of = np.unique(sides, return_index=True, return_inverse=True)
    # Where the lowest pattern has a split, others of its side need a slope, and have the greatest of theirs.
    greatest = np.maximum.reduceat(own, first, axis=0) if len(own) else own
    common = np.where(as_numpy(split)[first] == 0, own[first], greatest)
    lemma = TreeLemma(
        head=np.array(head),
        sides=sides,
        vector=of,
        splits=np.bincount(as_numpy(row), minlength=len(sides)),
        literals=as_numpy(2 * slots[at] + (split[row, at] > 0)),
        signs=as_numpy(shortened(numbers[row, at], COARSE_BITS)),
        weights=as_numpy(shortened(weights[:, : weights.shape[1] if head[1] else 0], COARSE_BITS)),
        slots=as_numpy(slots),
        slopes=common,
    )
    return Patterns(lemma, own, value)


def _needed(split: Array, owner: Array, value: Array, known: Array, width: Array) -> Array:
    """The nodes that are kept, of each tree those of the share of its gain that is best worth its patterns.

    They are the nodes above a threshold that are below no other such node, and so cover what the tree does. A tree that
    decides a ReLU is kept in any case.
    """
    parent, key = _parents(split, owner)
    first = np.zeros(len(owner), dtype=bool)
    first[np.unique(key, return_index=True)[1]] = True  # a node that could not be split is there twice
    leaf = np.ones(len(owner), dtype=bool)
    leaf[parent[parent >= 0]] = False
    least, root = np.full(len(known), np.inf), np.full(len(known), -np.inf)
    np.minimum.at(least, owner[leaf], value[leaf])
    np.maximum.at(root, owner[parent < 0], value[parent < 0])
    begin = np.maximum(root, known)
    depth = (split != 0).sum(axis=1)
    levels = [np.flatnonzero(depth == level) for level in range(1, int(depth.max(initial=0)) + 1)]
    best, kept = np.zeros(len(known)), np.zeros(len(owner), dtype=bool)
    for share in SHARES:
        # Half of a bound above 0 still decides.
        enough = np.where(least > 0, least / 2, begin + share * (least - begin))
        high = leaf | (value >= enough[owner])
        below = np.zeros(len(owner), dtype=bool)
        for some in levels:
            below[some] = (below | high)[parent[some]]
        chosen = first & high & ~below
        cost = PATTERN_GAIN * np.bincount(owner[chosen], minlength=len(known))
        score = np.where(least > 0, np.inf, (enough - known) / width - cost)
        better = score > best
        best = np.maximum(best, score)
        kept = np.where(better[owner], chosen, kept)
    return np.flatnonzero(kept)


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
