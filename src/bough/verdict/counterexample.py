"""Counterexamples, believed only after the network's own runtime has replayed them; and how they are written."""

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bough.problem.problem import Problem
from bough.problem.property import Box

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input in the original box, the output the runtime gave for it, and the clause it makes true."""

    x: Vector  # flat; every value is a float32
    y: Vector
    clause: int


def to_float32(x: Vector, box: Box) -> Vector:
    """The nearest float32 point inside the box, as float64 values.

    Where a side is so thin that no float32 lies in it, the nearest float32 is taken: no other value can be fed to the
    network.
    """
    lower, upper = box.lower.numpy(), box.upper.numpy()
    point = np.clip(x, lower, upper).astype(np.float32)
    up = np.nextafter(point, np.float32(np.inf))
    down = np.nextafter(point, np.float32(-np.inf))
    point = np.where((point < lower) & (up <= upper), up, point)
    return np.where((point > upper) & (down >= lower), down, point).astype(np.float64)


def replay(problem: Problem, x: Vector, box: int) -> Counterexample | None:
    """The counterexample at (the float32 nearest to) `x`, if the runtime's output is unsafe by a clause of that box."""
    point = to_float32(x, problem.property.boxes[box])
    y = np.asarray(problem.reference.run(point), dtype=np.float64).reshape(-1)
    if not np.isfinite(y).all():
        return None
    for k, clause in enumerate(problem.property.clauses):
        if clause.box == box and clause.holds(y):
            return Counterexample(point, y, k)
    return None


def as_text(found: Counterexample) -> str:
    """The competition's form: every input and output with its value."""
    names = [("X", i, v) for i, v in enumerate(found.x)] + [("Y", i, v) for i, v in enumerate(found.y)]
    return "(" + "\n".join(f"({kind}_{i} {float(v)!r})" for kind, i, v in names) + ")\n"


def as_npz(found: Counterexample, input_shape: tuple[int, ...]) -> bytes:
    """A NumPy archive: x in the network's input shape, y, and the number of the clause."""
    stream = io.BytesIO()
    x = found.x.astype(np.float32).reshape(input_shape)
    np.savez(stream, x=x, y=found.y.astype(np.float32), clause=found.clause)
    return stream.getvalue()
