"""What is known of one clause says nothing about another: of several, the unsafe one is found wherever it stands."""

import pytest
from tests.support import (
    KINDS,
    box_around,
    clause,
    generator,
    hard_case,
    piece_margins,
    pieces,
    problem,
    random_clause,
    relu_inputs_at,
    samples,
    values_at,
)

from bough.bounds.ascent import Ascent
from bough.bounds.base import AbstractBounder
from bough.bounds.boxes import HalvedLP, LinearBounds
from bough.bounds.dual import DualAscent
from bough.bounds.lp import PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.branching.babsr import BaBSR
from bough.branching.inputs import Smear
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

FEW, MORE = Ascent(steps=8, pauses=(3,)), Ascent(steps=20)
BOUNDERS: dict[str, AbstractBounder] = {
    "lp": PlanetLP(),
    "dual": DualAscent(FEW, MORE),
    "optimised": DualAscent(FEW, MORE, OptimisedBounds()),
    "linear": LinearBounds(),
    "halved": HalvedLP(),
}
SEVERAL = [s for s in range(30) if len(hard_case("dense", s, safe=False).problem.clauses) > 1][:4]


@pytest.mark.parametrize("name", BOUNDERS)
def test_the_unsafe_clause_is_found_wherever_it_stands(name):
    """The first clause of a hard case is the unsafe one, by a hair; here it comes first, and last."""
    rule = Smear() if name in ("linear", "halved") else BaBSR()
    for seed in SEVERAL:
        case = hard_case("dense", seed, safe=False, away=1e-2)
        given = case.problem.property
        for clauses in (given.clauses, given.clauses[::-1]):
            query = problem(case.problem.network, given.boxes, clauses)
            run = Search(query, BOUNDERS[name], rule, NoAttack(), Deadline.after(20), batch=16, most_bounds=2000)
            result = search(run)
            assert result.verdict is not Verdict.VERIFIED
            # Not by the margins of the others, either: the bound of all is that of the worst.
            assert result.lower_bound <= case.least + 1e-6


@pytest.mark.parametrize("kind", ["dense", "residual"])
def test_bounds_at_the_unsafe_points_of_one_clause_are_not_used_for_another(kind):
    """The first clause is about the low end of the output and almost unsafe, the second about the high end, and is
    unsafe there: what holds at the unsafe points of the first does not hold where the second is unsafe.
    """
    for seed in range(2):
        g = generator(seed)
        network = KINDS[kind](g)
        box, row = box_around(g, network.inputs), random_clause(g, network.outputs, 1).coefficients
        all_pieces = pieces(network, box)
        low, high = (float(piece_margins(all_pieces, box, clause(r, [0.0])).min()) for r in (row, -row))
        query = problem(network, [box], [clause(row, [low - 1e-3]), clause(-row, [high + 0.1])])
        bounder = DualAscent(FEW, MORE, OptimisedBounds())
        run = Search(query, bounder, BaBSR(), NoAttack(), Deadline.after(20), batch=16, most_bounds=500)
        assert search(run).verdict is not Verdict.VERIFIED
        bounding = bounder.prepare(query)
        roots = bounding.root(0.0, Deadline.never()).domains
        # The ReLUs' inputs at the unsafe points that are known lie inside the second clause's own bounds.
        points = samples(box, 3000).numpy()
        unsafe = points[(values_at(network, points)[-1] @ -row[0].numpy()) <= high + 0.1]
        inside = relu_inputs_at(network, unsafe)
        assert (inside >= roots.bounds.lower[1].numpy() - 1e-9).all()
        assert (inside <= roots.bounds.upper[1].numpy() + 1e-9).all()
