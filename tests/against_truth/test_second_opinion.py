"""The helpers that judge everything else are right themselves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.support import (
    KINDS,
    _last_least,
    box_around,
    exact_values_at,
    generator,
    hard_case,
    piece_margins,
    pieces,
    random_clause,
    relu_inputs_at,
    samples,
    values_at,
)

from bough.network import walk
from bough.problem.onnx_writer import write_network
from bough.problem.runtime import Reference


@settings(max_examples=30)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_matrices_rationals_and_onnx_runtime_agree_with_the_network(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    x = samples(box, 5).float().double()
    walk_values = [v.reshape(5, -1).numpy() for v in walk.forward(network, x.reshape(5, *network.input_shape))]
    for a, b in zip(walk_values, values_at(network, x.numpy()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    exact = exact_values_at(network, x[0].tolist())
    for a, c in zip(walk_values, exact, strict=True):
        np.testing.assert_allclose(a[0], [float(v) for v in c], rtol=1e-12, atol=1e-12)
    reference = Reference(write_network(network))
    np.testing.assert_allclose([reference.run(p) for p in x.numpy()], walk_values[-1], rtol=1e-4, atol=1e-4)


@settings(max_examples=60)
@given(st.integers(0, 2**31))
def test_the_fast_lp_is_scipys(seed):
    random = np.random.default_rng(seed)
    rows, at_least = random.normal(size=(6, 4)), random.normal(size=6)
    lower, upper = np.array([-1.0, -1, -1, -3]), np.array([1.0, 1, 1, 3])
    answer = linprog([0, 0, 0, 1], A_ub=-rows, b_ub=-at_least, bounds=list(zip(lower, upper, strict=True)))
    minimum = _last_least(rows, at_least, lower, upper, sign=1.0)
    assert minimum == (None if answer.status else pytest.approx(answer.fun, abs=1e-7))


@settings(max_examples=15)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_pieces_cover_the_box_and_are_the_network(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    box = box_around(g, network.inputs)
    all_pieces = pieces(network, box)
    drawn = random_clause(g, network.outputs, 2)
    margins = piece_margins(all_pieces, box, drawn)
    points = samples(box, 300, seed=1)
    y = values_at(network, points.numpy())[-1]
    at = drawn.margins(torch.from_numpy(y)).numpy()
    for x, z, out, margin in zip(points.numpy(), relu_inputs_at(network, points.numpy()), y, at, strict=True):
        home = [k for k, p in enumerate(all_pieces) if (np.multiply(p.signs, z) >= -1e-12).all()]
        assert home
        piece = all_pieces[home[0]]
        np.testing.assert_allclose(piece.matrix @ x + piece.constant, out, rtol=1e-9, atol=1e-9)
        assert margins[home].min() <= margin + 1e-7
    assert margins.min() <= at.min() + 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_hard_cases_are_what_they_say(kind):
    for seed in range(3):
        for safe in (True, False):
            case = hard_case(kind, seed, safe=safe, away=1e-3)
            assert case.least == pytest.approx(1e-3 if safe else -1e-3, abs=1e-9)
            for c, scaled in zip(case.problem.property.clauses, case.problem.clauses, strict=True):
                assert torch.equal(c.coefficients, scaled.coefficients)
                box = case.problem.property.boxes[c.box]
                y = values_at(case.problem.network, samples(box, 2000).numpy())[-1]
                assert float(c.margins(torch.from_numpy(y)).min()) >= case.least - 1e-6
