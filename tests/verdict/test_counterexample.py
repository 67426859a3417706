"""Counterexamples: the float32 point stays inside the original box, and rows count as strictly as they were written."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support import (
    Points,
    ball_samples,
    box_around,
    clause,
    generator,
    in_ball,
    integer,
    problem,
    samples,
    sequential,
    tensor,
    with_ball,
)

from bough.errors import PropertyError
from bough.problem.onnx_writer import write_network
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, Clause
from bough.problem.runtime import Reference
from bough.verdict.counterexample import Counterexample, as_text, is_excluded, replay, representable

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
finite = st.floats(-1e30, 1e30, allow_subnormal=True)

FLOAT32 = np.dtype(np.float32)


def box_of(lower: list[float], upper: list[float]) -> Box:
    return Box(tensor(lower), tensor(upper))


def holds_a_float32(lower: float, upper: float) -> bool:
    nearest = np.float32(lower)
    first = nearest if float(nearest) >= lower else np.nextafter(nearest, np.float32(np.inf))
    return float(first) <= upper


@given(finite, finite, st.floats(0, 1))
def test_points_are_float32_and_inside(a, b, share):
    lower, upper = min(a, b), max(a, b)
    x = min(max(lower + share * (upper - lower), lower), upper)
    (point,) = representable(np.array([x]), box_of([lower], [upper]), FLOAT32)
    assert float(np.float32(point)) == point
    if holds_a_float32(lower, upper):
        assert lower <= point <= upper


@given(st.floats(-1e6, 1e6, width=32), st.integers(-3, 3), st.integers(0, 3), st.floats(-1, 2))
def test_thin_boxes_around_a_float32(centre, below, above, share):
    """Sides a few units in the last place of float64 wide: one float32 at most, often none."""
    lower = upper = centre
    for _ in range(abs(below)):
        lower = float(np.nextafter(lower, np.inf if below > 0 else -np.inf))
    upper = max(lower, centre)
    for _ in range(above):
        upper = float(np.nextafter(upper, np.inf))
    (point,) = representable(np.array([lower + share * (upper - lower)]), box_of([lower], [upper]), FLOAT32)
    assert float(np.float32(point)) == point
    if lower <= centre <= upper:
        assert point == centre
    else:  # none inside: the nearest, at most one step of float32 away
        step = abs(float(np.nextafter(np.float32(point), np.float32(np.inf))) - point)
        assert abs(point - lower) <= max(step, 1e-45)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_points_outside_the_box_are_brought_in(sides):
    lower, upper = [min(s) for s in sides], [max(s) for s in sides]
    for x in (-1e35, 1e35):
        point = representable(np.full(len(sides), x), box_of(lower, upper), FLOAT32)
        for v, l, u in zip(point, lower, upper, strict=True):
            assert not holds_a_float32(l, u) or l <= v <= u


@given(st.integers(0, 2**31), st.sampled_from((1, 2)), st.sampled_from((FLOAT32, FLOAT64)))
def test_points_are_exactly_in_the_ball(seed, p, dtype):
    """Points of the box, of the rim and beyond; with the centre and the rim at numbers that float32 does not hold."""
    g = generator(seed)
    box = with_ball(g, box_around(g, integer(g, 1, 8)), p)
    assert box.ball is not None
    for x in torch.cat([samples(box, 4, seed), ball_samples(box, 4, seed), samples(box, 2, seed) * 3]):
        point = representable(x.numpy(), box, dtype)
        assert (point.astype(dtype) == point).all()
        assert in_ball(box.ball, point.tolist())
        assert bool(((box.lower <= torch.from_numpy(point)) & (torch.from_numpy(point) <= box.upper)).all())
        lost = float(box.ball.distance(box.project(x)) - box.ball.distance(torch.from_numpy(point)))
        assert lost <= (1e-4 if dtype == FLOAT32 else 1e-10) * box.ball.radius + 1e-5 * (dtype == FLOAT32)


@pytest.mark.parametrize("p", [1, 2])
def test_a_ball_without_a_float32_has_its_rounded_centre(p):
    for radius in (0.0, 1e-12):
        centre, ones = tensor([0.1, 0.7]), tensor([1.0, 1.0])
        box = Box(centre - radius, centre + radius, Ball(centre, ones, radius, p))
        point = representable(np.array([0.1 + radius, 0.7]), box, FLOAT32)
        assert point.tolist() == [float(np.float32(v)) for v in centre.tolist()]
        assert representable(np.array([0.1 + radius, 0.7]), box, FLOAT64).tolist() == pytest.approx(centre.tolist())


class Given:
    """A runtime that gives one answer and remembers what it was asked."""

    name = "a test"
    dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)

    def __init__(self, y: list[float]) -> None:
        self.y, self.points = np.array(y), list[Points]()

    def run(self, x: Points) -> Points:
        self.points.append(x)
        return self.y


def problem_and_runtime(y: list[float], *clauses: Clause) -> tuple[Problem, Given]:
    runtime = Given(y)
    network = sequential(([[1.0], [1.0]], [0.0, 0.0]))
    boxes = [box_of([0.1], [0.7]), box_of([2.0], [3.0])]
    return replace(problem(network, boxes, clauses), reference=runtime), runtime


def test_the_runtime_is_asked_at_a_float32_point_of_the_box():
    query, runtime = problem_and_runtime([0.0, 0.0], clause([[1.0, 0.0]], [0.0]))
    counterexample = replay(query, np.array([0.1]), 0)
    assert counterexample is not None
    assert float(np.float32(runtime.points[0][0])) == runtime.points[0][0] == counterexample.x[0]
    assert 0.1 <= counterexample.x[0] <= 0.7


@given(st.lists(st.tuples(finite, finite, st.floats(0, 1)), min_size=1, max_size=5))
def test_points_of_float64_networks_are_kept(sides):
    lower, upper = [min(s[:2]) for s in sides], [max(s[:2]) for s in sides]
    x = np.array([min(max(l + s[2] * (u - l), l), u) for l, u, s in zip(lower, upper, sides, strict=True)])
    np.testing.assert_array_equal(representable(x, box_of(lower, upper), FLOAT64), x)


def test_a_float64_network_is_asked_inside_boxes_without_a_float32():
    query, runtime = problem_and_runtime([0.0, 0.0], clause([[1.0, 0.0]], [0.0]))
    runtime.dtype = FLOAT64
    thin = replace(query, property=replace(query.property, boxes=(box_of([0.1], [0.1]), query.property.boxes[1])))
    counterexample = replay(thin, np.array([0.1]), 0)
    assert counterexample is not None
    assert counterexample.x.tolist() == [0.1]


@pytest.mark.parametrize(
    ("y", "strict", "unsafe"),
    [
        ([0.0, 0.0], (False, False), True),
        ([0.0, 0.0], (True, False), False),
        ([0.0, 0.0], (False, True), False),
        ([-1e-300, 0.0], (True, False), True),
        ([1e-300, -1.0], (False, False), False),
        ([-1.0, 1.0], (False, False), False),
        ([-1.0, -1.0], (True, True), True),
        ([float("nan"), -1.0], (False, False), False),
        ([-float("inf"), -1.0], (False, False), False),
    ],
)
def test_every_row_has_to_hold_strict_ones_strictly(y, strict, unsafe):
    query, _ = problem_and_runtime(y, clause([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], strict))
    assert (replay(query, np.array([0.5]), 0) is not None) == unsafe


def test_rows_are_summed_exactly():
    """1e16 + 1 - 1e16 rounds to 0, which is not above the offset; exactly, it is 1."""
    query, _ = problem_and_runtime([1e16, 1.0], clause([[1.0, 1.0]], [1e16]))
    assert replay(query, np.array([0.5]), 0) is None


def test_only_clauses_of_the_points_own_box_count():
    query, _ = problem_and_runtime([-1.0, 5.0], clause([[0.0, 1.0]], [0.0], box=0), clause([[1.0, 0.0]], [0.0], box=1))
    assert replay(query, np.array([0.5]), 0) is None
    counterexample = replay(query, np.array([2.5]), 1)
    assert counterexample is not None
    assert counterexample.clause == 1


def test_the_original_rows_decide_not_the_scaled_ones():
    """Scaling by powers of two is exact, so both agree; the clause number is the property's."""
    query, _ = problem_and_runtime([3.0, 0.5], clause([[1e6, 0.0], [0.0, 1e-6]], [3e6, 1e-6]))
    counterexample = replay(query, np.array([0.5]), 0)
    assert counterexample is not None
    for original, scaled in zip(query.property.clauses, query.clauses, strict=True):
        assert original.holds(counterexample.y)
        assert scaled.holds(counterexample.y)
        ratio = scaled.coefficients.norm(dim=1) / original.coefficients.norm(dim=1)
        assert all(np.frexp(float(r))[0] == 0.5 for r in ratio)


