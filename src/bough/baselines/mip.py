"""The baselines `mip-planet` and `mip-tight` solve a mixed-integer program per clause until its sign is known.

The ReLU bounds that the model stands on are proved, and so is the model's shape. The solver's answer is not: it works
with floating-point numbers and tolerances, and its tree leaves nothing behind that could be evaluated again. So a
clause counts as safe only if the solver's bound is above a margin (`margin_of`), and the result says whose word it is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch

from bough.baselines.base import AbstractBaseline, BaselineEntry, BaselineRun, BaselineSettings
from bough.baselines.progressive import ProgressiveBounds
from bough.bounds.intermediate import AbstractIntermediate, PaperBounds
from bough.bounds.linear import Region, bound_clause, by_slopes
from bough.budget import OutOfTime
from bough.errors import SolverFailure
from bough.solvers.mixed import TOLERANCE, AbstractMixedSolver, Ending, Watch, mixed_solver
from bough.solvers.program import Array, MixedProgram

LEAST_MARGIN = 1e-6  # a solver's bound has to be above this at least, a thousand tolerances, to count as safe
LEAST_WIDTH = 1e-6  # every variable has to be at least this wide for a solver's "safe" to be believed


def margin_of(program: MixedProgram) -> float:
    """What a bound has to be above for the clause to count as safe.

    Rows and whole numbers that a solver lets be violated by its tolerance only add points, which lowers the minimum:
    that errs on the safe side. What can lift a bound are reduced costs that are wrong by the tolerance, each as much
    as the column is wide. That is their sum, and a thousand tolerances for whatever else rounds; where large constants
    cancel, the tolerance times the largest.
    """
    widths, largest = _scales(program)
    return LEAST_MARGIN + TOLERANCE * (float(widths.sum()) + largest)


def _scales(program: MixedProgram) -> tuple[Array, float]:
    """The finite widths of columns, and the largest number that columns and rows are bounded by."""
    linear = program.linear
    widths = linear.column_upper - linear.column_lower
    ends = np.concatenate([linear.column_lower, linear.column_upper, linear.row_lower, linear.row_upper])
    return widths[np.isfinite(widths)], float(np.abs(ends[np.isfinite(ends)]).max(initial=0.0))


def _check_scales(program: MixedProgram, title: str) -> None:
    """Raise where a solver may take what is narrower than its tolerance, or than that of something large, for fixed."""
    widths, largest = _scales(program)
    least = float(widths[widths > 0].min(initial=np.inf))
    if not least >= max(LEAST_WIDTH, TOLERANCE * largest):
        raise SolverFailure(
            f"the network's numbers range from {least:.1e} to {largest:.1e}, which {title} cannot tell "
            "apart; use --method auto"
        )


@final
@dataclass(frozen=True)
class MixedInteger(AbstractBaseline):
    """A mixed-integer solver over a policy of ReLU bounds."""

    intermediate: AbstractIntermediate
    settings: BaselineSettings

    @cached_property
    def _solver(self) -> AbstractMixedSolver:
        return mixed_solver(self.settings.solver, self.settings.seed)

    @property
    def title(self) -> str:
        """Name and version of the solver."""
        return self._solver.title

    def begin(self, run: BaselineRun) -> None:
        """Bound the ReLUs of every box, and the clauses by what follows at once."""
        for k, clause in enumerate(run.problem.clauses):
            region = self._region(run, clause.box)
            weights = torch.eye(len(clause.offsets), dtype=torch.float64)[None]
            rows = bound_clause(run.problem.network, region, clause, weights, by_slopes(self.intermediate.slopes))
            run.proved[k] = float(rows.nan_to_num(nan=-torch.inf).max())
            run.bounds += 1

    def decide(self, run: BaselineRun, clause: int) -> None:
        """Minimise one program until the sign is known."""
        from bough.baselines.big_m import big_m, point_of

        unsafe = run.problem.clauses[clause]
        box = run.problem.property.boxes[unsafe.box]
        program = big_m(run.problem.network, box, self._region(run, unsafe.box).bounds, unsafe)
        run.deadline.check()
        watch = Watch(
            margin_of(program),
            lambda columns: run.try_point(clause, point_of(program, box, columns)),
            lambda bound, nodes: run.progress(clause, bound, nodes),
        )
        solution = self._solver.minimise(program, watch, run.deadline)
        run.nodes += solution.nodes
        run.current_nodes = 0
        run.claimed[clause] = solution.bound
        if solution.ending is Ending.OUT_OF_TIME:
            raise OutOfTime
        if solution.ending is Ending.ABOVE:
            _check_scales(program, self.title)
            run.safe.add(clause)

    def _region(self, run: BaselineRun, box: int) -> Region:
        """The ReLU bounds of a box, which are computed once a run."""
        if box not in run.regions:
            limits = run.problem.property.boxes[box]
            run.regions[box] = self.intermediate.at_root(run.problem.network, limits, run.deadline)
        return run.regions[box]


BASELINES = (
    BaselineEntry(
        name="mip-planet",
        words="big-M mixed-integer program over Wong-Kolter and interval bounds (the paper's MIPplanet)",
        make=lambda settings: MixedInteger(PaperBounds(), settings),
        mixed=True,
        relu_bounds="paper",
    ),
    BaselineEntry(
        name="mip-tight",
        words="the same over bounds tightened layer by layer: interval, linear, LP (Tjeng et al. 2019)",
        make=lambda settings: MixedInteger(ProgressiveBounds(), settings),
        mixed=True,
        relu_bounds="progressive",
    ),
)
