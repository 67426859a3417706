"""Bounds at unsafe points hold at real ones: counterexamples of competition instances lie inside them."""

from dataclasses import replace

import pytest
import torch

from bough.api import load_network, load_problem, solve
from bough.bounds.intermediate import ClauseBatch
from bough.bounds.optimised import OptimisedBounds
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.network import walk
from bough.options import Options

INSTANCES = [
    ("mnist_fc", "mnist-net_256x2", "prop_5_0.05"),
    ("mnist_fc", "mnist-net_256x2", "prop_12_0.03"),
    ("mnist_fc", "mnist-net_256x2", "prop_8_0.05"),
    ("oval21", "cifar_base_kw", "cifar_base_kw-img1598-eps0.0026143790849673205"),
    ("sat_relu", "sat_v6_c27", "sat_v6_c27"),
    ("sat_relu", "sat_v14_c57", "sat_v14_c57"),
]


@pytest.mark.parametrize(("benchmark", "network", "prop"), INSTANCES, ids=lambda word: str(word)[:30])
def test_a_counterexample_lies_inside_the_bounds_at_unsafe_points(bough_data, benchmark, network, prop):
    folder = bough_data / "vnncomp" / benchmark
    problem = load_problem(load_network(folder / "onnx" / f"{network}.onnx"), folder / "vnnlib" / f"{prop}.vnnlib")
    counterexample = solve(problem, Options(timeout=20, device="cpu")).counterexample
    assert counterexample is not None
    clause = problem.clauses[counterexample.clause]
    values = walk.forward(problem.network, torch.tensor(counterexample.x).reshape(1, *problem.network.input_shape))
    assert float(clause.margins(values[-1].reshape(1, -1))) <= 0
    policy, never = OptimisedBounds(), Deadline.never()
    region = policy.at_root(problem.network, problem.property.boxes[clause.box], never)
    numbers = torch.tensor([counterexample.clause])
    clauses = ClauseBatch(numbers, clause.coefficients[None], clause.offsets[None], region.bounds, never)
    clause_bounds = policy.for_clauses(problem.network, region)
    assert clause_bounds is not None
    for _ in range(4):
        clauses = replace(clauses, bounds=clause_bounds.tightened(clauses))
    z = torch.cat([values[problem.network.nodes[i].inputs[0]].reshape(-1) for i in problem.network.relus])
    slack = 1e-9 * (1 + z.abs())
    assert bool((clauses.bounds.lower[0] <= z + slack).all())
    assert bool((z - slack <= clauses.bounds.upper[0]).all())
    assert narrower(clauses.bounds, region.bounds)


def narrower(one: Bounds, other: Bounds) -> bool:
    """Whether there was anything to get wrong."""
    return bool(((one.upper - one.lower) < (other.upper - other.lower)).any())
