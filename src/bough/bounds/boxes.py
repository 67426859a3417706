"""Linear bounds for parts of the input box: boxes enter, halved again and again, and every layer is bounded anew.

For problems with a handful of inputs, where halving an input decides more ReLUs than any split of one ReLU does. There
is no ascent and no solver: intervals, then CROWN for every ReLU that is still ambiguous in its own box, layer after
layer, then the rows of the clause. A domain's choices are its ReLUs, then its inputs: choice `neurons + k` halves
input k.

Everything is float64, and proved: the walk is that of `linear.bound_functionals` for CROWN's slopes, with an error
bound that is known before. All slopes are between 0 and 1, so the coefficients met on the way back are at most those of
the network of absolute weights, and what every node's rounding adds is at most `rounding` times that network's value at
the start (`_BoxState.size`): no pass over memory is spent on it, where the general walk spends most of its time.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor

from bough.bounds.base import (
    AbstractBounder,
    AbstractEstimates,
    AbstractEvidence,
    AbstractInputParts,
    AbstractSession,
    Bounded,
    BounderEntry,
    BounderSettings,
    Capabilities,
    Capability,
)
from bough.bounds.inputs import proved_range
from bough.bounds.intermediate import TightBounds
from bough.bounds.interval import UNDERFLOW, enclose
from bough.bounds.linear import Region
from bough.bounds.lp import PlanetLP
from bough.bounds.relaxation import chord
from bough.bounds.witness import AbstractWitness
from bough.budget import Deadline
from bough.domain import batch
from bough.domain.batch import Bounds, DomainBatch, InputParts
from bough.errors import SolverFailure
from bough.network import walk
from bough.network.graph import Network
from bough.problem.problem import Problem
from bough.problem.property import Ball, Box, stable_norm

_log = logging.getLogger(__name__)
ELEMENTS = 1 << 18  # of the functionals held at once: 2 MiB, which stays in a cache
LP_DOMAINS, LINEAR_DOMAINS = 8, 64  # domains split per step: an LP is dear, linear bounds are batched


class LayerSlopes(NamedTuple):
    """How functionals pass a layer of ReLUs, [domains, 1, n]: slopes by the coefficient's sign, and what is lost."""

    positive: Tensor
    negative: Tensor
    loss: Tensor  # [domains, n, 1]

    @staticmethod
    def of(bounds: Bounds, part: slice) -> "LayerSlopes":
        """CROWN's lines: the chord from above; from below slope 0 or 1, whichever cuts off less."""
        lower, upper = bounds.lower[:, part], bounds.upper[:, part]
        slope = chord(lower, upper)
        below = torch.where((lower < 0) & (upper > 0), (upper > -lower).to(slope.dtype), slope)
        return LayerSlopes(below[:, None], slope[:, None], (slope * lower.clamp(max=0))[..., None].neg())

    def variants(self) -> Iterator["LayerSlopes"]:
        """The same with other lines from below: as it is, parallel to the chord, flat, and the identity."""
        decided = (self.negative <= 0) | (self.negative >= 1)
        for below in (self.positive, self.negative, torch.zeros_like(self.negative), torch.ones_like(self.negative)):
            yield self._replace(positive=torch.where(decided, self.negative, below))


@dataclass(frozen=True, eq=False)
class _BoxState:
    """One box of the property: what is known over all of it, and per node the size of its sums by absolute weights."""

    root: Region
    size: list[Tensor]

    @staticmethod
    def of(network: Network, box: Box, deadline: Deadline) -> "_BoxState":
        root = TightBounds().at_root(network, box, deadline)
        far = torch.maximum(root.lower.abs(), root.upper.abs()).reshape(1, *network.input_shape)
        size = [value.reshape(-1) for value in walk.forward(network.magnitude, far)]
        return _BoxState(root, size)


