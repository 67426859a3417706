"""Bounds over box and ball: they contain what points of both do, are no weaker than the box's, and whole searches with
them never say what enumeration refutes.
"""

import itertools
from collections import Counter
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import (
    KINDS,
    Array,
    Piece,
    ball_samples,
    box_around,
    clause,
    generator,
    in_ball,
    piece_margins,
    pieces,
    problem,
    random_clause,
    relu_inputs_at,
    samples,
    values_at,
    with_ball,
)

from bough.bounds.base import AbstractBounder
from bough.bounds.dual import DualAscent
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds, TightBounds
from bough.bounds.linear import bound_clause, bound_elements, by_multipliers, by_slopes
from bough.bounds.lp import PlanetLP
from bough.bounds.optimised import OptimisedBounds
from bough.bounds.relaxation import AdaptiveSlopes, ParallelSlopes
from bough.branching.babsr import BaBSR
from bough.budget import Deadline
from bough.falsify.base import AbstractFalsifier, NoAttack
from bough.falsify.pgd import GradientAttack
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box
from bough.search.loop import Search, search
from bough.verdict.result import Verdict

NEVER = Deadline.never()
POLICIES: tuple[AbstractIntermediate, ...] = (PaperBounds(), TightBounds())
ROUNDING = 1e-9  # of the samples' own evaluation
kinds = st.sampled_from(tuple(KINDS))
seeds = st.integers(0, 2**31)
norms = st.sampled_from((1, 2))


def inside(box: Box) -> Array:
    """Thousands of points of box and ball."""
    return np.asarray(torch.cat([ball_samples(box, 2000), box.project(samples(box, 1000))]).numpy())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=25)
@given(kind=kinds, seed=seeds, p=norms)
def test_relu_bounds_contain_samples(policy, kind, seed, p):
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    region = policy.at_root(network, box, NEVER)
    values = relu_inputs_at(network, inside(box))
    assert (region.bounds.lower.numpy() <= values + ROUNDING * (1 + np.abs(values))).all()
    assert (region.bounds.upper.numpy() >= values - ROUNDING * (1 + np.abs(values))).all()


@settings(max_examples=40)
@given(kinds, seeds, norms, st.sampled_from((ParallelSlopes(), AdaptiveSlopes())))
def test_linear_bounds_contain_samples_and_are_no_weaker_than_without_the_ball(kind, seed, p, slopes):
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    region = TightBounds().at_root(network, box, NEVER)
    values = values_at(network, inside(box))
    for i, node in enumerate(network.nodes[1:], start=1):
        bounds = bound_elements(network, region, i, torch.arange(node.size), slopes, NEVER)
        slack = ROUNDING * (1 + np.abs(values[i]))
        assert (bounds.lower.numpy() <= values[i] + slack).all()
        assert (bounds.upper.numpy() >= values[i] - slack).all()
        alone = bound_elements(network, replace(region, ball=None), i, torch.arange(node.size), slopes, NEVER)
        assert bool((bounds.lower >= alone.lower).all())
        assert bool((bounds.upper <= alone.upper).all())


@settings(max_examples=40)
@given(kinds, seeds, norms, st.integers(1, 3))
def test_any_multipliers_stay_below_sampled_margins(kind, seed, p, rows):
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    drawn = random_clause(g, network.outputs, rows)
    region = TightBounds().at_root(network, box, NEVER)
    y = values_at(network, inside(box))[-1]
    weights = torch.rand(1, 2, rows, generator=g).double()
    truth = ((y @ drawn.coefficients.numpy().T - drawn.offsets.numpy()) @ weights[0].numpy().T).min(axis=0)
    wild = by_multipliers(torch.randn(1, network.neurons, generator=g).double())
    for rule in (by_slopes(ParallelSlopes()), by_slopes(AdaptiveSlopes()), wild):
        assert (bound_clause(network, region, drawn, weights, rule)[0].numpy() <= truth + ROUNDING).all()


def test_a_linear_network_is_bounded_exactly():
    """A ball well inside the box, no ReLU: the bound is the dual norm, to the last digits."""
    g = generator(4)
    network = KINDS["dense"](g)
    inputs = network.inputs
    for p in (1, 2):
        ball = Ball(torch.zeros(inputs).double(), torch.full((inputs,), 2.0).double(), 0.5, p)
        box = Box(torch.full((inputs,), -1.0).double(), torch.full((inputs,), 1.0).double(), ball)
        region = TightBounds().at_root(network, box, NEVER)
        weight, bias = (getattr(network.nodes[1].op, name) for name in ("weight", "bias"))
        reach = 0.25 * (weight.norm(dim=1) if p == 2 else weight.abs().amax(dim=1))
        first = bound_elements(network, region, 1, torch.arange(len(bias)), ParallelSlopes(), NEVER)
        torch.testing.assert_close(first.lower[0], bias - reach, atol=1e-9, rtol=0)
        torch.testing.assert_close(first.upper[0], bias + reach, atol=1e-9, rtol=0)


