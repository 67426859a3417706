"""Mixed-integer programs as baselines: their optima and verdicts against the enumeration of every linear piece."""

import importlib.util
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import (
    Array,
    Case,
    Plain,
    clause,
    dense,
    generator,
    hard_case,
    normal,
    problem,
    relu_inputs_at,
    samples,
    sequential,
    simple_problem,
    values_at,
    with_ball,
)

from bough import api
from bough.baselines.base import KNOWN_BASELINES
from bough.baselines.big_m import big_m, point_of
from bough.baselines.mip import LEAST_MARGIN, MixedInteger, margin_of
from bough.baselines.progressive import ProgressiveBounds
from bough.bench.methods import BUILT_IN, parse_method
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.planet import build
from bough.branching.base import KNOWN_RULES
from bough.budget import Deadline
from bough.domain.batch import Bounds
from bough.errors import BadInput, PropertyError, SolverFailure
from bough.network.graph import Network
from bough.options import Options
from bough.plan import search_plan
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Box, Clause
from bough.problem.runtime import Reference
from bough.search.observe import AbstractObserver
from bough.solvers import highs
from bough.solvers.mixed import Ending, MixedSolution, Watch, mixed_solver
from bough.verdict.result import Result, Verdict

KINDS = ("dense", "convolutional", "residual", "pooled", "padded")
NEVER = Deadline.never()
POLICIES: dict[str, AbstractIntermediate] = {"mip-planet": PaperBounds(), "mip-tight": ProgressiveBounds()}
NO_SCIP = pytest.mark.skipif(importlib.util.find_spec("pyscipopt") is None, reason="pyscipopt is not installed")
SOLVERS = ["highs", pytest.param("scip", marks=NO_SCIP)]
TOLERANCE = 1e-6  # of the enumeration's own LPs


def solve(query: Problem, method: str = "mip-planet", **options: Any) -> Result:
    return api.solve(query, Options(method=method, **options))


def minimum(case: Case, number: int, policy: AbstractIntermediate, solver: str) -> MixedSolution:
    """The least margin of a clause, to the end, whatever its sign."""
    query_clause = case.problem.clauses[number]
    box = case.problem.property.boxes[query_clause.box]
    root = policy.at_root(case.problem.network, box, NEVER).bounds
    program = big_m(case.problem.network, box, root, query_clause)
    return mixed_solver(solver).minimise(program, Watch(math.inf, lambda _: False, lambda *_: None), NEVER)


# The model


def columns_at(network: Network, box: Box, root: Bounds, query_clause: Clause, x: Array) -> Array:
    """All columns of the program at a point: what the network computes there, and which ReLUs pass."""
    _, layout = build(network, box, root, len(query_clause.offsets))
    z, y = relu_inputs_at(network, x), values_at(network, x)[-1]
    columns = np.zeros(layout.objective + 1 + len(layout.amb))
    columns[: len(layout.inputs)] = x[layout.inputs]
    own = layout.z_column >= 0
    columns[layout.z_column[own]] = z[own]
    columns[layout.amb_x] = np.maximum(z[layout.amb], 0)
    columns[layout.outputs] = y
    columns[layout.objective] = float(query_clause.margins(torch.from_numpy(y)[None]))
    columns[layout.objective + 1 :] = z[layout.amb] > 0
    return columns


