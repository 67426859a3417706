"""The queue of open domains: lowest bound first, the newest among equals, and pruning reports what it drops.

Beyond the device's memory domains go to the host and come back; nothing is lost on the way, nor when both are full.
"""

import sys
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import Packing, domains_of, generator, integer, tensor
from torch import Tensor

from bough.budget import OutOfMemory
from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds, DomainBatch
from bough.search import frontier as module
from bough.search.frontier import FIRST_CAPACITY, Frontier, RowPool


def some(lowers: list[float], depth: int = 0) -> DomainBatch:
    count = len(lowers)
    domains = domains_of(
        Bounds(-torch.ones(count, 2).double(), torch.ones(count, 2).double()), torch.ones(1, 1).double()
    )
    return DomainBatch(**{**vars(domains), "lower": tensor(lowers), "depth": torch.full((count,), depth)})


@given(st.lists(st.floats(-10, 10) | st.just(-float("inf")), min_size=1, max_size=20), st.integers(1, 5))
def test_the_lowest_bounds_come_first(lowers, count):
    frontier = Frontier(Packing())
    frontier.push(some(lowers))
    taken: list[float] = []
    while len(frontier):
        assert frontier.lowest == min(sorted(lowers)[len(taken) :])
        taken += frontier.pick(count).lower.tolist()
    assert taken == sorted(lowers)
    assert frontier.lowest == float("inf")


def test_the_newest_of_equals_comes_first():
    frontier = Frontier(Packing())
    for depth in range(3):
        frontier.push(some([1.0], depth))
    assert [int(frontier.pick(1).depth) for _ in range(3)] == [2, 1, 0]


@given(st.lists(st.floats(-10, 10), max_size=20), st.floats(-10, 10))
def test_pruning_drops_what_is_above_and_says_the_lowest_of_it(lowers, cutoff):
    frontier = Frontier(Packing())
    frontier.push(some(lowers))
    above = [v for v in lowers if v > cutoff]
    assert frontier.prune(cutoff) == min(above, default=float("inf"))
    assert len(frontier) == len(lowers) - len(above)
    if len(frontier):
        assert frontier.pick(99).lower.tolist() == sorted(v for v in lowers if v <= cutoff)


def numbered(lowers: list[float], first: int) -> DomainBatch:
    """Domains that can be told apart: `depth` is a running number, and so is the first ReLU's upper bound."""
    domains = some(lowers)
    numbers = first + torch.arange(len(lowers))
    upper = domains.bounds.upper.clone()
    upper[:, 0] += numbers
    return DomainBatch(**{**vars(domains), "depth": numbers, "bounds": Bounds(domains.bounds.lower, upper)})


def row_bytes() -> int:
    frontier = Frontier(Packing())
    frontier.push(some([0.0]))
    assert frontier._near is not None
    return frontier._near.row_bytes


@pytest.mark.parametrize("room", [0, 1, 3, 10, 1000])
def test_what_is_spilt_comes_back(room):
    """Pushes and picks at random, against a plain dictionary: every domain comes out once, as it went in."""
    g = generator(room)
    frontier, known, first = Frontier(Packing(), device_bytes=room * row_bytes()), dict[int, float](), 0
    for step in range(80):
        if step % 40 < 25:
            lowers = torch.randn(integer(g, 1, 12), generator=g).double().tolist()
            frontier.push(numbered(lowers, first))
            known |= dict(enumerate(lowers, start=first))
            first += len(lowers)
        elif known:
            taken = frontier.pick(integer(g, 1, 20))
            assert len(taken)
            for number, lower, upper in zip(
                taken.depth.tolist(), taken.lower.tolist(), taken.bounds.upper[:, 0].tolist(), strict=True
            ):
                assert known.pop(number) == lower
                assert upper == 1.0 + number
        assert len(frontier) == len(known)
        assert frontier.lowest == min(known.values(), default=float("inf"))
    while len(frontier):
        for number in frontier.pick(7).depth.tolist():
            del known[number]
    assert not known


def test_the_best_bounded_half_is_spilt_and_comes_back_lowest_first():
    frontier = Frontier(Packing(), device_bytes=8 * row_bytes())
    frontier.push(numbered([float(k) for k in range(16)], 0))
    assert frontier._far is not None
    assert frontier._far.used == 8
    assert frontier.pick(4).lower.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert frontier.pick(4).lower.tolist() == [4.0, 5.0, 6.0, 7.0]
    assert frontier.pick(4).lower.tolist() == [8.0, 9.0, 10.0, 11.0]
    assert len(frontier) == 4


def test_when_the_host_is_full_there_is_an_error_and_nothing_is_lost():
    frontier = Frontier(Packing(), device_bytes=4 * row_bytes(), host_bytes=3 * row_bytes())
    frontier.push(numbered([0.0, 1.0, 2.0, 3.0], 0))
    with pytest.raises(OutOfMemory, match="8 open domains"):
        frontier.push(numbered([4.0, 5.0, 6.0, 7.0], 4))
    assert len(frontier) == 8
    assert frontier.lowest == 0.0
    assert sorted(frontier.pick(4).lower.tolist() + frontier.pick(9).lower.tolist()) == [float(k) for k in range(8)]


