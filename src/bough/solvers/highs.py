"""The only door to HiGHS: a linear program in arrays enters, is edited in place and solved; values, duals and a basis
leave. Or a mixed-integer program enters (`HighsMixed`), and a bound and a node count leave.

Nothing that leaves here is believed: callers turn multipliers into bounds of their own. For mixed-integer programs that
cannot be done, so who uses one has to say so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import sleep
from typing import Any, final

import highspy
import numpy as np
from numpy.typing import NDArray

from bough.budget import Deadline, OutOfTime
from bough.errors import SolverFailure
from bough.solvers.mixed import TOLERANCE, AbstractMixedSolver, Ending, MixedSolution, Watch
from bough.solvers.program import Array, LinearProgram, MixedProgram, Solution, Status

SLICE_SECONDS = 0.5  # HiGHS returns to Python this often, so that Ctrl-C and deadlines are heard
WAIT_SECONDS = 0.05  # Python looks this often after a HiGHS that runs beside it, which is how late Ctrl-C is heard
LARGE = 20_000  # from so many matrix entries on, interior point and crossover solve a cold program, not simplex

MIXED_OPTIONS: dict[str, float | bool] = {
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
    "mip_feasibility_tolerance": TOLERANCE,
    "small_matrix_value": 1e-12,  # the least HiGHS takes: smaller entries are dropped from the model
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    # Searches inside the search, for points that are better by some margin. Measured on the paper's Base network: they
    # took four fifths of the time (88 s instead of 25 s), and found nothing of use to a sign.
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


class _Limits:
    """Sets limits of some columns, or of some rows; only those that change reach the solver."""

    def __init__(self, lower: Array, upper: Array, change: Callable[..., object]) -> None:
        self._lower, self._upper, self._change = lower.copy(), upper.copy(), change

    def __call__(self, at: NDArray[np.int32], lower: Array, upper: Array) -> None:
        changed = (self._lower[at] != lower) | (self._upper[at] != upper)
        if changed.any():
            at, lower, upper = at[changed], lower[changed], upper[changed]
            self._lower[at], self._upper[at] = lower, upper
            self._change(len(at), at, lower, upper)


@final
class Highs:
    """One model, kept in the solver and edited in place. Not thread-safe; not shared between searches."""

    def __init__(self, program: LinearProgram) -> None:
        self._solver = _quiet()
        _set(self._solver, random_seed=0)
        # Measured on children of the paper's Base network: without scaling, and with Devex prices instead of steepest
        # edge (whose weights are computed anew for every start), a warm solve takes a third of the time; tighter
        # tolerances are free.
        _set(self._solver, simplex_scale_strategy=0, simplex_dual_edge_weight_strategy=1)
        _set(self._solver, dual_feasibility_tolerance=1e-9, primal_feasibility_tolerance=1e-9)
        self._large = program.matrix.nnz > LARGE
        _load(self._solver, program)
        self._size = len(program.cost), len(program.row_lower)
        self.set_columns = _Limits(program.column_lower, program.column_upper, self._solver.changeColsBounds)
        self.set_rows = _Limits(program.row_lower, program.row_upper, self._solver.changeRowsBounds)
        self._editable = program.editable
        self._entries = np.full(len(program.editable[0]), np.nan)

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
        try:
            return self._solve(start, cutoff, deadline)
        except (OutOfTime, MemoryError):
            raise
        except Exception as error:  # whatever a native library lets through, too
            if cutoff < np.inf:
                return self.solve(start, np.inf, deadline)  # version 1.15 may lack a ray under a cutoff only
            if isinstance(error, SolverFailure):
                raise
            raise SolverFailure(f"HiGHS failed ({type(error).__name__}: {str(error)[:100]})") from error

    def _solve(self, start: object | None, cutoff: float, deadline: Deadline) -> Solution:
        _set(self._solver, objective_bound=min(cutoff, highspy.kHighsInf))
        if start is None:
            self._solver.clearSolver()
        else:
            self._solver.setBasis(start)
        _set(self._solver, solver="ipm" if start is None and self._large else "simplex")
        while True:
            deadline.check()
            # HiGHS counts its time over all calls, so the limit is that clock's reading plus a slice. A simplex solve
            # goes on from where a slice left it; a cold solve (presolve, interior point) would not, and gets all the
            # time there is.
            limit = deadline.remaining() if start is None else min(SLICE_SECONDS, deadline.remaining())
            _set(self._solver, time_limit=self._solver.getRunTime() + min(limit, 1e9))
            if start is None and self._large:  # it may take long, and Ctrl-C is to be heard at once
                _run_beside(self._solver, lambda: None)
            else:
                self._solver.run()
            status = self._solver.getModelStatus()
            if status != highspy.HighsModelStatus.kTimeLimit:
                return self._solution(status)

    def _solution(self, status: Any) -> Solution:
        ending = {
            highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
            highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
            highspy.HighsModelStatus.kObjectiveBound: Status.CUT_OFF,
        }.get(status)
        if ending is None:
            raise SolverFailure(f"HiGHS ended with status {self._solver.modelStatusToString(status)}")
        info, solution = self._solver.getInfo(), self._solver.getSolution()
        columns, duals = np.array(solution.col_value), np.array(solution.row_dual)
        if ending is Status.INFEASIBLE:
            _, exists, ray = self._solver.getDualRay()
            if not exists:
                raise SolverFailure("HiGHS says infeasible but has no ray that shows it")
            duals = np.array(ray)
        if (len(columns), len(duals)) != self._size:
            raise SolverFailure("HiGHS gave a solution of another program's size")
        return Solution(
            ending,
            float(info.objective_function_value),
            columns,
            duals,
            np.array(solution.col_dual),
            self._solver.getBasis(),
        )


@final
class HighsMixed(AbstractMixedSolver):
    """HiGHS's own branch and bound."""

    @property
    def title(self) -> str:
        """Name and version of HiGHS."""
        return f"HiGHS {highspy.Highs().version()}"

    def minimise(self, program: MixedProgram, watch: Watch, deadline: Deadline) -> MixedSolution:
        """Search until the bound passes `watch.above`.

        That is not given to HiGHS as a cutoff (`objective_bound`): under one, version 1.15 called a point optimal that
        was far above better ones below the cutoff (soundness/known/seed12_case483_mip.json).
        """
        solver = _quiet()
        _set(solver, **MIXED_OPTIONS, random_seed=self.seed % (1 << 31))
        _load(solver, program.linear, program.integer)
        _set(solver, time_limit=min(deadline.remaining(), 1e9))
        run = _MixedRun(watch)
        solver.cbMipImprovingSolution += run.improved
        solver.cbMipInterrupt += run.looked
        _run_beside(solver, lambda: run.pulse(deadline))
        if watch.error is not None:
            raise watch.error
        return run.solution(solver, mixed=len(program.integer) > 0)


