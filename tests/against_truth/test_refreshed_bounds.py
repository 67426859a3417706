"""ReLU bounds that dual ascent renews after every split: verdicts and bounds are enumeration's, the cost is told."""

import pytest
from tests.support import Judged, hard_case

from bough.bounds.ascent import Ascent
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.optimised import OptimisedBounds
from bough.branching.babsr import BaBSR
from bough.branching.filtered import Filtered
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

POLICIES: tuple[AbstractIntermediate, ...] = (
    TightBounds(refresh=True),
    PaperBounds(),
    OptimisedBounds(refresh=True, rounds=1),
    OptimisedBounds(inner=TightBounds(refresh=True), unsafe_only=False),
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("kind", ["dense", "convolutional", "residual", "pooled"])
def test_searches_with_refreshed_bounds_find_what_enumeration_finds(policy, kind):
    refreshed = 0
    for seed in (0, 3, 5):
        case = hard_case(kind, seed, safe=seed % 2 == 1)
        bounder = DualAscent(Ascent(steps=5, pauses=(3,)), Ascent(steps=10), intermediate=policy)
        judged = Judged(bounder, case, conditional=policy.conditional)
        rule = BaBSR() if seed == 0 else Filtered(best=3)
        result = search(Search(case.problem, judged, rule, NoAttack(), Deadline.never(), batch=4))
        assert result.verdict is (Verdict.VERIFIED if case.least > 0 else Verdict.FALSIFIED)
        assert result.lower_bound <= case.least + 1e-6
        refreshed += result.notes.get("refresh_seconds", 0.0) > 0
    assert refreshed
