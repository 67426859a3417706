"""Bounds hold in real arithmetic: exact rational values never lie outside, however badly the weights are scaled."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    clause,
    exact_margin,
    exact_values_at,
    generator,
    integer,
    normal,
    problem,
    random_clause,
    samples,
    sequential,
    tensor,
)

from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds, _errors
from bough.bounds.interval import enclose
from bough.bounds.linear import Region, bound_clause, bound_elements, bound_functionals, by_multipliers, by_slopes
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import AdaptiveSlopes, ParallelSlopes
from bough.budget import Deadline
from bough.errors import NetworkError
from bough.network.graph import Network
from bough.network.rewrite import GraphBuilder
from bough.problem.property import Box

NEVER = Deadline.never()
SLOPES = (ParallelSlopes(), AdaptiveSlopes())
POLICIES: tuple[AbstractIntermediate, ...] = (PaperBounds(), TightBounds())


def wild(g: torch.Generator, *shape: int) -> torch.Tensor:
    """Numbers of sizes from 1e-8 to 1e8."""
    size = 10 ** (torch.rand(*shape, generator=g).double() * 16 - 8)
    return torch.randn(*shape, generator=g).double().sign() * size


def wild_network(g: torch.Generator) -> Network:
    """Layers, a residual sum, and pairs of huge constants that cancel."""
    builder = GraphBuilder()
    x = builder.input((2,))
    x = builder.relu(builder.linear(x, wild(g, 3, 2), wild(g, 3)))
    y = builder.linear(x, wild(g, 3, 3), wild(g, 3))
    huge = 10.0 ** integer(g, 8, 20)
    y = builder.scale(builder.scale(y, 1.0, huge), 1.0, -huge)
    x = builder.add(x, builder.relu(y))
    return builder.build(builder.linear(builder.relu(builder.scale(x, wild(g, 3), wild(g, 3))), wild(g, 2, 3)))


def thin_box(g: torch.Generator, inputs: int) -> Box:
    """A point, or almost: there, bounds are as tight as rounding lets them be."""
    centre = wild(g, inputs) if integer(g, 0, 1) else normal(g, inputs)
    width = centre.abs() * 10.0 ** (-integer(g, 1, 16)) * integer(g, 0, 1)
    return Box(centre, centre + width)


def exactly_inside(lower: torch.Tensor, upper: torch.Tensor, values: Sequence[Fraction]) -> bool:
    """Whether exact values lie between bounds (NaN and infinity promise nothing)."""
    return all(
        (not np.isfinite(l) or Fraction(l) <= v) and (not np.isfinite(u) or v <= Fraction(u))
        for l, u, v in zip(lower.reshape(-1).tolist(), upper.reshape(-1).tolist(), values, strict=True)
    )


def all_hold(network: Network, box: Box, seed: int = 0) -> bool:
    """Whether every bound this package makes of a network holds exactly at sampled points of a box."""
    points = samples(box, 6).tolist()
    values = [exact_values_at(network, x) for x in points]
    enclosure = enclose(network, box.lower[None], box.upper[None])
    good = all(
        exactly_inside(enclosure.lower[i], enclosure.upper[i], v[i]) for v in values for i in range(len(network.nodes))
    )
    region = Region(box.lower[None], box.upper[None], enclosure.relu_inputs(network), *_errors(enclosure))
    for slopes in SLOPES:
        for i in range(1, len(network.nodes)):
            bounds = bound_elements(network, region, i, torch.arange(network.nodes[i].size), slopes, NEVER)
            good &= all(exactly_inside(bounds.lower, bounds.upper, v[i]) for v in values)
    g = generator(seed)
    last = len(network.nodes) - 1
    drawn = random_clause(g, network.outputs, 3)
    weights = torch.rand(1, 2, 3, generator=g).double()
    rules = [by_slopes(s) for s in SLOPES] + [by_multipliers(normal(g, 1, network.neurons))]
    for rule in rules:
        functionals = wild(g, 1, 2, network.outputs)
        proved = bound_functionals(network, region, last, functionals, rule)
        lower = bound_clause(network, region, drawn, weights, rule)
        for v in values:
            exact = [_dot(row, v[last]) for row in functionals[0].tolist()]
            good &= exactly_inside(proved.lower, proved.upper, exact)
            rows = [
                _dot(r, v[last]) - Fraction(b)
                for r, b in zip(drawn.coefficients.tolist(), drawn.offsets.tolist(), strict=True)
            ]
            exact = [_dot(w, rows) for w in weights[0].tolist()]
            good &= exactly_inside(lower, torch.full_like(lower, torch.inf), exact)
    return good


def _dot(a: Sequence[float], b: Sequence[Fraction]) -> Fraction:
    return sum((Fraction(x) * y for x, y in zip(a, b, strict=True)), Fraction(0))


@settings(max_examples=60)
@given(st.integers(0, 2**31))
def test_bounds_of_wildly_scaled_networks_hold_exactly(seed):
    g = generator(seed)
    network = wild_network(g)
    assert all_hold(network, thin_box(g, network.inputs), seed)


@settings(max_examples=20)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_bounds_of_ordinary_networks_hold_exactly_in_thin_boxes(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    assert all_hold(network, thin_box(g, network.inputs), seed)


@pytest.mark.parametrize("make", [wild_network, KINDS["dense"], KINDS["convolutional"], KINDS["residual"]])
def test_without_the_rounding_error_these_tests_fail(make, monkeypatch):
    """The tests above have teeth: leaving out the error bound is seen at once."""
    monkeypatch.setattr(Network, "rounding", 0.0)
    broken = 0
    for seed in range(10):
        g = generator(seed)
        network = make(g)
        broken += not all_hold(network, thin_box(g, network.inputs), seed)
    print(f"{broken} of 10 broken without the error bound")  # noqa: T201 - pytest shows it on demand
    assert broken >= 3


def test_one_cancellation_by_hand(monkeypatch):
    """1e16 + 1 is 1e16 in float64; what is left of it is 0 where 1 is right."""
    layers = ([[1.0], [1.0]], [1e16, 0.0]), ([[1.0, 0.0]], [-1e16])
    x = tensor([[1.0]])
    exact = exact_values_at(sequential(*layers), [1.0])[-1]
    assert exact == [1]
    enclosure = enclose(sequential(*layers), x, x)
    assert exactly_inside(enclosure.lower[-1], enclosure.upper[-1], exact)
    monkeypatch.setattr(Network, "rounding", 0.0)
    enclosure = enclose(sequential(*layers), x, x)
    assert not exactly_inside(enclosure.lower[-1], enclosure.upper[-1], exact)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**31))
def test_root_bounds_of_wildly_scaled_networks_hold_exactly(policy, seed):
    g = generator(seed)
    network = wild_network(g)
    box = thin_box(g, network.inputs)
    query = problem(network, [box], [random_clause(g, network.outputs, integer(g, 1, 3))])
    root = PlanetLP(policy).prepare(query).root(np.inf, NEVER).domains
    lower = float(root.lower)
    for x in samples(box, 6).tolist():
        values = exact_values_at(network, x)
        inside = [v for i in network.relus for v in values[network.nodes[i].inputs[0]]]
        assert exactly_inside(root.bounds.lower, root.bounds.upper, inside)
        assert not np.isposinf(lower)
        assert not np.isfinite(lower) or Fraction(lower) <= exact_margin(query.clauses[0], values[-1])


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_bounds_hold_where_products_underflow(policy):
    """1e-200 * 1e-200 is 0 in float64, and what it is multiplied by later makes it 1e200 in real arithmetic."""
    weights = (1e-200, 1e-200, 1e300, 1e300, -1.0)
    network = sequential(*(([[w]], [float(w < 0)]) for w in weights))
    box = Box(tensor([0.5]), tensor([1.0]))
    query = problem(network, [box], [clause([[1.0]], [0.0])])
    exact = exact_margin(query.clauses[0], exact_values_at(network, [1.0])[-1])
    assert exact < -1e199
    for cutoff in (0.0, np.inf):
        lower = float(PlanetLP(policy).prepare(query).root(cutoff, NEVER).domains.lower)
        assert not lower > exact
    assert all_hold(network, box)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_numbers_beyond_float64_prove_nothing(policy):
    """Forward values stay small here, but coefficients going back overflow to infinity, and infinity times 0 is NaN."""
    network = sequential(
        ([[1e200], [1e200]], [-5e-101, 5e-101]),
        ([[1e200, -1e200], [1e200, 1e200]], [1e98, -1e98]),
        ([[1.0, -1.0]], [0.0]),
    )
    box = Box(tensor([0.0]), tensor([1e-300]))
    query = problem(network, [box], [clause([[1e-100]], [0.0])])
    root = PlanetLP(policy).prepare(query).root(np.inf, NEVER).domains
    for x in samples(box, 30).tolist():
        values = exact_values_at(network, x)
        inside = [v for i in network.relus for v in values[network.nodes[i].inputs[0]]]
        assert exactly_inside(root.bounds.lower, root.bounds.upper, inside)
        lower = float(root.lower)
        assert not np.isfinite(lower) or Fraction(lower) <= exact_margin(query.clauses[0], values[-1])
        assert not np.isposinf(lower)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from((1e100, 1e150, 1e200, 1e300)))
def test_overflow_proves_nothing(seed, size):
    g = generator(seed)
    network = sequential(
        (normal(g, 3, 2) * size, normal(g, 3) * size),
        (normal(g, 3, 3) * size, normal(g, 3)),
        (normal(g, 2, 3) / size, normal(g, 2)),
    )
    low = normal(g, 2) * 1e-3
    box = Box(low, low + torch.rand(2, generator=g).double())
    query = problem(network, [box], [random_clause(g, 2, 2)])
    for policy in POLICIES:
        try:
            root = PlanetLP(policy).prepare(query).root(np.inf, NEVER).domains
        except NetworkError:
            continue  # refused, since nothing could be proved
        lower = float(root.lower)
        assert not np.isposinf(lower)
        for x in samples(box, 10).tolist():
            values = exact_values_at(network, x)
            assert not np.isfinite(lower) or Fraction(lower) <= exact_margin(query.clauses[0], values[-1])
