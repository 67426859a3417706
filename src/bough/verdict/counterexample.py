"""Counterexamples, believed only after the network's own runtime has replayed them; and how they are written."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bough.problem.problem import Problem
from bough.problem.property import Box

Vector = NDArray[np.float64]
PULLS = tuple(2.0**k for k in range(-48, 2, 2))  # shares of the way to a ball's centre that a point is drawn


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input in box and ball (up to `representable`), the runtime's output for it, and the clause it makes true."""

    x: Vector  # flat; every value is one that the network's own input type holds
    y: Vector
    clause: int


def representable(x: Vector, box: Box, dtype: np.dtype[np.floating[Any]]) -> Vector:
    """The nearest point inside the box that the network's input type can hold (float32, as a rule), as float64 values.

    A value on a strict side is moved inwards by the least step of that type.
    Where a side is so thin that no such value lies in it, the nearest one is taken: no other can be fed to the network.
    With a ball, `x` is drawn towards its centre until the point it is rounded to lies in the ball in real arithmetic.
    There is one exception, of the same kind: a ball so small that not even its centre, rounded, lies in it has that
    one point.
    """
    if box.ball is None:
        return _rounded(x, box, dtype)
    inside = box.project(torch.from_numpy(np.asarray(x, dtype=np.float64))).numpy()
    centre = box.ball.centre.numpy()
    point = _rounded(inside, box, dtype)
    for pull in PULLS:
        if box.ball.holds(torch.from_numpy(point)):
            break
        point = _rounded(centre + (1 - pull) * (inside - centre), box, dtype)
    return point


def _rounded(x: Vector, box: Box, dtype: np.dtype[np.floating[Any]]) -> Vector:
    """The nearest point inside the box alone that a type can hold, as float64 values."""
    lower, upper = box.lower.numpy(), box.upper.numpy()
    point = np.clip(x, lower, upper).astype(dtype)
    below, above = (side.numpy() for side in box.strict)
    up, down = (np.nextafter(point, dtype.type(end)) for end in (np.inf, -np.inf))
    out_below = (point < lower) | (below & (point == lower))
    out_above = (point > upper) | (above & (point == upper))
    rises = out_below & np.where(above, up < upper, up <= upper)
    sinks = out_above & np.where(below, down > lower, down >= lower)
    return np.where(rises, up, np.where(sinks, down, point)).astype(np.float64)


def replay(problem: Problem, x: Vector, box: int) -> Counterexample | None:
    """The counterexample at the representable point nearest to `x`, if the runtime's output is unsafe by a clause.

    An input with a strict side has to lie within its limits exactly; where the type holds no such value, there is none.
    """
    limits = problem.property.boxes[box]
    point = representable(x, limits, problem.reference.dtype)
    return _unsafe(problem, point, box) if limits.admits(torch.from_numpy(point)) else None


def is_excluded(problem: Problem, x: Vector, box: int) -> bool:
    """Whether the closed box has an unsafe point nearest to `x` that a strict side excludes."""
    limits = problem.property.boxes[box]
    if limits.is_closed:
        return False
    point = representable(x, Box(limits.lower, limits.upper, limits.ball), problem.reference.dtype)
    return not limits.admits(torch.from_numpy(point)) and _unsafe(problem, point, box) is not None


def _unsafe(problem: Problem, point: Vector, box: int) -> Counterexample | None:
    y = np.asarray(problem.reference.run(point), dtype=np.float64).reshape(-1)
    if not np.isfinite(y).all():
        return None
    for k, clause in enumerate(problem.property.clauses):
        if clause.box == box and clause.holds(y):
            return Counterexample(point, y, k)
    return None


def as_text(counterexample: Counterexample) -> str:
    """The competition's form: every input and output with its value."""
    values = (("X", counterexample.x), ("Y", counterexample.y))
    return "(" + "\n".join(f"({kind}_{i} {v!r})" for kind, flat in values for i, v in enumerate(flat.tolist())) + ")\n"


def as_npz(counterexample: Counterexample, input_shape: tuple[int, ...], dtype: np.dtype[np.floating[Any]]) -> bytes:
    """A NumPy archive: x in the network's input shape and type, y, and the number of the clause."""
    stream = io.BytesIO()
    x, y = (flat.astype(dtype) for flat in (counterexample.x, counterexample.y))
    np.savez(stream, x=x.reshape(input_shape), y=y, clause=counterexample.clause)
    return stream.getvalue()