@final
@dataclass(frozen=True)
class LinearBounds(AbstractBounder):
    """CROWN bounds of every layer, over boxes that may be halved."""

    offers: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.ESTIMATES, Capability.INPUT_PARTS, Capability.EVIDENCE}
    )

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "LinearSession":
        """Start on a problem; whoever reads a certificate derives all these bounds, so a witness is told nothing."""
        del witness
        return LinearSession(problem)


@final
class LinearSession(AbstractSession, AbstractEstimates, AbstractInputParts, AbstractEvidence):
    """Linear bounds at work on one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._network = problem.network
        self._places: list[_BoxState] = []
        most = max(len(clause.offsets) for clause in problem.clauses)
        # Numbers of rows, the last one again and again for clauses that have fewer than others.
        rows = [torch.arange(most).clamp(max=len(clause.offsets) - 1) for clause in problem.clauses]
        self._rows = torch.stack([c.coefficients[k] for c, k in zip(problem.clauses, rows, strict=True)])
        self._offsets = torch.stack([c.offsets[k] for c, k in zip(problem.clauses, rows, strict=True)])
        self._boxes = torch.tensor([clause.box for clause in problem.clauses])
        # Each row by itself, and all of them together: a box is done when some combination is positive all over it.
        together = torch.full((1, most), 1 / most, dtype=torch.float64)
        self._weights = torch.cat([torch.eye(most, dtype=torch.float64), together])[: most + (most > 1)]

    @property
    def capabilities(self) -> Capabilities:
        """Halved inputs, bounds of children by themselves, and proofs that anybody can derive again."""
        return Capabilities(estimates=self, input_parts=self, evidence=self)

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """The whole box of every clause."""
        self._places = [_BoxState.of(self._network, box, deadline) for box in self._problem.property.boxes]
        clauses = []
        for number, clause in enumerate(self._problem.clauses):
            root = self._places[clause.box].root
            parts = InputParts(root.lower, root.upper, torch.zeros_like(root.lower))
            functional = clause.coefficients.new_zeros(self._network.outputs)
            clauses.append(DomainBatch.root(number, root.bounds, functional, parts))
        return self.bound(DomainBatch.concatenate(clauses), cutoff, deadline)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Every layer again, in pieces that fit the caches."""
        del cutoff
        parts = [(rows, self._bound(domains[rows], deadline)) for rows in self._pieces(domains)]
        order = torch.cat([rows for rows, _ in parts]).argsort()
        joined = Bounded.concatenate([bounded for _, bounded in parts])
        return Bounded(joined.domains[order], joined.points[order])

    def estimate(self, domains: DomainBatch, choices: Tensor, deadline: Deadline) -> Tensor:
        """Bounds of the children by themselves: CROWN's need not be above the parent's, and where they are hidden by
        it, choices that help look like those that do not.
        """
        many = domains[torch.arange(len(domains), device=choices.device).repeat_interleave(choices.shape[1])]
        many = replace(many, lower=torch.full_like(many.lower, -torch.inf))
        bounded = self.bound(self.split(many, choices.reshape(-1)), torch.inf, deadline)
        return bounded.domains.lower.reshape(*choices.shape, 2)

    def parts(self, domains: DomainBatch) -> InputParts:
        """The boxes that the domains carry."""
        return domains.carried(InputParts)

    def stored(self, domains: DomainBatch) -> None:
        """Nothing has to be kept: boxes and signs say enough, and the reader's own arithmetic decides."""
        del domains

    def splittable(self, domains: DomainBatch) -> Tensor:
        """Ambiguous ReLUs, and while the bound may still move, inputs that have a number between their ends.

        Where the box decides all ReLUs the network is one linear function, and halving would tell nothing new about
        one row; of several, another may be the positive one in each half. A ReLU that was split is decided too, but
        the bound does not know yet where in the box.
        """
        ambiguous = domains.bounds.ambiguous()
        cut = domains.carried(InputParts)
        middle = cut.lower / 2 + cut.upper / 2
        open_still = ambiguous.any(dim=1, keepdim=True) | (domains.signs != 0).any(dim=1, keepdim=True)
        balls = torch.tensor([box.ball is not None for box in self._problem.property.boxes])
        open_still = open_still | (self._rows.shape[1] > 1) | balls[self._boxes[domains.clause]][:, None]
        return torch.cat([ambiguous, (middle > cut.lower) & (middle < cut.upper) & open_still], dim=1)

    def split(self, domains: DomainBatch, choices: Tensor) -> DomainBatch:
        """Both halves of an input, or both signs of a ReLU."""
        neurons = self._network.neurons
        chosen = choices.reshape(-1)
        halved = chosen >= neurons
        twice = torch.arange(len(domains), device=chosen.device).repeat_interleave(2)
        parents = domains[twice]
        children = replace(parents, depth=parents.depth + 1)
        if neurons:
            children = batch.split(domains, torch.where(halved, 0, chosen))
        halved = halved[twice, None]
        cut = parents.carried(InputParts)
        one = torch.zeros_like(cut.lower, dtype=torch.bool)
        one = one.scatter(1, (chosen[twice, None] - neurons).clamp(min=0), value=True) & halved
        second = (torch.arange(len(twice), device=chosen.device) % 2 == 1)[:, None]
        middle = cut.lower / 2 + cut.upper / 2
        bounds = Bounds(
            torch.where(halved, parents.bounds.lower, children.bounds.lower),
            torch.where(halved, parents.bounds.upper, children.bounds.upper),
        )
        parts = InputParts(
            torch.where(one & second, middle, cut.lower), torch.where(one & ~second, middle, cut.upper), cut.slope
        )
        return replace(children, signs=torch.where(halved, parents.signs, children.signs), bounds=bounds, start=parts)

    def _pieces(self, domains: DomainBatch) -> Iterator[Tensor]:
        """Domains of one box each, few enough at a time; like beside like, so that one does not pay for another."""
        widest = max(self._network.nodes[i].size for i in self._network.relus) if self._network.relus else 1
        count = domains.bounds.ambiguous().sum(dim=1)
        for box in self._boxes[domains.clause].unique():
            members = (self._boxes[domains.clause] == box).nonzero()[:, 0]
            members = members[count[members].argsort(stable=True)]
            yield from members.split(max(1, ELEMENTS // widest**2))

    def _bound(self, domains: DomainBatch, deadline: Deadline) -> Bounded:
        network = self._network
        cut = domains.carried(InputParts)
        place = self._places[int(self._boxes[domains.clause[0]])]
        bounds = enclose(network, cut.lower, cut.upper, domains.bounds).relu_inputs(network).intersect(domains.bounds)
        layers: dict[int, LayerSlopes] = {}
        for i in network.relus:
            deadline.check()
            bounds = _renewed(network, place, cut, bounds, layers, i, domains.signs[:, network.slices[i]] != 0)
            layers[i] = LayerSlopes.of(bounds, network.slices[i])
        rows, offsets = self._rows[domains.clause], self._offsets[domains.clause]
        combined = self._weights @ rows
        # Rows are few, and which line is best from below differs from box to box.
        kinds = [
            dict(zip(layers, way, strict=True)) for way in zip(*(r.variants() for r in layers.values()), strict=True)
        ]
        tried = [_least(network, place, cut, way, len(network.nodes) - 1, combined) for way in kinds or [layers]]
        least, best = torch.stack([bound for bound, _ in tried]).max(dim=0)
        inputs = torch.stack([g for _, g in tried]).gather(0, best[None, ..., None].expand(1, *tried[0][1].shape))[0]
        constant = self._weights @ offsets[..., None]
        sizes = self._weights @ (rows.abs() @ place.size[-1] + offsets.abs())[..., None]
        # Combining rows rounds as well, by at most as much as a node whose sums are as long as there are rows.
        lower = least - constant[..., 0] - network.rounding * (2 + offsets.shape[1]) * sizes[..., 0]
        lower, best = lower.max(dim=1)
        each = torch.arange(len(domains))
        slope = inputs[each, best]
        bounded = replace(
            domains,
            bounds=bounds,
            lower=torch.where(
                bounds.empty() | _outside(place.root.ball, cut), torch.inf, torch.fmax(lower, domains.lower)
            ),
            functional=combined[each, best],
            start=replace(cut, slope=slope),
        )
        return Bounded(bounded, torch.where(slope > 0, cut.lower, cut.upper))


def _least(
    network: Network, place: _BoxState, cut: InputParts, layers: dict[int, LayerSlopes], start: int, f: Tensor
) -> tuple[Tensor, Tensor]:
    """Proved lower bounds [domains, rows] of functionals `f` [domains, rows, n] of a node, and their input parts."""
    domains, rows = f.shape[:2]
    total = f.new_zeros(domains, rows)

    def visit(i: int, functionals: Tensor) -> None:
        constant = network.nodes[i].op.bias_term(functionals)
        if constant is not None:
            total.add_(constant.reshape(domains, rows))

    def relu(i: int, functionals: Tensor) -> Tensor:
        nu = functionals.reshape(domains, rows, -1)
        way = layers[i]
        down = nu.clamp(max=0)
        total.add_((down @ way.loss)[..., 0])
        # Never in place: a sum hands one array to both of its inputs.
        return torch.addcmul(nu.clamp(min=0) * way.positive, down, way.negative).reshape(functionals.shape)

    seed = f.reshape(domains * rows, *network.nodes[start].shape)
    g = walk.backward(network, start, seed, relu, visit).reshape(domains, rows, -1)
    least = proved_range(g, cut.lower, cut.upper, place.root.ball, network.rounding).least
    # Each node rounds its products, its relaxation's, and its bias's; so does the input.
    error = network.rounding * 4 * (len(network.nodes) + 1) * (f.abs() @ place.size[start])
    value = total + least - error - place.root.underflow
    # Coefficients may overflow where values do not (tiny inputs): infinity is no bound, and no proof of emptiness.
    return torch.where(value.isfinite(), value, -torch.inf), g


def _outside(ball: Ball | None, cut: InputParts) -> Tensor:
    """Which boxes surely do not meet the ball: their nearest point to its centre is too far, rounding counted."""
    if ball is None:
        return torch.zeros(len(cut.lower), dtype=torch.bool)
    away = torch.maximum(cut.lower - ball.centre, ball.centre - cut.upper).clamp(min=0)
    slack = 2 * (len(ball.centre) + 8) * torch.finfo(torch.float64).eps
    return stable_norm(ball.scale * away, ball.p) * (1 - slack) - UNDERFLOW * len(ball.centre) > ball.radius


def _renewed(
    network: Network,
    place: _BoxState,
    cut: InputParts,
    bounds: Bounds,
    layers: dict[int, LayerSlopes],
    relu: int,
    split: Tensor,
) -> Bounds:
    """The bounds with those of one layer's ambiguous ReLUs renewed, and of those that were split, whose sign may be
    impossible in the box by now; each domain's own.
    """
    part = network.slices[relu]
    source = network.nodes[relu].inputs[0]
    due = bounds.ambiguous()[:, part] | split
    most = int(due.sum(dim=1).max())
    if not most:
        return bounds
    chosen = due.int().topk(most, dim=1).indices  # a domain that has fewer adds others, which stay as they are
    rows = cut.lower.new_zeros(*chosen.shape, network.nodes[source].size).scatter(2, chosen[..., None], 1.0)
    low, minus_high = _least(network, place, cut, layers, source, torch.cat([rows, -rows], dim=1))[0].chunk(2, dim=1)
    low, high = (side.where(due.gather(1, chosen), torch.nan) for side in (low, -minus_high))
    at, (lower, upper) = chosen + part.start, (bounds.lower, bounds.upper)
    return Bounds(
        lower.scatter(1, at, torch.fmax(lower.gather(1, at), low)),
        upper.scatter(1, at, torch.fmin(upper.gather(1, at), high)),
    )


@final
@dataclass(frozen=True)
class HalvedLP(AbstractBounder):
    """Linear bounds, and the Planet LP where these leave a domain open; its input multipliers are the shadow prices of
    the box's sides (Royo et al. 2019).
    """

    offers: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.ESTIMATES, Capability.INPUT_PARTS, Capability.SHADOW_PRICES}
    )

    def prepare(self, problem: Problem, witness: AbstractWitness | None = None) -> "HalvedLPSession":
        """Start on a problem; what LPs prove of halved inputs cannot be written down."""
        del witness
        return HalvedLPSession(problem)