def test_spilt_domains_are_pruned_too():
    frontier = Frontier(Packing(), device_bytes=4 * row_bytes())
    frontier.push(numbered([float(k) for k in range(12)], 0))
    assert frontier.prune(2.5) == 3.0
    assert len(frontier) == 3
    assert frontier.prune(2.5) == float("inf")


def test_arrays_grow_and_free_rows_are_used_again():
    frontier, count = Frontier(Packing()), 3 * FIRST_CAPACITY
    for start in range(0, count, 500):
        frontier.push(numbered([float((7 * k) % count) for k in range(start, min(start + 500, count))], start))
    assert frontier.pick(count - 10).lower.tolist() == [float(k) for k in range(count - 10)]
    frontier.push(numbered([-float(k) for k in range(FIRST_CAPACITY)], count))
    taken = frontier.pick(10 * count)
    assert len(taken) == FIRST_CAPACITY + 10
    assert len(set(taken.depth.tolist())) == len(taken)
    assert len(frontier) == 0
    assert len(frontier._near._held.lower if frontier._near else ()) <= 2 * count


def test_an_empty_frontier_has_nothing_to_pick():
    with pytest.raises(IndexError):
        Frontier(Packing()).pick(1)


def test_domains_without_a_bound_survive_the_move_to_the_host():
    """Minus infinity, turned round to look for the highest bounds, once passed for a free row."""
    frontier = Frontier(Packing(), device_bytes=8 * row_bytes(), host_bytes=float("inf"))
    for first, count in ((0, 12), (100, 3), (200, 12)):
        frontier.push(numbered([-float("inf")] * count, first))
    got: list[int] = []
    while len(frontier):
        got += frontier.pick(4).depth.tolist()
    assert sorted(got) == [*range(12), *range(100, 103), *range(200, 212)]


def test_domains_that_cannot_be_unpacked_stay_open():
    fails = [True, False]

    class Failing(Packing):
        def unpack(self, packed: Arrays) -> DomainBatch:
            if fails.pop(0):
                raise torch.OutOfMemoryError
            return super().unpack(packed)

    frontier = Frontier(Failing())
    frontier.push(some([1.0, 2.0, 3.0]))
    with pytest.raises(torch.OutOfMemoryError):
        frontier.pick(2)
    assert len(frontier) == 3
    assert frontier.pick(3).lower.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("which", range(4))
def test_where_the_device_is_full_domains_go_to_the_host(monkeypatch, which):
    """Others may use the device, too: growing fails at any of its allocations, the first time and ever after."""
    cat, calls = torch.cat, iter(range(1 << 20))

    def full(tensors: list[Tensor]) -> Tensor:
        if next(calls) >= which and tensors[0].device.type == "cpu" and growing:
            raise torch.OutOfMemoryError
        return cat(tensors)

    frontier, growing, room = Frontier(Packing()), True, FIRST_CAPACITY
    grow = RowPool._grow

    def grows(pool: RowPool) -> None:
        nonlocal growing
        growing = pool is frontier._near
        grow(pool)

    monkeypatch.setattr(RowPool, "_grow", grows)
    monkeypatch.setattr(torch, "cat", full)
    monkeypatch.setattr(module, "MOVED", 100)
    for start in range(0, 3 * room, room // 2):
        frontier.push(numbered([float((7 * k) % (3 * room)) for k in range(start, start + room // 2)], start))
    assert len(frontier) == 3 * room
    got = [frontier.pick(200) for _ in range(3 * room // 200 + 1)]
    assert sorted(depth for each in got for depth in each.depth.tolist()) == list(range(3 * room))


def test_a_move_that_fails_leaves_domains_where_they_were(monkeypatch):
    frontier = Frontier(Packing(), device_bytes=8 * row_bytes())
    frontier.push(numbered([float(k) for k in range(6)], 0))
    push, full = RowPool.push, [True]

    def fails(pool: RowPool, *what: Any) -> None:
        if pool is frontier._far and full:
            raise MemoryError
        push(pool, *what)

    monkeypatch.setattr(RowPool, "push", fails)
    with pytest.raises(MemoryError):
        frontier.push(numbered([float(k) for k in range(6, 12)], 6))
    assert frontier.pick(12).lower.tolist() == [float(k) for k in range(12)]


def interrupted_at(line: int, frontier: Frontier) -> bool:
    """Pick three domains, with an interrupt before the given line that the frontier's file runs; whether it came."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != module.__file__:
            return None
        seen += event == "line"
        if event == "line" and seen == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        frontier.pick(3)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_of_a_pick_loses_nothing():
    line = 0
    came = True
    while came:
        line += 1
        frontier = Frontier(Packing())
        frontier.push(some([3.0, -1.0, 2.0, 0.5, -2.0]))
        came = interrupted_at(line, frontier)
        if came:
            assert (len(frontier), frontier.lowest) == (5, -2.0)
            assert frontier.pick(9).lower.tolist() == [-2.0, -1.0, 0.5, 2.0, 3.0]
    assert line > 15
