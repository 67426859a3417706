"""Splitting gives children that cover the parent; picking and joining lose nothing."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import domains_of, generator, integer, normal, tensor
from torch import Tensor

from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds, DomainBatch, InputParts, split


@dataclass(frozen=True, eq=False)
class Luggage(Arrays):
    """What these domains carry."""

    number: Tensor
    values: Tensor


def some(seed: int, count: int, neurons: int) -> DomainBatch:
    g = generator(seed)
    low, high = normal(g, count, neurons), normal(g, count, neurons)
    bounds = Bounds(torch.minimum(low, high), torch.maximum(low, high))
    domains = domains_of(bounds, normal(g, count, 2))
    luggage = Luggage(10 + torch.arange(count), normal(g, count, 2))
    return replace(domains, lower=normal(g, count), clause=torch.arange(count), start=luggage)


def same(a: DomainBatch, b: DomainBatch) -> None:
    for name in ("clause", "signs", "lower", "functional", "depth", "last_split"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert torch.equal(a.bounds.lower, b.bounds.lower)
    assert torch.equal(a.bounds.upper, b.bounds.upper)
    for name in ("number", "values"):
        assert torch.equal(getattr(a.carried(Luggage), name), getattr(b.carried(Luggage), name)), name


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 5))
def test_children_cover_the_parent_and_differ_in_one_relu(seed, count, neurons):
    domains = some(seed, count, neurons)
    g = generator(seed)
    chosen = torch.tensor([integer(g, 0, neurons - 1) for _ in range(count)])
    children = split(domains, chosen)
    assert len(children) == 2 * count
    for d in range(count):
        k = int(chosen[d])
        blocked, passing = (children[torch.tensor([2 * d + c])] for c in (0, 1))
        assert int(blocked.signs[0, k]) == -1
        assert int(passing.signs[0, k]) == 1
        low, high = domains.bounds.lower[d], domains.bounds.upper[d]
        assert float(blocked.bounds.upper[0, k]) == min(float(high[k]), 0.0)
        assert float(blocked.bounds.lower[0, k]) == float(low[k])
        assert float(passing.bounds.lower[0, k]) == max(float(low[k]), 0.0)
        assert float(passing.bounds.upper[0, k]) == float(high[k])
        others = torch.arange(neurons) != k
        for child in (blocked, passing):
            assert torch.equal(child.bounds.lower[0, others], low[others])
            assert torch.equal(child.bounds.upper[0, others], high[others])
            assert torch.equal(child.signs[0, others], domains.signs[d, others])
            assert (int(child.depth), int(child.last_split)) == (int(domains.depth[d]) + 1, k)
            assert float(child.lower) == float(domains.lower[d])
            carried, parents = child.carried(Luggage), domains.carried(Luggage)
            assert torch.equal(carried.number[0], parents.number[d])
            assert torch.equal(carried.values[0], parents.values[d])
            assert not bool(child.bounds.ambiguous()[0, k])


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(3, 5), st.integers(1, 3))
def test_a_path_of_splits_gives_every_pattern_of_signs_once(seed, count, neurons, depth):
    domains = some(seed, count, neurons)
    g = generator(seed)
    chosen = torch.stack([torch.randperm(neurons, generator=g)[:depth] for _ in range(count)])
    leaves = domains
    for step in range(depth):
        leaves = split(leaves, chosen[:, step].repeat_interleave(2**step))
        assert torch.equal(leaves.last_split, chosen[:, step : step + 1].repeat_interleave(2 ** (step + 1), dim=0))
    assert len(leaves) == count * 2**depth
    assert torch.equal(leaves.clause, domains.clause.repeat_interleave(2**depth))  # children stay with their parents
    for d in range(count):
        own_leaves = leaves.signs[d * 2**depth : (d + 1) * 2**depth]
        patterns = [tuple(row) for row in own_leaves[:, chosen[d]].tolist()]
        assert patterns == sorted(set(patterns))  # of each split, the blocked child comes first
        assert int((own_leaves != 0).sum()) == depth * 2**depth


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_settled_domains_forget_their_last_split_and_nothing_else(seed, count):
    domains = split(some(seed, count, 3), torch.zeros(count, dtype=torch.int64))
    again = domains.settled()
    assert again.last_split.tolist() == [[-1]] * len(domains)
    same(replace(again, last_split=domains.last_split), domains)
    several = replace(domains, last_split=torch.zeros(len(domains), 2, dtype=torch.int64)).settled()
    assert several.last_split.tolist() == again.last_split.tolist()
    same(domains.to(torch.device("cpu")), domains)


def test_domains_carry_one_kind_of_arrays():
    domains = some(1, 2, 3)
    assert domains.carried(Luggage) is domains.start
    with pytest.raises(TypeError, match="carry Luggage, not InputParts"):
        domains.carried(InputParts)


def test_splitting_leaves_the_parent_as_it_was():
    domains, again = some(1, 2, 3), some(1, 2, 3)
    split(domains, torch.tensor([0, 2]))
    same(domains, again)


@given(st.integers(0, 2**31), st.integers(1, 6))
def test_picking_and_joining_are_inverse(seed, count):
    domains = some(seed, count, 3)
    same(DomainBatch.concatenate([domains[torch.tensor([k])] for k in range(count)]), domains)
    mask = torch.rand(count, generator=generator(seed)) > 0.5
    same(domains[mask], domains[mask.nonzero()[:, 0]])
    assert len(domains[mask]) == int(mask.sum())


def test_ambiguous_means_strictly_on_both_sides():
    bounds = Bounds(tensor([[-1.0, 0.0, -1.0, -1.0, 1.0, 0.0]]), tensor([[1.0, 1.0, 0.0, -0.5, 2.0, 0.0]]))
    assert bounds.ambiguous().tolist() == [[True, False, False, False, False, False]]
    assert bounds.empty().tolist() == [False]


def test_empty_means_lower_above_upper():
    bounds = Bounds(tensor([[-1.0, 0.5], [-1.0, 0.0]]), tensor([[1.0, 0.4], [1.0, 0.0]]))
    assert bounds.empty().tolist() == [True, False]


def test_intersection_takes_the_tighter_side():
    both = Bounds(tensor([[-1.0, -3.0]]), tensor([[4.0, 2.0]])).intersect(
        Bounds(tensor([[-2.0, -1.0]]), tensor([[3.0, 5.0]]))
    )
    assert both.lower.tolist() == [[-1.0, -1.0]]
    assert both.upper.tolist() == [[3.0, 2.0]]
