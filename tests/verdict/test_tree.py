"""Coverage of leaves against brute force: every corner of the cube of signs, every cell of halved inputs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bough.verdict.check.tree import Paths, find_gap

VARIABLES, INPUTS, DEEPEST = 4, 2, 2  # ReLUs, inputs, and how often an input is halved at most
Leaf = tuple[tuple[int, int], ...]  # (variable, side): halvings of an input in their order


def paths(leaves: list[Leaf]) -> Paths:
    leaf: list[int] = []
    variable, side, after = [], [], []
    for k, path in enumerate(leaves):
        last: dict[int, int] = {}
        for v, s in sorted(path, key=lambda entry: entry[0]):  # stable: halvings stay in order
            after.append(last.get(v, -1) if v >= VARIABLES else -1)
            last[v] = len(leaf)
            leaf.append(k)
            variable.append(v)
            side.append(s)
    return Paths(len(leaves), *(np.array(a, dtype=np.int64) for a in (leaf, variable, side, after)))


def covered(leaves: list[Leaf]) -> bool:
    """Whether every sign pattern, with every cell of the finest halving, is in some leaf."""
    cells = itertools.product(*[range(2)] * VARIABLES, *[itertools.product(range(2), repeat=DEEPEST)] * INPUTS)
    for cell in cells:

        def holds(path: Leaf, cell=cell) -> bool:
            depths: dict[int, int] = {}
            for v, s in path:
                if v < VARIABLES:
                    if cell[v] != s:
                        return False
                else:
                    if cell[v][depths.get(v, 0)] != s:
                        return False
                    depths[v] = depths.get(v, 0) + 1
            return True

        if not any(holds(path) for path in leaves):
            return False
    return True


@st.composite
def trees(draw: st.DrawFn) -> list[Leaf]:
    """The leaves of a random tree, shuffled."""

    def grow(path: Leaf, depth: int) -> list[Leaf]:
        counts = {v: sum(1 for w, _ in path if w == v) for v in range(VARIABLES + INPUTS)}
        choices = [v for v, n in counts.items() if n < (1 if v < VARIABLES else DEEPEST)]
        if depth == 0 or not choices or draw(st.booleans()):
            return [path]
        v = draw(st.sampled_from(choices))
        return [leaf for side in (0, 1) for leaf in grow((*path, (v, side)), depth - 1)]

    return draw(st.permutations(grow((), 5)))


@given(trees())
def test_the_leaves_of_a_tree_cover_it_in_any_order(leaves):
    assert covered(leaves)
    assert find_gap(paths(leaves), VARIABLES + INPUTS) is None


@given(trees(), st.data())
def test_a_tree_without_a_leaf_has_a_gap_beside_another(leaves, data):
    dropped = data.draw(st.integers(0, len(leaves) - 1))
    left = [leaf for k, leaf in enumerate(leaves) if k != dropped]
    gap = find_gap(paths(left), VARIABLES + INPUTS)
    assert gap is not None
    assert -1 <= gap.leaf < max(len(left), 1)


@given(trees(), st.data())
@settings(max_examples=300)
def test_changed_leaves_are_accepted_only_if_nothing_is_left_out(leaves, data):
    changed = [list(leaf) for leaf in leaves]
    for _ in range(data.draw(st.integers(1, 2))):
        leaf = changed[data.draw(st.integers(0, len(changed) - 1))]
        if leaf:
            at = data.draw(st.integers(0, len(leaf) - 1))
            v, side = leaf[at]
            leaf[at] = (v, 1 - side)
            if data.draw(st.booleans()):
                del leaf[at]
    changed_leaves = [tuple(leaf) for leaf in changed]
    if find_gap(paths(changed_leaves), VARIABLES + INPUTS) is None:
        assert covered(changed_leaves)


def test_one_leaf_without_splits_covers_everything():
    assert find_gap(paths([()]), 4) is None
    assert find_gap(paths([((1, 0),), ()]), 4) is None


def test_no_leaf_covers_nothing():
    gap = find_gap(paths([]), 4)
    assert gap is not None
    assert gap.leaf == -1


def test_a_gap_is_named_by_the_splits_that_lead_there():
    gap = find_gap(paths([((1, 0),), ((1, 1), (2, 0))]), VARIABLES + INPUTS)
    assert gap is not None
    assert gap.path == ((1, 1), (2, 1))
    assert gap.leaf == 1


def test_leaves_that_cover_without_a_common_split_are_not_believed():
    """Three overlapping leaves and one in the middle cover a cube without being a tree: refused, since no search makes
    them so.
    """
    leaves: list[Leaf] = [((0, 0), (1, 1)), ((1, 0), (2, 1)), ((2, 0), (0, 1)), ((0, 0), (1, 0), (2, 0))]
    leaves.append(((0, 1), (1, 1), (2, 1)))
    assert covered(leaves)
    assert find_gap(paths(leaves), VARIABLES + INPUTS) is not None


@pytest.mark.parametrize("depth", [12])
def test_a_deep_and_lopsided_tree_is_quick(depth):
    leaves = [(*((v, 1) for v in range(k)), (k, 0)) for k in range(300)]
    leaves.append(tuple((v, 1) for v in range(300)))
    count = 1 << depth
    full = [tuple((v, leaf >> v & 1) for v in range(depth)) for leaf in range(count)]
    for tree in (leaves, full):
        entries = [(k, v, s) for k, path in enumerate(tree) for v, s in path]
        leaf, variable, side = (np.array(column) for column in zip(*entries, strict=True))
        assert find_gap(Paths(len(tree), leaf, variable, side, np.full(len(leaf), -1)), 400) is None