@dataclass(eq=False)
class _MixedRun:
    """What is known of a run while HiGHS is at it; its callbacks come from the solver's own thread."""

    watch: Watch
    bound: float = -np.inf
    nodes: int = 0
    late: bool = False

    def improved(self, event: Any) -> None:
        """Show the watch a better point of HiGHS."""
        with self.watch.keeping_errors():
            self.watch.show(np.array(event.data_out.mip_solution))

    def looked(self, event: Any) -> None:
        """Answer HiGHS, which asks whether to go on."""
        self.bound, self.nodes = float(event.data_out.mip_dual_bound), int(event.data_out.mip_node_count)
        if self.watch.content or self.late or self.watch.error is not None or self.bound > self.watch.above:
            event.interrupt()

    def pulse(self, deadline: Deadline) -> None:
        """Look in from the caller's thread."""
        self.late = deadline.passed()
        self.watch.seen(self.bound, self.nodes)

    def solution(self, solver: Any, *, mixed: bool) -> MixedSolution:
        """How the run ended; a program without whole numbers is solved as a linear one, without a tree."""
        status = solver.getModelStatus()
        info = solver.getInfo()
        statuses = highspy.HighsModelStatus
        nodes = max(self.nodes, int(info.mip_node_count))
        above = self.watch.above
        best = float(info.objective_function_value)
        has_point = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if has_point:  # presolve may solve all by itself, and then tells of no better point
            self.watch.show(np.array(solver.getSolution().col_value))
        if self.watch.content:
            return MixedSolution(Ending.FOUND, min(self.bound, above), nodes)
        if status == statuses.kInterrupt and self.bound > above:
            return MixedSolution(Ending.ABOVE, above, nodes)
        if status == statuses.kTimeLimit or (status == statuses.kInterrupt and self.late):
            return MixedSolution(Ending.OUT_OF_TIME, min(self.bound, above), nodes)
        if status == statuses.kOptimal and best > above:
            return MixedSolution(Ending.ABOVE, above, nodes)
        if status == statuses.kOptimal and has_point:
            dual = float(info.mip_dual_bound) if mixed else best
            return MixedSolution(Ending.OPTIMAL, min(dual, best), nodes)
        raise SolverFailure(f"HiGHS ended with status {solver.modelStatusToString(status)}")


def _quiet() -> Any:
    """A solver on one thread that prints nothing."""
    solver = highspy.Highs()
    _set(solver, output_flag=False, threads=1)
    return solver


def _set(solver: Any, /, **options: float | str | bool) -> None:
    for name, value in options.items():
        if solver.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise SolverFailure(f"HiGHS {highspy.Highs().version()} refuses option {name}={value}")


def _load(solver: Any, program: LinearProgram, integer: NDArray[np.int32] | None = None) -> None:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), len(program.row_lower)
    lp.col_cost_ = program.cost
    lp.col_lower_, lp.col_upper_ = program.column_lower, program.column_upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = program.matrix.indptr
    lp.a_matrix_.index_ = program.matrix.indices
    lp.a_matrix_.value_ = program.matrix.data
    if integer is not None and len(integer):
        kinds = np.full(len(program.cost), highspy.HighsVarType.kContinuous, dtype=object)
        kinds[integer] = highspy.HighsVarType.kInteger
        lp.integrality_ = kinds.tolist()
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise SolverFailure("HiGHS refuses the program")


def _run_beside(solver: Any, pulse: Callable[[], None]) -> None:
    """Run HiGHS beside this thread, so that Ctrl-C is heard at once; `pulse` is called now and then."""
    solver.HandleUserInterrupt = True
    try:
        solver.startSolve()
        while not solver.wait(WAIT_SECONDS)[0]:
            pulse()
    except BaseException:
        # Nobody may touch the model before its solver has stopped. (Joining the thread would not do: a join that an
        # interrupt broke off counts the thread as ended.)
        solver.cancelSolve()
        while solver.is_solver_running():
            sleep(WAIT_SECONDS)
        raise
    finally:
        solver.HandleUserInterrupt = False
