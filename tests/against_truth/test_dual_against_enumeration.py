"""Searches by ascent over optimised bounds agree with enumeration, whatever the rule and the batch."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support import Case, Judged, hard_case

from bough.bounds.ascent import Ascent
from bough.bounds.dual import DualAscent
from bough.bounds.optimised import OptimisedBounds
from bough.branching.babsr import BaBSR
from bough.branching.base import AbstractBrancher
from bough.branching.filtered import Filtered
from bough.branching.random import RandomChoice
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.search.loop import Search, search
from bough.verdict.result import Result, Verdict

TOLERANCE = 1e-6  # of the enumeration's own LPs
KINDS = ("dense", "convolutional", "residual", "pooled")
RULES: tuple[AbstractBrancher[Any], ...] = (
    BaBSR(),
    BaBSR(worse_side=True),
    Filtered(),
    Filtered(best=3),
    Filtered(best=3, product=False),
    RandomChoice(0),
)
BATCHES = (1, 4, 64)
# Few steps, so that branching has something left to do.
BOUNDER = DualAscent(Ascent(steps=8, pauses=(3,)), Ascent(steps=20), intermediate=OptimisedBounds())


def decided(case: Case, brancher: AbstractBrancher[Any], batch: int) -> Result:
    """A search, every bound of which is judged; its verdict has to be enumeration's."""
    judged = Judged(BOUNDER, case, conditional=True)
    result = search(Search(case.problem, judged, brancher, NoAttack(), Deadline.never(), batch=batch))
    assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
    assert result.lower_bound <= case.least + TOLERANCE
    assert result.branches % 2 == 0
    assert result.bounds == judged.seen["domains"] + judged.seen["estimates"]
    assert judged.seen["domains"] == result.branches + len(case.problem.clauses)
    if result.counterexample is not None:
        counterexample = result.counterexample
        clause = case.problem.property.clauses[counterexample.clause]
        box = case.problem.property.boxes[clause.box]
        assert clause.holds(case.problem.reference.run(counterexample.x).astype(np.float64))
        assert (box.lower.numpy() <= counterexample.x).all()
        assert (counterexample.x <= box.upper.numpy()).all()
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_and_batch_finds_what_enumeration_finds(kind, rule):
    """Four problems of up to three clauses and two boxes, with all batches among them."""
    branches, several = [], 0
    for turn, number in enumerate((0, 2, 5, 7)):
        case = hard_case(kind, number, safe=number != 2)
        branches.append(decided(case, rule, BATCHES[(turn + RULES.index(rule)) % len(BATCHES)]).branches)
        several += len(case.problem.clauses) > 1
    print(branches)  # noqa: T201 - pytest shows it on demand
    assert several >= 1
    assert sum(b > 2 for b in branches) >= 2


def test_problems_of_several_boxes_are_among_them():
    boxes = [len(hard_case(kind, n, safe=n != 2).problem.property.boxes) for kind in KINDS for n in (0, 2, 5, 7)]
    assert sum(count > 1 for count in boxes) >= 2


@settings(max_examples=10)
@given(
    st.sampled_from(KINDS),
    st.integers(0, 2**31),
    st.booleans(),
    st.sampled_from((1e-2, 1e-3, 1e-4)),
    st.sampled_from(RULES),
    st.sampled_from(BATCHES),
)
def test_search_by_ascent_agrees_with_enumeration(kind, seed, safe, away, rule, batch):
    case = hard_case(kind, seed, safe=safe, away=away)
    assume(abs(case.least) > TOLERANCE)
    decided(case, rule, batch)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from(KINDS),
    st.integers(0, 2**31),
    st.booleans(),
    st.sampled_from((1e-1, 1e-2, 1e-3, 1e-4, 1e-5)),
    st.sampled_from(RULES),
    st.sampled_from(BATCHES),
    st.sampled_from((0.3, 1.0, 2.0)),
)
def test_search_by_ascent_agrees_with_enumeration_in_many_cases(kind, seed, safe, away, rule, batch, radius):
    case = hard_case(kind, seed, safe=safe, away=away, radius=radius)
    assume(abs(case.least) > TOLERANCE)
    decided(case, rule, batch)
