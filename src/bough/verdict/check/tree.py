"""Whether leaves leave a gap: from the splits of each leaf alone, in any order, without trusting how they were made.

A group of leaves covers its part of the box if one of them has no further split, or if all of them split by the same
ReLU (or halve the same input once more) and those on either side cover that side. Trees made by splitting have such a
common split everywhere: the one at their root. All groups of one depth are looked at together.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Paths:
    """The splits of the leaves of one clause, in arrays of one entry per split, ordered by leaf.

    `variable` is a ReLU, or beyond them an input; `side` is 0 (blocked, lower half) or 1. Entries of the same input
    stand in the order of its halvings, and `after` is then the entry before; -1 elsewhere.
    """

    leaves: int
    leaf: Array
    variable: Array
    side: Array
    after: Array


@dataclass(frozen=True)
class Gap:
    """A part that no leaf covers: splits (variable, side) that lead there, and a leaf beside it."""

    path: tuple[tuple[int, int], ...]
    leaf: int


def find_gap(paths: Paths, variables: int, tree: Array | None = None) -> Gap | None:
    """The first gap met, or None where there is none; `tree` [leaves] numbers trees that each cover everything."""
    if not paths.leaves:
        return Gap((), -1)
    # Of every leaf; -1: its part is covered.
    group = np.zeros(paths.leaves, dtype=np.int64) if tree is None else tree.astype(np.int64)
    open_ = np.ones(len(paths.leaf), dtype=bool)  # which entries are still to be split by
    while True:
        left = np.bincount(paths.leaf[open_], minlength=paths.leaves)
        done = np.unique(group[(left == 0) & (group >= 0)])
        group[np.isin(group, done)] = -1
        alive = group >= 0
        if not alive.any():
            return None
        _, group[alive], sizes = np.unique(group[alive], return_inverse=True, return_counts=True)
        open_ &= alive[paths.leaf]
        ready = np.flatnonzero(open_ & ((paths.after < 0) | ~open_[paths.after]))
        of = group[paths.leaf[ready]]
        variable = paths.variable[ready]
        keys, counts = np.unique(of * variables + variable, return_counts=True)
        common = keys[counts == sizes[keys // variables]]
        owners, first = np.unique(common // variables, return_index=True)
        if len(owners) < len(sizes):
            missing = int(np.setdiff1d(np.arange(len(sizes)), owners)[0])
            return _gap(paths, open_, int(np.flatnonzero(group == missing)[0]), None)
        chosen = common[first] % variables  # of every group
        used = ready[variable == chosen[of]]
        parts = 2 * group[paths.leaf[used]] + paths.side[used]
        both = np.bincount(parts, minlength=2 * len(sizes)).reshape(-1, 2)
        if not both.all():
            lone = int(np.flatnonzero(~both.all(axis=1))[0])
            absent = (int(chosen[lone]), int(both[lone, 0] > 0))
            return _gap(paths, open_, int(np.flatnonzero(group == lone)[0]), absent)
        group[paths.leaf[used]] = parts
        open_[used] = False


def _gap(paths: Paths, open_: Array, leaf: int, more: tuple[int, int] | None) -> Gap:
    entries = np.flatnonzero((paths.leaf == leaf) & ~open_)
    path = [(int(paths.variable[e]), int(paths.side[e])) for e in entries]
    return Gap((*path, more) if more is not None else tuple(path), leaf)
