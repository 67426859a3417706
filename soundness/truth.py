"""What is known of a problem without asking bough: limits of its least margin by enumeration, and unsafe points.

*Unsafe* is exact: the network is evaluated at a point that float32 holds, in rational arithmetic. *Safe* rests on the
enumeration of all linear pieces in `tests/support.py` and its LPs, so margins within `TOLERANCE` of 0 say nothing.
Margins are those of `Problem.clauses`, whose rows are scaled alike.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from tests.support import (
    Array,
    Piece,
    ball_samples,
    exact_margin,
    exact_values_at,
    in_ball,
    piece_margins,
    pieces,
    samples,
    values_at,
)

from bough.network.graph import Network
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, Clause

TOLERANCE = 1e-6  # of the enumeration's own LPs
MOST_RELUS = 40  # beyond so many nothing is enumerated


@dataclass(frozen=True)
class Truth:
    """The least margin is at least `below`, as far as enumeration tells, and at `witness` it is `at_witness` <= 0."""

    below: float = -np.inf
    witness: tuple[float, ...] | None = None
    at_witness: float = np.inf

    @property
    def word(self) -> str:
        """What follows."""
        return "unsafe" if self.witness is not None else "safe" if self.below > TOLERANCE else "unsure"


def enumerated(network: Network, box: Box) -> list[Piece]:
    """The linear pieces of a box; of a ball, too, with half-spaces that hold it: all of them for l1, many for l2."""
    linear_pieces = pieces(network, replace(box, ball=None))
    return linear_pieces if box.ball is None else _cut(linear_pieces, box.ball)


def _cut(linear_pieces: Sequence[Piece], ball: Ball) -> list[Piece]:
    inputs = len(ball.centre)
    if ball.p == 1:
        normals = np.array(list(itertools.product((-1.0, 1.0), repeat=inputs)))
    else:
        normals = np.random.default_rng(0).normal(size=(24 * inputs, inputs))
        normals = np.vstack([normals / np.linalg.norm(normals, axis=1, keepdims=True), np.eye(inputs), -np.eye(inputs)])
    rows = normals * ball.scale.numpy()
    limits = ball.radius + rows @ ball.centre.numpy()
    return [
        replace(f, rows=np.vstack([f.rows, rows]), limits=np.concatenate([f.limits, limits]), slack=0.0)
        for f in linear_pieces
    ]


def lowest(network: Network, box: Box, linear_pieces: Sequence[Piece], clause: Clause) -> tuple[float, Array]:
    """A lower limit of a clause's margin over the box, and a point of the box that is (almost) as low as that."""
    margins = piece_margins(linear_pieces, box, clause)
    k = int(margins.argmin())
    points = (ball_samples if box.ball is not None else samples)(box, 200).numpy()
    candidates = [points]
    if np.isfinite(margins[k]):
        candidates.append(_bottom(linear_pieces[k], box, clause)[None])
    return float(margins[k]), _best(network, box, clause, np.vstack(candidates))


def _bottom(piece: Piece, box: Box, clause: Clause) -> Array:
    """Where the clause's margin is least in a piece; the middle of the box where the solver does not tell."""
    coefficients, offsets = clause.coefficients.numpy(), clause.offsets.numpy()
    rows = np.vstack(
        [
            np.hstack([piece.rows, np.zeros((len(piece.rows), 1))]),
            np.hstack([coefficients @ piece.matrix, -np.ones((len(offsets), 1))]),
        ]
    )
    limits = np.concatenate([piece.limits + 1e-9, offsets - coefficients @ piece.constant])
    sides = [*zip(box.lower.tolist(), box.upper.tolist(), strict=True), (None, None)]
    cost = np.append(np.zeros(len(box.lower)), 1.0)
    answer = linprog(cost, A_ub=rows, b_ub=limits, bounds=sides)
    middle: Array = ((box.lower + box.upper) / 2).numpy()
    return middle if answer.x is None else np.asarray(answer.x[:-1])


def _best(network: Network, box: Box, clause: Clause, points: Array) -> Array:
    """The lowest of some points, once each is one that float32 holds and that lies in box and ball."""
    inside = np.array([p for p in (fitted(x, box) for x in points) if p is not None])
    if not len(inside):
        return np.asarray(points[0])
    values = values_at(network, inside)[-1] @ clause.coefficients.numpy().T - clause.offsets.numpy()
    return np.asarray(inside[int(values.max(axis=1).argmin())])


def fitted(x: Array, box: Box) -> Array | None:
    """The point in float32, moved inwards where that takes it out of the box or the ball; None if it stays outside."""
    lower, upper = box.lower.numpy(), box.upper.numpy()
    if box.ball is not None:
        centre = box.ball.centre.numpy()
        away = float(box.ball.distance(box.lower.new_tensor(x)))
        x = centre + (x - centre) * min(1.0, box.ball.radius / away * (1 - 1e-5) if away > 0 else 1.0)
    rounded = np.clip(x, lower, upper).astype(np.float32)
    rounded = np.where(rounded.astype(np.float64) < lower, np.nextafter(rounded, np.float32(np.inf)), rounded)
    rounded = np.where(rounded.astype(np.float64) > upper, np.nextafter(rounded, np.float32(-np.inf)), rounded)
    point: Array = rounded.astype(np.float64)
    return point if inside_box(box, point.tolist()) else None


def inside_box(box: Box, x: Sequence[float]) -> bool:
    """Whether a point lies in box and ball, without rounding."""
    sides = zip(box.lower.tolist(), x, box.upper.tolist(), strict=True)
    return all(l <= v <= u for l, v, u in sides) and (box.ball is None or in_ball(box.ball, x))


def margin_at(problem: Problem, x: Sequence[float]) -> Fraction | None:
    """The least margin of the clauses in whose box the point lies, exactly; None where it lies in none."""
    y: list[Fraction] | None = None
    least: Fraction | None = None
    for clause in problem.clauses:
        if inside_box(problem.property.boxes[clause.box], x):
            y = exact_values_at(problem.network, x)[-1] if y is None else y
            margin = exact_margin(clause, y)
            least = margin if least is None or margin < least else least
    return least


def judged(problem: Problem, witness: Sequence[float] | None) -> Truth:
    """The truth about any problem, from scratch: by an exact look at the witness, and by enumeration where that is
    possible. This is what shrinking asks again and again.
    """
    at = None if witness is None else margin_at(problem, witness)
    if witness is not None and at is not None and at <= 0:
        return Truth(witness=tuple(witness), at_witness=float(at))
    if problem.network.neurons > MOST_RELUS:
        return Truth()
    try:
        pieces_of_boxes = [enumerated(problem.network, box) for box in problem.property.boxes]
        pairs = [
            lowest(problem.network, problem.property.boxes[c.box], pieces_of_boxes[c.box], c) for c in problem.clauses
        ]
    except AssertionError:  # numbers that the enumeration's LPs cannot take
        return Truth()
    for _, x in pairs:
        exact = margin_at(problem, x.tolist())
        if exact is not None and exact <= 0:
            return Truth(witness=tuple(x.tolist()), at_witness=float(exact))
    return Truth(below=min(value for value, _ in pairs))
