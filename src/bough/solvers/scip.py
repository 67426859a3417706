"""The only door to SCIP, an optional solver of mixed-integer programs (`pip install pyscipopt`)."""

from typing import Any, final

import numpy as np
import pyscipopt

from bough.budget import Deadline
from bough.errors import SolverFailure
from bough.solvers.mixed import TOLERANCE, AbstractMixedSolver, Ending, MixedSolution, Watch
from bough.solvers.program import MixedProgram

ENDINGS = {"optimal": Ending.OPTIMAL, "gaplimit": Ending.OPTIMAL, "timelimit": Ending.OUT_OF_TIME}


@final
class ScipMixed(AbstractMixedSolver):
    """SCIP, stopped by its events. It holds Python's lock while it works, and hears Ctrl-C by itself."""

    @property
    def title(self) -> str:
        """Name and version of SCIP."""
        return f"SCIP {pyscipopt.Model().version()}"

    def minimise(self, program: MixedProgram, watch: Watch, deadline: Deadline) -> MixedSolution:
        """Search until the dual bound passes `watch.above`."""
        model: Any = pyscipopt.Model()
        model.hideOutput()
        model.setParams(
            {
                "numerics/feastol": TOLERANCE,
                "numerics/dualfeastol": TOLERANCE,
                "randomization/randomseedshift": self.seed % (1 << 31),
                "lp/threads": 1,
                "parallel/maxnthreads": 1,
                "limits/time": min(deadline.remaining(), 1e9),
                "misc/catchctrlc": True,
            }
        )
        columns = _load(model, program)
        events = _Events(watch, columns)
        model.includeEventhdlr(events, "watch", "better points, and the bound")
        model.optimize()
        if watch.error is not None:
            raise watch.error
        bound, nodes = float(model.getDualbound()), int(model.getNTotalNodes())
        if model.getNSols() and not bound > watch.above:
            events.show_best(model)
        status = model.getStatus()
        ending = watch.ending(bound) or ENDINGS.get(status)
        if ending is None:
            raise KeyboardInterrupt if status == "userinterrupt" else SolverFailure(f"SCIP ended with status {status}")
        return MixedSolution(ending, bound, nodes)


def _load(model: Any, program: MixedProgram) -> list[Any]:
    linear = program.linear
    whole = set(program.integer.tolist())
    lower, upper = (_limits(v) for v in (linear.column_lower, linear.column_upper))
    columns = [
        model.addVar(lb=lower[k], ub=upper[k], obj=float(linear.cost[k]), vtype="I" if k in whole else "C")
        for k in range(len(linear.cost))
    ]
    starts, index, values = linear.matrix.indptr, linear.matrix.indices, linear.matrix.data
    for row, (low, high) in enumerate(zip(_limits(linear.row_lower), _limits(linear.row_upper), strict=True)):
        entries = slice(starts[row], starts[row + 1])
        terms = zip(index[entries].tolist(), values[entries].tolist(), strict=True)
        total = pyscipopt.quicksum(value * columns[k] for k, value in terms)
        if low is not None and low == high:
            model.addCons(total == low)
        else:
            if low is not None:
                model.addCons(total >= low)
            if high is not None:
                model.addCons(total <= high)
    return columns


def _limits(values: Any) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


class _Events(pyscipopt.Eventhdlr):  # type: ignore[misc] # untyped
    """Tells the watch, and stops SCIP when it is content."""

    def __init__(self, watch: Watch, columns: list[Any]) -> None:
        self.watch, self.columns = watch, columns

    def eventinit(self) -> None:
        """Ask for better points, and for every node that is done."""
        for kind in (pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND, pyscipopt.SCIP_EVENTTYPE.NODESOLVED):
            self.model.catchEvent(kind, self)

    def eventexec(self, event: Any) -> None:
        """Pass on what SCIP reports, and stop it where that is enough."""
        with self.watch.keeping_errors():
            if event.getType() == pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND:
                self.show_best(self.model)
            else:
                self.watch.seen(float(self.model.getDualbound()), int(self.model.getNTotalNodes()))
        if self.watch.content or self.watch.error is not None or self.model.getDualbound() > self.watch.above:
            self.model.interruptSolve()

    def show_best(self, model: Any) -> None:
        """Show the watch the best point there is."""
        best = model.getBestSol()
        self.watch.show(np.array([model.getSolVal(best, column) for column in self.columns]))
