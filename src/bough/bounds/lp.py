"""Lower bounds by the Planet LP: exact for the relaxation, one HiGHS model per box, edited in place, warm-started
from the parent.

The solver's word closes nothing. Its row duals become multipliers of the network's equations, and the bound is what
`linear.bound_functionals` proves from them in float64 with its rounding error subtracted; an infeasible domain is
closed only when its Farkas ray, evaluated the same way with a zero objective, is positive.

Of an input set with a ball the LP knows the box only. What it proposes is proved over both, so a bound is never wrong,
but a domain with every ReLU decided may stay open that an exact method would close: then the verdict is `unknown`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from bough.bounds.base import (
    AbstractBounder,
    AbstractEvidence,
    AbstractRelaxations,
    AbstractSession,
    Bounded,
    Capabilities,
    Capability,
    Evidence,
)
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.linear import Proved, Region, bound_clause, by_multipliers, by_slopes, proved_rows
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline
from bough.domain.arrays import Arrays
from bough.domain.batch import INFEASIBLE, Bounds, DomainBatch, Relaxation
from bough.errors import SolverFailure
from bough.problem.problem import Problem
from bough.problem.property import Clause
from bough.solvers.program import Solution, Status

if TYPE_CHECKING:
    from bough.bounds.planet import Layout
    from bough.solvers.highs import Highs

MOST_MODELS = 8  # kept in memory at once, one per input box
MOST_BASES = 1 << 16  # kept to start children from; a child whose parent's is gone starts cold
_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True)
class PlanetLP(AbstractBounder):
    """Planet relaxation over a policy of intermediate bounds."""

    intermediate: AbstractIntermediate = field(default_factory=TightBounds)
    early_stop: bool = True  # stop a solve once its objective passes the cutoff

    offers: ClassVar[frozenset[Capability]] = frozenset({Capability.RELAXATION, Capability.EVIDENCE})

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "PlanetSession":
        """Start on a problem; models are built when first needed."""
        return PlanetSession(problem, self, witness)


@dataclass(frozen=True, eq=False)
class BasisNumbers(Arrays):
    """What a domain carries for this bounder: the number of the basis that its LP ended with; 0: none."""

    number: Tensor  # int64 [domains]


@dataclass(frozen=True, eq=False)
class _BoxModel:
    """The solver's model of one input box."""

    layout: "Layout"
    solver: "Highs"


