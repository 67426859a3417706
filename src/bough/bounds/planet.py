"""The Planet relaxation (Ehlers 2017; the paper's Figure 1c) as arrays: a network and root bounds enter, a linear
program leaves.

Columns: free inputs; for each ReLU its input z, and where it is ambiguous at the root its output x; the network's
outputs y; the objective t. Rows: `z = affine(earlier columns)`, `x >= z`, `x <= chord`, `y = affine(...)`, `t >= row
k of the clause at y`. ReLUs blocked at the root need no column, passing ones that depend on very few columns are
substituted. The limits of a domain are a pure function of its bounds and clause (`limits`), so nothing of an earlier
domain can linger. A ball around the inputs is left out; `lp` says what that costs.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from bough.bounds.relaxation import chord
from bough.domain.batch import Bounds
from bough.network.graph import Network
from bough.network.ops import AbstractAffine, Coordinates, Relu, Shape
from bough.problem.property import Box, Clause
from bough.solvers.program import Array, LinearProgram

Index = NDArray[np.int32]
SUBSTITUTE = 3  # a passing ReLU with at most this many columns is substituted instead of given a column of its own


@dataclass(frozen=True, eq=False)
class Layout:
    """Where things are in the program. All index arrays are int32.

    `z_row` and `z_column` are [neurons], -1 where there is none; `amb` lists the root-ambiguous ReLUs, with columns
    and rows.
    """

    inputs: Index  # flat numbers of the free inputs; their columns are 0, 1, ...
    z_row: Index
    z_column: Index
    amb: Index
    amb_x: Index  # column of x
    above_rows: Index  # x - z >= 0
    below_rows: Index  # x - chord z <= -chord l
    outputs: Index  # columns of y
    objective: int  # column of t
    clause_rows: Index  # t - coefficients . y >= -offset


@dataclass(frozen=True, eq=False)
class _Expression:
    """Values as affine functions of columns: `matrix @ columns + constant`."""

    matrix: sparse.csr_matrix  # [elements, width]
    constant: Array


class _Assembly:
    """Columns and rows collected while walking the network, and the numbers of those of every ReLU."""

    def __init__(self, width: int, neurons: int) -> None:
        self.width = width
        self.columns = 0
        self.rows = 0
        self.z_row, self.z_column, self.x, self.above, self.below = (
            np.full(neurons, -1, dtype=np.int32) for _ in range(5)
        )
        self.blocks: list[sparse.csr_matrix] = []
        self.row_lower: list[Array] = []
        self.row_upper: list[Array] = []

    def new_columns(self, count: int) -> Index:
        self.columns += count
        return np.arange(self.columns - count, self.columns, dtype=np.int32)

    def new_rows(self, block: sparse.csr_matrix, lower: Array, upper: Array) -> Index:
        self.blocks.append(block)
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        self.rows += block.shape[0]
        return np.arange(self.rows - block.shape[0], self.rows, dtype=np.int32)

    def unit(self, columns: Index) -> sparse.csr_matrix:
        """One row per column, with a single entry."""
        count = len(columns)
        return sparse.csr_matrix((np.ones(count), (np.arange(count), columns)), shape=(count, self.width))


def build(network: Network, box: Box, root: Bounds, clause_rows: int) -> tuple[LinearProgram, Layout]:
    """The program of a box, for clauses of up to `clause_rows` rows; limits are those of the root, with no clause
    set.
    """
    lower, upper = box.lower.numpy(), box.upper.numpy()
    assembly = _Assembly(network.inputs + 2 * network.neurons + network.outputs + 1, network.neurons)
    free = np.flatnonzero(lower < upper).astype(np.int32)
    columns = assembly.new_columns(len(free))
    matrix = sparse.csr_matrix((np.ones(len(free)), (free, columns)), shape=(network.inputs, assembly.width))
    expressions = [_Expression(matrix, np.where(lower < upper, 0.0, lower))]
    for i, node in enumerate(network.nodes[1:], start=1):
        arguments = [expressions[j] for j in node.inputs]
        if isinstance(node.op, Relu):
            expressions.append(_relu(assembly, arguments[0], root, network.slices[i]))
        else:
            expressions.append(_affine(*network.affine[i], node.shape, arguments))
    outputs = assembly.new_columns(network.outputs)
    objective = assembly.new_columns(1)
    last = expressions[-1]
    assembly.new_rows(assembly.unit(outputs) - last.matrix, last.constant, last.constant)
    nothing = np.full(clause_rows, -np.inf)
    rows = assembly.new_rows(assembly.unit(np.repeat(objective, clause_rows)), nothing, -nothing)
    amb = np.flatnonzero(assembly.x >= 0).astype(np.int32)
    of_amb = assembly.x[amb], assembly.above[amb], assembly.below[amb]
    layout = Layout(free, assembly.z_row, assembly.z_column, amb, *of_amb, outputs, int(objective[0]), rows)
    return _program(assembly, layout, lower, upper), layout


def _program(assembly: _Assembly, layout: Layout, lower: Array, upper: Array) -> LinearProgram:
    count = assembly.columns
    cost = np.zeros(count)
    column_lower = np.full(count, -np.inf)
    column_upper = np.full(count, np.inf)
    cost[layout.objective] = 1.0
    column_lower[: len(layout.inputs)], column_upper[: len(layout.inputs)] = lower[layout.inputs], upper[layout.inputs]
    clause_rows, outputs = layout.clause_rows, layout.outputs
    editable = (
        np.concatenate([layout.below_rows, np.repeat(clause_rows, len(outputs))]).astype(np.int32),
        np.concatenate([layout.z_column[layout.amb], np.tile(outputs, len(clause_rows))]).astype(np.int32),
    )
    return LinearProgram(
        cost,
        sparse.vstack(assembly.blocks, format="csr")[:, :count],
        column_lower,
        column_upper,
        np.concatenate(assembly.row_lower),
        np.concatenate(assembly.row_upper),
        editable,
    )


def _relu(assembly: _Assembly, z: _Expression, root: Bounds, part: slice) -> _Expression:
    low, high = root.lower[0, part].numpy(), root.upper[0, part].numpy()
    passing = low >= 0
    ambiguous = (low < 0) & (high > 0)
    own = np.flatnonzero(ambiguous | (passing & (np.diff(z.matrix.indptr) > SUBSTITUTE)))
    columns = assembly.new_columns(len(own))
    equations = assembly.unit(columns) - z.matrix[own]
    assembly.z_row[part.start + own] = assembly.new_rows(equations, z.constant[own], z.constant[own])
    assembly.z_column[part.start + own] = columns
    amb = part.start + np.flatnonzero(ambiguous)
    x = assembly.new_columns(len(amb))
    less = assembly.unit(x) - assembly.unit(assembly.z_column[amb])
    infinite = np.full(len(amb), np.inf)
    assembly.x[amb] = x
    assembly.above[amb] = assembly.new_rows(less, np.zeros(len(amb)), infinite)
    # The chord's entries are set per domain; an explicit placeholder keeps their places in the matrix.
    assembly.below[amb] = assembly.new_rows(less, -infinite, infinite)
    # Output: x where ambiguous, the ReLU's own column or its expression where passing, nothing where blocked.
    source = np.where(ambiguous, assembly.x[part], assembly.z_column[part])
    single = np.flatnonzero(source >= 0)
    picked = sparse.csr_matrix((np.ones(len(single)), (single, source[single])), shape=(len(low), assembly.width))
    substituted = passing & (source < 0)
    kept = sparse.diags(substituted.astype(np.float64)) @ z.matrix
    return _Expression((picked + kept).tocsr(), np.where(substituted, z.constant, 0.0))


def _affine(op: AbstractAffine, shapes: list[Shape], shape: Shape, arguments: list[_Expression]) -> _Expression:
    matrices = zip(op.matrices(shape, shapes), arguments, strict=True)
    first, *others = [_product(entries, math.prod(shape), value) for entries, value in matrices]
    matrix = sum((term.matrix for term in others), first.matrix)
    constant = sum((term.constant for term in others), first.constant)
    if op.products:  # without weights there is no bias
        nothing = (torch.zeros(1, *before, dtype=torch.float64) for before in shapes)
        constant = constant + op.apply(shape, *nothing).reshape(-1).numpy()
    return _Expression(matrix.tocsr(), constant)


def _product(entries: Coordinates, rows: int, value: _Expression) -> _Expression:
    columns = entries.columns.numpy()
    if entries.picks:
        if np.array_equal(columns, np.arange(len(value.constant))):
            return value
        return _Expression(value.matrix[columns], value.constant[columns])
    places = entries.rows.numpy(), columns
    matrix = sparse.csr_matrix((entries.values.numpy(), places), shape=(rows, len(value.constant)))
    return _Expression(matrix @ value.matrix, matrix @ value.constant)


@dataclass(frozen=True, eq=False)
class ProgramLimits:
    """Everything in the program that depends on the domain."""

    columns: Index
    column_lower: Array
    column_upper: Array
    rows: Index
    row_lower: Array
    row_upper: Array
    entries: Array


def limits(layout: Layout, lower: Tensor, upper: Tensor, clause: Clause) -> ProgramLimits:
    """ProgramLimits and entries of one domain with ReLU bounds `lower`, `upper` [neurons] (facts 2.5, without its stale
    bounds).
    """
    own = np.flatnonzero(layout.z_column >= 0)
    amb = layout.amb
    low, high = lower.numpy(), upper.numpy()
    slope = chord(lower[amb], upper[amb]).numpy()
    passing = low[amb] >= 0
    blocked = ~passing & (high[amb] <= 0)
    open_ = ~(passing | blocked)
    x_lower = np.where(passing, low[amb], 0.0)
    x_upper = np.where(blocked, 0.0, high[amb])
    above_lower = np.where(blocked, -np.inf, 0.0)
    above_upper = np.where(passing, 0.0, np.inf)  # passing: x = z
    below_upper = np.where(open_, -slope * low[amb], np.inf)
    used, offered = len(clause.offsets), len(layout.clause_rows)
    clause_lower = np.concatenate([-clause.offsets.numpy(), np.full(offered - used, -np.inf)])
    rows = np.zeros((offered, len(layout.outputs)))
    rows[:used] = -clause.coefficients.numpy()
    entries = np.concatenate([-np.where(open_, slope, 1.0), rows.reshape(-1)])
    return ProgramLimits(
        np.concatenate([layout.z_column[own], layout.amb_x]),
        np.concatenate([low[own], x_lower]),
        np.concatenate([high[own], x_upper]),
        np.concatenate([layout.above_rows, layout.below_rows, layout.clause_rows]),
        np.concatenate([above_lower, np.full(len(amb), -np.inf), clause_lower]),
        np.concatenate([above_upper, below_upper, np.full(offered, np.inf)]),
        entries,
    )
