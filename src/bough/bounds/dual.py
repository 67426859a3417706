"""Dual ascent as a bounder: root bounds once, then `ascent` for every batch, and a float64 proof of what it finds.

Ascent runs in float32 (TF32 on a GPU) on the reduced network and proves nothing. The duals it finds are taken as they
are stored, and `linear.bound_clause` evaluates them on the network itself, in float64 with its rounding error
subtracted, over ReLU bounds that were proved the same way: a domain is closed by that number only.
"""

from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from bough.bounds.ascent import Ascent, Climber, Duals, Question, evaluate, row_weights
from bough.bounds.base import AbstractBounder, AbstractBounding, Bounded
from bough.bounds.intermediate import AbstractIntermediate, TightBounds
from bough.bounds.linear import PassRelu, Region, bound_rows
from bough.bounds.lp import PlanetLP
from bough.bounds.reduced import Reduced, reduce
from bough.bounds.relaxation import chord
from bough.budget import Deadline
from bough.domain.batch import Bounds, DomainBatch
from bough.problem.problem import Problem
from bough.problem.property import Box

MOST_POINTS = 1024  # of a batch that are offered as counterexamples: those of the worst domains
MOST_HALF = 65504.0  # the largest float16
PROOF_BYTES = {"cpu": 1 << 26, "cuda": 1 << 32}  # of the widest arrays of one float64 proof


