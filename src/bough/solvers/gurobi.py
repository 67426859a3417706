"""The only door to Gurobi, an optional solver of mixed-integer programs (`pip install gurobipy`, and a licence).

Never run: bough's own machines have no licence. Hold it against Gurobi's documentation before you rely on it.
"""

from functools import partial
from typing import Any, final

import gurobipy
import numpy as np

from bough.budget import Deadline
from bough.errors import BadInput, SolverFailure
from bough.solvers.mixed import TOLERANCE, AbstractMixedSolver, Ending, MixedSolution, Watch
from bough.solvers.program import MixedProgram


@final
class GurobiMixed(AbstractMixedSolver):
    """Gurobi with the options of the paper's authors: one thread, no dual reductions."""

    @property
    def title(self) -> str:
        """Name and version of Gurobi."""
        return "Gurobi " + ".".join(map(str, gurobipy.gurobi.version()))

    def minimise(self, program: MixedProgram, watch: Watch, deadline: Deadline) -> MixedSolution:
        """Search until the best bound passes `watch.above`."""
        try:
            with gurobipy.Env(params={"OutputFlag": 0}) as env, gurobipy.Model(env=env) as model:
                return self._run(model, program, watch, deadline)
        except gurobipy.GurobiError as error:
            raise BadInput(f"Gurobi does not run here ({error}); check its licence, or use solver=highs") from error

    def _run(self, model: Any, program: MixedProgram, watch: Watch, deadline: Deadline) -> MixedSolution:
        for name, value in {
            "Threads": 1,
            "DualReductions": 0,
            "Seed": self.seed % 2_000_000_000,
            "FeasibilityTol": TOLERANCE,
            "OptimalityTol": TOLERANCE,
            "IntFeasTol": TOLERANCE,
            "MIPGap": 0.0,
            "MIPGapAbs": 0.0,
            "TimeLimit": min(deadline.remaining(), 1e9),
        }.items():
            model.setParam(name, value)
        linear = program.linear
        kinds = np.full(len(linear.cost), gurobipy.GRB.CONTINUOUS)
        kinds[program.integer] = gurobipy.GRB.BINARY
        columns = model.addMVar(len(linear.cost), linear.column_lower, linear.column_upper, linear.cost, kinds)
        for limit, sense in ((linear.row_lower, ">"), (linear.row_upper, "<")):
            rows = np.flatnonzero(np.isfinite(limit))
            model.addMConstr(linear.matrix[rows], columns, sense, limit[rows])
        model.optimize(partial(_report, watch, columns))
        if watch.error is not None:
            raise watch.error
        if model.SolCount:
            watch.show(np.asarray(columns.X))
        bound = float(model.ObjBound)
        endings = {gurobipy.GRB.OPTIMAL: Ending.OPTIMAL, gurobipy.GRB.TIME_LIMIT: Ending.OUT_OF_TIME}
        ending = watch.ending(bound) or endings.get(model.Status)
        if ending is None:
            raise SolverFailure(f"Gurobi ended with status {model.Status}")
        return MixedSolution(ending, bound, int(model.NodeCount))


def _report(watch: Watch, columns: Any, model: Any, where: int) -> None:
    """Pass on what Gurobi reports, and stop it where that is enough."""
    kind = gurobipy.GRB.Callback
    with watch.keeping_errors():
        if where == kind.MIPSOL:
            watch.show(np.asarray(model.cbGetSolution(columns)))
        elif where == kind.MIP:
            bound = model.cbGet(kind.MIP_OBJBND)
            watch.seen(bound, int(model.cbGet(kind.MIP_NODCNT)))
            if bound > watch.above:
                model.terminate()
    if watch.content or watch.error is not None:
        model.terminate()