@pytest.mark.parametrize("method", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_of_the_box_is_a_solution(kind, method):
    """What the network does at a point satisfies all rows and limits, with the margin as the objective."""
    for seed in range(2):
        case = hard_case(kind, seed, safe=True)
        network = case.problem.network
        for query_clause in case.problem.clauses:
            box = case.problem.property.boxes[query_clause.box]
            root = POLICIES[method].at_root(network, box, NEVER).bounds
            program = big_m(network, box, root, query_clause)
            linear = program.linear
            assert len(program.integer) == int(root.ambiguous().sum())
            for x in samples(box, 15, seed).numpy():
                columns = columns_at(network, box, root, query_clause, x)
                rows = linear.matrix @ columns
                assert (columns >= linear.column_lower - 1e-9).all()
                assert (columns <= linear.column_upper + 1e-9).all()
                assert (rows >= linear.row_lower - 1e-9).all()
                assert (rows <= linear.row_upper + 1e-9).all()
                np.testing.assert_allclose(point_of(program, box, columns).numpy(), x)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_the_enumeration_s(kind, solver):
    for seed, policy in enumerate(POLICIES.values()):
        case = hard_case(kind, seed, safe=bool(seed))
        for k in range(len(case.problem.clauses)):
            solution = minimum(case, k, policy, solver)
            assert solution.ending is Ending.OPTIMAL
            assert solution.bound == pytest.approx(float(case.margins[k].min()), abs=TOLERANCE)


def test_progressive_bounds_hold_and_are_the_tightest():
    """Sampled points stay inside, no bound is looser than those it began with, and some are tighter."""
    gains = 0.0
    for kind in KINDS:
        for seed in range(4):
            case = hard_case(kind, seed, safe=True)
            network = case.problem.network
            for box in case.problem.property.boxes:
                before = TightBounds(refresh=False).at_root(network, box, NEVER).bounds
                after = ProgressiveBounds().at_root(network, box, NEVER).bounds
                z = torch.from_numpy(relu_inputs_at(network, samples(box, 500, seed).numpy()))
                assert bool((z >= after.lower - 1e-9).all())
                assert bool((z <= after.upper + 1e-9).all())
                assert bool((after.lower >= before.lower).all())
                assert bool((after.upper <= before.upper).all())
                gains += float((before.upper - after.upper + after.lower - before.lower).sum())
    assert gains > 1


# Verdicts


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("method", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_the_enumeration_s(kind, method, solver):
    """Several rows, clauses and boxes among them."""
    for seed in range(4):
        case = hard_case(kind, seed, safe=seed % 2 == 0, away=(1e-2, 1e-4)[seed // 2])
        result = solve(case.problem, method, solver=solver)
        assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + TOLERANCE
        assert result.branches == result.notes["nodes"] >= 0
        if result.verdict is Verdict.FALSIFIED:
            assert result.proved
            counterexample = result.counterexample
            assert counterexample is not None
            assert case.problem.property.clauses[counterexample.clause].holds(counterexample.y)
        elif not result.proved:
            assert "not proved by bough" in result.reason
            assert 0 < LEAST_MARGIN < result.notes["solver_bound"]


def test_a_proof_without_the_solver_is_a_proof():
    network = sequential(([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [1.0]))
    result = solve(simple_problem(network, [-1, -1], [1, 1], [[1.0]], [-0.5]))
    assert (result.verdict, result.proved, result.branches) == (Verdict.VERIFIED, True, 0)
    assert result.lower_bound == pytest.approx(0.5)
    assert "proved" in result.reason


def test_networks_without_relus_and_boxes_of_one_point():
    network = sequential(([[1.0, 1.0], [1.0, -1.0]], [0.0, 0.0]))
    for offset, verdict in ((-0.1, Verdict.VERIFIED), (0.1, Verdict.FALSIFIED)):
        query = simple_problem(network, [-1, -1], [1, 1], [[1.0, 0.0], [-1.0, 0.0]], [offset, offset])
        assert solve(query).verdict is verdict  # no row alone decides it
    g = generator(4)
    dense_network = dense(g)
    x = normal(g, dense_network.inputs) * 0.5
    y = float(Plain(dense_network).run(x.numpy())[0])
    for gap, verdict in ((1e-3, Verdict.VERIFIED), (-1e-3, Verdict.FALSIFIED)):
        row = torch.eye(dense_network.outputs)[:1].tolist()
        assert solve(simple_problem(dense_network, x, x, row, [y - gap])).verdict is verdict


def test_what_is_closer_to_zero_than_the_margin_stays_unknown():
    case = hard_case("residual", 2, safe=True, away=3e-7)  # which enumeration, at 1e-9, can tell from 0
    result = solve(case.problem)
    assert (result.verdict, result.proved, result.counterexample) == (Verdict.UNKNOWN, True, None)
    assert "too close to zero" in result.reason
    assert result.open_domains >= 1
    query_clause = case.problem.clauses[0]
    box = case.problem.property.boxes[query_clause.box]
    root = PaperBounds().at_root(case.problem.network, box, NEVER).bounds
    assert LEAST_MARGIN < margin_of(big_m(case.problem.network, box, root, query_clause)) < 2 * LEAST_MARGIN


def test_onnx_runtime_has_the_last_word():
    case = hard_case("dense", 4, safe=False, away=1e-2)
    file = Reference(write_network(case.problem.network))
    counterexample = solve(replace(case.problem, reference=file)).counterexample
    assert counterexample is not None
    np.testing.assert_array_equal(counterexample.y, file.run(counterexample.x).astype(np.float64))


def test_a_point_that_the_runtime_does_not_confirm_is_no_counterexample():
    class Denies(Plain):
        def run(self, x: Any) -> Any:
            return super().run(x) + 100.0

    network = sequential(([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 1.0]], [0.0]))
    query = simple_problem(network, [-1], [1], [[1.0]], [0.5])
    result = solve(replace(query, reference=Denies(network)))
    assert (result.verdict, result.counterexample) == (Verdict.UNKNOWN, None)


@pytest.mark.parametrize("method", POLICIES)
def test_balls_are_refused_in_one_sentence(method):
    g = generator(1)
    network = dense(g)
    box = with_ball(g, Box(torch.zeros(network.inputs).double() - 1, torch.ones(network.inputs).double()), 2)
    row = torch.eye(network.outputs)[:1].tolist()
    with pytest.raises(PropertyError, match="boxes only, not l1 or l2 balls; use --method auto"):
        solve(problem(network, [box], [clause(row, [0.0])]), method)


# Ends


@pytest.mark.parametrize("method", POLICIES)
def test_no_time_is_a_timeout(method):
    result = solve(hard_case("dense", 0, safe=True).problem, method, timeout=0.0)
    assert (result.verdict, result.branches) == (Verdict.TIMEOUT, 0)


def wide(seed: int) -> Problem:
    """A network that keeps HiGHS busy for long, and a margin of about 0."""
    g = generator(seed)
    layers = [(normal(g, 60, 30) / 4, normal(g, 60)), (normal(g, 60, 60) / 4, normal(g, 60)), (normal(g, 1, 60), [0.0])]
    return simple_problem(sequential(*layers), [-1.0] * 30, [1.0] * 30, [[1.0]], [-60.0])


def test_a_deadline_in_the_middle_says_what_is_known():
    query, clock = wide(0), Deadline.never()
    result = solve(query, timeout=1.0)
    assert result.verdict is Verdict.TIMEOUT
    assert clock.elapsed() < 5
    assert math.isfinite(result.lower_bound)
    assert not result.notes["solver_bound"] < result.lower_bound - TOLERANCE


class Interrupts(AbstractObserver):
    """Ctrl-C as soon as there is a line to show; the lines are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def seen(self, state: object, seconds: float) -> None:
        raise AssertionError((state, seconds))

    def told(self, line: str, seconds: float) -> None:
        self.lines.append(line)
        if seconds > 0.5:
            raise KeyboardInterrupt


def test_progress_is_told_and_an_interrupt_is_heard():
    watch, clock = Interrupts(), Deadline.never()
    result = api.solve(wide(0), Options(method="mip-planet"), [watch])
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "interrupted")
    assert clock.elapsed() < 10
    assert watch.lines[0].startswith("clause 1 of 1   bound ")
    assert " nodes " in watch.lines[0]
    assert math.isfinite(result.notes["solver_bound"])
    assert f" {result.branches} nodes " in watch.lines[-1]


def test_the_same_seed_takes_the_same_nodes():
    case = hard_case("residual", 6, safe=True)
    assert len({solve(case.problem, seed=3).branches for _ in range(2)}) == 1


def test_a_solver_that_fails_or_a_watch_that_raises_decides_nothing(monkeypatch):
    case = hard_case("dense", 0, safe=True)
    with monkeypatch.context() as patch:
        patch.setattr(highs, "_load", _fails)
        result = solve(case.problem)
        assert (result.verdict, result.reason) == (Verdict.UNKNOWN, "out of order")
    unsafe = hard_case("dense", 0, safe=False)
    monkeypatch.setattr("bough.baselines.base.replay", _fails)
    result = solve(unsafe.problem)
    assert (result.verdict, result.counterexample) == (Verdict.UNKNOWN, None)


def _fails(*_: object) -> None:
    raise SolverFailure("out of order")


# Options


def test_options_that_a_baseline_does_not_heed_are_refused():
    for field in ({"branching": "babsr"}, {"bounds": "lp"}, {"gap": 1e-3}, {"batch": 2}, {"most_bounds": 7}):
        with pytest.raises(BadInput, match=f"method mip-planet takes no option '{next(iter(field))}'"):
            Options(method="mip-planet", **field)
    with pytest.raises(BadInput, match="only mip-planet and mip-tight take a solver"):
        Options(solver="highs")
    with pytest.raises(BadInput, match="there is no method 'relu-bab'"):  # a search: the bench has a name for it
        Options(method="relu-bab")
    with pytest.raises(BadInput, match="there is no method 'planet'; there are: auto, marabou, mip-planet, mip-tight"):
        Options(method="planet")


@pytest.mark.parametrize(("solver", "package"), [("gurobi", "gurobipy"), ("scip", "pyscipopt")])
def test_a_solver_that_is_not_there_is_named(solver, package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match=f"is not installed; install {package}, or use solver=highs"):
        Options(method="mip-tight", solver=solver)


def test_relu_bab_is_a_search_with_a_naive_rule():
    for safe in (True, False):
        case = hard_case("residual", 2, safe=safe)
        options = parse_method("relu-bab,attack=false").options
        settings = search_plan(options, case.problem.network).settings
        assert settings.bounder == "lp"
        assert settings.branching in {"widest", "earliest", "random"}
        result = api.solve(case.problem, options)
        assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
        assert result.proved
    other = parse_method("relu-bab,branching=babsr").options
    assert (other.branching, other.bounds, other.method) == ("babsr", "lp", "auto")
    assert set(KNOWN_BASELINES.names()) < set(BUILT_IN)
    assert set(BUILT_IN).isdisjoint(KNOWN_RULES.names())


def test_auto_never_asks_a_mixed_integer_solver(monkeypatch):
    monkeypatch.setattr(MixedInteger, "solve", _fails)
    case = hard_case("dense", 1, safe=True)
    assert api.solve(case.problem, Options()).proved
