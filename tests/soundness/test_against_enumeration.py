"""Whole searches agree with the enumeration of every linear piece, and so does every bound on the way."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.search.loop import Goal, Search, search
from bough.verdict.result import Result, Verdict
from tests.support import Case, Judged, hard_case

BOUNDS: tuple[AbstractIntermediate, ...] = (PaperBounds(), TightBounds(refresh=True), TightBounds(refresh=False))
GAP = 1e-4
TOLERANCE = 1e-6  # of the enumeration's own LPs
TEN_SPLITS = 20  # branches

# Seeds of one shape each; dense and residual networks branch more, so fewer of them are needed.
SEEDS = {
    "dense": range(10),
    "residual": range(2, 12),
    "convolutional": (0, 2, 5, 6, 7, 11, 13, 14, 15),
    "pooled": (0, 3, 5, 8, 9, 10, 11, 13, 15),
}


def run(case: Case, bounds: AbstractIntermediate, brancher: AbstractBrancher, gap: float | None, batch: int) -> Result:
    bounder = Judged(PlanetLP(bounds), case)
    never = Deadline.never()
    return search(Search(case.problem, bounder, brancher, NoAttack(), never, goal=Goal(gap), batch=batch))


def check(case: Case, number: int, batch: int = 1) -> list[int]:
    """The sign and the minimum, each by another pair of strategies; how many branches they took."""
    branchers = (BaBSR(), RandomChoice(number))
    sign = run(case, BOUNDS[number % 3], branchers[number % 2], None, batch)
    assert sign.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
    assert sign.lower_bound <= case.least + TOLERANCE
    if sign.counterexample is not None:
        found = sign.counterexample
        clause = case.problem.property.clauses[found.clause]
        box = case.problem.property.boxes[clause.box]
        assert clause.holds(case.problem.reference.run(found.x))
        assert (box.lower.numpy() <= found.x).all()
        assert (found.x <= box.upper.numpy()).all()
    least = run(case, BOUNDS[(number + 1) % 3], branchers[(number + 1) % 2], GAP, batch)
    assert least.upper_bound - GAP - 1e-9 <= least.lower_bound
    assert least.lower_bound - TOLERANCE <= case.least <= least.upper_bound + TOLERANCE
    return [sign.branches, least.branches]


@pytest.mark.parametrize("kind", SEEDS)
def test_search_finds_what_enumeration_finds_and_a_third_takes_ten_splits(kind):
    branches = [b for seed in SEEDS[kind] for b in check(hard_case(kind, seed, safe=seed % 4 != 0), seed)]
    hard = sum(b >= TEN_SPLITS for b in branches)
    print(f"{kind}: {len(branches)} searches, {hard} of them with ten splits or more; branches {branches}")
    assert hard * 3 >= len(branches)


@settings(max_examples=20)
@given(
    st.sampled_from(("dense", "residual", "convolutional", "pooled")),
    st.integers(0, 2**31),
    st.booleans(),
    st.sampled_from((1e-2, 1e-3, 1e-4)),
    st.sampled_from((1, 3)),
)
def test_search_agrees_with_enumeration(kind, seed, safe, away, batch):
    case = hard_case(kind, seed, safe=safe, away=away)
    assume(abs(case.least) > TOLERANCE)
    check(case, seed, batch)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.sampled_from(("dense", "residual", "convolutional", "pooled")),
    st.integers(0, 2**31),
    st.booleans(),
    st.sampled_from((1e-1, 1e-2, 1e-3, 1e-4, 1e-5)),
    st.sampled_from((1, 2, 5)),
    st.sampled_from((0.3, 1.0, 2.0)),
)
def test_search_agrees_with_enumeration_in_many_cases(kind, seed, safe, away, batch, radius):
    case = hard_case(kind, seed, safe=safe, away=away, radius=radius)
    assume(abs(case.least) > TOLERANCE)
    check(case, seed, batch)


@pytest.mark.parametrize("seed", range(6))
def test_padded_pooling_is_decided(seed):
    case = hard_case("padded", seed, safe=seed % 3 != 0)
    result = run(case, PaperBounds(), BaBSR(), None, 1)
    assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