# Whole searches


def cut(uncut: list[Piece], ball: Ball) -> list[Piece]:
    """The pieces with the ball's half-spaces: all of them for l1, so many for l2 that little is left outside."""
    inputs = len(ball.centre)
    if ball.p == 1:
        normals = np.array(list(itertools.product((-1.0, 1.0), repeat=inputs)))
    else:
        normals = np.random.default_rng(0).normal(size=(60 * inputs, inputs))
        normals = np.vstack([normals, np.eye(inputs), -np.eye(inputs)])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    rows = normals * ball.scale.numpy()
    limits = ball.radius + rows @ ball.centre.numpy()
    return [
        replace(f, rows=np.vstack([f.rows, rows]), limits=np.concatenate([f.limits, limits]), slack=0.0) for f in uncut
    ]


@lru_cache(maxsize=64)
def ball_case(kind: str, seed: int, p: int, *, safe: bool) -> tuple[Problem, float]:
    """A problem whose least margin is known to be a little above 0, or below; and a lower limit of that margin."""
    g = generator(seed)
    network = KINDS[kind](g)
    box = with_ball(g, box_around(g, network.inputs), p)
    assert box.ball is not None
    drawn = random_clause(g, network.outputs, 1 + seed % 2)
    below = float(piece_margins(cut(pieces(network, replace(box, ball=None)), box.ball), box, drawn).min())
    y = values_at(network, inside(box))[-1]
    above = float((y @ drawn.coefficients.numpy().T - drawn.offsets.numpy()).max(axis=1).min())
    assert below <= above + 1e-7
    shift = below - 0.01 if safe else above + 0.01
    moved = clause(drawn.coefficients, drawn.offsets + shift)
    return problem(network, [box], [moved]), below - shift


STRATEGIES: tuple[tuple[AbstractBounder, AbstractFalsifier], ...] = (
    (PlanetLP(), NoAttack()),
    (PlanetLP(), GradientAttack()),
    (DualAscent(), NoAttack()),
    (DualAscent(intermediate=OptimisedBounds()), NoAttack()),
)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_searches_are_never_wrong(kind, p):
    tally: Counter[str] = Counter()
    for seed, safe in itertools.product(range(4), (True, False)):
        query, least = ball_case(kind, seed, p, safe=safe)
        box = query.property.boxes[0]
        assert box.ball is not None
        for bounder, attack in STRATEGIES:
            result = search(Search(query, bounder, BaBSR(), attack, NEVER))
            assert result.verdict is not (Verdict.FALSIFIED if safe else Verdict.VERIFIED)
            assert result.upper_bound >= least - 1e-6
            if result.counterexample is not None:
                assert in_ball(box.ball, result.counterexample.x.tolist())
            if isinstance(attack, GradientAttack) or safe:
                tally[f"{'safe' if safe else 'unsafe'} {result.verdict.value}"] += 1
    print(dict(tally))  # noqa: T201 - pytest shows it on demand
    assert tally["safe verified"] >= 4
    assert tally["unsafe falsified"] >= 3


@pytest.mark.parametrize("p", [1, 2])
def test_the_ball_decides_what_the_box_leaves_open(p):
    """A box with an unsafe corner, a ball that does not reach it."""
    g = generator(11)
    network = KINDS["dense"](g)
    n = network.inputs
    ones = torch.ones(n).double()
    box = Box(-ones, ones, Ball(0 * ones, ones, 1.0, p))
    drawn = random_clause(g, network.outputs, 1)
    y = [values_at(network, x)[-1] for x in (samples(box, 3000).numpy(), ball_samples(box, 3000).numpy())]
    corner, near = (float((v @ drawn.coefficients.numpy().T - drawn.offsets.numpy()).min()) for v in y)
    assert corner < near - 0.1
    shifted = clause(drawn.coefficients, drawn.offsets + 0.9 * corner + 0.1 * near)
    verdicts = [
        search(Search(problem(network, [b], [shifted]), PlanetLP(), BaBSR(), GradientAttack(), NEVER)).verdict
        for b in (box, replace(box, ball=None))
    ]
    assert verdicts == [Verdict.VERIFIED, Verdict.FALSIFIED]
