"""Wrong answers that reviewers constructed, kept so that they stay wrong no more."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.support import (
    clause,
    exact_values_at,
    generator,
    hard_case,
    normal,
    problem,
    sequential,
    simple_problem,
    tensor,
)

from bough.api import solve
from bough.bounds import lp
from bough.errors import NetworkError
from bough.network.rewrite import MOST_FOLDED, GraphBuilder, fold_scales
from bough.options import Options
from bough.problem.property import Box
from bough.problem.torch import read_module
from bough.solvers.highs import Highs
from bough.verdict.counterexample import representable
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
    query = simple_problem(network, [0.0], [1.0], [[1.0, 2.0**-60]], [1.0])
    assert not query.property.clauses[0].holds(np.array([1.0, 1.0]))
    assert solve(query, Options(timeout=10)).verdict is not Verdict.FALSIFIED


def test_many_boxes_keep_to_the_deadline():
    """Two thousand boxes once kept a search of half a second busy for minutes."""
    network = sequential(
        (normal(generator(1), 40, 4).tolist(), [0.0] * 40), (normal(generator(2), 1, 40).tolist(), [0.0])
    )
    boxes = [Box(tensor([k * 1e-3] * 4), tensor([k * 1e-3 + 1.0] * 4)) for k in range(2000)]
    query = problem(network, boxes, [clause([[1.0]], [-50.0], box=k) for k in range(2000)])
    result = solve(query, Options(timeout=0.5))
    assert result.seconds < 10  # far from the minutes it took, far enough from what a busy machine needs


def test_a_paper_split_is_not_forgotten():
    """A ReLU right on the input was split for ever under the paper's bounds."""
    builder = GraphBuilder()
    network = builder.build(builder.relu(builder.input((1,))))
    query = problem(network, [Box(tensor([-1.0]), tensor([1.0]))], [clause([[1.0]], [0.0], strict=[True])])
    result = solve(query, Options(timeout=20, intermediate="paper", attack=False))
    assert result.verdict is Verdict.UNKNOWN  # the least value, 0, is reached: not below 0, and not provably above
    assert result.depth <= network.neurons


def test_overflow_is_refused_and_never_a_proof():
    big = torch.full((1, 1), 1e200, dtype=torch.float64)
    builder = GraphBuilder()
    node = builder.input((1,))
    for _ in range(3):
        node = builder.relu(builder.linear(node, big))
    query = problem(builder.build(node), [Box(tensor([0.0]), tensor([1.0]))], [clause([[-1.0]], [0.0])])
    with pytest.raises(NetworkError, match="overflow"):
        solve(query, Options(timeout=10, attack=False))


def test_duals_too_small_to_be_normalised_claim_no_minimum(monkeypatch):
    """Weights that do not sum to 1 would bound another margin than the one that is reported."""
    honest = Highs._solution

    def tiny(self, status):
        solution = honest(self, status)
        return replace(solution, row_dual=solution.row_dual * 1e-320)

    monkeypatch.setattr(Highs, "_solution", tiny)
    case = hard_case("dense", 1, safe=False)
    result = solve(case.problem, Options(timeout=3, gap=1e-3, attack=False))
    assert result.lower_bound <= case.least + 1e-6


def test_models_that_were_dropped_are_built_again(monkeypatch):
    monkeypatch.setattr(lp, "MOST_MODELS", 1)
    seeds = [s for s in range(40) if len(hard_case("dense", s, safe=True).problem.property.boxes) > 1][:2]
    assert seeds
    for seed in seeds:
        case = hard_case("dense", seed, safe=True)
        assert solve(case.problem, Options(timeout=60, attack=False)).verdict is Verdict.VERIFIED


def test_a_point_is_one_that_the_networks_own_type_holds():
    for dtype in (np.float16, np.float32, np.float64):
        box = Box(tensor([0.1001]), tensor([0.1002]))
        (x,) = representable(np.array([0.10015]), box, np.dtype(dtype))
        assert float(dtype(x)) == x
        assert dtype is np.float16 or 0.1001 <= x <= 0.1002  # no float16 lies in this box


def test_a_minimum_comes_with_its_minimiser():
    case = hard_case("dense", 1, safe=False)
    result = solve(case.problem, Options(timeout=60, gap=1e-3))
    assert result.counterexample is not None
    y = torch.from_numpy(np.asarray(case.problem.reference.run(result.counterexample.x), dtype=np.float64))[None]
    margin = min(float(c.margins(y)) for c in case.problem.clauses)
    assert abs(margin - result.upper_bound) <= 1e-4


def test_a_module_that_cannot_be_exported_prints_nothing(capfd):
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(NetworkError):
        read_module(Branches(), (2,))
    assert capfd.readouterr() == ("", "")
