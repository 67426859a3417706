"""The checker's arithmetic by itself: operators against matrices written down by loops, bounds against rational values
at points of the box, and float64 rounded outward against rational arithmetic.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    box_around,
    exact_margin,
    exact_values_at,
    generator,
    matrices,
    random_clause,
    samples,
    sequential,
)

from bough.network.graph import Network
from bough.network.ops import Linear, Relu
from bough.network.rewrite import GraphBuilder
from bough.problem.property import Box
from bough.verdict.check.layers import Layers, fractions, rounded_down
from bough.verdict.check.proof import IDENTITY, Passing, Prover


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_operators_and_their_transposes_are_those_matrices(kind, exact):
    network = KINDS[kind](generator(1))
    layers, random = Layers(network, exact=exact), np.random.default_rng(0)
    for i, node in enumerate(network.nodes[1:], start=1):
        if isinstance(node.op, Relu):
            continue
        parts, bias = matrices(network, i)
        x = [random.standard_normal((2, network.nodes[j].size)) for j in node.inputs]
        given_x = [layers.number(v.reshape(2, *network.nodes[j].shape)) for v, j in zip(x, node.inputs, strict=True)]
        expected = sum((v @ m.T for v, m in zip(x, parts, strict=True)), bias)
        np.testing.assert_allclose(layers.apply(i, *given_x).reshape(2, -1).astype(float), expected, atol=1e-12)
        size = sum((abs(v) @ abs(m).T for v, m in zip(x, parts, strict=True)), abs(bias))
        absolute = layers.apply(i, *(abs(v) for v in given_x), absolute=True).reshape(2, -1).astype(float)
        assert (absolute >= size - 1e-12).all()
        f = random.standard_normal((2, node.size))
        passed = layers.transpose(i, layers.number(f.reshape(2, *node.shape)))
        for g, m in zip(passed, parts, strict=True):
            np.testing.assert_allclose(g.reshape(2, -1).astype(float), f @ m, atol=1e-12)
        constant = layers.bias(i, layers.number(f.reshape(2, *node.shape)))
        if constant is not None:
            np.testing.assert_allclose(constant.astype(float), f @ bias, atol=1e-12)


def test_a_convolution_with_groups_strides_and_dilation_is_that_matrix():
    g, builder = generator(3), GraphBuilder()
    x = builder.input((4, 7, 6))
    weight, bias = torch.randn(6, 2, 2, 3, generator=g).double(), torch.randn(6, generator=g).double()
    network = builder.build(builder.conv(x, weight, bias, (2, 1), (1, 0, 2, 1), (2, 1), 2))
    layers, (m,), random = Layers(network, exact=False), matrices(network, 1)[0], np.random.default_rng(0)
    v, f = random.standard_normal((3, network.inputs)), random.standard_normal((3, network.outputs))
    expected = v @ m.T + matrices(network, 1)[1]
    np.testing.assert_allclose(layers.apply(1, v.reshape(3, 4, 7, 6)).reshape(3, -1), expected, atol=1e-12)
    (back,) = layers.transpose(1, f.reshape(3, *network.nodes[1].shape))
    np.testing.assert_allclose(back.reshape(3, -1), f @ m, atol=1e-12)


@given(st.lists(st.fractions(), min_size=1, max_size=6))
def test_rounding_down_gives_float64_numbers_that_are_not_above(values):
    given_values = np.array(values, dtype=object)
    for rounded, value in zip(rounded_down(given_values), values, strict=True):
        assert rounded <= value
        assert Fraction(float(rounded)) == rounded
        assert float(rounded) == float(value) or np.nextafter(float(rounded), np.inf) >= float(value)


def scaled(network: Network, factors: list[float]) -> Network:
    """The same function, layers multiplied by factors and divided again: large and small numbers that cancel."""
    layers, before = [], 1.0
    ops = [node.op for node in network.nodes if isinstance(node.op, Linear)]
    for op, factor in zip(ops, [*factors[: len(ops) - 1], 1.0], strict=True):
        layers.append((op.weight * (factor / before), op.bias * factor))
        before = factor
    return sequential(*layers)


@given(st.integers(0, 10_000), st.lists(st.sampled_from([1e-8, 1.0, 1e8]), min_size=3, max_size=3))
@settings(max_examples=40)
def test_bounds_hold_at_every_point_in_rational_arithmetic(seed, factors):
    g = generator(seed)
    network = scaled(KINDS["dense"](g), factors)
    box, clause = box_around(g, network.inputs), random_clause(g, network.outputs, 2)
    prover, random = Prover(network), np.random.default_rng(seed)
    root = prover.root(box)
    weights = random.random((1, 6, 2))
    slope = random.random((1, 6, network.neurons)) * 1.5 - 0.2
    sign = random.standard_normal((1, 6, network.neurons)) * (random.random((1, 6, network.neurons)) < 0.3)
    is_given = random.random((1, 6, network.neurons)) < 0.2
    passing = Passing(slope, sign, random.standard_normal((1, 6, network.neurons)), is_given)
    bounds = prover.least_of_rows(root, clause, weights, passing)[0]
    for point in samples(box, 12, seed):
        values = exact_values_at(network, point.tolist())
        at = [v for i in network.relus for v in values[network.nodes[i].inputs[0]]]
        assert all(
            Fraction(float(lo)) <= z <= Fraction(float(hi))
            for lo, z, hi in zip(root.lower[0], at, root.upper[0], strict=True)
        )
        rows = [
            sum((Fraction(a) * y for a, y in zip(row, values[-1], strict=True)), -Fraction(b))
            for row, b in zip(clause.coefficients.tolist(), clause.offsets.tolist(), strict=True)
        ]
        assert max(rows) == exact_margin(clause, values[-1])
        for k, bound in enumerate(bounds):
            assert Fraction(float(bound)) <= sum(
                Fraction(float(w)) * r for w, r in zip(weights[0, k], rows, strict=True)
            )


@pytest.mark.parametrize("kind", KINDS)
def test_float64_rounded_outward_is_below_rational_arithmetic_by_very_little(kind):
    g = generator(5)
    network = KINDS[kind](g)
    box, clause = box_around(g, network.inputs), random_clause(g, network.outputs, 1)
    rounded, exact = Prover(network), Prover(network, exact=True)
    whole = {"rounded": rounded.root(box), "exact": exact.root(box)}
    assert (whole["rounded"].lower[0] <= whole["exact"].lower[0].astype(float) + 1e-300).all()
    assert (whole["rounded"].upper[0] >= whole["exact"].upper[0].astype(float) - 1e-300).all()
    for slopes in range(IDENTITY + 1):
        values = []
        for prover, root in ((rounded, whole["rounded"]), (exact, whole["exact"])):
            local = prover.local(root)
            weights = prover.layers.number(np.ones((1, 1, 1)))
            values.append(
                float(prover.least_of_rows(local, clause, weights, Passing(prover.slopes(local, slopes)))[0, 0])
            )
        assert values[0] <= values[1]
        assert values[0] == pytest.approx(values[1], abs=1e-9)


def test_what_overflows_proves_nothing():
    network = sequential(([[1e200], [-1e200]], [0.0, 0.0]), ([[1e200, -1e200]], [1.0]))
    prover = Prover(network)
    with np.errstate(all="ignore"):
        root = prover.root(Box(torch.tensor([-1.0]).double(), torch.tensor([1.0]).double()))
        f = {len(network.nodes) - 1: np.ones((1, 1, 1))}
        bounds = prover.least(root, f, Passing(prover.slopes(root, 0)))
    assert not (bounds > 0).any()
    assert not np.isnan(bounds).any()


def test_rationals_are_the_float64_numbers_given():
    assert fractions([0.1])[0] == Fraction(0.1) != Fraction(1, 10)


@pytest.mark.parametrize(
    "value", [Fraction(10**400 + 1, 3), -Fraction(10**400 + 1, 3), Fraction(2**1024), Fraction(1, 3)]
)
def test_rationals_are_rounded_down_to_few_bits(value):
    (rounded,) = rounded_down(np.array([value], dtype=object))
    assert 0 <= value - rounded <= abs(value) / 2**52
    kept = abs(rounded.numerator)
    assert (kept // (kept & -kept)).bit_length() <= 64
