"""No bound promises more than the Planet LP, written out independently, and the LP bounder loses almost none of it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    box_around,
    clause,
    generator,
    integer,
    planet_optimum,
    problem,
    random_clause,
    sequential,
    tensor,
)
from torch import Tensor

from bough.bounds.intermediate import PaperBounds, TightBounds
from bough.bounds.interval import enclose
from bough.bounds.linear import Region, bound_clause, by_slopes
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import AbstractSlopes, AdaptiveSlopes, ParallelSlopes
from bough.budget import Deadline
from bough.domain.batch import split
from bough.network.graph import Network
from bough.problem.property import Box, Clause

NEVER = Deadline.never()
kinds = st.sampled_from(tuple(KINDS))
seeds = st.integers(0, 2**31)


def interval_region(network: Network, box: Box) -> Region:
    enclosure = enclose(network, box.lower[None], box.upper[None])
    magnitude = [m[0] for m in enclosure.magnitude]
    return Region(box.lower[None], box.upper[None], enclosure.relu_inputs(network), magnitude, 1e-250)


def linear(network: Network, region: Region, query_clause: Clause, slopes: AbstractSlopes) -> float:
    """The best row's bound."""
    each: Tensor = torch.eye(len(query_clause.offsets), dtype=torch.float64)[None]
    return float(bound_clause(network, region, query_clause, each, by_slopes(slopes)).max())


def interval(network: Network, region: Region, query_clause: Clause) -> float:
    """The best row over the box that encloses the outputs."""
    enclosure = enclose(network, region.lower, region.upper, region.bounds)
    low, high = enclosure.lower[-1].reshape(-1), enclosure.upper[-1].reshape(-1)
    a = query_clause.coefficients
    return float((a.clamp(min=0) @ low + a.clamp(max=0) @ high - query_clause.offsets).max())


@settings(max_examples=60)
@given(kinds, seeds, st.integers(1, 3), st.sampled_from((None, PaperBounds(), TightBounds())))
def test_interval_kw_and_crown_stay_below_the_planet_lp(kind, seed, rows, policy):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    drawn = random_clause(g, network.outputs, rows)
    region = policy.at_root(network, box, NEVER) if policy else interval_region(network, box)
    optimum = planet_optimum(network, box, region.bounds.lower[0], region.bounds.upper[0], drawn)
    allowed = optimum + 1e-7 * (1 + abs(optimum))
    assert linear(network, region, drawn, ParallelSlopes()) <= allowed
    assert linear(network, region, drawn, AdaptiveSlopes()) <= allowed
    if policy is None:  # intervals that were not tightened follow from the LP's own constraints
        assert interval(network, region, drawn) <= allowed


def test_interval_and_kw_do_not_dominate_each_other():
    box = Box(tensor([-1.0]), tensor([1.0]))
    least = clause([[1.0]], [0.0])
    # x - x cancels for KW, not for intervals: no ReLU is ambiguous.
    shifted = sequential(([[1.0], [1.0]], [2.0, 2.0]), ([[1.0, -1.0]], [0.0]))
    region = interval_region(shifted, box)
    assert interval(shifted, region, least) == pytest.approx(-2.0)
    assert linear(shifted, region, least, ParallelSlopes()) == pytest.approx(0.0, abs=1e-12)
    # relu(x) >= 0 for intervals; KW's line from below, x / 2, is negative at -1.
    single = sequential(([[1.0]], [0.0]), ([[1.0]], [0.0]))
    region = interval_region(single, box)
    assert interval(single, region, least) == pytest.approx(0.0, abs=1e-12)
    assert linear(single, region, least, ParallelSlopes()) == pytest.approx(-0.5)


@pytest.mark.parametrize("policy", [PaperBounds(), TightBounds(), TightBounds(refresh=False)], ids=str)
@settings(max_examples=15)
@given(kind=kinds, seed=seeds, rows=st.integers(1, 3))
def test_the_lp_bounder_proves_the_planet_optimum(policy, kind, seed, rows):
    """At the root and after random splits: not above the optimum, and hardly below it."""
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    query = problem(network, [box], [random_clause(g, network.outputs, rows)])
    bounding = PlanetLP(policy).prepare(query)
    domains, parent = bounding.root(np.inf, NEVER).domains, -np.inf
    for _ in range(5):
        for d in range(len(domains)):
            low, high, lower = domains.bounds.lower[d], domains.bounds.upper[d], float(domains.lower[d])
            optimum = planet_optimum(network, box, low, high, query.clauses[0])
            if np.isinf(lower):
                assert np.isinf(optimum)
                continue
            if np.isinf(optimum):
                continue  # empty by a hair: SciPy's tolerance is not ours
            best = max(optimum, parent)  # a child is never below its parent
            assert best - 1e-5 * (1 + abs(best)) <= lower <= best + 1e-7 * (1 + abs(best))
        live = domains.bounds.ambiguous().any(dim=1) & torch.isfinite(domains.lower)
        if not bool(live.any()):
            return
        number = live.nonzero()[integer(g, 0, int(live.sum()) - 1)]
        chosen_domain = domains[number]
        parent = float(chosen_domain.lower)
        neuron = torch.multinomial(chosen_domain.bounds.ambiguous().double(), 1, generator=g)[:, 0]
        domains = bounding.bound(split(chosen_domain, neuron), np.inf, NEVER).domains
