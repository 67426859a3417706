"""The queue of open domains: lowest bound first, the newest among equals, and pruning reports what it drops."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import domains_of, tensor

from bough.domain.batch import Bounds, DomainBatch
from bough.search.frontier import Frontier


def some(lowers: list[float], depth: int = 0) -> DomainBatch:
    count = len(lowers)
    domains = domains_of(
        Bounds(-torch.ones(count, 2).double(), torch.ones(count, 2).double()), torch.ones(1, 1).double()
    )
    return DomainBatch(**{**vars(domains), "lower": tensor(lowers), "depth": torch.full((count,), depth)})


@given(st.lists(st.floats(-10, 10) | st.just(-float("inf")), min_size=1, max_size=20), st.integers(1, 5))
def test_the_lowest_bounds_come_first(lowers, count):
    frontier = Frontier()
    frontier.push(some(lowers))
    taken: list[float] = []
    while len(frontier):
        assert frontier.lowest == min(sorted(lowers)[len(taken) :])
        taken += frontier.pick(count).lower.tolist()
    assert taken == sorted(lowers)
    assert frontier.lowest == float("inf")


def test_the_newest_of_equals_comes_first():
    frontier = Frontier()
    for depth in range(3):
        frontier.push(some([1.0], depth))
    assert [int(frontier.pick(1).depth) for _ in range(3)] == [2, 1, 0]


@given(st.lists(st.floats(-10, 10), max_size=20), st.floats(-10, 10))
def test_pruning_drops_what_is_above_and_says_the_lowest_of_it(lowers, cutoff):
    frontier = Frontier()
    frontier.push(some(lowers))
    above = [v for v in lowers if v > cutoff]
    assert frontier.prune(cutoff) == min(above, default=float("inf"))
    assert len(frontier) == len(lowers) - len(above)
    if len(frontier):
        assert frontier.pick(99).lower.tolist() == sorted(v for v in lowers if v <= cutoff)
