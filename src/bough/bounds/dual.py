"""Dual ascent as a bounder: root bounds once, then `ascent` for every batch, and a float64 proof of what it finds.

Ascent runs in float32 (TF32 on a GPU) on the reduced network and proves nothing. The duals it finds are taken as they
are stored, and `linear.bound_clause` evaluates them on the network itself, in float64 with its rounding error
subtracted, over ReLU bounds that were proved the same way: a domain is closed by that number only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bough.bounds.ascent import (
    Ascended,
    Ascent,
    Chords,
    Climb,
    Climber,
    Duals,
    Functionals,
    evaluate,
    first_values,
    row_weights,
)
from bough.bounds.base import (
    AbstractBounder,
    AbstractDeeperRoots,
    AbstractEstimates,
    AbstractEvidence,
    AbstractRelaxations,
    AbstractSession,
    AbstractUnsafeBoxes,
    Bounded,
    BounderEntry,
    Capabilities,
    Capability,
    Evidence,
)
from bough.bounds.deepening import AbstractRootWork, Deepening
from bough.bounds.intermediate import AbstractClauseBounds, AbstractIntermediate, ClauseBatch, TightBounds
from bough.bounds.linear import Region, proved_rows
from bough.bounds.lp import BasisNumbers, PlanetLP
from bough.bounds.proof import PROOF_BYTES, by_duals
from bough.bounds.reduced import Reduced, reduce
from bough.bounds.trees import Trees, TreeWork, by_pattern, chord_losses
from bough.bounds.witness import AbstractWitness
from bough.budget import Clock, Deadline
from bough.domain.arrays import Arrays
from bough.domain.batch import Bounds, DomainBatch, Relaxation
from bough.network.graph import Network
from bough.problem.problem import Problem

PROBE = Trees(rounds=8, leaves=64)  # of a root's own functional, to foresee a search
MOST_POINTS = 1024  # of a batch that are offered as counterexamples: those of the worst domains
ABOVE_ZERO = float(torch.finfo(torch.float64).tiny)
MOST_HALF = 65504.0  # the largest float16
ROUNDING = 1e-5  # of a value in ascent, relative to what the input makes of it
MORE_ROUNDING = 8.0  # times the error of a proof, for one that is derived in another order with twice the allowance
CPU_DOMAINS = (128, 1024)  # domains split per step on a CPU: at least, and at most
CPU_RELUS = 1 << 17  # ReLUs of all domains of a step on a CPU
GPU_DOMAINS = 8192  # domains split per step on a GPU, at most
ROOM_SHARE = 0.25  # of a GPU's free memory, for the domains that are being bounded


@final
@dataclass(frozen=True)
class DualAscent(AbstractBounder):
    """Root bounds once, then ascent for every batch; domains with every ReLU decided are left to the LP."""

    ascent: Ascent = field(default_factory=Ascent)
    at_root: Ascent = field(default_factory=lambda: Ascent(steps=50, decay=0.96))
    intermediate: AbstractIntermediate = field(default_factory=lambda: TightBounds(refresh=False))
    device: str = "cpu"
    batch: int = 1 << 14  # most domains in one ascent

    offers: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.ESTIMATES,
            Capability.RELAXATION,
            Capability.EVIDENCE,
            Capability.UNSAFE_BOXES,
            Capability.DEEPER_ROOTS,
        }
    )

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "DualSession":
        """Start on a problem."""
        return DualSession(problem, self, witness)


def domains_per_step(network: Network, device: str) -> int:
    """How many domains to split per step, from what two children of each take while they are bounded."""
    if device == "cpu":  # small networks are all overhead, and want more at once
        fewest, most = CPU_DOMAINS
        return min(most, max(fewest, CPU_RELUS // max(1, network.neurons)))
    # Bounds and coefficients of every ReLU in float64, and some dozen arrays over ambiguous ReLUs and inputs.
    each = 2 * 8 * (8 * network.neurons + 4 * network.inputs)
    room = int(ROOM_SHARE * torch.cuda.mem_get_info()[0] / each)
    return max(1, min(GPU_DOMAINS, 1 << max(0, room.bit_length() - 1)))


BOUNDERS = (
    BounderEntry(
        name="dual",
        words="dual ascent, batched on CPU and GPU",
        make=lambda settings: DualAscent(intermediate=settings.relu_bounds, device=settings.device),
        offers=DualAscent.offers,
        usual_rule="kfsb",
        learnt_rule="learnt-local",
        usual_relu_bounds="trees",
        certified_relu_bounds="trees",
        batch=domains_per_step,
        gpu=True,
    ),
)


@dataclass(frozen=True, eq=False)
class PackedDuals(Arrays):
    """An open domain as the frontier keeps it: ReLU bounds follow from signs, unless each domain has its own."""

    clause: Tensor  # int32 [domains]
    signs: Tensor  # int8 [domains, slots]
    lower: Tensor
    depth: Tensor  # int32 [domains]
    p: Tensor  # float16 [domains, slots], multipliers in units
    logits: Tensor  # float16 [domains, rows]
    bounds: Bounds | None


@dataclass(frozen=True, eq=False)
class _BoxAscent:
    """One input box: its region, and ascent on the network reduced over it."""

    root: Region
    climber: Climber

    @cached_property
    def passing(self) -> Tensor:
        """Which ReLUs the box alone decides to be passing, [neurons]."""
        return self.root.bounds.lower[0] >= 0

    @property
    def net(self) -> Reduced:
        return self.climber.net


@final
class DualSession(
    AbstractSession,
    AbstractEstimates,
    AbstractRelaxations,
    AbstractEvidence,
    AbstractUnsafeBoxes,
    AbstractDeeperRoots,
    AbstractRootWork,
):
    """Dual ascent at work on one problem, on one device.

    A domain carries `Duals` over `slots`: the ReLUs that are ambiguous in some box.
    """

    def __init__(self, problem: Problem, config: DualAscent, witness: AbstractWitness | None = None) -> None:
        self._problem = problem
        self._config = config
        self._batch = config.batch
        self._witness = witness
        self._device = torch.device(config.device)
        self._network = problem.network.on(self._device)
        self._exact = PlanetLP(TightBounds(refresh=False)).prepare(problem)
        self._boxes = torch.tensor([c.box for c in problem.clauses], device=self._device)
        self._rows = pad_sequence([c.coefficients for c in problem.clauses], batch_first=True).to(self._device)
        self._offsets = pad_sequence([c.offsets for c in problem.clauses], batch_first=True).to(self._device)
        # At the start; shorter clauses never weigh what they lack.
        logits = [torch.zeros(len(c.offsets)) for c in problem.clauses]
        self._logits = pad_sequence(logits, batch_first=True, padding_value=-torch.inf).to(self._device)
        self._places: dict[int, _BoxAscent] = {}
        self._slots = torch.zeros(0, dtype=torch.int64, device=self._device)
        self._unit = 1.0  # of stored multipliers: a typical coefficient
        empty = self._rows.new_zeros(0, self._network.neurons)
        # by clause; whether these differ
        self._root_bounds = Bounds(empty, empty)
        self._own_lines = False
        self._notes: dict[str, float] = {}
        self._clock = Clock.start()
        self._regions: dict[int, Region] = {}  # boxes, with what is known all over them
        self._clause_bounds: dict[int, AbstractClauseBounds | None] = {}
        policy = config.intermediate
        plan = None if policy.trees is None else policy.trees.on(self._device)
        self._deepening = Deepening(self, plan, conditional=policy.conditional)
        self._tightened = False  # whether what open domains stand on has changed
        self._at_work = torch.zeros(0, dtype=torch.int64, device=self._device)  # the clauses of the last domains

    @property
    def capabilities(self) -> Capabilities:
        """All but halved inputs."""
        return Capabilities(estimates=self, relaxations=self, evidence=self, unsafe_boxes=self, deeper_roots=self)

    def notes(self) -> Mapping[str, float]:
        """Time spent on root bounds and on capturing steps, and how many ReLUs the root left ambiguous."""
        captured = sum(place.climber.capture_seconds for place in self._places.values())
        trees = self._deepening
        grown = {**trees.before, "tree_bounds": float(trees.bounds), "tree_seconds": trees.seconds}
        return {**self._notes, **(grown if trees.bounds else {}), "capture_seconds": captured}

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """One domain per clause, ascended for longer where that is all, since every other domain starts from there."""
        self._clock = Clock.start()
        policy = self._config.intermediate
        regions = {}
        for box in self._boxes.unique().tolist():
            whole = self._problem.property.boxes[box].on(self._device)
            self._begin(box)
            regions[box] = self._as_proved(box, policy.at_root(self._network, whole, deadline, self._witness))
        self._regions = regions
        bounds = Bounds.concatenate([regions[clause.box].bounds for clause in self._problem.clauses])
        self._stand_on(self._made(regions, deadline), bounds)
        # Where a second ascent follows, the first only tells which clauses need one.
        first = self._config.ascent if policy.conditional else self._config.at_root
        bounded = self._bound(self._roots(), first, cutoff, deadline)
        self._noted()
        return bounded

    def deepened(self, roots: Bounded, cutoff: float, deadline: Deadline) -> Iterator[Bounded]:
        """The roots over ever tighter ReLU bounds (`deepening.Deepening`)."""
        bounds = self._root_bounds
        for better in self._deepening.run(roots, cutoff, deadline):
            bounds = self._root_bounds
            self._noted()
            yield better
        self._tightened = self._root_bounds is not bounds  # by work that came to no end

    def tighten(self, branches: int, cutoff: float, deadline: Deadline) -> None:
        """More trees, once a search took many branches; what is open stands on what they prove."""
        self._tightened |= self._deepening.resumed(branches, self._at_work, cutoff, deadline)

    def _noted(self) -> None:
        self._notes["root_ambiguous"] = float(self._root_bounds.ambiguous().sum(dim=1).max())
        self._notes["root_seconds"] = self._clock.seconds()

    def foreseen(self, roots: Bounded, rows: Tensor, cutoff: float) -> float:
        """About how many branches a search takes."""
        domains = roots.domains[rows]
        branches = 0.0
        for place, some in self._by_place(domains):
            functionals, duals = self._functionals(place, domains[some])
            functionals = replace(functionals, offsets=functionals.offsets + cutoff)
            value = evaluate(place.climber, functionals, duals).value[: len(some)].clone()
            branches += PROBE.foreseen(place.climber, functionals, Ascended(duals, value))
        return branches

    def costs(self, roots: Bounded, rows: Tensor) -> Tensor:
        """What the chord of each ReLU costs each root, below 0 for ReLUs that are decided or in the first layer."""
        domains = roots.domains[rows]
        costs = torch.full_like(domains.bounds.lower, -1.0)
        for place, some in self._by_place(domains):
            functionals, duals = self._functionals(place, domains[some])
            own = chord_losses(evaluate(place.climber, functionals, duals), functionals).double()
            if place.net.layers:  # exact already; measured at unsafe points: gains less than it costs
                own[:, place.net.layers[0]] = -1.0
            costs[some[:, None], place.net.neurons] = own
        return torch.where(domains.bounds.ambiguous(), costs, -1.0)

    def over_boxes(self, roots: Bounded, rows: Tensor, work: TreeWork, cutoff: float, deadline: Deadline) -> Bounded:
        """Bound some roots again over bounds by trees that hold in their whole boxes."""
        policy = self._config.intermediate
        boxes = self._boxes[rows].unique().tolist()
        deeper = {}
        for box in boxes:
            self._begin(box)
            region = policy.by_trees(self._network, self._regions[box], work, deadline, self._witness)
            if region is not None:
                deeper[box] = self._as_proved(box, region)
        regions = self._regions | deeper
        bounds = Bounds.concatenate([regions[c.box].bounds for c in self._problem.clauses])
        bounds = bounds.intersect(self._root_bounds)
        places = self._places
        try:
            self._stand_on(places | self._made(deeper, deadline), bounds)
            fresh = replace(self._roots(), lower=roots.domains.lower)
            better = self._bound(fresh[rows], self._config.at_root, cutoff, deadline)
        except BaseException:  # time or memory ran out: the roots stay as they are, over these bounds
            self._stand_on(places, bounds)
            self._own_lines = True
            raise
        self._regions = regions
        self._clause_bounds.clear()
        return _joined(fresh, rows, better)

    def _begin(self, box: int) -> None:
        """What the policy tells the witness next is about this box."""
        if self._witness is not None:
            self._witness.begin(box)

    def _as_proved(self, box: int, region: Region) -> Region:
        """The region of a box, with the witness's bounds where there is a witness."""
        if self._witness is None:
            return region
        return replace(region, bounds=self._witness.root(box).to(self._device))

    def _made(self, regions: Mapping[int, Region], deadline: Deadline) -> dict[int, _BoxAscent]:
        """What ascent needs of regions, by box."""
        places = {}
        for box, region in regions.items():
            net = reduce(self._network, region, deadline).to(self._device, torch.float32)
            # Lines of every domain's own are an array of another size at every step: nothing to capture.
            places[box] = _BoxAscent(region, Climber(net, capture=not self._config.intermediate.refreshes))
        return places

    def _stand_on(self, places: dict[int, _BoxAscent], bounds: Bounds) -> None:
        """Take these for the boxes of the roots, and these bounds [clauses, neurons]."""
        self._places = places
        self._slots = torch.cat([place.net.neurons for place in self._places.values()]).unique()
        sizes = [float(p.net.between.abs().max()) for p in self._places.values() if p.net.between.numel()]
        self._unit = max([s for s in sizes if s > 0], default=1.0)
        self._root_bounds = bounds

    def _roots(self) -> DomainBatch:
        bounds = self._root_bounds
        slopes = (bounds.ambiguous() & (bounds.upper > -bounds.lower)).float()
        start = Duals(slopes[:, self._slots], self._logits)
        return DomainBatch.concatenate(
            [DomainBatch.root(k, bounds[k : k + 1], rows[0], start[k : k + 1]) for k, rows in enumerate(self._rows)]
        )

    def over_clauses(
        self, roots: Bounded, rows: Tensor, work: TreeWork | None, cutoff: float, deadline: Deadline
    ) -> Bounded:
        """Bound some roots again over bounds that hold at their clauses' unsafe points."""
        lower, upper = self._root_bounds.lower.clone(), self._root_bounds.upper.clone()
        for box, place in self._places.items():
            own = self._boxes[rows] == box
            some = rows[own]
            if not len(some):
                continue
            tight = self._root_bounds[some]
            clause_bounds = self._at_unsafe(box, place)
            if clause_bounds is not None:
                clauses = ClauseBatch(some, self._rows[some], self._offsets[some], tight, deadline)
                here = None if work is None else TreeWork(work.trees, work.chosen[own], work.budget - work.bounds)
                tight = clause_bounds.tightened(clauses, here)
                if work is not None and here is not None:
                    work.bounds += here.bounds
            if self._witness is not None:
                tight = self._witness.for_clauses(some).to(self._device)
            lower[some], upper[some] = tight.lower, tight.upper
        return self._over(Bounds(lower, upper), roots, rows, cutoff, deadline)

    def _over(self, bounds: Bounds, roots: Bounded, rows: Tensor, cutoff: float, deadline: Deadline) -> Bounded:
        """Bound some roots again over these bounds [clauses, neurons]."""
        if torch.equal(bounds.lower, self._root_bounds.lower) and torch.equal(bounds.upper, self._root_bounds.upper):
            return roots
        self._root_bounds = bounds
        self._own_lines = True
        domains = roots.domains
        duals = domains.carried(Duals)
        p = torch.where(self._root_bounds.ambiguous()[:, self._slots], duals.p, 0.0)
        domains = replace(domains, bounds=self._root_bounds, start=Duals(p, duals.logits))
        better = self._bound(domains[rows], self._config.at_root, cutoff, deadline)
        return _joined(domains, rows, better)

    def _at_unsafe(self, box: int, place: _BoxAscent) -> AbstractClauseBounds | None:
        """What bounds ReLUs at unsafe points in a box, made when first needed."""
        if box not in self._clause_bounds:
            policy = self._config.intermediate
            self._clause_bounds[box] = policy.for_clauses(self._network, place.root, self._witness)
        return self._clause_bounds[box]

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Renew the ReLU bounds if that is the policy, ascend from the parents' duals and prove what was found."""
        self._at_work = domains.clause
        if self._config.intermediate.refreshes:
            domains = self._refreshed(domains, deadline)
        return self._bound(domains, self._config.ascent, cutoff, deadline)

    def _refreshed(self, domains: DomainBatch, deadline: Deadline) -> DomainBatch:
        """Every domain's own ReLU bounds after its last split; the dual of a ReLU that this decides begins at 0."""
        clock = Clock.start()
        lower, upper = domains.bounds.lower.clone(), domains.bounds.upper.clone()
        for place, rows in self._by_place(domains):
            some = domains[rows]
            region = place.root.with_bounds(some.bounds)
            clauses = ClauseBatch(
                some.clause, self._rows[some.clause], self._offsets[some.clause], some.bounds, deadline
            )
            new = self._config.intermediate.refreshed(self._network, region, some.last_split, clauses)
            lower[rows], upper[rows] = new.lower, new.upper
        bounds = Bounds(lower, upper)
        duals = domains.carried(Duals)
        p = torch.where((domains.bounds.ambiguous() & ~bounds.ambiguous())[:, self._slots], 0.0, duals.p)
        self._notes["refresh_seconds"] = self._notes.get("refresh_seconds", 0.0) + clock.seconds()
        return replace(domains, bounds=bounds, start=Duals(p, duals.logits))

    def _bound(self, domains: DomainBatch, ascent: Ascent, cutoff: float, deadline: Deadline) -> Bounded:
        """Box after box, in pieces that fit; a piece that does not fit the memory is halved, and so are all later."""
        parts, order = [], []
        for place, rows in self._by_place(domains):
            left = rows
            while len(left):
                deadline.check()
                piece = left[: self._batch]
                try:
                    part = domains if len(piece) == len(domains) else domains[piece]
                    parts.append(self._bound_piece(place, part, ascent, cutoff, deadline))
                except torch.OutOfMemoryError:
                    if len(piece) == 1:
                        raise
                    self._batch = len(piece) // 2
                    place.climber.forget()
                    continue
                order.append(piece)
                left = left[len(piece) :]
        if len(order) == 1:
            return parts[0]
        return Bounded.concatenate(parts)[torch.cat(order).argsort()]

    def _by_place(self, domains: DomainBatch) -> list[tuple[_BoxAscent, Tensor]]:
        if len(self._places) == 1:
            return [(next(iter(self._places.values())), torch.arange(len(domains), device=self._device))]
        boxes = self._boxes[domains.clause]
        return [(self._places[b], (boxes == b).nonzero()[:, 0]) for b in boxes.unique().tolist()]

    def _functionals(self, place: _BoxAscent, domains: DomainBatch) -> tuple[Functionals, Duals]:
        """What ascent is about in these domains of one box, and where it starts."""
        low, high = (side[:, place.net.neurons] for side in (domains.bounds.lower, domains.bounds.upper))
        # A ReLU may be decided without having been split, by the bounds of its clause: its sign is known all the same.
        signs = (low >= 0).to(torch.int8) - (high <= 0).to(torch.int8)
        rows, offsets = self._rows[domains.clause].float(), self._offsets[domains.clause].float()
        chords = None
        if self._config.intermediate.refreshes:
            chords = Chords.of(low, high, torch.arange(len(domains), device=self._device))
        elif self._own_lines:  # every clause's at the root: a ReLU keeps them until it is split
            roots = self._root_bounds
            chords = Chords.of(roots.lower[:, place.net.neurons], roots.upper[:, place.net.neurons], domains.clause)
        duals = domains.carried(Duals)
        return Functionals(rows, offsets, signs, chords), Duals(duals.p[:, self._own(place)], duals.logits)

    def _own(self, place: _BoxAscent) -> Tensor | slice:
        """Where a box's ReLUs are among the slots."""
        if len(place.net.neurons) == len(self._slots):
            return slice(None)
        return torch.searchsorted(self._slots, place.net.neurons)

    def _bound_piece(
        self, place: _BoxAscent, domains: DomainBatch, ascent: Ascent, cutoff: float, deadline: Deadline
    ) -> Bounded:
        functionals, start = self._functionals(place, domains)
        fresh = _fresh(place.net, domains)
        duals = replace(ascent, deadline=deadline).run(place.climber, functionals, start, fresh, cutoff).duals
        # The proof takes the duals as they will be stored.
        proved, _ = self._proof(place, domains, functionals.signs, duals.p, row_weights(duals.logits))
        lower = torch.where(domains.bounds.empty(), torch.inf, torch.fmax(domains.lower, proved))
        p = torch.zeros_like(domains.carried(Duals).p)
        p[:, self._own(place)] = duals.p
        functional = self._functional(domains.clause, duals.logits)
        bounded = replace(domains, lower=lower, functional=functional, start=Duals(p, duals.logits))
        worst = lower.topk(min(len(lower), MOST_POINTS), largest=False, sorted=False).indices.sort().values
        points = self._corners(place, evaluate(place.climber, functionals[worst], duals[worst]), len(worst))
        found_all = self._finish(Bounded(bounded, points, worst), cutoff, deadline)
        if not self._config.intermediate.conditional:
            return found_all
        # Over bounds that hold at unsafe points only, a positive bound says that there are none, and no more.
        lower = found_all.domains.lower
        lower = torch.where(lower > 0, ABOVE_ZERO, lower)
        return replace(found_all, domains=replace(found_all.domains, lower=lower))

    def _functional(self, clause: Tensor, logits: Tensor) -> Tensor:
        return (row_weights(logits)[:, None] @ self._rows[clause])[:, 0]

    def _corners(self, place: _BoxAscent, climb: Climb, count: int) -> Tensor:
        """The corner of the box that attains each bound."""
        vertex: Tensor = climb.products.vertex[:count]
        low, high = place.root.lower, place.root.upper
        return ((low + high) / 2 + (high - low) / 2 * vertex.double()).clamp(min=low, max=high)

    def _proof(
        self, place: _BoxAscent, domains: DomainBatch, signs: Tensor, p: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Float64 lower bounds [domains] by duals p and the rows' weights, and what was subtracted for rounding."""
        widest = 8 * max(self._network.neurons, *(node.size for node in self._network.nodes))
        lower, error = [], []
        for piece in torch.arange(len(domains)).split(max(1, PROOF_BYTES[self._device.type] // widest)):
            rows = slice(int(piece[0]), int(piece[-1]) + 1)
            rule = by_duals(place.net, p[rows, None].double(), signs[rows, None], place.passing)
            region = place.root.with_bounds(domains.bounds[rows])
            clause = domains.clause[rows]
            proved = proved_rows(
                self._network, region, self._rows[clause], self._offsets[clause], weights[rows, None], rule
            )
            lower.append(proved.lower[:, 0])
            error.append(proved.error[:, 0])
        return torch.cat(lower), torch.cat(error)

    def _finish(self, bounded: Bounded, cutoff: float, deadline: Deadline) -> Bounded:
        """Where every ReLU is decided the relaxation is exact, and the LP over all rows settles what ascent left
        open.
        """
        domains = bounded.domains
        left = (~(domains.lower > cutoff) & ~domains.bounds.ambiguous().any(dim=1)).nonzero()[:, 0]
        if not len(left):
            return bounded
        # Without a cutoff: a solve that stops early may have no ray to show that a domain is empty.
        exact = self._exact.bound(_blank(domains[left]), torch.inf, deadline)
        lower = domains.lower.clone()
        lower[left] = torch.fmax(lower[left], exact.domains.lower.to(self._device))
        points = torch.cat([bounded.points, exact.points.to(self._device)])
        return Bounded(replace(domains, lower=lower), points, torch.cat([bounded.owners(), left]))

    def stored(self, domains: DomainBatch) -> Evidence:
        """The duals as they are stored."""
        duals = domains.carried(Duals)
        return Evidence(self._slots, duals.p, row_weights(duals.logits))

    def supported(self, domains: DomainBatch, evidence: Evidence) -> Tensor:
        """The proof of every domain, with other numbers."""
        lower_bounds = torch.empty(len(domains), dtype=torch.float64, device=self._device)
        for place, rows in self._by_place(domains):
            members = domains[rows]
            signs = self._functionals(place, members)[0].signs
            # Of a ReLU that is decided without a split, whoever reads the evidence takes no number for its sign.
            split = members.signs[:, place.net.neurons] != 0
            p = evidence.numbers[rows][:, self._own(place)].where(split | (signs == 0), 0.0)
            lower, error = self._proof(place, members, signs, p, evidence.weights[rows])
            lower_bounds[rows] = lower - MORE_ROUNDING * error
        return lower_bounds

    def last_resort(self, domains: DomainBatch, deadline: Deadline) -> Evidence:
        """The LP's multipliers."""
        return self._exact.last_resort(_blank(domains), deadline)

    def estimate(self, domains: DomainBatch, choices: Tensor, deadline: Deadline) -> Tensor:
        """Where each child's ascent would start; minus infinity where a ReLU is not ambiguous in its box."""
        candidates = choices.shape[1]
        value = torch.full((len(domains), candidates, 2), -torch.inf, device=self._device)
        for place, rows in self._by_place(domains):
            n = len(place.net.neurons)
            slot = torch.full((self._network.neurons,), n, device=self._device)
            slot[place.net.neurons] = torch.arange(n, device=self._device)
            for piece in rows.split(max(1, self._batch // (2 * candidates))):
                deadline.check()
                value[piece] = self._first_values(place, domains[piece], slot[choices[piece]])
        return value

    def _first_values(self, place: _BoxAscent, domains: DomainBatch, chosen: Tensor) -> Tensor:
        """[domains, candidates, 2], for candidates by their number among the box's ReLUs; halved as `_bound` does."""
        (count, candidates), n = chosen.shape, len(place.net.neurons)
        try:
            functionals, start = self._functionals(place, domains)
            each = torch.arange(count, device=self._device).repeat_interleave(2 * candidates)
            at = chosen.repeat_interleave(2, dim=1).reshape(-1, 1)
            sign = torch.tensor([[-1], [1]], dtype=torch.int8, device=self._device).repeat(len(each) // 2, 1)
            fresh = sign.new_zeros(len(each), n + 1).scatter_(1, at, sign)[:, :n]
            values = first_values(place.climber, functionals, start, fresh, each)
            return torch.where(at[:, 0] < n, values, -torch.inf).reshape(count, candidates, 2)
        except torch.OutOfMemoryError:
            if count == 1:
                raise
            place.climber.forget()
            self._batch = max(1, self._batch // 2)
            halves = torch.arange(count, device=self._device).tensor_split((count // 2,))
            return torch.cat([self._first_values(place, domains[half], chosen[half]) for half in halves])

    def unsafe_boxes(self, domains: DomainBatch) -> tuple[Tensor, Tensor]:
        """By reduced costs, as MIP solvers fix variables: a functional that is at least v over a box, at the corner
        where each input's coefficient g_k has it, is at least v + |g_k| d at a distance d from there, and at most 0 at
        unsafe points.
        """
        lower, upper = (domains.lower.new_zeros(len(domains), self._network.inputs) for _ in range(2))
        pieces = [(place, rows) for place, all_rows in self._by_place(domains) for rows in all_rows.split(self._batch)]
        for place, rows in pieces:
            net, (functionals, duals) = place.net, self._functionals(place, domains[rows])
            climb = evaluate(place.climber, functionals, duals)
            lam, value, reach = (t[: len(rows), None] for t in (climb.lam, climb.value, climb.reach))
            g = lam[:, 0] @ net.inputs
            # Without more digits than ascent has, a distance below them is none.
            room = ((ROUNDING * reach - value).clamp(min=0) / g.abs()).nan_to_num(2.0).clamp(max=2.0)
            low = (-g.sign() - room).clamp(-1, 1)
            high = (-g.sign() + room).clamp(-1, 1)
            lower[rows], upper[rows] = (net.middle + net.radius * s.double() for s in (low, high))
        return lower, upper

    def relaxed(self, domains: DomainBatch, deadline: Deadline) -> Relaxation:
        """A pass back and a pass forward at the duals as they are stored.

        What is left of nu >= 0 after the slope's share went to `x >= z` is the multiplier of `x >= 0`.
        """
        wide = domains.carried(Duals).p.new_zeros(6, len(domains), len(self._slots))
        points = domains.lower.new_zeros(len(domains), self._network.inputs)
        value = torch.zeros_like(domains.lower)
        for place, all_rows in self._by_place(domains):
            for rows in all_rows.split(self._batch):
                deadline.check()
                functionals, duals = self._functionals(place, domains[rows])
                climb = evaluate(place.climber, functionals, duals)
                count, n = functionals.signs.shape
                nu, p, lam, z, x = (t[:count, :n] for t in (climb.nu, climb.p, climb.lam, climb.z, climb.x))
                free = functionals.signs == 0
                up = nu.clamp(min=0) * free
                down = (-nu).clamp(min=0) * free
                arrays = wide.new_zeros(6, count, len(self._slots))
                arrays[..., self._own(place)] = torch.stack((up * (1 - p), up * p, down, lam, z, x)).to(wide)
                wide[:, rows] = arrays
                points[rows] = self._corners(place, climb, count)
                value[rows] = climb.value[:count].double()
        return Relaxation.of(self._slots, wide, points, value)

    def pack(self, domains: DomainBatch) -> PackedDuals:
        """Signs of the slots, and duals in 16 bits, which multipliers enter in units; ReLU bounds follow from signs."""
        signs = domains.signs[:, self._slots]
        duals = domains.carried(Duals)
        return PackedDuals(
            clause=domains.clause.int(),
            signs=signs,
            lower=domains.lower,
            depth=domains.depth.int(),
            p=torch.where(signs != 0, duals.p / self._unit, duals.p).clamp(max=MOST_HALF).half(),
            logits=duals.logits.clamp(-MOST_HALF, MOST_HALF).half(),
            bounds=domains.bounds if self._config.intermediate.refreshes else None,
        )

    def unpack(self, packed: Arrays) -> DomainBatch:
        """The same domains; what is not a number in the stored duals reads as 0."""
        if not isinstance(packed, PackedDuals):
            raise TypeError(f"{type(packed).__name__} was packed by another bounder")
        clause = packed.clause.long()
        few = packed.signs
        p = packed.p.float().nan_to_num(0.0, 0.0, 0.0)
        p = torch.where(few != 0, p * self._unit, p)
        # The root's bounds, cut at 0 where a ReLU was split.
        bounds = by_pattern(self._root_bounds, clause, self._slots, few) if packed.bounds is None else packed.bounds
        if self._tightened:  # what was a slope is no multiplier of a sign that became known since
            p = torch.where((few == 0) & ~bounds.ambiguous()[:, self._slots], 0.0, p)
        logits = torch.where(self._logits[clause] == 0, packed.logits.float().nan_to_num(0.0), -torch.inf)
        signs = few.new_zeros(len(clause), self._network.neurons)
        signs[:, self._slots] = few
        return DomainBatch(
            clause=clause,
            signs=signs,
            bounds=bounds,
            lower=packed.lower,
            functional=self._functional(clause, logits),
            depth=packed.depth.long(),
            last_split=torch.full((len(clause), 1), -1, device=self._device),
            start=Duals(p, logits),
        )


def _joined(roots: DomainBatch, rows: Tensor, better: Bounded) -> Bounded:
    """The roots with some of them as they were bounded last, and the points of these."""
    columns = iter(better.domains.tensors())
    joined = roots.map(lambda column: column.index_copy(0, rows, next(columns)))
    return Bounded(replace(joined, last_split=roots.last_split), better.points, rows[better.owners()])


def _blank(domains: DomainBatch) -> DomainBatch:
    """The domains as the LP knows them: on the CPU, and without a basis to start from."""
    host = domains.to(torch.device("cpu"))
    return replace(host, start=BasisNumbers(torch.zeros(len(domains), dtype=torch.int64)))


def _fresh(net: Reduced, domains: DomainBatch) -> Tensor:
    """The signs of the splits that made each domain, int8 [domains, n]."""
    signs = torch.zeros(len(domains), domains.signs.shape[1] + 1, dtype=torch.int8, device=domains.signs.device)
    at = torch.where(domains.last_split < 0, domains.signs.shape[1], domains.last_split)
    taken = domains.signs.gather(1, domains.last_split.clamp(min=0)) if domains.signs.shape[1] else at.to(torch.int8)
    return signs.scatter(1, at, taken)[:, net.neurons]