def test_onnx_runtime_says_what_the_output_is():
    network = sequential(([[1.0, -1.0]], [0.25]))
    runtime = Reference(write_network(network))
    query = replace(problem(network, [box_of([0.0, 0.0], [1.0, 1.0])], [clause([[1.0]], [-0.5])]), reference=runtime)
    assert replay(query, np.array([0.5, 0.5]), 0) is None
    counterexample = replay(query, np.array([0.1, 0.9]), 0)
    assert counterexample is not None
    assert counterexample.y[0] == float(np.float32(np.float32(0.1) - np.float32(0.9)) + np.float32(0.25))


def test_the_text_names_every_value():
    text = as_text(Counterexample(np.array([0.5, -1.0]), np.array([2.0]), 0))
    assert text == "((X_0 0.5)\n(X_1 -1.0)\n(Y_0 2.0))\n"


# --- Strict sides


def strict_box(lower: list[float], upper: list[float], below: list[bool], above: list[bool]) -> Box:
    return Box(tensor(lower), tensor(upper), None, torch.tensor(below), torch.tensor(above))


@given(finite, finite, st.booleans(), st.booleans(), st.floats(0, 1))
@example(0.0, -6.051039861713074e-56, True, False, 0.0)
def test_a_point_on_a_strict_side_moves_inwards_by_one_float(a, b, below, above, share):
    lower, upper = min(a, b), max(a, b)
    box = strict_box([lower], [upper], [below], [above])
    x = np.array([min(max(lower + share * (upper - lower), lower), upper)])
    (point,) = representable(x, box, FLOAT32)
    (closed,) = representable(x, box_of([lower], [upper]), FLOAT32)
    assert float(np.float32(point)) == point
    steps = {float(np.nextafter(np.float32(closed), np.float32(end))) for end in (-np.inf, np.inf)}
    assert point == closed or point in steps
    between = strictly_between(lower, upper, below, above)
    assert box.admits(tensor([point])) == (between or not (below or above))
    if lower < closed < upper:
        assert point == closed


