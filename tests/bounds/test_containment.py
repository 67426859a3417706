"""Every bound contains what sampled points do: intervals, linear bounds, intermediate bounds after splits, the LP."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    box_around,
    domains_of,
    generator,
    integer,
    problem,
    random_clause,
    relu_inputs_at,
    samples,
    values_at,
)

from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.interval import enclose
from bough.bounds.linear import Region, bound_elements
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import AdaptiveSlopes, ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import Bounds, split

NEVER = Deadline.never()
POLICIES: tuple[AbstractIntermediate, ...] = (PaperBounds(), TightBounds(refresh=True), TightBounds(refresh=False))
ROUNDING = 1e-9  # of the samples' own evaluation
kinds = st.sampled_from(tuple(KINDS))
seeds = st.integers(0, 2**31)


def contains(lower, upper, values):
    scale = ROUNDING * (1 + np.abs(values))
    assert (np.asarray(lower) <= values + scale).all()
    assert (values - scale <= np.asarray(upper)).all()


@settings(max_examples=40)
@given(kinds, seeds)
def test_intervals_contain_samples(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    enclosure = enclose(network, box.lower[None], box.upper[None])
    values = values_at(network, samples(box, 300).numpy())
    for low, high, magnitude, value in zip(enclosure.lower, enclosure.upper, enclosure.magnitude, values, strict=True):
        contains(low.reshape(1, -1), high.reshape(1, -1), value)
        assert (np.abs(value) <= magnitude.reshape(1, -1).numpy() * (1 + 1e-12)).all()


@settings(max_examples=40)
@given(kinds, seeds)
def test_intervals_with_known_bounds_contain_the_samples_that_satisfy_them(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    points = samples(box, 300).numpy()
    inside = relu_inputs_at(network, points)
    at = inside[integer(g, 0, 299)]
    known = Bounds(*(torch.from_numpy(at + d)[None] for d in (-0.5, 0.5)))
    enclosure = enclose(network, box.lower[None], box.upper[None], known)
    keep = ((at - 0.5 <= inside) & (inside <= at + 0.5)).all(axis=1)
    assert keep.any()
    for low, high, value in zip(enclosure.lower, enclosure.upper, values_at(network, points[keep]), strict=True):
        contains(low.reshape(1, -1), high.reshape(1, -1), value)


@settings(max_examples=40)
@given(kinds, seeds, st.sampled_from((ParallelSlopes(), AdaptiveSlopes())))
def test_linear_bounds_contain_samples(kind, seed, slopes):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    enclosure = enclose(network, box.lower[None], box.upper[None])
    magnitude = [m[0] for m in enclosure.magnitude]
    region = Region(box.lower[None], box.upper[None], enclosure.relu_inputs(network), magnitude, 1e-250)
    values = values_at(network, samples(box, 300).numpy())
    for i, node in enumerate(network.nodes[1:], start=1):
        bounds = bound_elements(network, region, i, torch.arange(node.size), slopes, NEVER)
        contains(bounds.lower, bounds.upper, values[i])
        assert bool((bounds.lower <= bounds.upper).all())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=15)
@given(kind=kinds, seed=seeds)
def test_intermediate_bounds_contain_the_samples_that_satisfy_the_splits(policy, kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    root = policy.at_root(network, box, NEVER)
    inside = relu_inputs_at(network, samples(box, 2000).numpy())
    contains(root.bounds.lower, root.bounds.upper, inside)
    domains = domains_of(root.bounds, torch.zeros(1, network.outputs).double())
    for _ in range(integer(g, 1, 4)):
        ambiguous = domains.bounds.ambiguous()
        domains = domains[ambiguous.any(dim=1)]
        if not len(domains):
            return
        chosen = torch.multinomial(domains.bounds.ambiguous().double(), 1, generator=g)[:, 0]
        before = domains.bounds
        domains = split(domains, chosen)
        bounds = policy.after_split(network, root.with_bounds(domains.bounds), domains.last_split, NEVER)
        for d in range(len(domains)):
            signs = domains.signs[d].numpy()
            satisfying = inside[(inside * signs >= 0).all(axis=1)]
            if len(satisfying):
                contains(bounds.lower[d : d + 1], bounds.upper[d : d + 1], satisfying)
            # A child's bounds are no wider than its parent's, and the split ReLU is decided.
            assert bool((bounds.lower[d] >= before.lower[d // 2]).all())
            assert bool((bounds.upper[d] <= before.upper[d // 2]).all())
        assert not bool(bounds.ambiguous().gather(1, domains.last_split).any())
        domains = domains_of(bounds, torch.zeros(1, network.outputs).double(), domains.signs)
        keep = torch.randperm(len(domains), generator=g)[:3]
        domains = domains[keep]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=15)
@given(kind=kinds, seed=seeds, rows=st.integers(1, 3), early=st.booleans())
def test_the_lp_root_bound_is_below_sampled_margins(policy, kind, seed, rows, early):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    query = problem(network, [box], [random_clause(g, network.outputs, rows)])
    bounded = PlanetLP(policy, early_stop=early).prepare(query).root(0.0, NEVER)
    y = torch.from_numpy(values_at(network, samples(box, 2000).numpy())[-1])
    assert float(bounded.domains.lower) <= float(query.clauses[0].margins(y).min()) + ROUNDING
    assert bool(((box.lower <= bounded.points[0]) & (bounded.points[0] <= box.upper)).all())
