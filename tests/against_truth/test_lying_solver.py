"""The solver's word closes nothing: whatever it answers, bounds stay below the truth and no verdict is wrong."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import Judged, hard_case

from bough.bounds.intermediate import PaperBounds, TightBounds
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.errors import SolverFailure
from bough.falsify.base import NoAttack
from bough.search.loop import Goal, Search, search
from bough.solvers.highs import Highs
from bough.solvers.program import Solution, Status
from bough.verdict.result import Verdict

Lie = Callable[[Solution, np.random.Generator], Solution]


def _duals(of: Callable[[np.ndarray, np.random.Generator], np.ndarray], status: Status | None = None) -> Lie:
    def lie(truth: Solution, random: np.random.Generator) -> Solution:
        return replace(truth, row_dual=of(truth.row_dual, random), status=status or truth.status, objective=1e9)

    return lie


def _some_nan(y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.where(random.random(len(y)) < 0.2, np.nan, y)


LIES: dict[str, Lie] = {
    "always infeasible, true duals": lambda s, r: replace(s, status=Status.INFEASIBLE),
    "always infeasible, random ray": _duals(lambda y, r: r.normal(size=len(y)), Status.INFEASIBLE),
    "always infeasible, zero ray": _duals(lambda y, r: np.zeros(len(y)), Status.INFEASIBLE),
    "always infeasible, huge ray": _duals(lambda y, r: 1e300 * r.normal(size=len(y)), Status.INFEASIBLE),
    "always infeasible, tiny ray": _duals(lambda y, r: 1e-300 * r.normal(size=len(y)), Status.INFEASIBLE),
    "always infeasible, not a number": _duals(_some_nan, Status.INFEASIBLE),
    "never infeasible": lambda s, r: replace(s, status=Status.OPTIMAL, objective=1e9),
    "cut off": lambda s, r: replace(s, status=Status.CUT_OFF, objective=1e9),
    "objective only": lambda s, r: replace(s, objective=1e9),
    "wrong sign": _duals(lambda y, r: -y),
    "random duals": _duals(lambda y, r: r.normal(size=len(y))),
    "noisy duals": _duals(lambda y, r: y + 0.1 * r.normal(size=len(y))),
    "permuted duals": _duals(lambda y, r: r.permutation(y)),
    "huge duals": _duals(lambda y, r: y * 1e300),
    "infinite duals": _duals(lambda y, r: np.where(r.random(len(y)) < 0.2, np.inf, y)),
    "not a number": _duals(_some_nan),
    "points elsewhere": lambda s, r: replace(s, columns=r.normal(size=len(s.columns)) * 1e6),
    "points nowhere": lambda s, r: replace(s, columns=np.full(len(s.columns), np.nan)),
    "no basis": lambda s, r: replace(s, basis=None),
}


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Lie], None]:
    honest = Highs.solve

    def install(lie: Lie) -> None:
        random = np.random.default_rng(0)

        def solve(self: Highs, start: object | None, cutoff: float, deadline: Deadline) -> Solution:
            return lie(honest(self, start, cutoff, deadline), random)

        monkeypatch.setattr(Highs, "solve", solve)

    return install


@pytest.mark.parametrize("name", LIES)
def test_no_lie_makes_a_wrong_verdict(name, lying):
    """Dense networks of eight ReLUs, safe and unsafe ones; every bound of the searches is judged by enumeration."""
    lying(LIES[name])
    for seed, safe in ((4, True), (7, True), (4, False), (7, False)):
        case = hard_case("dense", seed, safe=safe)
        judged = Judged(PlanetLP(PaperBounds() if seed == 4 else TightBounds(refresh=False)), case)
        result = search(Search(case.problem, judged, BaBSR(), NoAttack(), Deadline.after(0.5)))
        assert result.verdict is not (Verdict.FALSIFIED if safe else Verdict.VERIFIED)
        assert result.lower_bound <= case.least + judged.tolerance


@settings(max_examples=15)
@given(
    st.sampled_from(("dense", "residual", "convolutional", "pooled")),
    st.integers(0, 2**10),
    st.sampled_from(tuple(LIES)),
)
def test_no_lie_makes_a_bound_too_high(kind, seed, name):
    """Both goals; the lie begins at random calls, so that searches get deep before it."""
    honest, random = Highs.solve, np.random.default_rng(seed)

    def solve(self: Highs, start: object | None, cutoff: float, deadline: Deadline) -> Solution:
        truth = honest(self, start, cutoff, deadline)
        return LIES[name](truth, random) if random.random() < 0.5 else truth

    case = hard_case(kind, seed % 8, safe=bool(seed % 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Highs, "solve", solve)
        judged = Judged(PlanetLP(TightBounds()), case)
        goal = Goal(1e-4 if seed % 3 else None)
        result = search(Search(case.problem, judged, RandomChoice(seed), NoAttack(), Deadline.after(0.5), goal=goal))
    assert result.lower_bound <= case.least + judged.tolerance
    if goal.gap is None:
        assert result.verdict is not (Verdict.FALSIFIED if case.least > 0 else Verdict.VERIFIED)


def test_a_solver_that_always_fails_proves_nothing_wrong(monkeypatch):
    def solve(self: Highs, start: object | None, cutoff: float, deadline: Deadline) -> Solution:
        raise SolverFailure("no")

    monkeypatch.setattr(Highs, "solve", solve)
    for safe in (True, False):
        case = hard_case("dense", 4, safe=safe)
        judged = Judged(PlanetLP(), case)
        result = search(Search(case.problem, judged, BaBSR(), NoAttack(), Deadline.never()))
        assert result.verdict is not (Verdict.FALSIFIED if safe else Verdict.VERIFIED)


def test_the_honest_solver_closes_empty_domains_and_only_those():
    """Judged holds every domain said to be empty against the pieces that surely are not."""
    empty = 0
    for kind, seed in (("dense", 1), ("dense", 5), ("residual", 4), ("pooled", 0), ("convolutional", 2)):
        case = hard_case(kind, seed, safe=True)
        judged = Judged(PlanetLP(PaperBounds() if seed % 2 else TightBounds(refresh=False)), case)
        result = search(Search(case.problem, judged, RandomChoice(seed), NoAttack(), Deadline.never()))
        assert result.verdict is Verdict.VERIFIED
        empty += judged.seen["empty"]
    print(f"{empty} domains closed as empty, all of them truly")  # noqa: T201 - pytest shows it on demand
    assert empty >= 20