@final
class HalvedLPSession(AbstractSession):
    """Linear bounds of every layer first, then one LP a domain."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._linear, self._lp = LinearBounds().prepare(problem), PlanetLP().prepare(problem)

    @property
    def capabilities(self) -> Capabilities:
        """Halved inputs, and estimates that do without the LP."""
        return Capabilities(estimates=self._linear, input_parts=self._linear)

    def root(self, cutoff: float, deadline: Deadline) -> Bounded:
        """The whole box of every clause."""
        return self._sharpened(self._linear.root(cutoff, deadline), cutoff, deadline)

    def bound(self, domains: DomainBatch, cutoff: float, deadline: Deadline) -> Bounded:
        """Every layer again, then the LP."""
        return self._sharpened(self._linear.bound(domains, cutoff, deadline), cutoff, deadline)

    def splittable(self, domains: DomainBatch) -> Tensor:
        """The choices that linear bounds have."""
        return self._linear.splittable(domains)

    def split(self, domains: DomainBatch, choices: Tensor) -> DomainBatch:
        """Both halves of an input, or both signs of a ReLU."""
        return self._linear.split(domains, choices)

    def _sharpened(self, bounded: Bounded, cutoff: float, deadline: Deadline) -> Bounded:
        domains = bounded.domains
        points = bounded.points.clone()
        cut = domains.carried(InputParts)
        lower = domains.lower.clone()
        slope = cut.slope.clone()
        for d in (~(lower > cutoff)).nonzero()[:, 0].tolist():
            deadline.check()
            one = slice(d, d + 1)
            clause = self._problem.clauses[int(domains.clause[d])]
            sides = cut.lower[one], cut.upper[one]
            try:
                proved, points[d] = self._lp.over_part(clause, sides, domains.bounds[one], cutoff, deadline)
            except SolverFailure as failure:
                _log.info("a domain keeps its linear bound: %s", failure)
                continue
            lower[d] = torch.fmax(lower[d], proved.lower[0, 0])
            slope[d] = proved.inputs[0, 0]
        return Bounded(replace(domains, lower=lower, start=replace(cut, slope=slope)), points)


def _lp(settings: BounderSettings) -> AbstractBounder:
    return HalvedLP() if settings.halves else PlanetLP(settings.relu_bounds)


# The first that offers what a rule needs is what `auto` chooses.
BOUNDERS = (
    BounderEntry(
        name="linear",
        words="linear bounds over halved inputs, for a handful of inputs",
        make=lambda settings: LinearBounds(),
        offers=frozenset(),  # it is of no use to rules that split ReLUs only
        halved=LinearBounds.offers,
        usual_rule="babsb",
        usual_relu_bounds="tight",
        certified_relu_bounds="tight",
        batch=lambda network, device: LINEAR_DOMAINS,
    ),
    BounderEntry(
        name="lp",
        words="the Planet LP by HiGHS, exact and slow",
        make=_lp,
        offers=PlanetLP.offers,
        halved=HalvedLP.offers,
        usual_rule="babsr",
        usual_relu_bounds="tight",
        certified_relu_bounds="fixed",  # renewed bounds would need a proof in every leaf
        batch=lambda network, device: LP_DOMAINS,
    ),
)
