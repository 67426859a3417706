"""Linear programs and their solutions as plain values, so that only who solves one loads a solver."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Minimise `cost . x` with column limits and row limits of `matrix @ x`.

    `editable` lists the matrix places (rows, columns) that `Highs.set_entries` may change.
    """

    cost: Array
    matrix: "csr_matrix"
    column_lower: Array
    column_upper: Array
    row_lower: Array
    row_upper: Array
    editable: tuple[NDArray[np.int32], NDArray[np.int32]]


class Status(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    CUT_OFF = "cut off"  # the objective passed the cutoff, so the solver stopped


@dataclass(frozen=True, eq=False)
class Solution:
    """What the solver says; `row_dual` holds a dual ray when the status is infeasible."""

    status: Status
    objective: float
    columns: Array
    row_dual: Array
    column_dual: Array  # reduced costs
    basis: object  # hand it back as the start of a similar program


@dataclass(frozen=True, eq=False)
class MixedProgram:
    """A linear program whose columns `integer` take whole values only; its first columns are the inputs `inputs`."""

    linear: LinearProgram
    integer: NDArray[np.int32]
    inputs: NDArray[np.int32]
