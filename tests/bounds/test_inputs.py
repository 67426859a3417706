"""Least values over box and ball: attained where they say, never above a sample, exactly so in the proved version."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import ball_samples, box_around, generator, in_ball, integer, normal, samples, tensor, with_ball
from torch import Tensor

from bough.bounds.inputs import least, proved_range
from bough.problem.property import Ball, Box

seeds = st.integers(0, 2**31)
norms = st.sampled_from((1, 2))
ROUNDING = 1e-13


def middle(box: Box) -> tuple[Tensor, Tensor]:
    return (box.lower + box.upper) / 2, (box.upper - box.lower) / 2


def drawn(seed: int, p: int, inputs: int = 0) -> tuple[Box, Ball, Tensor]:
    """A box with a ball, and functionals of it."""
    g = generator(seed)
    inputs = inputs or integer(g, 1, 6)
    box = with_ball(g, box_around(g, inputs), p)
    assert box.ball is not None
    rows = normal(g, 5, inputs)
    rows[0], rows[1, 0] = 0.0, 0.0
    return box, box.ball, rows


@settings(max_examples=100)
@given(seeds, norms)
def test_the_least_value_is_below_all_samples_and_above_the_box(seed, p):
    box, ball, g = drawn(seed, p)
    centre, radius = middle(box)
    value, s = least(g * radius, centre, radius, ball)
    points = torch.cat([ball_samples(box, 2000), box.project(samples(box, 2000))])
    slack = ROUNDING * (1 + g.abs().sum(dim=1))
    assert bool((value <= ((points - centre) @ g.T).amin(dim=0) + slack).all())
    assert bool((value >= least(g * radius, centre, radius, None)[0] - slack).all())
    assert bool((value <= ((g * radius) * s).sum(dim=1) + slack).all())
    assert bool((s.abs() <= 1).all())


@settings(max_examples=100)
@given(seeds, norms)
def test_the_point_is_in_the_set_and_attains_the_value(seed, p):
    """A value below everything and a point of the set with that value: nothing is better. l2 may stop a bit early."""
    box, ball, g = drawn(seed, p)
    centre, radius = middle(box)
    value, s = least(g * radius, centre, radius, ball)
    inside = ball.distance(centre + radius * s) <= ball.radius * (1 + 1e-9)
    gap = (g * radius * s).sum(dim=1) - value
    size = (g * radius).abs().sum(dim=1)
    corner = (s.abs() == 1).all(dim=1) | (g == 0).any(dim=1)
    assert bool((inside | (corner if p == 2 else inside)).all())
    assert bool((gap <= 1e-9 + (0.1 * size if p == 2 else 0)).all())
    if bool((ball.radius / ball.scale <= torch.minimum(box.upper - ball.centre, ball.centre - box.lower)).all()):
        assert bool((gap <= 1e-9).all())  # the ball is within the box


def test_by_hand():
    """Around the corner (0, 0) of a square, going along (1, 1) and (1, -1)."""
    g = tensor([[1.0, 1.0], [1.0, -1.0], [-3.0, -4.0]])
    for p, expected in ((2, [0.0, -1.0, -5.0]), (1, [0.0, -1.0, -4.0])):
        ball = Ball(tensor([0.0, 0.0]), tensor([1.0, 1.0]), 1.0, p)
        value, s = least(g, tensor([1.0, 1.0]), tensor([1.0, 1.0]), ball)
        shift = g.sum(dim=1)  # values count from the middle of the square
        torch.testing.assert_close(value + shift, tensor(expected))
        torch.testing.assert_close(((1 + s) * g).sum(dim=1), tensor(expected))


@pytest.mark.parametrize("p", [1, 2])
def test_points_and_fixed_inputs(p):
    g = tensor([[2.0, -3.0, 0.5]])
    lower, upper = tensor([[1.0, 2.0, -1.0]]), tensor([[1.0, 3.0, 1.0]])
    for radius, expected in ((0.0, 2.0 - 7.5), (0.25, 2.0 - 7.5 - 0.75)):
        ball = Ball(tensor([1.0, 2.5, 0.0]), tensor([1.0, 1.0, 4.0]), radius, p)
        low, high, _ = proved_range(g[None], lower, upper, ball, 1e-15)
        assert low <= expected + 1e-12
        if p == 1:
            assert low >= expected - 1e-9
        centre, half = (lower[0] + upper[0]) / 2, (upper[0] - lower[0]) / 2
        value, s = least(g * half, centre, half, ball)
        assert bool(torch.isfinite(s).all())
        torch.testing.assert_close(value + g @ centre, low[0], atol=1e-9, rtol=0)
        assert float(high) >= 2.0 - 7.5 + 0.75 * (radius > 0) - 1e-9


@settings(max_examples=30)
@given(seeds, norms)
def test_single_precision_says_almost_the_same(seed, p):
    box, ball, g = drawn(seed, p, inputs=40)
    centre, radius = middle(box)
    value, _ = least(g * radius, centre, radius, ball)
    small = least((g * radius).float(), centre.float(), radius.float(), ball.to(torch.device("cpu"), torch.float32))
    assert small[0].dtype == small[1].dtype == torch.float32
    assert bool(torch.isfinite(small[1]).all())
    size = (g * radius).abs().sum(dim=1)
    assert bool(((small[0] - value).abs() <= (1e-5 if p == 1 else 1e-2) * (size + 1e-6)).all())  # l2: another round
    assert bool(((small[1] * g * radius).sum(dim=1) >= value - 1e-5 * (size + 1e-6)).all())


@pytest.mark.gpu
@pytest.mark.parametrize("p", [1, 2])
def test_on_a_gpu(p):
    box, ball, g = drawn(3, p, inputs=40)
    centre, radius = middle(box)
    device = torch.device("cuda")
    moved_ball = ball.to(device, torch.float64)
    value, s = least((g * radius).to(device), centre.to(device), radius.to(device), moved_ball)
    expected = least(g * radius, centre, radius, ball)
    torch.testing.assert_close(value.cpu(), expected[0])
    torch.testing.assert_close(s.cpu(), expected[1])
    lower, upper = box.lower[None].to(device), box.upper[None].to(device)
    moved = proved_range(g[None].to(device), lower, upper, moved_ball, 1e-14)
    for a, b in zip(moved, proved_range(g[None], box.lower[None], box.upper[None], ball, 1e-14), strict=True):
        torch.testing.assert_close(a.cpu(), b)


# Rounding


def wild(g: torch.Generator, *shape: int) -> Tensor:
    """Numbers of sizes from 1e-8 to 1e8."""
    return normal(g, *shape).sign() * 10 ** (torch.rand(*shape, generator=g).double() * 16 - 8)


def exact_range_holds(seed: int, p: int, rounding: float) -> bool:
    """Whether the proved range of wild functionals holds, in rationals, at points exactly in a ball of awkward scales.

    The points are those that `least` finds, where a bound is as tight as it can be, and a few others.
    """
    g = generator(seed)
    inputs = integer(g, 1, 5)
    centre, scale = wild(g, inputs), wild(g, inputs).abs()
    radius = float(wild(g, 1).abs()) * 10.0 ** (-integer(g, 0, 12))
    half = radius / scale * (0.3 + torch.rand(inputs, generator=g).double())
    box = Box(centre - half * integer(g, 0, 1), centre + half, Ball(centre, scale, radius, p))
    assert box.ball is not None
    rows = wild(g, 4, inputs)
    middle_, half = middle(box)
    lower, upper, magnitude = proved_range(rows[None], box.lower[None], box.upper[None], box.ball, rounding)
    lower, upper = lower - rounding * magnitude, upper + rounding * magnitude
    best = [middle_ + half * least(sign * rows * half, middle_, half, box.ball)[1] for sign in (1, -1)]
    for x in torch.cat([*(box.project(b) for b in best), ball_samples(box, 12, seed)]).tolist():
        if not in_ball(box.ball, x):
            continue
        for row, low, high in zip(rows.tolist(), lower[0].tolist(), upper[0].tolist(), strict=True):
            value = sum((Fraction(a) * Fraction(v) for a, v in zip(row, x, strict=True)), Fraction(0))
            if not Fraction(low) <= value <= Fraction(high):
                return False
    return True


# As for a network with that many inputs: `Network.rounding` counts 16 operations beside its longest sum.
GAMMA = 2 * (5 + 16) * 2.0**-53


@settings(max_examples=150)
@given(seeds, norms)
def test_proved_ranges_hold_exactly(seed, p):
    assert exact_range_holds(seed, p, GAMMA)


@pytest.mark.parametrize("p", [1, 2])
def test_without_the_rounding_error_they_do_not(p):
    assert sum(not exact_range_holds(seed, p, 0.0) for seed in range(40)) >= 3


def test_numbers_beyond_float64_leave_the_box_its_bound():
    for scale, radius in ((1e-300, 1.0), (1e300, 1e-300), (1.0, 1e308)):
        for p in (1, 2):
            ball = Ball(tensor([0.5, 0.5]), tensor([scale, 1.0]), radius, p)
            g, lower, upper = tensor([[[1e10, -1e10]]]), tensor([[0.0, 0.0]]), tensor([[1.0, 1.0]])
            low, high, _ = proved_range(g, lower, upper, ball, 1e-15)
            assert -1e10 <= low <= 1e10
            assert -1e10 <= high <= 1e10
