"""Balls beside boxes: what is refused, projections, and what `eps` means for an image in each norm."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support import ball_samples, box_around, clause, generator, integer, samples, tensor, with_ball

from bough.errors import PropertyError
from bough.problem.property import Ball, Box, Property, image_property, stable_norm
from bough.problem.vnnlib import write_property

ONES, ZEROS = tensor([1.0, 1.0]), tensor([0.0, 0.0])
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ball(ZEROS, ONES, 1.0, 3), "norm 3 is not supported"),
        (lambda: Ball(ZEROS, tensor([1.0]), 1.0, 2), "of one length"),
        (lambda: Ball(ZEROS, ONES, -1.0, 2), "radius of a ball is -1.0"),
        (lambda: Ball(ZEROS, ONES, math.nan, 2), "radius of a ball is nan"),
        (lambda: Ball(ZEROS, ZEROS, 1.0, 2), "scales above 0"),
        (lambda: Ball(tensor([math.inf, 0.0]), ONES, 1.0, 2), "finite centre"),
        (lambda: Box(ZEROS, ONES, Ball(tensor([0.0]), tensor([1.0]), 1.0, 2)), "the ball has 1 inputs, the box 2"),
        (lambda: Box(ZEROS, ONES, Ball(-ONES, ONES, 9.0, 2)), "outside its box"),
    ],
)
def test_what_is_no_ball(make, words):
    with pytest.raises(PropertyError, match=words):
        make()


@given(seeds, st.sampled_from((1, 2)))
def test_projections_are_in_box_and_ball_and_nothing_inside_moves(seed, p):
    g = generator(seed)
    box = with_ball(g, box_around(g, integer(g, 1, 6)), p)
    assert box.ball is not None
    points = torch.cat([samples(box, 50, seed), samples(box, 10, seed) * 100])
    projected = box.project(points)
    assert bool(((box.lower <= projected) & (projected <= box.upper)).all())
    assert bool((box.ball.distance(projected) <= box.ball.radius * (1 + 1e-12)).all())
    inside = ball_samples(box, 50, seed)
    assert torch.equal(box.project(inside), inside)


@given(seeds, st.sampled_from((1, 2)))
def test_no_point_of_the_ball_is_nearer_than_the_projection(seed, p):
    """In the scaled coordinates, where a projection x' of x has (x - x') . (y - x') <= 0 for every y of the ball."""
    g = generator(seed)
    box = with_ball(g, box_around(g, integer(g, 1, 6)), p)
    assert box.ball is not None
    ball = box.ball
    wide = Box(ball.centre - ball.radius / ball.scale, ball.centre + ball.radius / ball.scale, ball)
    x, y = samples(box, 20, seed), ball_samples(wide, 200, seed)
    projected = ball.project(x)
    products = ((x - projected) * ball.scale) @ (y * ball.scale).T - (
        ((x - projected) * projected) * ball.scale**2
    ).sum(1)[:, None]
    assert float(products.max()) <= 1e-9 * (1 + float((x * ball.scale).abs().max()) ** 2)


def test_norms_without_overflow():
    v = tensor([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0], [3.0, -4.0]])
    for p, expected in ((2, [5e200, 5e-200, 0.0, 5.0]), (1, [7e200, 7e-200, 0.0, 7.0])):
        torch.testing.assert_close(stable_norm(v, p) / tensor(expected).clamp(min=1e-300), tensor([1.0, 1.0, 0.0, 1.0]))
    assert stable_norm(v, math.inf)[3] == 4


@pytest.mark.parametrize(("norm", "p"), [("inf", None), (math.inf, None), ("2", 2), (2, 2), ("1", 1), (1, 1), (2.0, 2)])
def test_an_image_in_every_norm(norm, p):
    pixels = tensor([[[0.0, 0.5]], [[0.9, 1.0]]])
    prop = image_property(pixels, 0, 0.25, 2, mean=[0.5, 0.25], std=[0.5, 2.0], norm=norm)
    box = prop.boxes[0]
    assert box.lower.tolist() == pytest.approx([-1.0, -0.5, 0.2, 0.25])
    assert box.upper.tolist() == pytest.approx([-0.5, 0.5, 0.375, 0.375])
    if p is None:
        assert box.ball is None
        return
    assert box.ball is not None
    assert (box.ball.p, box.ball.radius) == (p, 0.25)
    torch.testing.assert_close(prop.boxes[0].centre, tensor([-1.0, 0.0, 0.325, 0.375]))
    # A change of pixels by these much is that far, whatever the normalisation.
    change = tensor([0.1, -0.2, 0.05, 0.0])
    moved = box.ball.centre + change / tensor([0.5, 0.5, 2.0, 2.0])
    torch.testing.assert_close(box.ball.distance(moved), change.norm(p=p))


@pytest.mark.parametrize("norm", ["3", 3, "l2", math.nan, "", 0])
def test_other_norms_are_refused(norm):
    with pytest.raises(PropertyError, match="there are: inf, 2, 1"):
        image_property(tensor([0.5]), 0, 0.1, 2, norm=norm)


def test_a_ball_is_not_written_as_a_box():
    prop = Property((Box(-ONES, ONES, Ball(ZEROS, ONES, 1.0, 2)),), (clause([[1.0]], [0.0]),))
    with pytest.raises(PropertyError, match="boxes only"):
        write_property(prop)
