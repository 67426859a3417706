"""The only door to HiGHS: a linear program in arrays enters, is edited in place and solved; values, duals and a basis
leave.

Nothing that leaves here is believed: callers turn multipliers into bounds of their own.
"""

from time import sleep
from typing import Any, final

import highspy
import numpy as np
from numpy.typing import NDArray

from bough.budget import Deadline
from bough.errors import SolverFailure
from bough.solvers.program import Array, LinearProgram, Solution, Status

SLICE_SECONDS = 0.5  # HiGHS returns to Python this often, so that Ctrl-C and deadlines are heard
WAIT_SECONDS = 0.05
LARGE = 20_000  # matrix entries from which a cold solve is faster by interior point and crossover than by simplex


@final
class Highs:
    """One model, kept in the solver and edited in place. Not thread-safe; not shared between searches."""

    def __init__(self, program: LinearProgram) -> None:
        self._solver: Any = highspy.Highs()
        self._option("output_flag", value=False)
        self._option("threads", value=1)
        self._option("random_seed", value=0)
        # Measured on children of the paper's Base network: without scaling, and with Devex prices instead of steepest
        # edge (whose weights are computed anew for every start), a warm solve takes a third of the time; tighter
        # tolerances are free.
        self._option("simplex_scale_strategy", value=0)
        self._option("simplex_dual_edge_weight_strategy", value=1)
        self._option("dual_feasibility_tolerance", value=1e-9)
        self._option("primal_feasibility_tolerance", value=1e-9)
        self._large = program.matrix.nnz > LARGE
        self._load(program)
        self._column_lower, self._column_upper = program.column_lower.copy(), program.column_upper.copy()
        self._row_lower, self._row_upper = program.row_lower.copy(), program.row_upper.copy()
        self._editable = program.editable
        self._entries = np.full(len(program.editable[0]), np.nan)

    def _option(self, name: str, *, value: float | str | bool) -> None:
        if self._solver.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise SolverFailure(f"HiGHS {highspy.Highs().version()} refuses option {name}={value}")

    def _load(self, program: LinearProgram) -> None:
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(program.cost), len(program.row_lower)
        lp.col_cost_ = program.cost
        lp.col_lower_, lp.col_upper_ = program.column_lower, program.column_upper
        lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = program.matrix.indptr
        lp.a_matrix_.index_ = program.matrix.indices
        lp.a_matrix_.value_ = program.matrix.data
        if self._solver.passModel(lp) == highspy.HighsStatus.kError:
            raise SolverFailure("HiGHS refuses the linear program")

    def set_columns(self, columns: NDArray[np.int32], lower: Array, upper: Array) -> None:
        """Set limits of some columns; only those that change reach the solver."""
        changed = (self._column_lower[columns] != lower) | (self._column_upper[columns] != upper)
        if changed.any():
            where, low, high = columns[changed], lower[changed], upper[changed]
            self._column_lower[where], self._column_upper[where] = low, high
            self._solver.changeColsBounds(len(where), where, low, high)

    def set_rows(self, rows: NDArray[np.int32], lower: Array, upper: Array) -> None:
        """Set limits of some rows; only those that change reach the solver."""
        changed = (self._row_lower[rows] != lower) | (self._row_upper[rows] != upper)
        if changed.any():
            where, low, high = rows[changed], lower[changed], upper[changed]
            self._row_lower[where], self._row_upper[where] = low, high
            self._solver.changeRowsBounds(len(where), where, low, high)

    def set_entries(self, values: Array) -> None:
        """Set the editable matrix entries; only those that change reach the solver."""
        changed = np.flatnonzero(self._entries != values)
        rows, columns = self._editable
        for k in changed:
            self._solver.changeCoeff(int(rows[k]), int(columns[k]), float(values[k]))
        self._entries[changed] = values[changed]

    def solve(self, start: object | None, cutoff: float, deadline: Deadline) -> Solution:
        """Solve from a basis; stop early once the objective is proved to pass `cutoff`.

        Raises `OutOfTime` at the deadline and `SolverFailure` where HiGHS ends without a usable answer.
        """
        self._option("objective_bound", value=min(cutoff, highspy.kHighsInf))
        if start is None:
            self._solver.clearSolver()
        else:
            self._solver.setBasis(start)
        self._option("solver", value="ipm" if start is None and self._large else "simplex")
        while True:
            deadline.check()
            # HiGHS counts its time over all calls, so the limit is that clock's reading plus a slice. A simplex solve
            # goes on from where a slice left it; a cold solve (presolve, interior point) would not, and gets all the
            # time there is.
            limit = deadline.remaining() if start is None else min(SLICE_SECONDS, deadline.remaining())
            self._option("time_limit", value=self._solver.getRunTime() + min(limit, 1e9))
            self._run(interruptible=start is None and self._large)
            status = self._solver.getModelStatus()
            if status != highspy.HighsModelStatus.kTimeLimit:
                return self._solution(status)

    def _run(self, *, interruptible: bool) -> None:
        """Run HiGHS; a solve that may take long runs beside this thread, so that Ctrl-C is heard at once."""
        if not interruptible:
            self._solver.run()
            return
        solver = self._solver
        solver.HandleUserInterrupt = True
        try:
            solver.startSolve()
            while not solver.wait(WAIT_SECONDS)[0]:
                pass
        except BaseException:
            # Nobody may touch the model before its solver has stopped. (Joining the thread would not do: a join that an
            # interrupt broke off counts the thread as ended.)
            solver.cancelSolve()
            while solver.is_solver_running():
                sleep(WAIT_SECONDS)
            raise
        finally:
            solver.HandleUserInterrupt = False

    def _solution(self, status: Any) -> Solution:
        found = {
            highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
            highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
            highspy.HighsModelStatus.kObjectiveBound: Status.CUT_OFF,
        }.get(status)
        if found is None:
            raise SolverFailure(f"HiGHS ended with status {self._solver.modelStatusToString(status)}")
        info, solution = self._solver.getInfo(), self._solver.getSolution()
        columns, duals = np.array(solution.col_value), np.array(solution.row_dual)
        if found is Status.INFEASIBLE:
            _, exists, ray = self._solver.getDualRay()
            if not exists:
                raise SolverFailure("HiGHS says infeasible but has no ray that shows it")
            duals = np.array(ray)
        return Solution(
            found,
            float(info.objective_function_value),
            columns,
            duals,
            self._solver.getBasis(),
        )
