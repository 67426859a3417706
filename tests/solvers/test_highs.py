"""The door to HiGHS: small programs with known answers, edited in place, cut off, out of time."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from tests.support import Array

from bough.budget import Deadline, OutOfTime
from bough.errors import SolverFailure
from bough.solvers.highs import Highs, HighsMixed
from bough.solvers.mixed import Ending, Watch
from bough.solvers.program import LinearProgram, MixedProgram, Status

NEVER = Deadline.never()


def program(cost: Array, matrix: Array, columns: tuple[Array, Array], rows: tuple[Array, Array]) -> LinearProgram:
    """All entries of the matrix may be edited."""
    at = np.indices(matrix.shape).reshape(2, -1).astype(np.int32)
    held = sparse.csr_matrix((matrix.reshape(-1), (at[0], at[1])), shape=matrix.shape)
    return LinearProgram(cost, held, *columns, *rows, (at[0], at[1]))


def random_program(random: np.random.Generator) -> tuple[LinearProgram, Array, Array]:
    rows, columns = 4, 5
    matrix, cost = random.normal(size=(rows, columns)), random.normal(size=columns)
    box = (-np.ones(columns), np.ones(columns))
    upper = random.normal(size=rows)
    return program(cost, matrix, box, (np.full(rows, -np.inf), upper)), matrix, upper


def reference(cost: Array, matrix: Array, lower: Array, upper: Array, limit: Array) -> float:
    answer = linprog(cost, A_ub=matrix, b_ub=limit, bounds=list(zip(lower, upper, strict=True)))
    return float(answer.fun) if answer.fun is not None else np.inf


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_edits_in_place_give_what_a_fresh_program_gives(seed):
    random = np.random.default_rng(seed)
    linear, matrix, upper = random_program(random)
    solver, start = Highs(linear), None
    for k in range(4):
        solution = solver.solve(start, np.inf, NEVER)
        expected = reference(linear.cost, matrix, linear.column_lower, linear.column_upper, upper)
        assert (solution.status is Status.INFEASIBLE) == np.isinf(expected)
        if np.isfinite(expected):
            assert solution.objective == pytest.approx(expected, abs=1e-6)
            assert float(linear.cost @ solution.columns) == pytest.approx(expected, abs=1e-6)
            # Duals: the Lagrangian bound that they give is the objective.
            reduced = linear.cost - matrix.T @ solution.row_dual
            bound = (
                solution.row_dual @ upper
                + np.minimum(reduced * linear.column_lower, reduced * linear.column_upper).sum()
            )
            assert bound == pytest.approx(expected, abs=1e-6)
            assert (solution.row_dual <= 1e-9).all()
        else:
            sign = next((s for s in (1.0, -1.0) if _empty(s * solution.row_dual, matrix, linear, upper) > 0), None)
            assert sign is not None, "the ray proves nothing"
        start = solution.basis if k % 2 else None
        linear.column_lower[:] = -random.random(5)
        linear.column_upper[:] = random.random(5)
        upper = random.normal(size=4) * 0.5
        matrix = random.normal(size=(4, 5))
        solver.set_columns(np.arange(5, dtype=np.int32), linear.column_lower.copy(), linear.column_upper.copy())
        solver.set_rows(np.arange(4, dtype=np.int32), np.full(4, -np.inf), upper)
        solver.set_entries(matrix.reshape(-1))


def _empty(ray: Array, matrix: Array, linear: LinearProgram, upper: Array) -> float:
    """How far above zero the ray lifts a program with no objective; rows may only be used in their own direction."""
    ray = np.minimum(ray, 0.0)
    reduced = -matrix.T @ ray
    return float(ray @ upper + np.minimum(reduced * linear.column_lower, reduced * linear.column_upper).sum())


def test_a_passed_deadline_is_heard():
    linear, _, _ = random_program(np.random.default_rng(0))
    with pytest.raises(OutOfTime):
        Highs(linear).solve(None, np.inf, Deadline.after(0))


def test_an_unbounded_program_is_a_failure_not_an_answer():
    free = (np.full(1, -np.inf), np.full(1, np.inf))
    linear = program(np.array([1.0]), np.array([[0.0]]), free, (np.array([-np.inf]), np.array([1.0])))
    with pytest.raises(SolverFailure):
        Highs(linear).solve(None, np.inf, NEVER)


def test_a_cutoff_stops_or_solves_and_never_claims_less():
    """With a cutoff below the optimum the answer is a bound beyond it, with duals that show it."""
    stopped = 0
    for seed in range(30):
        linear, matrix, upper = random_program(np.random.default_rng(seed))
        best = reference(linear.cost, matrix, linear.column_lower, linear.column_upper, upper)
        if np.isinf(best):
            continue
        solver = Highs(linear)
        start = solver.solve(None, np.inf, NEVER).basis
        tight = upper - 0.2
        solver.set_rows(np.arange(4, dtype=np.int32), np.full(4, -np.inf), tight)
        after = reference(linear.cost, matrix, linear.column_lower, linear.column_upper, tight)
        solution = solver.solve(start, best - 1.0, NEVER)
        if solution.status is Status.CUT_OFF:
            stopped += 1
            reduced = linear.cost - matrix.T @ np.minimum(solution.row_dual, 0)
            terms = np.minimum(reduced * linear.column_lower, reduced * linear.column_upper)
            bound = np.minimum(solution.row_dual, 0) @ tight + terms.sum()
            assert best - 1.0 <= bound + 1e-6
            assert bound <= after + 1e-6
    assert stopped > 0


# Mixed-integer programs


def knapsack(rows: tuple[float, float] = (-np.inf, 2.5)) -> MixedProgram:
    """Minimise -3a - 2b - 2c with 2a + 1.2b + 1.2c within the rows, all of them 0 or 1: -4, or -5 without whole
    numbers.
    """
    weights, zero, one = np.array([[2.0, 1.2, 1.2]]), np.zeros(3), np.ones(3)
    linear = program(np.array([-3.0, -2.0, -2.0]), weights, (zero, one), tuple(np.array([r]) for r in rows))  # type: ignore[arg-type]
    return MixedProgram(linear, np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32))


def watch(above: float = np.inf, found: Callable[[Array], bool] = lambda _: False) -> Watch:
    return Watch(above, found, lambda *_: None)


def test_a_mixed_program_is_solved_to_whole_numbers():
    solutions: list[Array] = []

    def collect(columns: Array) -> bool:
        solutions.append(columns)
        return False

    solution = HighsMixed().minimise(knapsack(), watch(found=collect), NEVER)
    assert solution.ending is Ending.OPTIMAL
    assert solution.bound == pytest.approx(-4.0)
    assert solution.nodes >= 0
    np.testing.assert_allclose(solutions[-1], [0.0, 1.0, 1.0], atol=1e-9)
    assert HighsMixed().title.startswith("HiGHS 1.")


@pytest.mark.parametrize("above", [-10.0, -4.5, -4.001])
def test_a_bound_above_what_was_asked_for_ends_it_and_claims_no_more(above):
    solution = HighsMixed().minimise(knapsack(), watch(above), NEVER)
    assert (solution.ending, solution.bound) == (Ending.ABOVE, above)


def test_a_watch_ends_it_by_contentment_or_by_an_error():
    assert HighsMixed().minimise(knapsack(), watch(found=lambda _: True), NEVER).ending is Ending.FOUND

    def fails(_: Array) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        HighsMixed().minimise(knapsack(), watch(found=fails), NEVER)


def test_a_mixed_program_without_points_is_a_failure_unless_there_is_a_cutoff():
    """With one, 'infeasible' is how HiGHS says that nothing is below it."""
    with pytest.raises(SolverFailure, match="HiGHS ended with status Infeasible"):
        HighsMixed().minimise(knapsack((1.3, 1.9)), watch(), NEVER)


def test_a_mixed_program_without_time_says_so():
    assert HighsMixed().minimise(knapsack(), watch(), Deadline.after(0)).ending is Ending.OUT_OF_TIME
