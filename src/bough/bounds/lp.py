"""Lower bounds by the Planet LP: exact for the relaxation, one HiGHS model per box, edited in place, warm-started from the parent.

The solver's word closes nothing. Its row duals become multipliers of the network's equations, and the bound is what
`linear.bound_functionals` proves from them in float64 with its rounding error subtracted; an infeasible domain is closed only
when its Farkas ray, evaluated the same way with a zero objective, is positive.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor

from bough.bounds.base import AbstractBounder, AbstractBounding, Bounded
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.linear import Region, bound_clause, by_multipliers, by_slopes
from bough.budget import Deadline
from bough.domain.batch import INFEASIBLE, Bounds, DomainBatch
from bough.errors import SolverFailure
from bough.network.graph import Network
from bough.problem.problem import Problem
from bough.problem.property import Clause
from bough.solvers.program import Solution, Status

if TYPE_CHECKING:
    from bough.bounds.planet import Layout
    from bough.solvers.highs import Highs


@final
@dataclass(frozen=True)
class PlanetLP(AbstractBounder):
    """Planet relaxation over a policy of intermediate bounds."""

    intermediate: AbstractIntermediate = field(default_factory=TightBounds)
    early_stop: bool = True  # stop a solve once its objective passes the cutoff

    def prepare(self, problem: Problem) -> "PlanetBounding":
        """Start on a problem; models are built when first needed."""
        return PlanetBounding(problem, self)


@dataclass(frozen=True, eq=False)
class _BoxModel:
    """The solver's model of one input box."""

    layout: "Layout"
    solver: "Highs"


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What is proved of one domain."""

    lower: float
    functional: Tensor
    point: Tensor
    start: object


@final
class PlanetBounding(AbstractBounding):
    """The Planet LP at work on one problem."""

    def __init__(self, problem: Problem, config: PlanetLP) -> None:
        self._problem = problem
        self._config = config
        self._regions: dict[int, Region] = {}
        self._models: dict[int, _BoxModel] = {}
        self.solver_failures = 0

    @property
    def _network(self) -> Network:
        return self._problem.network

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """Bound every clause over its whole box."""
        clauses, neurons = self._problem.clauses, self._network.neurons
        regions = [self._root_region(c.box, deadline) for c in clauses]
        count = len(clauses)
        domains = DomainBatch(
            clause=torch.arange(count),
            signs=torch.zeros(count, neurons, dtype=torch.int8),
            bounds=Bounds(torch.cat([r.bounds.lower for r in regions]), torch.cat([r.bounds.upper for r in regions])),
            lower=torch.full((count,), -torch.inf, dtype=torch.float64),
            functional=torch.zeros(count, self._network.outputs, dtype=torch.float64),
            depth=torch.zeros(count, dtype=torch.int64),
            last_split=torch.full((count,), -1),
            start=(None,) * count,
        )
        return self._bound_each(domains, cutoff, deadline)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Tighten the intermediate bounds after the last split, then bound each domain."""
        bounds = domains.bounds
        lower, upper = bounds.lower.clone(), bounds.upper.clone()
        boxes = torch.tensor([self._problem.clauses[int(c)].box for c in domains.clause])
        for box in boxes.unique().tolist():
            rows = (boxes == box).nonzero()[:, 0]
            where = self._root_region(box, deadline).with_bounds(bounds[rows])
            fresh = self._config.intermediate.after_split(self._network, where, domains.last_split[rows], deadline)
            lower[rows], upper[rows] = fresh.lower, fresh.upper
        return self._bound_each(replace(domains, bounds=Bounds(lower, upper)), cutoff, deadline)

    def _root_region(self, box: int, deadline: Deadline) -> Region:
        if box not in self._regions:
            asked = self._problem.property.boxes[box]
            self._regions[box] = self._config.intermediate.at_root(self._network, asked, deadline)
        return self._regions[box]

    def _model(self, box: int, deadline: Deadline) -> _BoxModel:
        if box not in self._models:
            # Loaded here, since many problems are decided before any LP is.
            from bough.bounds.planet import build
            from bough.solvers.highs import Highs

            rows = max(len(c.offsets) for c in self._problem.clauses)
            root = self._root_region(box, deadline)
            program, layout = build(self._network, self._problem.property.boxes[box], root.bounds, rows)
            self._models[box] = _BoxModel(layout, Highs(program))
        return self._models[box]

    def _bound_each(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        outcomes = [self._bound_one(domains[torch.tensor([d])], cutoff, deadline) for d in range(len(domains))]
        lower = torch.tensor([o.lower for o in outcomes], dtype=torch.float64)
        return Bounded(
            replace(
                domains,
                lower=torch.maximum(lower, domains.lower),  # a child is part of its parent
                functional=torch.stack([o.functional for o in outcomes]),
                start=tuple(o.start for o in outcomes),
            ),
            torch.stack([o.point for o in outcomes]),
        )

    def _bound_one(self, domain: DomainBatch, cutoff: float, deadline: Deadline) -> _Outcome:
        clause = self._problem.clauses[int(domain.clause)]
        where = self._root_region(clause.box, deadline).with_bounds(domain.bounds)
        centre = ((where.lower + where.upper) / 2)[0]
        if bool(domain.bounds.empty()):
            return _Outcome(INFEASIBLE, domain.functional[0], centre, None)
        lower, row = self._linear(where, clause)
        functional = clause.coefficients[row]
        if lower > cutoff:
            return _Outcome(lower, functional, centre, domain.start[0])
        try:
            solution = self._solve(domain, clause, cutoff if self._config.early_stop else np.inf, deadline)
        except SolverFailure:
            self.solver_failures += 1
            return _Outcome(lower, functional, centre, None)
        proved, weights = self._prove(where, clause, solution)
        if solution.status is not Status.INFEASIBLE:
            functional = weights @ clause.coefficients
        return _Outcome(max(lower, proved), functional, self._point(clause.box, solution, centre), solution.basis)

    def _linear(self, where: Region, clause: Clause) -> tuple[float, int]:
        """The best single row's linear bound: one row that stays positive is enough to be safe."""
        each_row = torch.eye(len(clause.offsets), dtype=torch.float64)[None]
        values = bound_clause(self._network, where, clause, each_row, by_slopes(self._config.intermediate.slopes))[0]
        best = int(values.argmax())
        return float(values[best]), best

    def _solve(self, domain: DomainBatch, clause: Clause, cutoff: float, deadline: Deadline) -> Solution:
        from bough.bounds.planet import limits

        model = self._model(clause.box, deadline)
        new = limits(model.layout, domain.bounds.lower[0], domain.bounds.upper[0], clause)
        model.solver.set_columns(new.columns, new.column_lower, new.column_upper)
        model.solver.set_rows(new.rows, new.row_lower, new.row_upper)
        model.solver.set_entries(new.entries)
        return model.solver.solve(domain.start[0], cutoff, deadline)

    def _prove(self, where: Region, clause: Clause, solution: Solution) -> tuple[float, Tensor]:
        """The bound that the solver's multipliers prove, and the weights of the clause's rows."""
        layout = self._models[clause.box].layout
        own = layout.z_row >= 0
        multipliers = torch.full((self._network.neurons,), torch.nan, dtype=torch.float64)
        multipliers[torch.from_numpy(own)] = torch.from_numpy(solution.row_dual[layout.z_row[own]])
        weights = torch.from_numpy(solution.row_dual[layout.clause_rows[: len(clause.offsets)]]).clamp(min=0)
        if not np.isfinite(solution.row_dual).all():
            return -np.inf, weights
        if solution.status is Status.INFEASIBLE:
            return self._prove_empty(where, clause, multipliers), weights
        total = float(weights.sum())
        weights = weights / total if total > 0 else torch.full_like(weights, 1 / len(weights))
        proved = bound_clause(self._network, where, clause, weights[None, None], by_multipliers(multipliers[None]))
        return float(proved), weights

    def _prove_empty(self, where: Region, clause: Clause, ray: Tensor) -> float:
        """Infinity if the Farkas ray shows, as a bound of the functional 0, that no point satisfies the splits."""
        # A ray has no scale and, between solvers, no agreed sign: either sign that proves emptiness will do.
        size = float(ray.nan_to_num().abs().max()) if len(ray) else 0.0
        rays = torch.stack([ray, -ray]) / (size or 1.0)
        both = where.with_bounds(Bounds(where.bounds.lower.expand(2, -1), where.bounds.upper.expand(2, -1)))
        nothing = torch.zeros(2, 1, len(clause.offsets), dtype=torch.float64)
        proved = bound_clause(self._network, both, clause, nothing, by_multipliers(rays))
        return INFEASIBLE if float(proved.max()) > 0 else -INFEASIBLE

    def _point(self, box: int, solution: Solution, centre: Tensor) -> Tensor:
        limits = self._problem.property.boxes[box]
        layout = self._models[box].layout
        point = centre.clone()
        point[torch.from_numpy(layout.inputs).long()] = torch.from_numpy(solution.columns[: len(layout.inputs)])
        return torch.where(torch.isfinite(point), point, centre).clamp(min=limits.lower, max=limits.upper)
