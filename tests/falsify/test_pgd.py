"""The gradient attack stays in the box, finds what is easy to find, and repeats itself."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    box_around,
    clause,
    generator,
    hard_case,
    integer,
    normal,
    problem,
    random_clause,
    sequential,
    simple_problem,
    tensor,
    with_ball,
)

from bough.bounds.lp import PlanetLP
from bough.branching.babsr import BaBSR
from bough.budget import Deadline
from bough.falsify.base import NoAttack
from bough.falsify.pgd import GradientAttack
from bough.problem.property import Ball, Box
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()


@settings(max_examples=20)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31))
def test_points_stay_in_their_box(kind, seed):
    g = generator(seed)
    network = KINDS[kind](g)
    low = normal(g, network.inputs)
    boxes = [box_around(g, network.inputs), Box(low, low), Box(low, low + 1e-15)]
    clauses = [random_clause(g, network.outputs, integer(g, 1, 3), k % 3) for k in range(4)]
    query = problem(network, boxes, clauses)
    box_numbers = []
    for box, points in GradientAttack(restarts=3, steps=10).candidates(query, NEVER):
        assert bool(((boxes[box].lower <= points) & (points <= boxes[box].upper)).all())
        assert points.shape[1] == network.inputs
        box_numbers.append(box)
    assert box_numbers == [0, 1, 2]


def test_an_obvious_counterexample_is_found_before_anything_is_bounded():
    """Unsafe in one corner only, of a box in eight dimensions."""
    network = sequential(([[1.0] * 8, [-1.0] * 8], [0.0, 0.0]), ([[1.0, -1.0]], [0.0]))
    query = simple_problem(network, [-1.0] * 8, [1.0] * 8, [[1.0]], [-7.5])
    result = search(Search(query, PlanetLP(), BaBSR(), GradientAttack(), NEVER))
    assert result.verdict is Verdict.FALSIFIED
    assert result.bounds == 0


@settings(max_examples=20)
@given(st.sampled_from(tuple(KINDS)), st.integers(0, 2**31), st.sampled_from((1, 2)))
def test_points_stay_in_their_ball(kind, seed, p):
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    query = problem(network, [box], [random_clause(g, network.outputs, integer(g, 1, 3))])
    for _, points in GradientAttack(restarts=3, steps=10).candidates(query, NEVER):
        assert bool(((box.lower <= points) & (points <= box.upper)).all())
        assert box.ball is not None
        assert bool((box.ball.distance(points) <= box.ball.radius * (1 + 1e-12)).all())


@pytest.mark.parametrize(("p", "reach"), [(2, 0.5 * 8**0.5), (1, 0.5)])
def test_the_rim_of_a_ball_is_reached(p, reach):
    """The sum of eight inputs is least along the diagonal (l2), or anywhere in one facet (l1)."""
    network = sequential(([[1.0] * 8, [-1.0] * 8], [0.0, 0.0]), ([[1.0, -1.0]], [0.0]))
    zeros, ones = tensor([0.0] * 8), tensor([1.0] * 8)
    box = Box(-ones, ones, Ball(zeros, 2 * ones, 1.0, p))
    for share, verdict in ((0.999, Verdict.FALSIFIED), (1.001, Verdict.VERIFIED)):
        query = problem(network, [box], [clause([[1.0]], [-reach * share])])
        result = search(Search(query, PlanetLP(), BaBSR(), GradientAttack(), NEVER))
        assert result.verdict is verdict
        assert result.bounds == 0 or verdict is Verdict.VERIFIED


def test_several_rows_at_once():
    """A small square in the middle of nowhere: all four rows have to hold."""
    network = sequential(([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]))
    rows = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    query = problem(network, [Box(tensor([-1.0, -1.0]), tensor([1.0, 1.0]))], [clause(rows, [0.71, -0.6, 0.31, -0.2])])
    result = search(Search(query, PlanetLP(), BaBSR(), GradientAttack(), NEVER))
    assert result.verdict is Verdict.FALSIFIED
    assert result.bounds == 0


def test_the_attack_repeats_itself():
    case = hard_case("dense", 1, safe=True)

    def points(attack: GradientAttack) -> torch.Tensor:
        torch.rand(7)  # the global generator does not matter
        return torch.cat([p for _, p in attack.candidates(case.problem, NEVER)])

    assert torch.equal(points(GradientAttack(seed=5)), points(GradientAttack(seed=5)))
    assert not torch.equal(points(GradientAttack(seed=5)), points(GradientAttack(seed=6)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_attack_changes_no_verdict(kind):
    for safe in (True, False):
        case = hard_case(kind, 4, safe=safe)
        for attack in (NoAttack(), GradientAttack()):
            result = search(Search(case.problem, PlanetLP(), BaBSR(), attack, NEVER))
            assert result.verdict is (Verdict.VERIFIED if safe else Verdict.FALSIFIED)
            assert result.upper_bound >= case.least - 1e-6


def test_a_passed_deadline_stops_the_attack():
    case = hard_case("dense", 1, safe=True)
    started = time.monotonic()
    list(GradientAttack(steps=10**6).candidates(case.problem, Deadline.after(0.2)))
    assert time.monotonic() - started < 3