def by_duals(net: Reduced, p: Tensor, signs: Tensor) -> PassRelu:
    """Pass the network's own ReLUs as the duals p [domains, rows, n] say: what proves a bound that ascent found."""
    places = {int(net.neurons[part][0]): part for part in net.layers if part.stop > part.start}

    def pass_relu(part: slice, nu: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        lam = nu * (lower >= 0)
        mine = next((layer for first, layer in places.items() if part.start <= first < part.stop), slice(0, 0))
        columns = net.neurons[mine] - part.start
        n, q, sign = nu[..., columns], p[..., mine], signs[..., mine]
        bent = n * torch.where(n >= 0, q, chord(lower[..., columns], upper[..., columns]))
        lam[..., columns] = torch.where(sign == 0, bent, torch.where(sign > 0, n - q, q))
        return lam, columns

    return pass_relu


@final
@dataclass(frozen=True)
class DualAscent(AbstractBounder):
    """Root bounds once, then ascent for every batch; domains with every ReLU decided are left to the LP."""

    ascent: Ascent = field(default_factory=Ascent)
    at_root: Ascent = field(default_factory=lambda: Ascent(steps=100, decay=0.97))
    glance: Ascent = field(default_factory=lambda: Ascent(steps=2))  # for estimates
    intermediate: AbstractIntermediate = field(default_factory=lambda: TightBounds(refresh=False))
    device: str = "cpu"
    batch: int = 1 << 14  # most domains in one ascent

    def prepare(self, problem: Problem) -> "DualBounding":
        """Start on a problem."""
        return DualBounding(problem, self)


@dataclass(frozen=True, eq=False)
class _Place:
    """One input box: its region, and ascent on the network reduced over it."""

    root: Region
    climber: Climber

    @property
    def net(self) -> Reduced:
        return self.climber.net


@final
class DualBounding(AbstractBounding):
    """Dual ascent at work on one problem, on one device.

    A domain's dual variables stand in one array over `slots`: the ReLUs that are ambiguous in some box.
    """

    def __init__(self, problem: Problem, config: DualAscent) -> None:
        self._problem, self._config, self._batch = problem, config, config.batch
        self._device = torch.device(config.device)
        self._network = problem.network.on(self._device)
        self._exact = PlanetLP(TightBounds(refresh=False)).prepare(problem)
        self._boxes = torch.tensor([c.box for c in problem.clauses], device=self._device)
        count, rows = len(problem.clauses), max(len(c.offsets) for c in problem.clauses)
        self._rows = torch.zeros(count, rows, self._network.outputs, dtype=torch.float64)
        self._offsets = torch.zeros(count, rows, dtype=torch.float64)
        self._logits = torch.full((count, rows), -torch.inf)  # at the start; shorter clauses never weigh what they lack
        for k, clause in enumerate(problem.clauses):
            here = slice(len(clause.offsets))
            self._rows[k, here], self._offsets[k, here], self._logits[k, here] = clause.coefficients, clause.offsets, 0.0
        self._rows, self._offsets = self._rows.to(self._device), self._offsets.to(self._device)
        self._logits = self._logits.to(self._device)
        self._places: dict[int, _Place] = {}
        self._slots = torch.zeros(0, dtype=torch.int64, device=self._device)
        self._unit = 1.0  # of stored multipliers: a typical coefficient

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """One domain per clause, ascended for longer, since every other domain starts from there."""
        for box in self._boxes.unique().tolist():
            asked = self._problem.property.boxes[box]
            asked = Box(asked.lower.to(self._device), asked.upper.to(self._device))
            root = self._config.intermediate.at_root(self._network, asked, deadline)
            self._places[box] = _Place(root, Climber(reduce(self._network, root).to(self._device, torch.float32)))
        self._slots = torch.cat([place.net.neurons for place in self._places.values()]).unique()
        sizes = [float(p.net.between.abs().max()) for p in self._places.values() if p.net.between.numel()]
        self._unit = max([s for s in sizes if s > 0], default=1.0)
        parts = []
        for k, clause in enumerate(self._problem.clauses):
            bounds = self._places[clause.box].root.bounds
            start = (bounds.upper > -bounds.lower).float()[:, self._slots], self._logits[k : k + 1]
            parts.append(DomainBatch.root(k, bounds, self._rows[k, 0], start))
        return self._bound(DomainBatch.concatenate(parts), self._config.at_root, cutoff, deadline)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Ascend from the parents' duals and prove what was found."""
        return self._bound(domains, self._config.ascent, cutoff, deadline)

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
        joined, at = Bounded.concatenate(parts), torch.cat(order)
        return Bounded(joined.domains[at.argsort()], joined.points, at[joined.owners()])

    def _by_place(self, domains: DomainBatch) -> list[tuple[_Place, Tensor]]:
        if len(self._places) == 1:
            return [(next(iter(self._places.values())), torch.arange(len(domains), device=self._device))]
        boxes = self._boxes[domains.clause]
        return [(self._places[b], (boxes == b).nonzero()[:, 0]) for b in boxes.unique().tolist()]

    def _question(self, place: _Place, domains: DomainBatch) -> tuple[Question, Duals]:
        asked = Question(
            self._rows[domains.clause].float(),
            self._offsets[domains.clause].float(),
            domains.signs[:, place.net.neurons],
        )
        return asked, Duals(domains.start[0][:, self._own(place)], domains.start[1])

    def _own(self, place: _Place) -> Tensor | slice:
        """Where a box's ReLUs are among the slots."""
        if len(place.net.neurons) == len(self._slots):
            return slice(None)
        return torch.searchsorted(self._slots, place.net.neurons)

    def _bound_piece(
        self, place: _Place, domains: DomainBatch, ascent: Ascent, cutoff: float, deadline: Deadline
    ) -> Bounded:
        asked, start = self._question(place, domains)
        fresh = _fresh(place.net, domains)
        found = replace(ascent, deadline=deadline).run(place.climber, asked, start, fresh, cutoff).duals
        lower = torch.fmax(domains.lower, self._prove(place, domains, asked, found))
        lower = torch.where(domains.bounds.empty(), torch.inf, lower)
        p = torch.zeros_like(domains.start[0])
        p[:, self._own(place)] = found.p
        bounded = replace(
            domains, lower=lower, functional=self._functional(domains.clause, found.logits), start=(p, found.logits)
        )
        worst = lower.topk(min(len(lower), MOST_POINTS), largest=False, sorted=False).indices.sort().values
        points = self._points(place, asked[worst], found[worst])
        return self._finish(Bounded(bounded, points, worst), cutoff, deadline)

    def _functional(self, clause: Tensor, logits: Tensor) -> Tensor:
        return (row_weights(logits)[:, None] @ self._rows[clause])[:, 0]

    def _points(self, place: _Place, asked: Question, duals: Duals) -> Tensor:
        """The corner of the box that attains each bound."""
        vertex = evaluate(place.climber, asked, duals).vertex[: len(duals.p)]
        low, high = place.root.lower, place.root.upper
        return ((low + high) / 2 + (high - low) / 2 * vertex.double()).clamp(min=low, max=high)

    def _prove(self, place: _Place, domains: DomainBatch, asked: Question, duals: Duals) -> Tensor:
        """Float64 lower bounds [domains], from the duals as they will be stored."""
        widest = 8 * max(self._network.neurons, *(node.size for node in self._network.nodes))
        parts = []
        for piece in torch.arange(len(domains)).split(max(1, PROOF_BYTES[self._device.type] // widest)):
            rows = slice(int(piece[0]), int(piece[-1]) + 1)
            rule = by_duals(place.net, duals.p[rows, None].double(), asked.signs[rows, None])
            where = place.root.with_bounds(domains.bounds[rows])
            clause, weights = domains.clause[rows], row_weights(duals.logits[rows])[:, None]
            parts.append(bound_rows(self._network, where, self._rows[clause], self._offsets[clause], weights, rule))
        return torch.cat(parts)[:, 0]

    def _finish(self, bounded: Bounded, cutoff: float, deadline: Deadline) -> Bounded:
        """Where every ReLU is decided the relaxation is exact, and the LP over all rows settles what ascent left
        open.
        """
        domains = bounded.domains
        left = (~(domains.lower > cutoff) & ~domains.bounds.ambiguous().any(dim=1)).nonzero()[:, 0]
        if not len(left):
            return bounded
        blank = replace(domains[left].to(torch.device("cpu")), start=(torch.zeros(len(left), dtype=torch.int64),))
        exact = self._exact.bound(blank, cutoff, deadline)
        lower = domains.lower.clone()
        lower[left] = torch.fmax(lower[left], exact.domains.lower.to(self._device))
        points = torch.cat([bounded.points, exact.points.to(self._device)])
        return Bounded(replace(domains, lower=lower), points, torch.cat([bounded.owners(), left]))

    def estimate(self, domains: DomainBatch, neurons: Tensor, deadline: Deadline) -> Tensor:
        """A few steps of ascent for each child; minus infinity where a ReLU is not ambiguous in its box."""
        candidates = neurons.shape[1]
        value = torch.full((len(domains), candidates, 2), -torch.inf, device=self._device)
        for place, rows in self._by_place(domains):
            ascent, n = replace(self._config.glance, deadline=deadline), len(place.net.neurons)
            slot = torch.full((self._network.neurons,), n, device=self._device)
            slot[place.net.neurons] = torch.arange(n, device=self._device)
            for piece in rows.split(max(1, self._batch // (2 * candidates))):
                deadline.check()
                asked, start = self._question(place, domains[piece])
                each = torch.arange(len(piece), device=self._device).repeat_interleave(2 * candidates)
                chosen = slot[neurons[piece]].repeat_interleave(2, dim=1).reshape(-1, 1)
                sign = torch.tensor([[-1], [1]], dtype=torch.int8, device=self._device).repeat(len(each) // 2, 1)
                fresh = sign.new_zeros(len(each), n + 1).scatter_(1, chosen, sign)[:, :n]
                asked = replace(asked[each], signs=torch.where(fresh != 0, fresh, asked.signs[each]))
                found = ascent.run(place.climber, asked, start[each], fresh).value
                value[piece] = torch.where(chosen[:, 0] < n, found, -torch.inf).reshape(len(piece), candidates, 2)
        return value

    def pack(self, domains: DomainBatch) -> tuple[Tensor, ...]:
        """Signs of the slots, and duals in 16 bits, which multipliers enter in units; ReLU bounds follow from signs."""
        signs, (p, logits) = domains.signs[:, self._slots], domains.start
        small = torch.where(signs != 0, p / self._unit, p).clamp(max=MOST_HALF).half()
        kept = domains.clause.int(), signs, domains.lower, domains.depth.int()
        return (*kept, small, logits.clamp(-MOST_HALF, MOST_HALF).half())

    def unpack(self, columns: tuple[Tensor, ...]) -> DomainBatch:
        """The same domains; what is not a number in the stored duals reads as 0."""
        clause, few, lower, depth, small, short = columns
        clause, p = clause.long(), small.float().nan_to_num(0.0, 0.0, 0.0)
        p = torch.where(few != 0, p * self._unit, p)
        logits = torch.where(self._logits[clause] == 0, short.float().nan_to_num(0.0), -torch.inf)
        signs = few.new_zeros(len(clause), self._network.neurons)
        signs[:, self._slots] = few
        past = torch.full((len(clause), 1), -1, device=self._device)
        return DomainBatch(
            clause,
            signs,
            self._bounds(clause, few),
            lower,
            self._functional(clause, logits),
            depth.long(),
            past,
            (p, logits),
        )

    def _bounds(self, clause: Tensor, few: Tensor) -> Bounds:
        """The root's bounds, cut at 0 where a ReLU was split."""
        roots = [place.root.bounds for place in self._places.values()]
        number = torch.zeros_like(clause)
        for k, box in enumerate(self._places):
            number[self._boxes[clause] == box] = k
        lower = torch.cat([b.lower for b in roots])[number]
        upper = torch.cat([b.upper for b in roots])[number]
        low, high = lower[:, self._slots], upper[:, self._slots]
        lower[:, self._slots] = torch.where(few > 0, low.clamp(min=0), low)
        upper[:, self._slots] = torch.where(few < 0, high.clamp(max=0), high)
        return Bounds(lower, upper)


def _fresh(net: Reduced, domains: DomainBatch) -> Tensor:
    """The signs of the splits that made each domain, int8 [domains, n]."""
    signs = torch.zeros(len(domains), domains.signs.shape[1] + 1, dtype=torch.int8, device=domains.signs.device)
    at = torch.where(domains.last_split < 0, domains.signs.shape[1], domains.last_split)
    taken = domains.signs.gather(1, domains.last_split.clamp(min=0)) if domains.signs.shape[1] else at.to(torch.int8)
    return signs.scatter(1, at, taken)[:, net.neurons]