def strictly_between(lower: float, upper: float, below: bool, above: bool) -> bool:
    """Whether a float32 lies in the interval."""
    first = np.float32(lower)
    while float(first) < lower or (below and float(first) == lower):  # a float32 would make the limit one, too
        first = np.nextafter(first, np.float32(np.inf))
    return bool(float(first) < upper or (not above and float(first) == upper))


def only_input(box: Box, coefficient: float, offset: float) -> Problem:
    """y = relu(x), unsafe where `coefficient * y <= offset`."""
    return problem(sequential(([[1.0]], [0.0]), ([[1.0]], [0.0])), [box], [clause([[coefficient]], [offset])])


def test_a_point_on_a_strict_side_is_no_counterexample():
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    for offset in (1.0, float(np.nextafter(below_one, 1))):
        question = only_input(strict_box([0.0], [1.0], [False], [True]), -1.0, -offset)
        assert replay(question, np.array([1.0]), 0) is None
        assert is_excluded(question, np.array([1.0]), 0)
        assert not is_excluded(question, np.array([0.5]), 0)
    question = only_input(strict_box([0.0], [1.0], [False], [True]), -1.0, -below_one)
    found = replay(question, np.array([1.0]), 0)
    assert found is not None
    assert found.x.tolist() == [below_one]
    assert "(X_0 0.9999999403953552)" in as_text(found)
    closed = only_input(box_of([0.0], [1.0]), -1.0, -1.0)
    found = replay(closed, np.array([1.0]), 0)
    assert found is not None
    assert found.x.tolist() == [1.0]
    assert not is_excluded(closed, np.array([1.0]), 0)


def test_a_strict_side_that_holds_no_float_has_no_counterexample():
    """A closed side as thin has the nearest float; a strict one has none, as no point of it can be given."""
    upper = float(np.nextafter(0.1, 1))
    assert replay(only_input(box_of([0.1], [upper]), 1.0, 2.0), np.array([0.1]), 0) is not None
    for below, above in ((True, False), (False, True), (True, True)):
        box = strict_box([0.1], [upper], [below], [above])
        assert replay(only_input(box, 1.0, 2.0), np.array([0.1]), 0) is None


def test_the_least_step_from_zero():
    question = only_input(strict_box([0.0], [1.0], [True], [False]), 1.0, 2.0)
    found = replay(question, np.array([0.0]), 0)
    assert found is not None
    assert found.x.tolist() == [float(np.finfo(np.float32).smallest_subnormal)]


def test_strict_sides_are_checked_and_have_one_form():
    lower, upper = tensor([0.0]), tensor([1.0])
    with pytest.raises(PropertyError, match="one bool per input"):
        Box(lower, upper, None, torch.tensor([1.0]))
    with pytest.raises(PropertyError, match="one bool per input"):
        Box(lower, upper, None, None, torch.tensor([True, False]))
    assert Box(lower, upper, None, torch.tensor([False]), torch.tensor([False])).is_closed
    box = strict_box([0.0], [1.0], [False], [True]).on(torch.device("cpu"))
    assert [side.tolist() for side in box.strict] == [[False], [True]]
    assert box.without_value is None
    assert strict_box([0.0, 1.0], [1.0, 1.0], [False, False], [False, True]).without_value == 1
