"""The network as a mixed-integer program (Tjeng et al. 2019; the paper's MIPplanet): ReLU bounds enter, arrays leave.

The Planet program is taken as it is, but for its chords: an ambiguous ReLU with input z in [l, u] and output x gets a
binary d, 1 where it passes, and

    x >= z,  x >= 0,  x <= u d,  x <= z - l (1 - d).

The objective is the clause's margin: t >= each row, minimise t. With d relaxed these rows are the Planet triangle
again, so the root of the solver's tree is the Planet LP. That the model holds every point of the box rests on the
bounds only, which are proved.
"""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from bough.bounds.planet import build, limits
from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.problem.property import Box, Clause
from bough.solvers.program import Array, LinearProgram, MixedProgram


def big_m(network: Network, box: Box, root: Bounds, clause: Clause) -> MixedProgram:
    """The program of a clause over a box, with one binary for each ReLU that `root` [1, neurons] leaves ambiguous."""
    program, layout = build(network, box, root, len(clause.offsets))
    lower, upper = root.lower[0].numpy()[layout.amb], root.upper[0].numpy()[layout.amb]
    edits = limits(layout, root.lower[0], root.upper[0], clause)
    column_lower, column_upper = program.column_lower.copy(), program.column_upper.copy()
    column_lower[edits.columns], column_upper[edits.columns] = edits.column_lower, edits.column_upper
    row_lower, row_upper = program.row_lower.copy(), program.row_upper.copy()
    row_lower[edits.rows], row_upper[edits.rows] = edits.row_lower, edits.row_upper
    matrix = program.matrix.tolil()
    matrix[program.editable[0], program.editable[1]] = edits.entries
    without_chords = np.setdiff1d(np.arange(len(row_lower)), layout.below_rows)
    count, columns = len(layout.amb), len(program.cost)
    x = layout.amb_x
    z = layout.z_column[layout.amb]
    d = columns + np.arange(count)
    blocked = _rows(columns + count, (x, 1.0), (d, -upper))  # x - u d <= 0
    passing = _rows(columns + count, (x, 1.0), (z, -1.0), (d, -lower))  # x - z - l d <= -l
    planet = sparse.hstack(
        [matrix.tocsr()[without_chords], sparse.csr_matrix((len(without_chords), count))], format="csr"
    )
    rows = sparse.vstack([planet, blocked, passing], format="csr")
    rows.eliminate_zeros()
    linear = LinearProgram(
        np.concatenate([program.cost, np.zeros(count)]),
        rows,
        np.concatenate([column_lower, np.zeros(count)]),
        np.concatenate([column_upper, np.ones(count)]),
        np.concatenate([row_lower[without_chords], np.full(2 * count, -np.inf)]),
        np.concatenate([row_upper[without_chords], np.zeros(count), -lower]),
        (np.zeros(0, np.int32), np.zeros(0, np.int32)),
    )
    return MixedProgram(linear, d.astype(np.int32), layout.inputs)


def point_of(program: MixedProgram, box: Box, columns: Array) -> Tensor:
    """The input point of a solution, inside the box; inputs without a column have one value only."""
    point = box.centre.clone()
    free = torch.from_numpy(program.inputs).long()
    point[free] = torch.from_numpy(columns[: len(free)].copy())
    return torch.where(torch.isfinite(point), point, box.centre).clamp(min=box.lower, max=box.upper)


def _rows(width: int, *terms: tuple[np.ndarray, Array | float]) -> sparse.csr_matrix:
    """One row per entry of the column lists, with these values at these columns."""
    count = len(terms[0][0])
    columns = np.concatenate([at for at, _ in terms])
    values = np.concatenate([np.broadcast_to(np.asarray(v, dtype=np.float64), (count,)) for _, v in terms])
    return sparse.csr_matrix((values, (np.tile(np.arange(count), len(terms)), columns)), shape=(count, width))
