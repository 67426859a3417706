"""Wrong answers that reviewers constructed, kept so that they stay wrong no more."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.support import clause, exact_values_at, generator, normal, problem, sequential, simple_problem, tensor

from bough.api import Options, solve
from bough.errors import NetworkError
from bough.network.rewrite import MOST_FOLDED, GraphBuilder, fold_scales
from bough.problem.property import Box
from bough.verdict.result import Verdict


def test_folding_rounds_no_more_often_than_the_error_bound_allows_for():
    """Each fold rounds the weights; hundreds of them once outran the slack and proved a false margin."""
    factors = normal(generator(0), 400).exp().float().double().tolist()
    builder = GraphBuilder()
    node = builder.linear(builder.input((1,)), tensor([[1.0]]))
    for factor in factors:
        node = builder.scale(node, factor / math.exp(0.5))
    network = builder.build(node)
    folded = fold_scales(network)
    assert len(folded.nodes) >= len(factors) // (MOST_FOLDED + 1)
    exact = exact_values_at(network, [1.0])[-1][0]
    computed = exact_values_at(folded, [1.0])[-1][0]
    magnitude = abs(exact)
    assert abs(computed - exact) <= Fraction(folded.rounding) * magnitude


def test_a_sum_that_rounds_to_the_offset_is_no_counterexample():
    """1 + 2**-60 rounds to 1, and 1 <= 1; but the row is not satisfied."""
    network = sequential(([[0.0], [0.0]], [1.0, 1.0]))
    asked = simple_problem(network, [0.0], [1.0], [[1.0, 2.0**-60]], [1.0])
    assert not asked.property.clauses[0].holds(np.array([1.0, 1.0]))
    assert solve(asked, Options(timeout=10)).verdict is not Verdict.FALSIFIED


def test_many_boxes_keep_to_the_deadline():
    """Two thousand boxes once kept a search of half a second busy for minutes."""
    network = sequential(
        (normal(generator(1), 40, 4).tolist(), [0.0] * 40), (normal(generator(2), 1, 40).tolist(), [0.0])
    )
    boxes = [Box(tensor([k * 1e-3] * 4), tensor([k * 1e-3 + 1.0] * 4)) for k in range(2000)]
    asked = problem(network, boxes, [clause([[1.0]], [-50.0], box=k) for k in range(2000)])
    result = solve(asked, Options(timeout=0.5))
    assert result.seconds < 10  # far from the minutes it took, far enough from what a busy machine needs


def test_a_paper_split_is_not_forgotten():
    """A ReLU right on the input was split for ever under the paper's bounds."""
    builder = GraphBuilder()
    network = builder.build(builder.relu(builder.input((1,))))
    asked = problem(network, [Box(tensor([-1.0]), tensor([1.0]))], [clause([[1.0]], [0.0], strict=[True])])
    result = solve(asked, Options(timeout=20, intermediate="paper", attack=False))
    assert result.verdict is Verdict.UNKNOWN  # the least value, 0, is reached: not below 0, and not provably above
    assert result.depth <= network.neurons


def test_overflow_is_refused_and_never_a_proof():
    big = torch.full((1, 1), 1e200, dtype=torch.float64)
    builder = GraphBuilder()
    node = builder.input((1,))
    for _ in range(3):
        node = builder.relu(builder.linear(node, big))
    asked = problem(builder.build(node), [Box(tensor([0.0]), tensor([1.0]))], [clause([[-1.0]], [0.0])])
    with pytest.raises(NetworkError, match="overflow"):
        solve(asked, Options(timeout=10, attack=False))