@final
class PlanetSession(AbstractSession, AbstractRelaxations, AbstractEvidence):
    """The Planet LP at work on one problem."""

    def __init__(self, problem: Problem, config: PlanetLP, witness: AbstractWitness | None = None) -> None:
        self._problem, self._witness = problem, witness
        self._network = problem.network
        self._config = config
        self._regions: dict[int, Region] = {}
        self._models: dict[int, _BoxModel] = {}
        self._bases: dict[int, object] = {}  # by the number that the domain carries
        self._solved = 0
        self._last: dict[int, object] = {}  # the last basis of each box, where parts of it are asked about

    @property
    def capabilities(self) -> Capabilities:
        """What LPs know."""
        return Capabilities(relaxations=self, evidence=self)

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """Bound every clause over its whole box."""
        # Clauses differ in a few rows only, so each starts where the last one of its box ended.
        bases: dict[int, BasisNumbers] = {}
        parts = []
        for k, clause in enumerate(self._problem.clauses):
            root = self._root_region(clause.box, deadline)
            basis = bases.get(clause.box, BasisNumbers(torch.zeros(1, dtype=torch.int64)))
            domain = DomainBatch.root(k, root.bounds, clause.coefficients[0], basis)
            parts.append(self._bound_each(domain, cutoff, deadline))
            bases[clause.box] = parts[-1].domains.carried(BasisNumbers)
        return Bounded.concatenate(parts)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Tighten the intermediate bounds after the last split, then bound each domain."""
        bounds = domains.bounds
        lower, upper = bounds.lower.clone(), bounds.upper.clone()
        boxes = torch.tensor([self._problem.clauses[int(c)].box for c in domains.clause])
        for box in boxes.unique().tolist():
            rows = (boxes == box).nonzero()[:, 0]
            region = self._root_region(box, deadline).with_bounds(bounds[rows])
            fresh = self._config.intermediate.after_split(self._network, region, domains.last_split[rows], deadline)
            lower[rows], upper[rows] = fresh.lower, fresh.upper
        return self._bound_each(replace(domains, bounds=Bounds(lower, upper)), cutoff, deadline)

    def _root_region(self, box: int, deadline: Deadline) -> Region:
        if box not in self._regions:
            whole = self._problem.property.boxes[box]
            if self._witness is not None:
                self._witness.begin(box)
            self._regions[box] = self._config.intermediate.at_root(self._network, whole, deadline, self._witness)
        return self._regions[box]

    def _model(self, box: int, deadline: Deadline) -> _BoxModel:
        if box not in self._models:
            # Loaded here, since many problems are decided before any LP is.
            from bough.bounds.planet import build
            from bough.solvers.highs import Highs

            rows = max(len(c.offsets) for c in self._problem.clauses)
            root = self._root_region(box, deadline)
            program, layout = build(self._network, self._problem.property.boxes[box], root.bounds, rows)
            while len(self._models) >= MOST_MODELS:
                del self._models[next(iter(self._models))]  # the oldest; bases fit the model when it is built again
            self._models[box] = _BoxModel(layout, Highs(program))
        return self._models[box]

    def _bound_each(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        rows = [(domains.clause == c).nonzero()[:, 0] for c in domains.clause.unique()]
        parts = [self._bound_clause(domains[of_clause], cutoff, deadline) for of_clause in rows]
        order = torch.cat(rows).argsort()
        joined = Bounded.concatenate(parts)
        return Bounded(joined.domains[order], joined.points[order])

    def _bound_clause(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Linear bounds for all domains at once, then the LP for those which they do not close."""
        clause = self._problem.clauses[int(domains.clause[0])]
        root = self._root_region(clause.box, deadline)
        region = root.with_bounds(domains.bounds)
        # One row that stays positive is enough to be safe, so the best single row counts.
        each_row = torch.eye(len(clause.offsets), dtype=torch.float64).expand(len(domains), -1, -1)
        rows = bound_clause(self._network, region, clause, each_row, by_slopes(self._config.intermediate.slopes))
        lower, best = rows.max(dim=1)
        lower[domains.bounds.empty()] = INFEASIBLE
        functional = clause.coefficients[best]
        start = domains.carried(BasisNumbers).number.clone()
        points = ((region.lower + region.upper) / 2).clone()
        solved: list[tuple[int, Solution]] = []
        for d in (~(lower > cutoff)).nonzero()[:, 0].tolist():
            try:
                solution = self._solve(domains, d, clause, cutoff if self._config.early_stop else np.inf, deadline)
            except SolverFailure as failure:
                _log.info("a domain keeps its linear bound: %s", failure)
                start[d] = 0
                continue
            solved.append((d, solution))
            start[d] = self._keep(solution.basis)
            points[d] = self._point(clause.box, solution, points[d])
        if solved:
            numbers = torch.tensor([d for d, _ in solved])
            weights, proved = self._prove(root.with_bounds(domains.bounds[numbers]), clause, [s for _, s in solved])
            lower[numbers] = torch.fmax(lower[numbers], proved.lower[:, 0])
            used = weights.sum(dim=1) > 0
            functional[numbers[used]] = weights[used] @ clause.coefficients
        lower = torch.fmax(domains.lower, lower)  # a child is part of its parent
        bounded = replace(domains, lower=lower, functional=functional, start=BasisNumbers(start))
        return Bounded(bounded, self._problem.property.boxes[clause.box].project(points))

    def over_part(
        self, clause: Clause, sides: tuple[Tensor, Tensor], bounds: Bounds, cutoff: float, deadline: Deadline
    ) -> tuple[Proved, Tensor]:
        """What the LP proves of one clause over a part of its box, of sides [1, inputs], and the LP's point.

        A bounder whose boxes are halved asks this, always: limits of inputs stay as the last question left them.
        """
        lower, upper = sides
        model = self._model(clause.box, deadline)
        inputs = model.layout.inputs
        columns = np.arange(len(inputs), dtype=np.int32)
        model.solver.set_columns(columns, lower[0, inputs].numpy(), upper[0, inputs].numpy())
        solution = self._solved_for(bounds, clause, self._last.get(clause.box), cutoff, deadline)
        self._last[clause.box] = solution.basis
        region = replace(self._root_region(clause.box, deadline), lower=lower, upper=upper, bounds=bounds)
        point = self._point(clause.box, solution, (lower[0] + upper[0]) / 2)
        return self._prove(region, clause, [solution])[1], torch.minimum(torch.maximum(point, lower[0]), upper[0])

    def relaxed(self, domains: DomainBatch, deadline: Deadline) -> Relaxation:
        """Each LP once more, from its own basis: no iteration, as a rule. A domain that has no optimum gets zeros."""
        # Always the same ReLUs, whichever domains are asked about.
        boxes = sorted({clause.box for clause in self._problem.clauses})
        ambiguous = [self._root_region(box, deadline).bounds.ambiguous()[0] for box in boxes]
        neurons = torch.stack(ambiguous).any(dim=0).nonzero()[:, 0]
        wide = torch.zeros(6, len(domains), self._network.neurons, dtype=torch.float64)
        points = torch.zeros(len(domains), self._network.inputs, dtype=torch.float64)
        for d, clause, solution in self._solved_again(domains, deadline):
            if solution.status is Status.OPTIMAL:
                self._see(clause, domains.bounds[torch.tensor([d])], solution, wide[:, d])
                points[d] = self._point(clause.box, solution, self._root_region(clause.box, deadline).lower[0])
        return Relaxation.of(neurons, wide[:, :, neurons], points, domains.lower)

    def _see(self, clause: Clause, bounds: Bounds, solution: Solution, into: Tensor) -> None:
        """Fill `into` [6, neurons]: the fields of `Relaxation`, in order, as far as they are about ReLUs.

        A multiplier of the limit `x <= u`, which the chord has at its end, counts as one of the chord.
        """
        layout = self._models[clause.box].layout
        columns, duals, reduced = map(torch.from_numpy, (solution.columns, solution.row_dual, solution.column_dual))
        amb = torch.from_numpy(layout.amb).long()
        own = torch.from_numpy(layout.z_column >= 0)
        free = bounds.ambiguous()[0, amb].double()
        limit = reduced[layout.amb_x]
        into[0, amb] = limit.clamp(min=0) * free
        into[1, amb] = duals[layout.above_rows].clamp(min=0) * free
        into[2, amb] = -(duals[layout.below_rows].clamp(max=0) + limit.clamp(max=0)) * free
        into[3, own] = duals[layout.z_row[own]]
        into[4, own] = columns[layout.z_column[own]]
        into[5, amb] = columns[layout.amb_x]

    def _solve(self, domains: DomainBatch, d: int, clause: Clause, cutoff: float, deadline: Deadline) -> Solution:
        basis = self._bases.get(int(domains.carried(BasisNumbers).number[d]))
        return self._solved_for(domains.bounds[torch.tensor([d])], clause, basis, cutoff, deadline)

    def _solved_for(self, bounds: Bounds, clause: Clause, basis: object, cutoff: float, deadline: Deadline) -> Solution:
        from bough.bounds.planet import limits

        model = self._model(clause.box, deadline)
        new = limits(model.layout, bounds.lower[0], bounds.upper[0], clause)
        model.solver.set_columns(new.columns, new.column_lower, new.column_upper)
        model.solver.set_rows(new.rows, new.row_lower, new.row_upper)
        model.solver.set_entries(new.entries)
        return model.solver.solve(basis, cutoff, deadline)

    def _keep(self, basis: object) -> int:
        """The number under which a basis is found again; 0 is no basis."""
        while len(self._bases) >= MOST_BASES:
            del self._bases[next(iter(self._bases))]  # the oldest
        self._solved += 1
        self._bases[self._solved] = basis
        return self._solved

    def _prove(self, region: Region, clause: Clause, solutions: list[Solution]) -> tuple[Tensor, Proved]:
        """The weights of the clause's rows, [domains, rows], and what the solver's multipliers prove, one row each.

        A Farkas ray is a proof that the functional 0 is positive, so where one is given the weights are 0 and a
        positive bound means that the domain is empty.
        """
        weights, multipliers, empty = self._duals(clause, solutions)
        rows = clause.coefficients.expand(len(solutions), -1, -1)
        offsets = clause.offsets.expand(len(solutions), -1)
        proved = proved_rows(self._network, region, rows, offsets, weights[:, None], by_multipliers(multipliers))
        nothing = torch.where(proved.lower > 0, INFEASIBLE, -INFEASIBLE)
        return weights, replace(proved, lower=torch.where(empty[:, None], nothing, proved.lower))

    def _duals(self, clause: Clause, solutions: list[Solution]) -> tuple[Tensor, Tensor, Tensor]:
        """Weights of the rows, multipliers of the ReLUs' inputs (NaN where there is none), and which are rays."""
        layout = self._models[clause.box].layout
        # Any finite multiplier is valid, so what is not finite may become 0.
        duals = torch.from_numpy(np.stack([s.row_dual for s in solutions])).nan_to_num(0.0, 0.0, 0.0)
        multipliers = torch.full((len(solutions), self._network.neurons), torch.nan, dtype=torch.float64)
        own = torch.from_numpy(layout.z_row >= 0)
        multipliers[:, own] = duals[:, torch.from_numpy(layout.z_row).long()[own]]
        weights = duals[:, torch.from_numpy(layout.clause_rows[: len(clause.offsets)]).long()].clamp(min=0)
        empty = torch.tensor([s.status is Status.INFEASIBLE for s in solutions])
        total = weights.sum(dim=1, keepdim=True)
        usable = (total >= torch.finfo(torch.float64).tiny) & torch.isfinite(total)
        weights = torch.where(usable, weights / total, 1 / weights.shape[1])
        weights[empty] = 0.0
        # A ray has no scale; near 1 it neither overflows nor drowns in the error bound.
        size = (
            multipliers.nan_to_num().abs().amax(dim=1, keepdim=True) if multipliers.shape[1] else torch.ones_like(total)
        )
        multipliers = torch.where(empty[:, None] & (size > 0), multipliers / size, multipliers)
        return weights, multipliers, empty

    def stored(self, domains: DomainBatch) -> None:
        """Multipliers are not kept: whoever writes a proof has to derive it."""
        del domains

    def last_resort(self, domains: DomainBatch, deadline: Deadline) -> Evidence:
        """Each LP once more, without a cutoff: a solve that stops early may have no ray to show."""
        most = max(len(clause.offsets) for clause in self._problem.clauses)
        numbers = torch.full((len(domains), self._network.neurons), torch.nan, dtype=torch.float64)
        weights = torch.zeros(len(domains), most, dtype=torch.float64)
        for d, clause, solution in self._solved_again(domains, deadline):
            clause_weights, multipliers, _ = self._duals(clause, [solution])
            weights[d, : len(clause.offsets)], numbers[d] = clause_weights[0], multipliers[0]
        return Evidence(torch.arange(self._network.neurons), numbers, weights, direct=True)

    def _solved_again(self, domains: DomainBatch, deadline: Deadline) -> Iterator[tuple[int, Clause, Solution]]:
        """Each LP without a cutoff; a domain that the solver fails on is left out."""
        for d, c in enumerate(domains.clause.tolist()):
            clause = self._problem.clauses[c]
            try:
                yield d, clause, self._solve(domains, d, clause, np.inf, deadline)
            except SolverFailure as failure:
                _log.info("a domain is left as it is: %s", failure)

    def _point(self, box: int, solution: Solution, centre: Tensor) -> Tensor:
        """The LP's input point, inside the box."""
        limits = self._problem.property.boxes[box]
        inputs = self._models[box].layout.inputs
        point = centre.clone()
        point[torch.from_numpy(inputs).long()] = torch.from_numpy(solution.columns[: len(inputs)])
        return torch.where(torch.isfinite(point), point, centre).clamp(min=limits.lower, max=limits.upper)
